//! Moves of single jobs: what a transition made of one is stored.

use super::driver::{Driver, JobChange, JobRow, LeaseAfter, Moved, StoredJob};
use super::fault::no_such;
use super::seal::Place;
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::transition::Transition;

/// The row of a job that is to be there.
pub fn existing<D: Driver>(db: &mut D, job: JobId) -> Outcome<JobRow> {
    db.job(job)?.ok_or_else(|| no_such(job))
}

/// Both rows of a job that is to be there.
pub fn whole<D: Driver>(db: &mut D, job: JobId) -> Outcome<StoredJob> {
    db.whole_jobs(&[job])?.pop().ok_or_else(|| no_such(job))
}

/// What a move says of why a job is where it is.
#[derive(Debug, Clone, Copy)]
pub enum Why<'a> {
    /// What was said before.
    AsBefore,
    /// Nothing.
    Nothing,
    /// This.
    Said(&'a str),
}

/// Stores what a transition made of the job of `row`, and when it became final, if it is. A lease that ends
/// is taken off; a new one is a claim's business.
pub fn store<D: Driver>(
    tx: &mut Tx<'_, D>,
    row: &JobRow,
    transition: &Transition,
    why: Why<'_>,
    now: Millis,
) -> Done<()> {
    let said = match why {
        Why::Said(why) => Some(tx.keys.seal(Place::reason(row.id.0), why)),
        Why::AsBefore | Why::Nothing => None,
    };
    let to = &transition.to;
    let moved = Moved {
        to,
        finalized_at: to.state.is_final().then_some(now),
        output: row.output.as_ref(),
        reason: if let Why::AsBefore = why { row.reason.as_ref() } else { said.as_ref() },
        lease: if transition.frees_lease { LeaseAfter::Ends } else { LeaseAfter::Stands },
    };
    tx.db.change_jobs(&[row.id], JobChange::Moved(moved))
}

/// Says why a job is where it is.
pub fn set_reason<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, reason: &str) -> Done<()> {
    let reason = tx.keys.seal(Place::reason(job.0), reason);
    tx.db.change_jobs(&[job], JobChange::Reason(&reason))
}
