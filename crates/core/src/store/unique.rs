//! Unique keys: one job at a time.
//!
//! There is one row per key, for the job that may hold it. Which jobs may follows from their state, so whatever ends
//! a job frees its key, and only a job that comes back from a final state can meet another holder.

use std::collections::HashMap;

use super::driver::{Driver, JobChange, JobRow, JobsOf};
use super::{Done, Fault, Outcome};
use crate::clock::Millis;
use crate::job::unique::{Became, Holder, Meeting, meet};
use crate::job::{IfHeld, JobId, NewJob, Unique, holds_key};
use crate::port::RepositoryError;

/// The keys that jobs take which are about to be stored in this transaction.
#[derive(Default)]
pub(super) struct Taken<'a>(HashMap<&'a str, JobId>);

impl<'a> Taken<'a> {
    /// Takes the key that `new` asks for, if it does, for the job that will have this id; or gives the
    /// job that holds it, and what follows for that. A job that may change it must find it stored.
    pub fn take<D: Driver>(
        &mut self,
        db: &mut D,
        new: &'a NewJob,
        id: JobId,
        now: Millis,
    ) -> Outcome<Option<(JobId, Meeting)>> {
        let Some(Unique { key, if_held, .. }) = &new.unique else { return Ok(None) };
        if let Some(earlier) = self.0.get(key.as_str()).filter(|_| *if_held == IfHeld::Keep) {
            return Ok(Some((*earlier, Meeting { became: Became::Kept, due_at: None })));
        }
        let Some((job, holder)) = holder(db, key, now)? else {
            self.0.insert(key, id);
            return Ok(None);
        };
        Ok(Some((job, meet(new, &holder, now))))
    }

    /// Gives back what the job took: it ends as it begins.
    pub fn give_back(&mut self, new: &NewJob) {
        if let Some(Unique { key, .. }) = &new.unique {
            self.0.remove(key.as_str());
        }
    }

    /// Jobs have ended since their keys were taken. From here on the rows tell, which must all be there.
    pub fn look_again(&mut self) {
        self.0.clear();
    }
}

/// The job that holds `key`. Without one the key is free to be taken in this transaction.
fn holder<D: Driver>(db: &mut D, key: &str, now: Millis) -> Done<Option<(JobId, Holder)>> {
    let Some(row) = db.jobs(JobsOf::MayHoldKey(key))?.pop() else { return Ok(None) };
    let state = row.standing.state;
    if holds_key(state, row.finalized_at, row.unique_ms, now) {
        let (created_at, run_at) = (row.created_at, row.standing.run_at);
        // A token rises with each claim and never falls.
        return Ok(Some((row.id, Holder { state, was_claimed: row.lease_token > 0, created_at, run_at })));
    }
    // Its time is over, which nobody had a reason to write down until now.
    db.change_jobs(&[row.id], JobChange::KeyFreed)?;
    Ok(None)
}

/// Whether a final job may come back: nobody else holds its key.
pub(super) fn check<D: Driver>(db: &mut D, row: &JobRow, now: Millis) -> Outcome<()> {
    let Some(key) = &row.unique_key else { return Ok(()) };
    match holder(db, key, now)?.filter(|(holder, _)| *holder != row.id) {
        Some((holder, _)) => Err(Fault::Refused(RepositoryError::KeyHeld { job: row.id, key: key.clone(), holder })),
        None => Ok(()),
    }
}
