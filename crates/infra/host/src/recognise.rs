//! Which files are databases of Posse, whatever they are called and whoever's they are.
//!
//! A database that this process has open is known by its identity alone and never opened here: when any handle of a file
//! is closed, the kernel takes off all locks that the process has on it, SQLite's too.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::lack::given;

const MAGIC: &[u8] = b"SQLite format 3\0";

/// How much of a file, or of its log, is searched for the text that tells what it holds.
const LOOKED_AT: usize = 512 * 1024;

/// Names of tables that no other program has.
const TABLES: [&[u8]; 3] = [b"CREATE TABLE job_data", b"CREATE TABLE memory_items", b"CREATE TABLE group_waits"];

/// What SQLite and Posse call files that belong to a database, behind its name.
const BESIDE: [&str; 6] = ["-wal", "-shm", "-journal", ".part", ".sessions", ".wake"];

static OPENED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

pub fn note_opened(path: &Path) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if !opened.iter().any(|known| known == path) {
        // Those of which nothing is left need not be known.
        opened.retain(|known| known.symlink_metadata().is_ok());
        opened.push(path.to_owned());
    }
}

/// Whether a file that was looked at without being opened is a database that this process has open, or its shared
/// memory: the files that SQLite has locks on.
pub fn is_open_here(meta: &Metadata) -> bool {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let is = |path: &Path| path.metadata().is_ok_and(|its| (its.dev(), its.ino()) == (meta.dev(), meta.ino()));
    opened.iter().any(|path| is(path) || is(&with(path, "-shm")))
}

pub fn is_database(file: &File, meta: &Metadata) -> bool {
    // A page has 512 bytes or more, and a file whole pages.
    if !meta.is_file() || meta.len() < 512 {
        return false;
    }
    let mut magic = [0; 16];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC && has_our_tables(file)
}

/// Whether there is a database of Posse at this path. A link there is not followed. An error where this process lacks
/// what it takes to look.
pub fn is_database_at(path: &Path) -> Result<bool, Errno> {
    if path.symlink_metadata().is_ok_and(|meta| meta.is_file() && is_open_here(&meta)) {
        return Ok(true);
    }
    let Some((file, meta)) = opened(path)? else { return Ok(false) };
    if is_database(&file, &meta) {
        return Ok(true);
    }
    // Until its log is written back to it, a new database has little of its own.
    let mut magic = [0; 16];
    let may_be = meta.len() == 0 || (file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC);
    Ok(may_be && opened(&with(path, "-wal"))?.is_some_and(|(log, _)| has_our_tables(&log)))
}

/// The database that a path belongs to by its name: `acme.db-wal`, `acme.db.sessions`, `sessions` beside `posse.db`.
/// An error where this process lacks what it takes to look.
pub fn database_of(path: &Path) -> Result<Option<PathBuf>, Errno> {
    let Some(name) = path.file_name().map(OsStr::as_bytes) else { return Ok(None) };
    let base = |suffix: &&str| {
        let (base, end) = name.split_at_checked(name.len().checked_sub(suffix.len())?)?;
        (!base.is_empty() && end.eq_ignore_ascii_case(suffix.as_bytes())).then_some(base)
    };
    let usual = name.eq_ignore_ascii_case(b"sessions").then_some(&b"posse.db"[..]);
    let bases = BESIDE.iter().filter_map(base).chain(usual);
    for base in bases.map(|base| path.with_file_name(OsStr::from_bytes(base))) {
        if is_database_at(&base)? {
            return Ok(Some(base));
        }
    }
    Ok(None)
}

fn opened(path: &Path) -> Result<Option<(File, Metadata)>, Errno> {
    // What is no file may do something when it is opened.
    if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
    let file = given(opened)?.map(File::from);
    Ok(file.and_then(|file| file.metadata().ok().filter(Metadata::is_file).map(|meta| (file, meta))))
}

fn has_our_tables(file: &File) -> bool {
    let mut bytes = vec![0; LOOKED_AT];
    let mut read = 0;
    while let Ok(more @ 1..) = file.read_at(&mut bytes[read..], read as u64) {
        read += more;
    }
    TABLES.iter().any(|table| memchr::memmem::find(&bytes[..read], table).is_some())
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}
