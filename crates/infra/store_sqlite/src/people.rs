//! What people do to jobs: end them, run them again.

use posse_core::clock::Millis;
use posse_core::job::transition::{Event, transition};
use posse_core::job::{JobId, JobState};
use posse_core::port::Cancelled;
use posse_core::store::attempts;

use super::fault::Outcome;
use super::writer::Transaction;
use super::{deaths, group_waits, journal, questions, relations, unique};
use posse_core::store::jobs::{existing, set_reason, store};

/// Asks for a job's end, and for that of nobody else but those who wait for it.
pub(super) fn cancel(tx: &mut Transaction<'_>, job: JobId, reason: &str, now: Millis) -> Outcome<Cancelled> {
    let row = existing(tx.db, job)?;
    let from = row.standing;
    match from.state {
        JobState::Cancelled => return Ok(Cancelled::Already),
        state if state.is_final() => return Ok(Cancelled::TooLate(state)),
        // Asked before. Its worker still holds it; asking again must not take it away.
        JobState::Running if from.cancel_requested => return Ok(Cancelled::Requested),
        JobState::Suspended => relations::wait_no_more(&mut tx.db.0, job)?,
        _ => {}
    }
    let change = transition(from, Event::Cancel, now)?;
    store(tx.db, job, &change, now)?;
    set_reason(tx, job, Some(reason))?;
    if from.state == JobState::Suspended {
        questions::close(&mut tx.db.0, job, now)?;
    }
    if change.to.state == JobState::Running {
        tx.ring();
        return Ok(Cancelled::Requested);
    }
    relations::ended(tx, &row, change.to.state, now)?;
    Ok(Cancelled::Now)
}

/// Makes a final job available again.
pub(super) fn retry(tx: &mut Transaction<'_>, job: JobId, now: Millis) -> Outcome<()> {
    let row = existing(tx.db, job)?;
    let change = transition(row.standing, Event::Retry, now)?;
    unique::check(&mut tx.db.0, &row, now)?;
    // A completed job's row tells of the attempt that completed it.
    attempts::end(tx, &[job], Event::Complete, None, row.finalized_at.unwrap_or(now))?;
    store(tx.db, job, &change, now)?;
    set_reason(tx, job, None)?;
    journal::reopen(tx, job, now)?;
    deaths::forget(&mut tx.db.0, job)?;
    group_waits::join_again(tx, job, change.to.state, now)?;
    tx.ring();
    Ok(())
}
