//! Everything below a folder, one entry at a time, without ever going through a symlink.

use std::path::{Path, PathBuf};

use super::{Dir, Kind, Links};

/// Folders of tools' own records: large, and never what is looked for.
const PASSED_OVER: [&str; 3] = [".git", ".posse", "node_modules"];

/// Entries below a folder in the order of their paths, a folder before what is in it. Each folder
/// is opened anew from the base by its whole path, so the depth of a tree costs no handles.
pub struct Walk<'a> {
    base: &'a Dir,
    recursive: bool,
    /// What is still to come, the next one last.
    ahead: Vec<(PathBuf, Kind)>,
    /// Folders that were listed but not entered because of their name.
    pub passed_over: Vec<PathBuf>,
    /// Folders that could not be opened.
    pub unreadable: usize,
}

impl<'a> Walk<'a> {
    /// A walk through the folder, and through the folders in it where `recursive`.
    pub fn new(base: &'a Dir, recursive: bool) -> Self {
        let mut walk = Walk { base, recursive, ahead: Vec::new(), passed_over: Vec::new(), unreadable: 0 };
        walk.enter(Path::new(""));
        walk
    }

    fn enter(&mut self, folder: &Path) {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match self.base.dir(here, Links::None).and_then(|dir| dir.entries()) {
            Ok(entries) => {
                let below = entries.into_iter().rev().map(|(name, kind)| (folder.join(name), kind));
                self.ahead.extend(below);
            }
            Err(_) => self.unreadable += 1,
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, Kind);

    fn next(&mut self) -> Option<Self::Item> {
        let (path, kind) = self.ahead.pop()?;
        if kind == Kind::Folder && self.recursive {
            let name = path.file_name().unwrap_or_default();
            if PASSED_OVER.iter().any(|passed| name == *passed) {
                self.passed_over.push(path.clone());
            } else {
                self.enter(&path);
            }
        }
        Some((path, kind))
    }
}
