//! Ending jobs because somebody asked for it.

use super::driver::{Driver, IdsOf};
use super::jobs::{Why, existing, store, whole};
use super::{Outcome, Tx, questions, waits};
use crate::clock::Millis;
use crate::job::transition::{Event, transition};
use crate::job::{JobId, JobState};
use crate::port::{Cancelled, Reach};

/// Asks for a job's end, and for that of nobody else but those who wait for it.
fn cancel<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, reason: &str, now: Millis) -> Outcome<Cancelled> {
    let row = existing(tx.db, job)?;
    let from = row.standing;
    match from.state {
        JobState::Cancelled => return Ok(Cancelled::Already),
        state if state.is_final() => return Ok(Cancelled::TooLate(state)),
        // Asked before. Its worker still holds it; asking again must not take it away.
        JobState::Running if from.cancel_requested => return Ok(Cancelled::Requested),
        JobState::Suspended => waits::wait_no_more(tx.db, job)?,
        _ => {}
    }
    let change = transition(from, Event::Cancel, now)?;
    store(tx, &row, &change, Why::Said(reason), now)?;
    if from.state == JobState::Suspended {
        questions::close(tx.db, job, now)?;
    }
    if change.to.state == JobState::Running {
        tx.notify();
        return Ok(Cancelled::Requested);
    }
    waits::ended(tx, &row, change.to.state, now)?;
    Ok(Cancelled::Now)
}

/// Asks for the end of a job and of those within `reach`. The job named comes first.
pub fn cancel_within<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    reach: Reach,
    reason: &str,
    now: Millis,
) -> Outcome<Vec<(JobId, Cancelled)>> {
    let top = match reach {
        Reach::Alone | Reach::Beneath => job,
        Reach::Tree => whole(tx.db, job)?.1.root.unwrap_or(job),
    };
    let mut told = vec![(job, cancel(tx, job, reason, now)?)];
    if reach == Reach::Alone {
        return Ok(told);
    }
    // From the top down, so that a parent is not decided by the end of its last child. One that
    // was deleted has nothing to be asked, but those beneath it may be there.
    let mut level = vec![top];
    while let Some(at) = level.pop() {
        if at != job && tx.db.job(at)?.is_some() {
            let reason = format!("cancelled with job {job}: {reason}");
            told.push((at, cancel(tx, at, &reason, now)?));
        }
        level.extend(tx.db.ids(IdsOf::Children(at))?);
    }
    Ok(told)
}

/// Asks for the end of the tasks of a job that came to no answer, and of those beneath them: nobody is left who would read
/// theirs.
pub fn tasks_of<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, ended: JobState, now: Millis) -> Outcome<()> {
    let reason = format!("job {job}, for which it was to be done, was {ended}");
    for task in tx.db.ids(IdsOf::Children(job))? {
        if tx.db.job(task)?.is_some_and(|row| !row.standing.state.is_final()) {
            cancel_within(tx, task, Reach::Beneath, &reason, now)?;
        }
    }
    Ok(())
}
