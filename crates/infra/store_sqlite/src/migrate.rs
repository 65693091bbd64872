//! Bringing a file to this version's schema, or refusing it untouched.

use std::collections::BTreeSet;
use std::path::Path;

use diesel::migration::{Migration, MigrationSource, MigrationVersion};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::Sqlite;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use posse_core::port::{RepositoryError, Result, SchemaSteps};
use posse_core::store::{Done, Unreadable};

use super::connection::{open, traceless};
use super::fault::describe;
use super::restoring;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../../migrations/sqlite");

/// Whether the file can be used as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schema {
    /// It has every step.
    Current,
    /// It lacks some steps, or all of them.
    Older,
}

/// The schema of the database at `path`. Changes nothing; a newer one is an error.
pub(super) fn schema_of(path: &Path) -> Result<SchemaSteps> {
    restoring::finished(path)?;
    let mut connection = open(path, traceless(path))?;
    let is_current = inspect(&mut connection, path)? == Schema::Current;
    Ok(SchemaSteps { last: last_step(&mut connection, path)?, is_current })
}

/// Looks at the file's schema and changes nothing. A newer schema, and a database of another
/// program, are errors.
pub(super) fn inspect(connection: &mut SqliteConnection, path: &Path) -> Result<Schema> {
    let tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table'";
    let failed = |error| describe(&error, path);
    if count(connection, tables).map_err(failed)? == 0 {
        return Ok(Schema::Older);
    }
    if count(connection, &format!("{tables} AND name = '__diesel_schema_migrations'")).map_err(failed)? == 0 {
        return Err(RepositoryError::Unusable(format!(
            "{} is a database of another program and was left as it is; name another file",
            path.display()
        )));
    }
    let applied = applied(connection, path)?;
    let known = known(path)?;
    if let Some(newer) = applied.difference(&known).next() {
        return Err(RepositoryError::Unusable(format!(
            "the database {} was made by a newer posse (it has schema step {newer}, this one knows up to {}) and was \
             left as it is; install that version, or name another file",
            path.display(),
            known.last().map_or("none", String::as_str),
        )));
    }
    Ok(if applied == known { Schema::Current } else { Schema::Older })
}

/// Gives a new database in memory every step.
pub(super) fn in_memory(connection: &mut SqliteConnection) -> Done<()> {
    connection.run_pending_migrations(MIGRATIONS).map_err(|error| Unreadable(error.to_string()))?;
    Ok(())
}

/// Runs the missing steps. All of them, and the look at what is missing, are one transaction that
/// holds the write lock: of two processes one migrates and the other waits and finds it done, and
/// a process killed in the middle leaves what was there before.
pub(super) fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<()> {
    let failed = |error| describe(&error, path);
    let mut outcome = Ok(());
    let transaction = connection.immediate_transaction(|connection| {
        outcome = inspect(connection, path).and_then(|_| {
            connection.run_pending_migrations(MIGRATIONS).map(drop).map_err(|error| {
                RepositoryError::Unusable(format!(
                    "the database {} could not be brought to this version's schema and was left as it is: {error}",
                    path.display()
                ))
            })
        });
        if outcome.is_ok() { Ok(()) } else { Err(diesel::result::Error::RollbackTransaction) }
    });
    outcome?;
    transaction.map_err(failed)
}

/// The last step the file has, if it has any.
pub(super) fn last_step(connection: &mut SqliteConnection, path: &Path) -> Result<Option<String>> {
    let failed = |error| describe(&error, path);
    let tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table'";
    match count(connection, tables).map_err(failed)? {
        0 => Ok(None),
        _ => Ok(applied(connection, path)?.last().cloned()),
    }
}

fn applied(connection: &mut SqliteConnection, path: &Path) -> Result<BTreeSet<String>> {
    let versions: Vec<MigrationVersion<'static>> = connection.applied_migrations().map_err(|error| {
        RepositoryError::Unusable(format!("the schema of {} cannot be read: {error}", path.display()))
    })?;
    Ok(versions.iter().map(ToString::to_string).collect())
}

fn known(path: &Path) -> Result<BTreeSet<String>> {
    let migrations: Vec<Box<dyn Migration<Sqlite>>> = MIGRATIONS
        .migrations()
        .map_err(|error| RepositoryError::Unusable(format!("no schema for {}: {error}", path.display())))?;
    Ok(migrations.iter().map(|migration| migration.name().version().to_string()).collect())
}

fn count(connection: &mut SqliteConnection, sql: &str) -> QueryResult<i64> {
    diesel::dsl::sql::<BigInt>(sql).get_result(connection)
}
