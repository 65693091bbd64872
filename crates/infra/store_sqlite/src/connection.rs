//! Opening connections: how a file is addressed, and the settings every connection gets.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::{Connection, ConnectionError, SqliteConnection};
use posse_core::port::Result;
use posse_core::store::{DbError, Outcome};

use super::fault::{Kind, describe, describe_text, kind_of_text};
use super::paths::beside;
use super::{Synchronous, extension};

/// How a connection is going to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads and writes.
    Write(Synchronous),
    /// Reads, beside a writer of this process or another. Allowed to tidy up: the last connection
    /// to close takes the log into the file, and one that may not would leave it lying there.
    Read,
    /// Reads and changes nothing, for processes that may only read.
    Look,
    /// Reads a file that nobody is writing: the file alone is the whole database, and SQLite needs
    /// none of those it otherwise puts beside it.
    Frozen,
}

/// Opens the file at `path`. Fails with words for a person.
pub(super) fn open(path: &Path, access: Access) -> Result<SqliteConnection> {
    posse_host::recognise::note_opened(path);
    extension::register();
    let parameters = match access {
        Access::Write(_) | Access::Read => "mode=rw",
        Access::Look => "mode=ro",
        Access::Frozen => "mode=ro&immutable=1",
    };
    let url = format!("file:{}?{parameters}", percent_encoded(path));
    let mut connection = SqliteConnection::establish(&url).map_err(|error| match error {
        ConnectionError::BadConnection(text) => describe_text(kind_of_text(&text), &text, path),
        other => describe_text(Kind::Statement, &other.to_string(), path),
    })?;
    connection.batch_execute(&settings(access)).map_err(|error| describe(&error, path))?;
    Ok(connection)
}

fn settings(access: Access) -> String {
    let own = match access {
        // SQLite's own waiting for others is for the start; then the writer waits in smaller steps.
        // A commit that split a page walks the whole cache, so that is kept small.
        Access::Write(synchronous) => format!(
            "PRAGMA busy_timeout = 30000; PRAGMA synchronous = {}; PRAGMA cache_size = -8192;
             PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 8000;",
            synchronous.as_str()
        ),
        Access::Read | Access::Look | Access::Frozen => {
            "PRAGMA busy_timeout = 5000; PRAGMA query_only = 1; PRAGMA cache_size = -8192;
             PRAGMA mmap_size = 268435456;"
                .to_owned()
        }
    };
    format!("PRAGMA foreign_keys = 1; PRAGMA temp_store = memory; {own}")
}

/// Runs `work` in a transaction, or in a savepoint where there is one; a fault undoes all of it.
pub(super) fn transaction<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&mut SqliteConnection) -> Outcome<T>,
) -> Outcome<T> {
    let mut fault = None;
    let done = connection.transaction(|connection| {
        work(connection).map_err(|met| {
            fault = Some(met);
            diesel::result::Error::RollbackTransaction
        })
    });
    done.map_err(|error| fault.unwrap_or_else(|| DbError::from(error).into()))
}

/// A path as part of a `file:` address: any byte is a legal part of a file's name.
fn percent_encoded(path: &Path) -> String {
    let mut out = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// How to look at the file without leaving a trace.
pub(super) fn traceless(path: &Path) -> Access {
    if beside(path, "-wal").exists() { Access::Look } else { Access::Frozen }
}
