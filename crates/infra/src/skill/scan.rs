//! Finds skills below a folder: bounded, in a fixed order, and never out of the folder.

use std::path::{Path, PathBuf};

use posse_core::skill::Severity;
use rustix::io::Errno;

use posse_tools::workspace::{Dir, Kind, Links, Walk, shown_name};

/// How deep below a root a skill's folder may lie.
pub(super) const MAX_DEPTH: usize = 5;
/// How many folders below a root are looked into.
pub(super) const MAX_FOLDERS: usize = 2000;
/// How many other files of a skill its child is told of.
const MAX_FILES: usize = 50;
/// How many entries of a skill's folder are looked at for them.
const MAX_ENTRIES: usize = 1000;

/// The file of a skill, and the name that is taken where there is none of that.
const NAMES: [&str; 2] = ["SKILL.md", "skill.md"];

#[derive(Default)]
pub(super) struct Scan {
    /// The files of skills, relative to the root, in the order of their paths.
    pub files: Vec<PathBuf>,
    /// What was not looked into: where, why, and how much that matters.
    pub passed: Vec<(PathBuf, String, Severity)>,
}

/// The skill's file in a folder beneath the root, if the folder is a skill's.
pub(super) fn skill_file(root: &Dir, folder: &Path) -> Option<PathBuf> {
    let entries = root.dir(folder, Links::Beneath).and_then(|dir| dir.entries()).ok()?;
    NAMES.iter().find(|name| entries.iter().any(|(entry, _)| entry == *name)).map(|name| folder.join(name))
}

/// All skills below the root, which is none itself.
pub(super) fn scan(root: &Dir) -> Scan {
    let mut scan = Scan::default();
    // What is still to be looked into, the next one last.
    let mut ahead = vec![(PathBuf::new(), 0)];
    let mut folders = 0;
    while let Some((folder, depth)) = ahead.pop() {
        if folders > MAX_FOLDERS {
            let what = format!(
                "has more than {MAX_FOLDERS} folders; the rest was not looked into. Keep other things elsewhere"
            );
            scan.passed.push((PathBuf::new(), what, Severity::Warning));
            break;
        }
        folders += 1;
        if depth > 0
            && let Some(file) = skill_file(root, &folder)
        {
            scan.files.push(file);
            continue;
        }
        let entries = match root.dir(&folder, Links::Beneath).and_then(|dir| dir.entries()) {
            Ok(entries) => entries,
            Err(errno) => {
                scan.passed.push((folder, why_not(errno), Severity::Warning));
                continue;
            }
        };
        let mut below = Vec::new();
        for (name, kind) in entries {
            let path = folder.join(&name);
            let hidden = name.as_encoded_bytes().starts_with(b".") || name == "node_modules";
            if hidden || !matches!(kind, Kind::Folder | Kind::Symlink) {
                continue;
            }
            match root.metadata(&path, Links::Beneath) {
                Ok(meta) if meta.is_dir() => below.push((path, depth + 1)),
                Ok(_) => {}
                Err(errno) => scan.passed.push((path, why_not(errno), Severity::Warning)),
            }
        }
        if depth == MAX_DEPTH && !below.is_empty() {
            let what = format!("lies {MAX_DEPTH} folders deep; what is below it was not looked into");
            scan.passed.push((folder, what, Severity::Note));
        } else {
            ahead.extend(below.into_iter().rev());
        }
    }
    scan.files.sort();
    scan
}

/// Why something beneath a root is not opened.
pub(super) fn why_not(errno: Errno) -> String {
    match errno {
        Errno::XDEV => "leads out of the folder of skills, so it is not followed; copy what it leads to".into(),
        Errno::NOENT => "leads to nothing; remove it or mend where it leads".into(),
        Errno::LOOP => "leads in a circle, so it is not followed; remove it".into(),
        other => format!("cannot be opened: {other}"),
    }
}

/// The other files in a skill's folder, relative to it, sorted. Links and odd names are left out.
pub(super) fn other_files(root: &Dir, folder: &Path) -> Vec<String> {
    let Ok(dir) = root.dir(folder, Links::Beneath) else { return Vec::new() };
    let file = |(path, kind): (PathBuf, Kind)| {
        let hidden = path.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
        let own = NAMES.iter().any(|name| path.as_os_str() == *name);
        let name = path.to_str().filter(|name| shown_name(&path) == *name)?;
        (kind == Kind::File && !hidden && !own).then(|| name.to_owned())
    };
    Walk::new(&dir, true).take(MAX_ENTRIES).filter_map(file).take(MAX_FILES).collect()
}
