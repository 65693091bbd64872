//! Attempts. A claim writes its attempt into the job's own row, before anything is done. There it stays
//! while it is under way, and after it completed the job, which is how nearly all attempts end. One
//! that ends in any other way is written into a row of its own.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use posse_core::clock::Millis;
use posse_core::job::transition::Event;
use posse_core::job::{Attempt, JobId};

use super::fault::Outcome;
use super::jobs::count;
use super::literal::among;
use super::schema::{attempts, jobs};
use super::seal::{Keys, Place, Sealed, SealedText};
use super::writer::Transaction;

/// Writes down how and why the attempts that these jobs' rows tell of ended. To be followed by a
/// change of the rows that takes the attempts out of them.
pub(super) fn end(
    tx: &mut Transaction<'_>,
    ids: &[i64],
    event: Event,
    reason: Option<&str>,
    now: Millis,
) -> QueryResult<()> {
    match reason {
        // Each has a seal of its own.
        Some(reason) if tx.keys.seals() => {
            let sealed = |id: &i64| tx.keys.seal(Place::attempt(*id), reason);
            ids.iter().try_for_each(|id| end_all(tx.connection, &[*id], event, Some(&sealed(id)), now))
        }
        _ => {
            // Without a key, a place makes no difference.
            let same = reason.map(|reason| tx.keys.seal(Place::attempt(0), reason));
            end_all(tx.connection, ids, event, same.as_ref(), now)
        }
    }
}

fn end_all(
    connection: &mut SqliteConnection,
    ids: &[i64],
    event: Event,
    reason: Option<&Sealed>,
    now: Millis,
) -> QueryResult<()> {
    let ended = jobs::table.filter(among(ids)).filter(jobs::leased_by.is_not_null()).select((
        jobs::id,
        jobs::lease_token,
        jobs::attempt,
        jobs::leased_by.assume_not_null(),
        jobs::claimed_at.assume_not_null(),
        now.into_sql::<Nullable<BigInt>>(),
        event.name().into_sql::<Nullable<Text>>(),
        reason.into_sql::<Nullable<SealedText>>(),
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
pub(super) fn of(connection: &mut SqliteConnection, keys: &Keys, job: JobId) -> Outcome<Vec<Attempt>> {
    type Row = (i32, String, i64, Option<i64>, Option<String>, Option<Sealed>);
    let in_own_rows = attempts::table.filter(attempts::job_id.eq(job.0)).order(attempts::token).select((
        attempts::number,
        attempts::worker,
        attempts::started_at,
        attempts::ended_at,
        attempts::outcome,
        attempts::reason,
    ));
    let in_the_jobs_row = jobs::table.filter(jobs::id.eq(job.0)).filter(jobs::leased_by.is_not_null()).select((
        jobs::attempt,
        jobs::leased_by.assume_not_null(),
        jobs::claimed_at.assume_not_null(),
        jobs::finalized_at,
    ));
    // One look at both: an attempt that ends in between would be seen twice, or not at all.
    let rows = connection.transaction(|connection| {
        let mut rows: Vec<Row> = in_own_rows.load(connection)?;
        let last: Option<(i32, String, i64, Option<i64>)> = in_the_jobs_row.first(connection).optional()?;
        rows.extend(last.map(|(number, worker, started_at, ended_at)| {
            let outcome = ended_at.map(|_| Event::Complete.name().to_owned());
            (number, worker, started_at, ended_at, outcome, None)
        }));
        QueryResult::Ok(rows)
    })?;
    let attempt = |(number, worker, started_at, ended_at, outcome, reason): Row| Attempt {
        number: count(number),
        worker,
        started_at,
        ended_at,
        outcome,
        reason: reason.map(|reason| keys.show(Place::attempt(job.0), &reason)),
    };
    Ok(rows.into_iter().map(attempt).collect())
}
