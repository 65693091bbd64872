//! What an error of SQLite is about, and what its caller is told.

use std::path::Path;

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use posse_core::doctor::RESTORE;
use posse_core::port::RepositoryError;
use posse_core::store::{DbError, Fault};

use super::{cause, in_use};

/// What a fault says to its caller, of the database at `path`.
pub(super) fn in_words(fault: impl Into<Fault>, path: &Path) -> RepositoryError {
    match fault.into() {
        Fault::Refused(error) => error,
        Fault::Db(error) => describe(&met(error), path),
    }
}

pub(super) fn met(error: DbError) -> DieselError {
    match error.into_inner().downcast() {
        Ok(met) => *met,
        Err(other) => DieselError::QueryBuilderError(other),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Busy,
    Full,
    /// It could not be read or written: the device, a quota, a limit.
    Io,
    Memory,
    /// The file or its folder may not be written.
    ReadOnly,
    /// The file is damaged or was never a database.
    Damaged,
    /// One statement broke a rule of the tables.
    Statement,
}

/// Sorts a database error. diesel hands on SQLite's text and not its code, so the fixed texts of
/// `sqlite3_errstr` are what there is to go by.
pub(super) fn kind(error: &DieselError) -> Kind {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::Unknown, info) => kind_of_text(info.message()),
        _ => Kind::Statement,
    }
}

pub(super) fn kind_of_text(text: &str) -> Kind {
    let has = |part: &str| text.contains(part);
    if has("is locked") || has("locking protocol") {
        Kind::Busy
    } else if has("is full") {
        Kind::Full
    } else if has("disk I/O error") {
        Kind::Io
    } else if has("out of memory") {
        Kind::Memory
    } else if has("readonly") || has("unable to open") {
        Kind::ReadOnly
    } else if has("not a database") || has("malformed") {
        Kind::Damaged
    } else {
        Kind::Statement
    }
}

/// The caller's error for a database error about the file at `path`.
pub(super) fn describe(error: &DieselError, path: &Path) -> RepositoryError {
    describe_text(kind(error), &error.to_string(), path)
}

/// The caller's error for SQLite's text of an error.
pub(super) fn describe_text(kind: Kind, text: &str, path: &Path) -> RepositoryError {
    let shown = path.display();
    match kind {
        Kind::Busy => {
            let who = in_use::writer(path).unwrap_or_else(|| "another process".into());
            RepositoryError::Unavailable(format!(
                "the database {shown} stays locked by {who}; end the process that holds it, then try again"
            ))
        }
        Kind::Full => RepositoryError::Unavailable(format!(
            "storage full: the database {shown} could not be written ({text}); nothing of this was saved; free some \
             space, work then goes on by itself"
        )),
        Kind::Memory => RepositoryError::Unavailable(format!(
            "there is not enough memory for the database {shown} ({text}); nothing of this was saved; lower --slots, or \
             give the process more"
        )),
        Kind::Io | Kind::ReadOnly => {
            let user = user();
            RepositoryError::Unavailable(match cause::find(path, &user) {
                Some(cause) => format!(
                    "the database {shown} cannot be written by {user}: {cause} ({text}). Nothing of this was saved"
                ),
                None if kind == Kind::Io => format!(
                    "the database {shown} could not be read or written ({text}); nothing of this was saved; look at the \
                     device and its file system, work goes on by itself once it can"
                ),
                None => format!(
                    "the database {shown} cannot be written by {user} ({text}); give that user the right to write the \
                     file and its folder, or run posse as the user who owns them"
                ),
            })
        }
        Kind::Damaged => RepositoryError::Unusable(format!(
            "{shown} is not a database or is damaged ({text}); {RESTORE}, or name another file"
        )),
        Kind::Statement => RepositoryError::Misused(format!("the database {shown} refused a change: {text}")),
    }
}

/// The user this process runs as, for messages.
fn user() -> String {
    let id = rustix::process::geteuid().as_raw();
    let names = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = names.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    match name {
        Some(name) => format!("user {name} (uid {id})"),
        None => format!("uid {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_sqlites_own_texts() {
        use libsqlite3_sys as ffi;
        let text = |code| {
            // SAFETY: `sqlite3_errstr` gives a static text for every number.
            unsafe { std::ffi::CStr::from_ptr(ffi::sqlite3_errstr(code)) }.to_string_lossy().into_owned()
        };
        for (code, want) in [
            (ffi::SQLITE_BUSY, Kind::Busy),
            (ffi::SQLITE_LOCKED, Kind::Busy),
            (ffi::SQLITE_PROTOCOL, Kind::Busy),
            (ffi::SQLITE_FULL, Kind::Full),
            (ffi::SQLITE_IOERR, Kind::Io),
            (ffi::SQLITE_NOMEM, Kind::Memory),
            (ffi::SQLITE_READONLY, Kind::ReadOnly),
            (ffi::SQLITE_CANTOPEN, Kind::ReadOnly),
            (ffi::SQLITE_NOTADB, Kind::Damaged),
            (ffi::SQLITE_CORRUPT, Kind::Damaged),
            (ffi::SQLITE_CONSTRAINT, Kind::Statement),
        ] {
            assert_eq!(kind_of_text(&text(code)), want, "{}", text(code));
        }
    }
}
