//! What the holder of a lease writes: entries while it works, and how its attempt ends.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::transition::{Event, transition};
use posse_core::job::{JobId, JobState};
use posse_core::lease::Lease;
use posse_core::port::{Ending, RepositoryError};

use super::fault::{Fault, Outcome, unusable};
use super::jobs::{Batch, JobRow, find, set_reason, store};
use super::journal::{self, Sheet};
use super::literal::update;
use super::schema::job_data;
use super::writer::Transaction;
use super::{attempts, questions, relations, rules};

/// The job's row, if the lease still stands.
pub(super) fn guarded(connection: &mut SqliteConnection, lease: Lease) -> Outcome<JobRow> {
    find(connection, lease.job)?
        .filter(|row| row.is_leased_as(lease.token))
        .ok_or(Fault::Refused(RepositoryError::LeaseLost(lease.job)))
}

/// Appends entries from place `seq` on.
pub(super) fn append(
    tx: &mut Transaction<'_>,
    installation: &str,
    lease: Lease,
    seq: u64,
    sheets: &[Sheet],
    now: Millis,
) -> Outcome<()> {
    let row = guarded(tx.connection, lease)?;
    journal::append(tx.connection, installation, lease.job, &row.role, seq, sheets, now)
}

/// Ends the attempt, and tells where the job is then. `sheets` are the ending's entries, `children`
/// the jobs for which it then waits.
#[allow(clippy::too_many_arguments, reason = "an ending in parts, each prepared outside of the writer")]
pub(super) fn finish(
    tx: &mut Transaction<'_>,
    installation: &str,
    lease: Lease,
    ending: &Ending,
    output: Option<&str>,
    sheets: &[Sheet],
    children: &Batch,
    now: Millis,
) -> Outcome<JobState> {
    let row = guarded(tx.connection, lease)?;
    if !children.is_empty() && ending.event != Event::Suspend {
        return Err(unusable("an ending brings children but does not suspend the job; nothing was saved"));
    }
    let from = row.standing()?;
    let at = match ending.event {
        Event::Fail | Event::Snooze => ending.due_at,
        _ => now,
    };
    let mut change = transition(from, ending.event, at)?;
    if !change.frees_lease {
        // The first cancel of a running job only asks its worker, and here the worker is answering.
        change = transition(change.to, ending.event, at)?;
    }
    let to = change.to.state;
    if to == JobState::Suspended {
        questions::reopen(tx.connection, lease.job)?;
    }
    if !sheets.is_empty() {
        journal::append(tx.connection, installation, lease.job, &row.role, ending.seq, sheets, now)?;
    }
    if ending.event == Event::Suspend && to != JobState::Suspended {
        // Its end was asked for while it was asking.
        questions::close(tx.connection, lease.job, now)?;
    }
    store(tx.connection, lease.job, &change, now)?;
    attempts::end(tx.connection, lease, ending.event, ending.reason.as_deref(), now)?;
    // A job that ends because somebody asked for it keeps what they said as its reason.
    let is_asked_for = to == JobState::Cancelled && from.cancel_requested;
    let reason = (!is_asked_for).then_some(ending.reason.as_deref());
    leave(tx.connection, lease.job, output, reason)?;
    let may_be_claimed = matches!(to, JobState::Available | JobState::Retryable | JobState::Scheduled);
    if may_be_claimed || rules::any_counts_running(tx.connection)? {
        tx.ring();
    }
    relations::ended(tx, &row, to, now)?;
    if !children.is_empty() && to == JobState::Suspended {
        return relations::wait_for_children(tx, lease.job, children, now);
    }
    Ok(to)
}

/// Stores what an attempt leaves behind. What is `None` stays as it was.
fn leave(
    connection: &mut SqliteConnection,
    job: JobId,
    output: Option<&str>,
    reason: Option<Option<&str>>,
) -> QueryResult<()> {
    let row = job_data::job_id.eq(job.0);
    match (output, reason) {
        (Some(output), Some(reason)) => {
            let both = (job_data::output.eq(output), job_data::reason.eq(reason));
            update(job_data::table, row, both).execute(connection)?;
        }
        (Some(output), None) => {
            update(job_data::table, row, job_data::output.eq(output)).execute(connection)?;
        }
        (None, Some(reason)) => set_reason(connection, job, reason)?,
        (None, None) => {}
    }
    Ok(())
}
