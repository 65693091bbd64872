//! Unique keys: one job at a time.
//!
//! The index `jobs_unique` has one row per key, for the job that may hold it. Which jobs are in it
//! follows from their state, so whatever ends a job frees its key, and only a job that comes back
//! from a final state can meet another holder.

use std::collections::HashMap;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::unique::{Became, Holder, Meeting, meet};
use posse_core::job::{IfHeld, JobId, NewJob, Unique, holds_key};
use posse_core::port::RepositoryError;

use super::fault::{Fault, Outcome};
use super::literal::{MayHoldKey, update};
use super::rows::state;
use super::schema::jobs;
use posse_core::store::driver::JobRow;

/// The keys that jobs take which are about to be stored in this transaction.
#[derive(Default)]
pub(super) struct Taken<'a>(HashMap<&'a str, JobId>);

impl<'a> Taken<'a> {
    /// Takes the key that `new` asks for, if it does, for the job that will have this id; or gives the
    /// job that holds it, and what follows for that. A job that may change it must find it stored.
    pub fn take(
        &mut self,
        connection: &mut SqliteConnection,
        new: &'a NewJob,
        id: JobId,
        now: Millis,
    ) -> Outcome<Option<(JobId, Meeting)>> {
        let Some(Unique { key, if_held, .. }) = &new.unique else { return Ok(None) };
        if let Some(earlier) = self.0.get(key.as_str()).filter(|_| *if_held == IfHeld::Keep) {
            return Ok(Some((*earlier, Meeting { became: Became::Kept, due_at: None })));
        }
        let Some((job, holder)) = holder(connection, key, now)? else {
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
fn holder(connection: &mut SqliteConnection, key: &str, now: Millis) -> Outcome<Option<(JobId, Holder)>> {
    type Row = (i64, String, Option<i64>, Option<i64>, i64, i64, i64);
    let found: Option<Row> = jobs::table
        .filter(jobs::unique_key.eq(key))
        .filter(MayHoldKey)
        .select((
            jobs::id,
            jobs::state,
            jobs::finalized_at,
            jobs::unique_ms,
            jobs::lease_token,
            jobs::created_at,
            jobs::run_at,
        ))
        .first(connection)
        .optional()?;
    let Some((id, name, finalized_at, for_ms, token, created_at, run_at)) = found else { return Ok(None) };
    let state = state(&name)?;
    if holds_key(state, finalized_at, for_ms, now) {
        // A token rises with each claim and never falls.
        return Ok(Some((JobId(id), Holder { state, was_claimed: token > 0, created_at, run_at })));
    }
    // Its time is over, which nobody had a reason to write down until now.
    update(jobs::table, jobs::id.eq(id), jobs::unique_ms.eq(None::<i64>)).execute(connection)?;
    Ok(None)
}

/// Whether a final job may come back: nobody else holds its key.
pub(super) fn check(connection: &mut SqliteConnection, row: &JobRow, now: Millis) -> Outcome<()> {
    let Some(key) = &row.unique_key else { return Ok(()) };
    let job = row.id;
    match holder(connection, key, now)?.filter(|(holder, _)| *holder != job) {
        Some((holder, _)) => Err(Fault::Refused(RepositoryError::KeyHeld { job, key: key.clone(), holder })),
        None => Ok(()),
    }
}
