//! What in a workspace is not for tools, by the real path of what was opened and by its identity.
//!
//! Commands of agents keep away from the same paths (`crate::sandbox`); the list is one.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use posse_core::workspace::protected::Protected;

use posse_host::lack::given;
use posse_host::recognise::{database_of, is_database};
use rustix::io::Errno;

/// The folder of Posse's database: other jobs' work, which no tool reads.
const PRIVATE: &str = ".posse";

/// How many entries of hidden folders are looked at for the identities of their files.
const MAX_ENTRIES: usize = 20_000;

pub(super) struct Guard {
    root: PathBuf,
    hidden: Vec<PathBuf>,
    fixed: Vec<PathBuf>,
    databases: Vec<PathBuf>,
    /// All of it, below the root and elsewhere.
    protected: Protected,
    /// Files that are hidden, by device and number: a hard link has another path.
    files: OnceLock<HashSet<(u64, u64)>>,
}

impl Guard {
    pub(super) fn new(root: PathBuf, protected: &Protected) -> Guard {
        // What lies elsewhere is out of reach, and need not be compared with all that is found.
        let matters = |path: &PathBuf| lies_in(path, &root) || lies_in(&root, path);
        let real = |paths: &[PathBuf]| paths.iter().map(|path| real(path)).filter(matters).collect::<Vec<_>>();
        let (fixed, databases) = (real(&protected.fixed), real(&protected.databases));
        let protected = protected.clone();
        // With a database go its log and its sessions, so it is the folder that is hidden, but for a workspace in it.
        let folders = databases.iter().filter_map(|path| path.parent()).filter(|folder| !root.starts_with(folder));
        let hidden = real(&protected.hidden).into_iter().chain(folders.map(Path::to_owned)).collect();
        Guard { root, hidden, fixed, databases, protected, files: OnceLock::new() }
    }

    /// Whether nothing at this real path is shown to anybody.
    pub(super) fn hides(&self, path: &Path) -> Result<bool, Errno> {
        let below = |part: &&Path| part.starts_with(&self.root) && *part != self.root;
        for part in path.ancestors().take_while(below) {
            if self.hides_entry(part)? {
                return Ok(true);
            }
        }
        Ok(self.is_hidden(path))
    }

    /// The same for an entry of a folder that is itself not hidden.
    pub(super) fn hides_entry(&self, path: &Path) -> Result<bool, Errno> {
        let is_private = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(PRIVATE));
        Ok(is_private || self.is_hidden(path) || database_of(path)?.is_some())
    }

    fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|hidden| lies_in(path, hidden))
            || self.databases.iter().any(|database| belongs_to(path, database))
    }

    /// Whether what was opened is hidden under another name, or another tenant's database.
    pub(super) fn hides_file(&self, file: &File, meta: &Metadata) -> Result<bool, Errno> {
        let is_database = is_database(file, meta);
        if is_database || meta.nlink() < 2 {
            return Ok(is_database);
        }
        if self.files.get().is_none() {
            let found = self.identities()?;
            let _ = self.files.set(found);
        }
        Ok(self.files.get().is_none_or(|files| files.contains(&(meta.dev(), meta.ino()))))
    }

    /// Whose a real path is, if tools may not write there: what git runs as whoever uses it next, what Posse keeps or
    /// loads, and what decides which tools an agent has.
    pub(super) fn owner(&self, path: &Path) -> Result<Option<&'static str>, Errno> {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        if has(below, ".git") {
            return Ok(Some("git"));
        }
        let deciding = has(below, ".agents")
            || has(below, "sqlite_extensions")
            || ["posse.toml", "personas", "skills"].iter().any(|name| has_pair(below, "config", name));
        let is_posses = deciding || self.hides(path)? || self.fixed.iter().any(|fixed| lies_in(path, fixed));
        Ok(is_posses.then_some("Posse"))
    }

    fn identities(&self) -> Result<HashSet<(u64, u64)>, Errno> {
        let mut found = HashSet::new();
        let Protected { hidden, databases, .. } = &self.protected;
        let mut ahead: Vec<PathBuf> = hidden.iter().map(|path| real(path)).collect();
        ahead.push(self.root.join(PRIVATE));
        for database in databases.iter().map(|database| real(database)) {
            let beside = database.parent().map(entries).transpose()?.unwrap_or_default();
            ahead.extend(beside.into_iter().filter(|path| belongs_to(path, &database)));
        }
        let mut looked = 0;
        while let Some(path) = ahead.pop() {
            looked += 1;
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_file() {
                found.insert((meta.dev(), meta.ino()));
            } else if meta.is_dir() && looked < MAX_ENTRIES {
                ahead.extend(entries(&path)?);
            }
        }
        Ok(found)
    }
}

/// What is in a folder, if it can be read; an error where this process lacks what it takes.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Errno> {
    let read = fs::read_dir(folder).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    Ok(given(read)?.into_iter().flatten().flatten().map(|entry| entry.path()).collect())
}

/// The real path; of what is not there, as far as there is one.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(below) if !below.as_os_str().is_empty() => real.join(below),
            _ => real,
        },
        None => path.into(),
    }
}

/// Whether a part of the path has this name, in any case: some file systems do not tell cases apart.
fn has(path: &Path, name: &str) -> bool {
    path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(name))
}

fn has_pair(path: &Path, one: &str, next: &str) -> bool {
    let parts: Vec<_> = path.components().map(Component::as_os_str).collect();
    parts.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(one) && pair[1].eq_ignore_ascii_case(next))
}

/// Whether a path is the other one or below it, in any case.
fn lies_in(path: &Path, other: &Path) -> bool {
    let mut parts = path.components();
    other.components().all(|wanted| parts.next().is_some_and(|part| is_same(part.as_os_str(), wanted.as_os_str())))
}

/// Whether a path is of a database or of what lies beside it under its name.
fn belongs_to(path: &Path, database: &Path) -> bool {
    let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else { return false };
    if !lies_in(path, folder) {
        return false;
    }
    let Some(first) = path.components().nth(folder.components().count()) else { return false };
    let (first, name) = (first.as_os_str().as_bytes(), name.as_bytes());
    let is_named = first.len() >= name.len() && first[..name.len()].eq_ignore_ascii_case(name);
    let beside = [&b"sessions"[..], b"runs"];
    let is_usual = name.eq_ignore_ascii_case(b"posse.db") && beside.iter().any(|one| first.eq_ignore_ascii_case(one));
    is_usual || (is_named && matches!(first.get(name.len()), None | Some(b'-' | b'.')))
}

fn is_same(one: &OsStr, other: &OsStr) -> bool {
    one.eq_ignore_ascii_case(other)
}
