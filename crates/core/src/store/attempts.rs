//! Attempts. A claim writes its attempt into the job's own row, before anything is done. There it stays
//! while it is under way, and after it completed the job, which is how nearly all attempts end. One
//! that ends in any other way is written into a row of its own.

use super::driver::{AttemptRow, Driver, JobRow};
use super::seal::{Keys, Place};
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::transition::Event;
use crate::job::{Attempt, JobId};

/// Writes down how and why the attempts that these jobs' rows tell of ended. To be followed by a
/// change of the rows that takes the attempts out of them.
pub fn end<D: Driver>(tx: &mut Tx<'_, D>, ids: &[JobId], event: Event, reason: Option<&str>, now: Millis) -> Done<()> {
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
pub fn of<D: Driver>(db: &mut D, keys: &Keys, job: JobId) -> Outcome<Vec<Attempt>> {
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
