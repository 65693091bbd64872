//! Unique keys: one job at a time.
//!
//! The index `jobs_unique` has one row per key, for the job that may hold it. Which jobs are in it
//! follows from their state, so whatever ends a job frees its key, and only a job that comes back
//! from a final state can meet another holder.

use std::collections::HashMap;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::{JobId, NewJob, Unique, holds_key};
use posse_core::port::RepositoryError;

use super::fault::{Fault, Outcome};
use super::jobs::{JobRow, state};
use super::literal::{MayHoldKey, update};
use super::schema::jobs;

/// The keys that jobs take which are about to be stored in this transaction.
#[derive(Default)]
pub(super) struct Taken<'a>(HashMap<&'a str, JobId>);

impl<'a> Taken<'a> {
    /// Takes the key that `new` asks for, if it does, for the job that will have this id; or gives the
    /// job that holds it.
    pub fn take(
        &mut self,
        connection: &mut SqliteConnection,
        new: &'a NewJob,
        id: JobId,
        now: Millis,
    ) -> Outcome<Option<JobId>> {
        let Some(Unique { key, .. }) = &new.unique else { return Ok(None) };
        if let Some(earlier) = self.0.get(key.as_str()) {
            return Ok(Some(*earlier));
        }
        let holder = holder(connection, key, now)?;
        if holder.is_none() {
            self.0.insert(key, id);
        }
        Ok(holder)
    }

    /// Gives back what the job took: it ends as it begins.
    pub fn give_back(&mut self, new: &NewJob) {
        if let Some(Unique { key, .. }) = &new.unique {
            self.0.remove(key.as_str());
        }
    }
}

/// The job that holds `key`. Without one the key is free to be taken in this transaction.
fn holder(connection: &mut SqliteConnection, key: &str, now: Millis) -> Outcome<Option<JobId>> {
    type Row = (i64, String, Option<i64>, Option<i64>);
    let found: Option<Row> = jobs::table
        .filter(jobs::unique_key.eq(key))
        .filter(MayHoldKey)
        .select((jobs::id, jobs::state, jobs::finalized_at, jobs::unique_ms))
        .first(connection)
        .optional()?;
    let Some((id, name, finalized_at, for_ms)) = found else { return Ok(None) };
    if holds_key(state(&name)?, finalized_at, for_ms, now) {
        return Ok(Some(JobId(id)));
    }
    // Its time is over, which nobody had a reason to write down until now.
    update(jobs::table, jobs::id.eq(id), jobs::unique_ms.eq(None::<i64>)).execute(connection)?;
    Ok(None)
}

/// Whether a final job may come back: nobody else holds its key.
pub(super) fn check(connection: &mut SqliteConnection, row: &JobRow, now: Millis) -> Outcome<()> {
    let Some(key) = &row.unique_key else { return Ok(()) };
    let job = JobId(row.id);
    match holder(connection, key, now)?.filter(|holder| *holder != job) {
        Some(holder) => Err(Fault::Refused(RepositoryError::KeyHeld { job, key: key.clone(), holder })),
        None => Ok(()),
    }
}
