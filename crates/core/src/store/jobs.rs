//! Moves of single jobs: what a transition made of one is stored.
//!
//! A claim writes its attempt into the job's own row, before anything is done. There it stays while it is under way, and
//! after it completed the job, which is how nearly all attempts end. One that ends in any other way is written into a row
//! of its own.

use super::driver::{AttemptRow, Driver, JobChange, JobRow, LeaseAfter, Moved, StoredJob};
use super::fault::no_such;
use super::seal::{Keys, Place};
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::transition::{Event, Transition};
use crate::job::{Attempt, JobId};

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

/// Writes down how and why the attempts that these jobs' rows tell of ended. To be followed by a
/// change of the rows that takes the attempts out of them.
pub fn end_attempts<D: Driver>(
    tx: &mut Tx<'_, D>,
    ids: &[JobId],
    event: Event,
    reason: Option<&str>,
    now: Millis,
) -> Done<()> {
    let sealed = |id: JobId, reason| tx.keys.seal(Place::attempt(id.0), reason);
    match reason {
        // Each has a seal of its own.
        Some(reason) if tx.keys.seals() => {
            ids.iter().try_for_each(|&id| tx.db.end_attempts(&[id], event.as_str(), Some(&sealed(id, reason)), now))
        }
        // Without a key, a place makes no difference.
        _ => tx.db.end_attempts(ids, event.as_str(), reason.map(|reason| sealed(JobId(0), reason)).as_ref(), now),
    }
}

/// A job's attempts, oldest first. To be asked in one look: an attempt that ends in between would be seen twice,
/// or not at all.
pub fn attempts<D: Driver>(db: &mut D, keys: &Keys, job: JobId) -> Outcome<Vec<Attempt>> {
    let attempt = |AttemptRow { number, worker, started_at, ended_at, outcome, reason }| Attempt {
        number,
        worker,
        started_at,
        ended_at,
        outcome,
        reason: reason.map(|reason| keys.show(Place::attempt(job.0), &reason)),
    };
    let mut attempts: Vec<_> = db.attempts(job)?.into_iter().map(attempt).collect();
    if let Some(JobRow { standing, leased_by: Some(worker), claimed_at, finalized_at, .. }) = db.job(job)? {
        attempts.push(Attempt {
            number: standing.attempt,
            worker,
            started_at: claimed_at.unwrap_or_default(),
            ended_at: finalized_at,
            outcome: finalized_at.map(|_| Event::Complete.as_str().to_owned()),
            reason: None,
        });
    }
    Ok(attempts)
}
