//! Attempts: one row per claim, written before anything is done.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::transition::Event;
use posse_core::job::{Attempt, JobId};
use posse_core::lease::Lease;

use super::fault::Outcome;
use super::literal::update;
use super::schema::attempts;

/// Writes down that an attempt begins.
pub(super) fn begin(
    connection: &mut SqliteConnection,
    lease: Lease,
    number: i32,
    worker: &str,
    now: Millis,
) -> QueryResult<()> {
    diesel::insert_into(attempts::table)
        .values((
            attempts::job_id.eq(lease.job.0),
            attempts::token.eq(lease.token),
            attempts::number.eq(number),
            attempts::worker.eq(worker),
            attempts::started_at.eq(now),
        ))
        .execute(connection)
        .map(drop)
}

/// Writes down that it ended, how and why.
pub(super) fn end(
    connection: &mut SqliteConnection,
    lease: Lease,
    event: Event,
    reason: Option<&str>,
    now: Millis,
) -> QueryResult<()> {
    let ending = (attempts::ended_at.eq(now), attempts::outcome.eq(event.name()), attempts::reason.eq(reason));
    let this = attempts::job_id.eq(lease.job.0).and(attempts::token.eq(lease.token));
    update(attempts::table, this, ending).execute(connection).map(drop)
}

/// A job's attempts, oldest first.
pub(super) fn of(connection: &mut SqliteConnection, job: JobId) -> Outcome<Vec<Attempt>> {
    type Row = (i32, String, i64, Option<i64>, Option<String>, Option<String>);
    let rows: Vec<Row> = attempts::table
        .filter(attempts::job_id.eq(job.0))
        .order(attempts::token)
        .select((
            attempts::number,
            attempts::worker,
            attempts::started_at,
            attempts::ended_at,
            attempts::outcome,
            attempts::reason,
        ))
        .load(connection)?;
    let attempt = |(number, worker, started_at, ended_at, outcome, reason): Row| Attempt {
        number: u32::try_from(number).unwrap_or(0),
        worker,
        started_at,
        ended_at,
        outcome,
        reason,
    };
    Ok(rows.into_iter().map(attempt).collect())
}
