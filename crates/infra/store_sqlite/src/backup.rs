//! Copies of a database that is in use, and looking a database through for damage.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use posse_core::port::{Backup, RepositoryError, Result};
use posse_core::store::Done;

use super::connection::{Access, open};
use super::fault::{describe, in_words};
use super::migrate::{self, Schema};
use super::paths::beside;

/// Most problems told of at once.
const PROBLEMS: usize = 20;

/// Copies the database at `from` to `to` as it is at one moment, while others work on; what they write
/// meanwhile is not in it. The copy is looked through for damage before it gets its name, so that
/// there is either a good one or none. Only its owner may read it. Fails if there is something at
/// `to` already.
pub(super) fn make(from: &Path, to: &Path) -> Result<Backup> {
    let refuse = |error: std::io::Error| not_made(to, &error);
    let to = &std::path::absolute(to).map_err(refuse)?;
    if to.symlink_metadata().is_ok() {
        return Err(RepositoryError::Unavailable(format!(
            "{} is there already and was left as it is; name another file for the backup",
            to.display()
        )));
    }
    let part = beside(to, ".part");
    // Left by a process that ended in the middle; nobody needs it.
    let _ = std::fs::remove_file(&part);
    // Made here, so that nobody else may read it at any moment.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).map_err(refuse)?;
    let made = fill(from, &part).and_then(|()| {
        let file = File::open(&part).map_err(refuse)?;
        file.sync_all().map_err(refuse)?;
        // Not over a file that came meanwhile.
        rustix::fs::renameat_with(rustix::fs::CWD, &part, rustix::fs::CWD, to, rustix::fs::RenameFlags::NOREPLACE)
            .map_err(|error| refuse(error.into()))?;
        if let Some(folder) = to.parent() {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(refuse)?;
        }
        Ok(Backup { path: to.to_owned(), bytes: file.metadata().map_err(refuse)?.len() })
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    made
}

/// Writes a copy of the database at `from` into the empty file at `part`.
pub(super) fn copy_into(from: &Path, access: Access, part: &Path) -> Result<()> {
    let mut source = open(from, access)?;
    // The setting would keep it from writing the copy too.
    source.batch_execute("PRAGMA query_only = 0").map_err(|error| describe(&error, from))?;
    let copied = diesel::sql_query("VACUUM INTO ?").bind::<Text, _>(part.to_string_lossy()).execute(&mut source);
    copied.map(drop).map_err(|error| describe(&error, part))
}

/// The same, and looks the copy through.
fn fill(from: &Path, part: &Path) -> Result<()> {
    copy_into(from, Access::Read, part)?;
    let mut copy = open(part, Access::Frozen)?;
    if migrate::inspect(&mut copy, part)? != Schema::Current {
        return Err(damaged(part, "its schema is not that of the original"));
    }
    match check(&mut copy, true).map_err(|error| in_words(error, part))?.first() {
        Some(problem) => Err(damaged(part, problem)),
        None => Ok(()),
    }
}

/// What is wrong with the file, in words; nothing where all is well. Reads the whole file, and with `full` also compares
/// each index with its table, which takes several times as long.
pub(super) fn check(connection: &mut SqliteConnection, full: bool) -> Done<Vec<String>> {
    let pragma = if full { "integrity_check" } else { "quick_check" };
    let lines = sql::<Text>(&format!("SELECT {pragma} FROM pragma_{pragma} LIMIT {PROBLEMS}"));
    let mut problems: Vec<String> = lines.load(connection)?;
    problems.retain(|said| said != "ok");
    let orphans = format!("SELECT \"table\", rowid, parent FROM pragma_foreign_key_check LIMIT {PROBLEMS}");
    let orphans: Vec<(String, Option<i64>, String)> =
        sql::<(Text, Nullable<BigInt>, Text)>(&orphans).load(connection)?;
    problems.extend(orphans.into_iter().map(|(child, number, parent)| {
        let number = number.map(|number| format!(" {number}")).unwrap_or_default();
        format!("row{number} of {child} belongs to a row of {parent} that is not there")
    }));
    problems.truncate(PROBLEMS);
    Ok(problems)
}

fn damaged(part: &Path, problem: &str) -> RepositoryError {
    let shown = part.display();
    RepositoryError::Unusable(format!(
        "the copy {shown} is damaged ({problem}) and was removed; look the original through (posse db check --full)"
    ))
}

fn not_made(to: &Path, error: &std::io::Error) -> RepositoryError {
    RepositoryError::Unavailable(format!(
        "the backup {} cannot be made: {error}; check the path, its rights and the space there",
        to.display()
    ))
}
