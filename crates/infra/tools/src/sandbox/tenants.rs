//! Databases of others in a workspace, which lie where their people put them.
//!
//! A command must not see them, and they are found before it runs: those that are known, and those that a bounded look
//! through the workspace comes upon. File tools need neither, since they look at each file that they open.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use posse_host::lack::given;
use posse_host::recognise::is_database_at;
use rustix::io::Errno;

/// Entries of a workspace that are looked at before a command runs; the upper folders come first.
const MAX_LOOKED_AT: usize = 30_000;

/// The same of one folder, so that a large one leaves something for the others.
const MAX_OF_FOLDER: usize = 10_000;

/// Folders of tools' own records: large, and nobody's place for a database.
const PASSED_OVER: [&str; 2] = [".git", "node_modules"];

/// Databases of Posse in `workspace`: those of `known` that are there, and what a look finds. Of each entry of the
/// workspace's top folder one is enough, since all of the entry is hidden with it.
pub(super) fn databases_in(workspace: &Path, known: &[PathBuf]) -> Result<Vec<PathBuf>, Errno> {
    let mut found = Vec::new();
    for path in known.iter().filter_map(|path| path.canonicalize().ok()) {
        if path.starts_with(workspace) && is_database_at(&path)? {
            found.push(path);
        }
    }
    let mut hidden: Vec<_> = found.iter().filter_map(|database| top_of(database, workspace)).collect();
    let mut ahead = VecDeque::from([workspace.to_owned()]);
    let mut left = MAX_LOOKED_AT;
    while let Some(folder) = ahead.pop_front() {
        let top = top_of(&folder.join("any"), workspace);
        if top.as_ref().is_some_and(|top| hidden.contains(top)) {
            continue;
        }
        let read = fs::read_dir(&folder).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let entries = given(read)?.into_iter().flatten().flatten().take(MAX_OF_FOLDER.min(left));
        for entry in entries {
            left -= 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !is_passed_over(&entry) => ahead.push_back(entry.path()),
                Ok(kind) if kind.is_file() && may_be_database(&entry) && is_database_at(&entry.path())? => {
                    found.push(entry.path());
                    hidden.extend(top.clone());
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// The entry of the workspace's top folder that has this path somewhere below it; none for the top folder's own.
fn top_of(path: &Path, workspace: &Path) -> Option<PathBuf> {
    let mut parts = path.strip_prefix(workspace).ok()?.components();
    let first = parts.next()?;
    parts.next().map(|_| PathBuf::from(first.as_os_str()))
}

fn is_passed_over(entry: &DirEntry) -> bool {
    PASSED_OVER.iter().any(|name| entry.file_name() == OsStr::new(name))
}

/// A database is whole pages, so most files need not be opened to see that they are none.
fn may_be_database(entry: &DirEntry) -> bool {
    entry.metadata().is_ok_and(|meta| meta.len().is_multiple_of(512))
}
