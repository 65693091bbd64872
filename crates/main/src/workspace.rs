//! Which folder is meant by a workspace that a person names, and that it is that one still when it is worked in.
//!
//! Agents write links, too: where one of them can, a link is not followed, or whoever names the folder would give away
//! what an agent chose. Elsewhere links are the person's own.

use std::path::{Path, PathBuf};

use posse_app::Error;
use posse_core::workspace::folder::FolderId;
use posse_infra::folder::{identify, places};

use crate::settings::Settings;
use crate::trust::DECIDING;

/// A folder that tools are confined to, as it is kept with a job.
pub fn accepted(settings: &Settings, folder: &Path) -> Result<(String, FolderId), Error> {
    let shown = folder.display();
    let real = real_path(settings, folder)?;
    let id = identify(&real).map_err(|e| Error::invalid(format!("workspace {shown} cannot be used: {e}")))?;
    if let Err(error) = settings.trust.clone().note_workspace(&settings.root, &real) {
        tracing::debug!("it is not remembered that agents work in {}: {error:#}", real.display());
    }
    let text = real.into_os_string().into_string();
    Ok((text.map_err(|_| Error::invalid(format!("workspace {shown} has a path that is not UTF-8; rename it")))?, id))
}

/// The real path of a workspace, if it may be one.
pub fn real_path(settings: &Settings, folder: &Path) -> Result<PathBuf, Error> {
    let shown = folder.display();
    let wrong = |why: String| Error::invalid(format!("workspace {shown} cannot be used: {why}"));
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let mut written: Vec<_> = settings.trust.workspaces().map(Path::to_owned).collect();
    written.extend([real(&settings.root), real(&settings.workspace)]);
    let cwd =
        std::env::current_dir().map_err(|e| Error::invalid(format!("the current folder cannot be found: {e}")))?;
    let path = resolved(&cwd.join(folder), &written).map_err(wrong)?;
    let meta = path.metadata().map_err(|e| wrong(format!("{e}; name a folder that exists")))?;
    if !meta.is_dir() {
        return Err(Error::invalid(format!("workspace {shown} is no folder; tools are confined to a folder")));
    }
    let own = DECIDING.iter().map(|name| real(&settings.root).join(name)).chain([real(&settings.personas)]);
    let state = settings.trust.file.as_deref().and_then(Path::parent).map(real);
    if let Some(own) = own.chain(state).find(|own| path.starts_with(own)) {
        return Err(wrong(format!("it lies in {}, which decides about agents; name another folder", own.display())));
    }
    Ok(path)
}

/// Where an absolute path leads by links that no agent can have made.
fn resolved(path: &Path, written: &[PathBuf]) -> Result<PathBuf, String> {
    let mut places = places(path);
    let real = places.pop().unwrap_or_default();
    for link in places {
        if let Some(workspace) = written.iter().find(|workspace| link.starts_with(workspace)) {
            return Err(format!(
                "{} is a symlink to {}, and agents can write in {}; name the folder itself",
                link.display(),
                link.read_link().unwrap_or_default().display(),
                workspace.display()
            ));
        }
    }
    Ok(real)
}
