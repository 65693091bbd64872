//! Two checks of a database from outside: whether it can be written, and whether one that is gone was here.

use std::path::Path;

use diesel::connection::SimpleConnection;
use posse_core::port::Result;

use super::Synchronous;
use super::connection::{Access, open};
use super::fault::{Kind, describe, describe_text};
use super::notify::Notifier;
use super::paths::{beside, may_write};

/// Tries to write to the database at `path`, and takes it back. Waits two seconds for another writer.
pub fn try_write(path: &Path) -> Result<()> {
    if !may_write(path) {
        return Err(describe_text(Kind::ReadOnly, "it may only be read", path));
    }
    let mut connection = open(path, Access::Write(Synchronous::Normal))?;
    // More than the cache holds, so that it goes to the disk before it is taken back.
    let tried = connection.batch_execute(
        "PRAGMA busy_timeout = 2000; PRAGMA cache_size = 10; PRAGMA cache_spill = 10; BEGIN IMMEDIATE;
         INSERT INTO meta (key, value) VALUES ('written by the doctor', hex(zeroblob(500000)));
         UPDATE meta SET value = value || 'x' WHERE key = 'written by the doctor';",
    );
    let _ = connection.batch_execute("ROLLBACK");
    tried.map_err(|error| describe(&error, path))
}

/// What lies beside the place of a database that is not there, and tells that there was one, in words.
pub fn left_behind(path: &Path) -> Option<String> {
    let name = |suffix| beside(path, suffix).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if Notifier::read_only(path).has_listeners() {
        return Some(format!("a process still works on one that is gone ({} is listened to)", name(".wake")));
    }
    let log = beside(path, "-wal").metadata().is_ok_and(|data| data.len() > 0);
    log.then(|| format!("its log {} lies there without it", name("-wal")))
}
