//! Attempts. While one is under way its job's own row tells of it, written by the claim before
//! anything is done; when it ends, a row is written that stays.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use posse_core::clock::Millis;
use posse_core::job::transition::Event;
use posse_core::job::{Attempt, JobId};

use super::fault::Outcome;
use super::literal::{IsRunning, in_ids};
use super::schema::{attempts, jobs};

/// Writes down how and why the attempts of running jobs end. The jobs' rows must still be those of
/// the claim.
pub(super) fn end(
    connection: &mut SqliteConnection,
    running: &[i64],
    event: Event,
    reason: Option<&str>,
    now: Millis,
) -> QueryResult<()> {
    let ended = jobs::table.filter(in_ids(running)).select((
        jobs::id,
        jobs::lease_token,
        jobs::attempt,
        jobs::leased_by.assume_not_null(),
        jobs::claimed_at.assume_not_null(),
        now.into_sql::<Nullable<BigInt>>(),
        event.name().into_sql::<Nullable<Text>>(),
        reason.into_sql::<Nullable<Text>>(),
    ));
    diesel::insert_into(attempts::table)
        .values(ended)
        .into_columns((
            attempts::job_id,
            attempts::token,
            attempts::number,
            attempts::worker,
            attempts::started_at,
            attempts::ended_at,
            attempts::outcome,
            attempts::reason,
        ))
        .execute(connection)
        .map(drop)
}

/// A job's attempts, oldest first.
pub(super) fn of(connection: &mut SqliteConnection, job: JobId) -> Outcome<Vec<Attempt>> {
    type Row = (i32, String, i64, Option<i64>, Option<String>, Option<String>);
    let under_way = jobs::table.filter(IsRunning).filter(jobs::id.eq(job.0)).select((
        jobs::attempt,
        jobs::leased_by.assume_not_null(),
        jobs::claimed_at.assume_not_null(),
        None::<i64>.into_sql::<Nullable<BigInt>>(),
        None::<&str>.into_sql::<Nullable<Text>>(),
        None::<&str>.into_sql::<Nullable<Text>>(),
    ));
    let ended = attempts::table.filter(attempts::job_id.eq(job.0)).order(attempts::token).select((
        attempts::number,
        attempts::worker,
        attempts::started_at,
        attempts::ended_at,
        attempts::outcome,
        attempts::reason,
    ));
    // One look at both: an attempt that ends in between would be seen twice, or not at all.
    let rows: Vec<Row> = connection.transaction(|connection| {
        let mut rows: Vec<Row> = ended.load(connection)?;
        rows.extend(under_way.first::<Row>(connection).optional()?);
        QueryResult::Ok(rows)
    })?;
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
