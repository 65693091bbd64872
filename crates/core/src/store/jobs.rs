//! Moves of single jobs: what a transition made of one is stored.

use super::driver::{Driver, JobRow};
use super::fault::no_such;
use super::seal::Place;
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::transition::{Event, Transition, transition};
use crate::job::{JobId, JobState};

/// The row of a job that is to be there.
pub fn existing<D: Driver>(db: &mut D, job: JobId) -> Outcome<JobRow> {
    db.job(job)?.ok_or_else(|| no_such(job))
}

/// Stores what a transition made of a job, and when it became final, if it is. A lease that ends
/// is taken off; a new one is a claim's business.
pub fn store<D: Driver>(db: &mut D, job: JobId, transition: &Transition, now: Millis) -> Done<()> {
    let to = &transition.to;
    db.stand(job, to, to.state.is_final().then_some(now), transition.frees_lease)
}

/// Says why a job is where it is; nothing clears what was said before.
pub fn set_reason<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, reason: Option<&str>) -> Done<()> {
    let reason = reason.map(|reason| tx.keys.seal(Place::reason(job.0), reason));
    tx.db.set_reason(job, reason)
}

/// Has a suspended job go on: what it waited for is there.
pub(super) fn proceed<D: Driver>(tx: &mut Tx<'_, D>, row: &JobRow, now: Millis) -> Outcome<JobState> {
    let change = transition(row.standing, Event::Decide, now)?;
    store(tx.db, row.id, &change, now)?;
    set_reason(tx, row.id, None)?;
    // A timer must be set anew where it is due later.
    tx.notify();
    Ok(change.to.state)
}
