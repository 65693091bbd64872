//! Which folders a person trusts: what a project's files say is done only there.
//!
//! Settings name programs' endpoints, personas and skills decide what agents may do, a library is run. Whoever can write
//! such files decides all of that, and agents write files. So trust is kept outside of every project, in the person's
//! own folder for state, by path and identity; and a folder in which agents of another project work never gets it.
//! What agents may not change of a trusted folder is in `wire::protected`.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use posse_app::Code;
use posse_core::workspace::folder::FolderId;
use posse_infra::folder::identify;
use serde::{Deserialize, Serialize};

use crate::env::Env;
use crate::exit::{fail, usage};
use crate::settings::file;

/// What in a folder decides about agents, or is run.
pub const DECIDING: [&str; 4] = ["config", ".posse", ".agents", "sqlite_extensions"];

/// Most workspaces, and most databases, that are remembered; the oldest are forgotten first.
const MAX_REMEMBERED: usize = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The database in `.posse`, which Posse made there; nothing else.
    Database,
    Project,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    pub folder: PathBuf,
    pub id: FolderId,
    pub extent: Extent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Worked {
    workspace: PathBuf,
    project: PathBuf,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    folders: Vec<Trusted>,
    #[serde(default)]
    workspaces: Vec<Worked>,
    #[serde(default)]
    databases: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// None where there is no folder for state.
    pub file: Option<PathBuf>,
    kept: Kept,
    pub named: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the folder {} is not trusted: {why}. It has {}, so nothing of it is used. {}", folder.display(), found.join(", "), self.way_out())]
pub struct Untrusted {
    pub folder: PathBuf,
    pub found: Vec<String>,
    pub why: Distrust,
}

impl Untrusted {
    fn way_out(&self) -> String {
        let folder = self.folder.display();
        match self.why {
            Distrust::Workspace { .. } => {
                "Move it to where no agent works, or name the settings that you mean (--config)".into()
            }
            _ => format!("If you know who wrote that: posse trust {folder} (or POSSE_TRUST={folder} for one time)"),
        }
    }
}

pub fn found_in(folder: &Path) -> Vec<String> {
    let finer = ["config/posse.toml", "config/personas", "config/skills", "config/tools", "config/hooks"];
    let named = finer.iter().chain(&DECIDING[1..]).filter(|name| folder.join(name).symlink_metadata().is_ok());
    named.map(|name| (*name).to_owned()).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error("nobody has said that it is trusted")]
    Unsaid,
    /// It was trusted, and is not what it was.
    #[error("another folder was there when it was trusted")]
    Exchanged,
    #[error("it lies in {workspace}, where agents of the project {project} work and could have written it", workspace = .workspace.display(), project = .project.display())]
    Workspace { workspace: PathBuf, project: PathBuf },
}

impl Trust {
    /// What is trusted, from the person's folder for state (`XDG_STATE_HOME`, else `~/.local/state`) and from
    /// `POSSE_TRUST`, folders with colons between them.
    pub fn load(env: Env<'_>) -> Result<Trust> {
        let path = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")));
        let file = state.map(|state| state.join("posse/trust.json"));
        let named = env("POSSE_TRUST").unwrap_or_default();
        let named: Vec<_> = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        if let Some(path) = named.iter().find(|path| !path.is_absolute()) {
            let shown = path.display();
            return Err(usage(format!("POSSE_TRUST names '{shown}', which is no absolute path; write all of it")));
        }
        let named = named.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        let kept = file.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Trust { file, kept, named })
    }

    pub fn folders(&self) -> &[Trusted] {
        &self.kept.folders
    }

    /// Where agents of any project have worked.
    pub fn workspaces(&self) -> impl Iterator<Item = &Path> {
        self.kept.workspaces.iter().map(|worked| worked.workspace.as_path())
    }

    /// Databases that the person has used, in any project.
    pub fn databases(&self) -> &[PathBuf] {
        &self.kept.databases
    }

    /// How much of a folder is trusted, or why nothing.
    pub fn of(&self, folder: &Path) -> Result<Extent, Distrust> {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.into());
        if self.named.contains(&real) {
            return Ok(Extent::Project);
        }
        match self.kept.folders.iter().find(|trusted| trusted.folder == real) {
            None => Err(self.why_never(&real).unwrap_or(Distrust::Unsaid)),
            Some(trusted) => match identify(&real) {
                Ok(now) if trusted.id.is(&now) => Ok(trusted.extent),
                _ => Err(Distrust::Exchanged),
            },
        }
    }

    /// Whether all of a folder is trusted, or why not.
    pub fn of_project(&self, folder: &Path) -> Result<(), Distrust> {
        match self.of(folder)? {
            Extent::Project => Ok(()),
            Extent::Database => Err(Distrust::Unsaid),
        }
    }

    pub fn give(&mut self, folder: &Path, extent: Extent) -> Result<Trusted> {
        let shown = folder.display();
        let real = folder.canonicalize().map_err(|e| usage(format!("{shown} cannot be trusted: {e}")))?;
        if let Some(why) = self.why_never(&real) {
            return Err(fail(
                Code::Conflict,
                format!("{} cannot be trusted: {why}. Move it to where no agent works", real.display()),
            ));
        }
        let id = identify(&real).map_err(|e| usage(format!("{shown} cannot be trusted: {e}")))?;
        let trusted = Trusted { folder: real, id, extent };
        let added = trusted.clone();
        self.change(move |kept| {
            kept.folders.retain(|other| other.folder != added.folder);
            kept.folders.push(added);
            kept.folders.sort_by(|a, b| a.folder.cmp(&b.folder));
        })?;
        Ok(trusted)
    }

    /// Trusts a folder no more; false if it was not.
    pub fn revoke(&mut self, folder: &Path) -> Result<bool> {
        // It may be gone.
        let real = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let was = self.kept.folders.len();
        self.change(|kept| kept.folders.retain(|trusted| trusted.folder != real))?;
        Ok(self.kept.folders.len() < was)
    }

    pub fn note_workspace(&mut self, project: &Path, workspace: &Path) -> Result<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
        let worked = Worked { workspace: real(workspace), project: real(project) };
        if self.file.is_none() || self.kept.workspaces.contains(&worked) {
            return Ok(());
        }
        self.change(|kept| remember(&mut kept.workspaces, worked, |other| other.workspace.is_dir()))
    }

    /// Remembers where a database is: agents of other projects, and of other tenants of this one, keep away from it.
    pub fn note_database(&mut self, database: &Path) -> Result<()> {
        let real = database.canonicalize().unwrap_or_else(|_| database.into());
        if self.file.is_none() || self.kept.databases.contains(&real) {
            return Ok(());
        }
        self.change(|kept| remember(&mut kept.databases, real, |other| other.is_file()))
    }

    /// Why a folder, by its real path, cannot be trusted whoever says so: agents of another project work there.
    fn why_never(&self, real: &Path) -> Option<Distrust> {
        let roots = self.kept.folders.iter().map(|trusted| &trusted.folder).chain(&self.named);
        let by_settings = roots.map(|root| Worked { workspace: workspace_of(root), project: root.clone() });
        let worked = by_settings.chain(self.kept.workspaces.iter().cloned());
        let mut worked = worked.filter(|worked| worked.project != real && real.starts_with(&worked.workspace));
        worked.next().map(|Worked { workspace, project }| Distrust::Workspace { workspace, project })
    }

    fn change(&mut self, change: impl FnOnce(&mut Kept)) -> Result<()> {
        let Some(file) = &self.file else {
            let way_out = "set HOME or XDG_STATE_HOME, or name the folder in POSSE_TRUST";
            return Err(usage(format!("there is no place to keep what is trusted; {way_out}")));
        };
        let folder = file.parent().unwrap_or(Path::new("/"));
        let unwritten = |error: std::io::Error| {
            usage(format!(
                "what is trusted cannot be kept in {}: {error}; name the folder in POSSE_TRUST instead",
                file.display()
            ))
        };
        fs::create_dir_all(folder).map_err(unwritten)?;
        let private = || File::options().write(true).create(true).truncate(false).mode(0o600).to_owned();
        let lock = private().open(file.with_extension("lock")).map_err(unwritten)?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|e| unwritten(e.into()))?;
        let mut kept = read(file)?;
        change(&mut kept);
        let bytes = serde_json::to_vec_pretty(&kept).map_err(|error| unwritten(error.into()))?;
        let part = file.with_extension("part");
        let _ = fs::remove_file(&part);
        let mut fresh = private().create_new(true).open(&part).map_err(unwritten)?;
        fresh.write_all(&bytes).and_then(|()| fresh.sync_all()).map_err(unwritten)?;
        fs::rename(&part, file).map_err(unwritten)?;
        self.kept = kept;
        Ok(())
    }
}

/// Has `new` as the newest of what is remembered, as far as that is there still.
fn remember<T: PartialEq>(all: &mut Vec<T>, new: T, is_there: impl Fn(&T) -> bool) {
    all.retain(|other| *other != new && is_there(other));
    all.push(new);
    let over = all.len().saturating_sub(MAX_REMEMBERED);
    all.drain(..over);
}

/// Where agents of the project at `root` work that name no workspace.
fn workspace_of(root: &Path) -> PathBuf {
    let said = file::read(&root.join("config/posse.toml")).ok().and_then(|said| said.workspace);
    let workspace = root.join(said.as_deref().unwrap_or(Path::new(".")));
    workspace.canonicalize().unwrap_or_else(|_| root.into())
}

/// What is kept, from a file that nobody else can have written.
fn read(file: &Path) -> Result<Kept> {
    let shown = file.display();
    let wrong = |what: String| usage(format!("{shown}, which says what is trusted, {what}; mend or remove it"));
    let meta = match fs::symlink_metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Kept::default()),
        other => other.map_err(|error| wrong(format!("cannot be read: {error}")))?,
    };
    if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(wrong("is not a file that only you can write".into()));
    }
    let bytes = fs::read(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(format!("is damaged ({error})")))
}
