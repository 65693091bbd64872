//! Enqueueing in somebody else's transaction: a program that keeps tables of its own in Posse's file
//! commits its rows and the jobs about them together, or neither.

use std::path::Path;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::NewJob;
use posse_core::port::{Enqueued, RepositoryError};

use super::connection::beside;
use super::fault::{Fault, Outcome, describe};
use super::jobs::{self, Batch};
use super::wake::Bell;
use super::writer::Transaction;

/// Stores jobs, all or none, in the transaction that `connection` is in (in one of its own if it is
/// in none), and says what became of each, in the same order. The rules are those of
/// [`posse_core::port::JobRepository::enqueue`]; check what people ask for with
/// [`posse_core::usecase::enqueue::accept`] before.
///
/// - The file must have been opened by [`super::SqliteStore::open`] once, by this version.
/// - Begin with `immediate_transaction`: one that reads first and writes later fails if another
///   process writes in between. Set a `busy_timeout` on the connection, and keep the transaction
///   short: all workers wait for it to end.
/// - Make your own tables with plain SQL (`CREATE TABLE IF NOT EXISTS`). Migrations of your own need a
///   file of your own, since diesel keeps one list of migrations for each file.
/// - Nothing is there for workers before your COMMIT. Call [`ring`] after it: then they are told
///   within a millisecond, in all processes. Without it they find out by themselves within a second.
pub fn enqueue_in(
    connection: &mut SqliteConnection,
    new: Vec<NewJob>,
    now: Millis,
) -> Result<Vec<Enqueued>, RepositoryError> {
    let batch = Batch::new(new, now)
        .map_err(|error| RepositoryError::Unusable(format!("a value cannot be written as JSON: {error}")))?;
    let stored: Outcome<Vec<Enqueued>> = connection.transaction(|connection| {
        // The bell is for after the COMMIT, which is the caller's.
        let mut rings = false;
        jobs::enqueue(&mut Transaction::new(connection, &mut rings), &batch, None)
    });
    stored.map_err(|fault| match fault {
        Fault::Refused(error) => error,
        Fault::Db(error) => describe(&error, Path::new("of this connection")),
    })
}

/// Tells the workers of all processes that the database at `path` has something new for them.
pub fn ring(path: &Path) {
    // What cannot be told is found within a second.
    Bell::new(&beside(path, ".wake")).ring();
}
