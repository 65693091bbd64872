//! What is asked about jobs.

use diesel::dsl::min;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use posse_core::clock::Millis;
use posse_core::job::{Job, JobId, JobState};

use super::fault::Outcome;
use super::literal::{IsRunning, IsToBeCancelled, IsWaiting};
use super::rows::{DataColumns, JobColumns, both, state};
use super::schema::{job_data, jobs};
use super::{progress, rules};
use posse_core::store::seal::Keys;
use posse_core::store::views::to_job;

/// One job.
pub(super) fn job(connection: &mut SqliteConnection, keys: &Keys, id: JobId) -> Outcome<Option<Job>> {
    let row: Option<(JobColumns, DataColumns)> = jobs::table
        .inner_join(job_data::table)
        .filter(jobs::id.eq(id.0))
        .select((JobColumns::as_select(), DataColumns::as_select()))
        .first(connection)
        .optional()?;
    let mut job = row.map(both).transpose()?.map(|row| to_job(keys, row));
    progress::fill_in(connection, keys, job.as_mut_slice())?;
    Ok(job)
}

/// How many jobs of each role are in each state, in the order of a job's life.
pub(super) fn counts(connection: &mut SqliteConnection) -> Outcome<Vec<(String, JobState, u64)>> {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = Text)]
        role: String,
        #[diesel(sql_type = Text)]
        state: String,
        #[diesel(sql_type = BigInt)]
        jobs: i64,
    }
    // Each part reads one partial index.
    let rows: Vec<Count> = diesel::sql_query(COUNTS).load(connection)?;
    let mut counts = rows
        .into_iter()
        .map(|row| Ok((row.role, state(&row.state)?, row.jobs.unsigned_abs())))
        .collect::<Outcome<Vec<_>>>()?;
    let place = |state: JobState| JobState::ALL.iter().position(|s| *s == state);
    counts.sort_by(|(a_role, a, _), (b_role, b, _)| (a_role, place(*a)).cmp(&(b_role, place(*b))));
    Ok(counts)
}

/// The statement of [`counts`].
pub(super) const COUNTS: &str = "
    SELECT role, state, count(*) AS jobs FROM jobs WHERE finalized_at IS NOT NULL GROUP BY role, state
    UNION ALL
    SELECT role, 'available', count(*) FROM jobs WHERE state = 'available' GROUP BY role
    UNION ALL
    SELECT role, state, count(*) FROM jobs WHERE state IN ('scheduled', 'retryable') GROUP BY role, state
    UNION ALL
    SELECT role, 'running', count(*) FROM jobs WHERE state = 'running' GROUP BY role
    UNION ALL
    SELECT role, 'suspended', count(*) FROM jobs WHERE state = 'suspended' GROUP BY role";

/// Running jobs whose end was asked for. Nearly always none, and then free.
pub(super) fn cancel_requested(connection: &mut SqliteConnection) -> Outcome<Vec<JobId>> {
    let ids: Vec<i64> = jobs::table.filter(IsToBeCancelled).order(jobs::id).select(jobs::id).load(connection)?;
    Ok(ids.into_iter().map(JobId).collect())
}

/// The earliest time at which a lease expires.
pub(super) fn next_lease_end(connection: &mut SqliteConnection) -> Outcome<Option<Millis>> {
    Ok(jobs::table.filter(IsRunning).select(min(jobs::lease_until)).first(connection)?)
}

/// The earliest time at which a waiting job becomes due, a lease expires, or, after `now`, a rule's
/// rate lets the next job start.
pub(super) fn next_deadline(connection: &mut SqliteConnection, now: Millis) -> Outcome<Option<Millis>> {
    let due: Option<i64> = jobs::table.filter(IsWaiting).select(min(jobs::run_at)).first(connection)?;
    let expiry = next_lease_end(connection)?;
    let start = rules::all(connection)?.iter().filter_map(|rule| rule.next_start(now)).min();
    Ok(due.into_iter().chain(expiry).chain(start).min())
}
