//! Enqueueing and completing in the caller's own transaction: a program that keeps tables of its own in
//! Posse's file commits its rows and what becomes of the jobs about them together, or neither.

use std::path::Path;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::lease::Lease;
use posse_core::job::transition::Event;
use posse_core::job::{NewJob, Output};
use posse_core::port::{AttemptEnd, Ending, Enqueued, RepositoryError, Result};
use posse_core::store::claim::Cursors;
use posse_core::store::enqueue::{Batch, enqueue};
use posse_core::store::finish::{End, Finish};
use posse_core::store::seal::Keys;
use posse_core::store::{Outcome, Verb as _};

use super::connection::transaction;
use super::fault::in_words;
use super::meta;
use super::notify::Notifier;
use super::rows::Rows;
use super::writer::Transaction;

/// Stores jobs, all or none, in the transaction that `connection` is in (in one of its own if it is
/// in none), and says what became of each, in the same order. The rules are those of
/// [`posse_core::port::JobRepository::enqueue`]; check what people ask for with
/// [`posse_core::job::enqueue::accept`] before.
///
/// - The file must have been opened by [`super::SqliteStore::open`] once, by this version.
/// - `keys` are those of the store ([`super::SqliteStore::keys`]): where texts are sealed, others are refused.
/// - Begin with `immediate_transaction`: one that reads first and writes later fails if another
///   process writes in between. Set a `busy_timeout` on the connection, and keep the transaction
///   short: all workers wait for it to end.
/// - Make your own tables with plain SQL (`CREATE TABLE IF NOT EXISTS`). Migrations of your own need a
///   file of your own, since diesel keeps one list of migrations for each file.
/// - Nothing is there for workers before your COMMIT. Call [`notify`] after it: then they are told
///   within a millisecond, in all processes. Without it they find out by themselves within a second.
pub fn enqueue_in(
    connection: &mut SqliteConnection,
    keys: &Keys,
    new: Vec<NewJob>,
    now: Millis,
) -> Result<Vec<Enqueued>> {
    let batch = Batch::new(new, now).map_err(not_json)?;
    within(connection, keys, |tx| enqueue(tx, &batch, None))
}

/// Completes the job that `lease` is about ([`JobContext::lease`](posse_core::worker::executor::JobContext::lease)),
/// in the transaction that `connection` is in. What waits for it goes on, and its unique key is free, as
/// with every end. After the COMMIT the executor says
/// [`StepOutcome::AlreadyCompleted`](posse_core::worker::executor::StepOutcome::AlreadyCompleted); if it rolls back,
/// another outcome.
///
/// [`RepositoryError::LeaseLost`] when the job is not this worker's any more: whoever has it works it
/// again, so nothing of this attempt may be kept, and the transaction is to be rolled back.
///
/// The rules for `connection` and `keys`, and the need for [`notify`], are those of [`enqueue_in`]. `output` is final;
/// entries of a journal are not stored here.
pub fn complete_in(
    connection: &mut SqliteConnection,
    keys: &Keys,
    lease: Lease,
    output: Output,
    now: Millis,
) -> Result<()> {
    let ending = Ending {
        event: Event::Complete,
        due_at: now,
        reason: None,
        output: Some(output),
        entries: Vec::new(),
        seq: 0,
        children: Vec::new(),
        waits_for: Vec::new(),
    };
    let end = End::new(&AttemptEnd { lease, ending }, now).map_err(not_json)?;
    let answers = within(connection, keys, |tx| Finish::run(tx, &[&end]))?;
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}

fn not_json(error: serde_json::Error) -> RepositoryError {
    RepositoryError::Misused(format!("a value cannot be written as JSON: {error}"))
}

/// Does it whole or not at all, whatever becomes of the caller's transaction.
fn within<T>(
    connection: &mut SqliteConnection,
    keys: &Keys,
    work: impl FnOnce(&mut Transaction<'_>) -> Outcome<T>,
) -> Result<T> {
    let done = transaction(connection, |connection| {
        meta::admit(connection, keys)?;
        // Workers are notified after the COMMIT, which is the caller's.
        let mut notifies = false;
        work(&mut Transaction::new(Rows::of(connection), keys, &mut Cursors::default(), &mut notifies))
    });
    done.map_err(|fault| in_words(fault, Path::new("of this connection")))
}

/// Tells the workers of all processes that the database at `path` has something new for them. Those who cannot be
/// told find it within a second.
pub fn notify(path: &Path) {
    Notifier::new(path).notify();
}
