//! Everything below a folder, one entry at a time, without ever going through a symlink.

use std::path::{Path, PathBuf};

use posse_host::lack::given;
use rustix::io::Errno;

use super::guard::Guard;
use super::{Dir, Kind, Links, MAX_ENTRIES};

/// Folders of tools' own records: large, and never what is looked for.
const PASSED_OVER: [&str; 3] = [".git", ".posse", "node_modules"];

/// How many entries may be waiting for their turn; folders are not entered while there are more.
const MAX_AHEAD: usize = 2 * MAX_ENTRIES;

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
    /// Folders with more entries than are looked at.
    pub cut: Vec<PathBuf>,
    /// What this process lacked to go on: the walk is over before its end.
    pub lacked: Option<Errno>,
    /// What is not to be found, and where the base really is.
    guard: Option<(&'a Guard, PathBuf)>,
}

impl<'a> Walk<'a> {
    /// A walk through the folder, and through the folders in it where `recursive`.
    pub fn new(base: &'a Dir, recursive: bool) -> Self {
        Walk::without(None, base, recursive)
    }

    /// The same, without what is not for tools.
    pub(super) fn without(guard: Option<&'a Guard>, base: &'a Dir, recursive: bool) -> Self {
        // Of a folder that is gone there is nothing to be found either.
        let guard = guard.map(|guard| (guard, base.real_path().unwrap_or_default()));
        let (ahead, passed_over, cut) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Walk { base, recursive, ahead, passed_over, unreadable: 0, cut, lacked: None, guard };
        walk.enter(Path::new(""));
        walk
    }

    fn is_hidden(&mut self, path: &Path) -> bool {
        let Some((guard, real)) = &self.guard else { return false };
        guard.hides_entry(&real.join(path)).unwrap_or_else(|errno| {
            self.lacked = Some(errno);
            true
        })
    }

    fn enter(&mut self, folder: &Path) {
        if self.ahead.len() > MAX_AHEAD {
            self.cut.push(folder.to_owned());
            return;
        }
        match given(self.base.dir(folder, Links::None).and_then(|dir| dir.entries())) {
            Ok(Some(entries)) => {
                if entries.len() == MAX_ENTRIES {
                    self.cut.push(folder.to_owned());
                }
                let below = entries.into_iter().rev().map(|(name, kind)| (folder.join(name), kind));
                self.ahead.extend(below);
            }
            Ok(None) => self.unreadable += 1,
            Err(errno) => self.lacked = Some(errno),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, Kind);

    fn next(&mut self) -> Option<Self::Item> {
        let (path, kind) = loop {
            let (path, kind) = self.ahead.pop().filter(|_| self.lacked.is_none())?;
            if kind == Kind::Folder || !self.is_hidden(&path) {
                break (path, kind);
            }
        };
        if kind == Kind::Folder && self.recursive {
            let name = path.file_name().unwrap_or_default();
            if PASSED_OVER.iter().any(|passed| name == *passed) || self.is_hidden(&path) {
                self.passed_over.push(path.clone());
            } else {
                self.enter(&path);
            }
        }
        self.lacked.is_none().then_some((path, kind))
    }
}
