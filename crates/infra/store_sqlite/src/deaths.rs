//! What is kept of the deaths of workers, and who is suspected; the core says what follows.

use diesel::dsl::{count_star, exists};
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::deaths::{DEFAULT_MAX_CRASHES, Deaths, Suspect, Trail};
use posse_core::job::transition::Event;
use posse_core::job::{JobId, JobState};
use posse_core::run::journal::CallState;

use super::fault::Outcome;
use super::literal::{IsRunning, IsSuspect, among, update};
use super::rows::{count, state, stored};
use super::schema::{deaths, job_data, jobs, steps, tool_calls, workers};

/// A job's limit as it is stored.
pub(super) fn limit_stored(limit: u32) -> Option<i32> {
    (limit != DEFAULT_MAX_CRASHES).then(|| stored(limit))
}

/// One more worker died that held the job: what happens to it, and how many deaths in a row it met without progress.
pub(super) fn meet(connection: &mut SqliteConnection, job: JobId, now: Millis) -> Outcome<(Event, u32)> {
    let limit: Option<Option<i32>> =
        job_data::table.find(job.0).select(job_data::max_crashes).first(connection).optional()?;
    let limit = limit.flatten().map_or(DEFAULT_MAX_CRASHES, count);
    let before: Option<(i32, i64, i64)> = deaths::table
        .find(job.0)
        .select((deaths::in_a_row, deaths::entries, deaths::settled))
        .first(connection)
        .optional()?;
    let before = before.map_or_else(Deaths::default, |(in_a_row, entries, settled)| Deaths {
        in_a_row: count(in_a_row),
        trail: Trail { entries: entries.unsigned_abs(), settled: settled.unsigned_abs(), in_flight: false },
    });
    let (met, event) = before.meet(trail(connection, job)?, limit);
    let known = (
        deaths::in_a_row.eq(stored(met.in_a_row)),
        deaths::entries.eq(met.trail.entries.cast_signed()),
        deaths::settled.eq(met.trail.settled.cast_signed()),
        deaths::died_at.eq(now),
        deaths::suspect.eq(event == Event::LeaseExpired && met.is_suspect(limit)),
        deaths::awaited_by.eq(None::<String>),
    );
    if update(deaths::table, deaths::job_id.eq(job.0), known.clone()).execute(connection)? == 0 {
        diesel::insert_into(deaths::table).values((deaths::job_id.eq(job.0), known)).execute(connection)?;
    }
    Ok((event, met.in_a_row))
}

fn trail(connection: &mut SqliteConnection, job: JobId) -> QueryResult<Trail> {
    let entries: i64 = steps::table.filter(steps::job_id.eq(job.0)).select(count_star()).first(connection)?;
    let of_job = || tool_calls::table.filter(tool_calls::job_id.eq(job.0)).select(count_star());
    let is_settled =
        tool_calls::state.eq(CallState::Done.as_str()).or(tool_calls::state.eq(CallState::Failed.as_str()));
    let settled: i64 = of_job().filter(is_settled).first(connection)?;
    let in_flight: i64 = of_job().filter(tool_calls::state.eq(CallState::Started.as_str())).first(connection)?;
    Ok(Trail { entries: entries.unsigned_abs(), settled: settled.unsigned_abs(), in_flight: in_flight > 0 })
}

/// Suspects that could be worked or are at work. Nearly always none, and then nearly free.
pub(super) fn suspects(connection: &mut SqliteConnection) -> Outcome<Vec<Suspect>> {
    let ids: Vec<i64> = deaths::table.filter(IsSuspect).select(deaths::job_id).load(connection)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    type Row = (i64, String, String, String, Option<String>, i64, Option<String>);
    let rows: Vec<Row> = deaths::table
        .inner_join(jobs::table)
        .filter(among(&ids))
        .select((jobs::id, jobs::role, jobs::queue, jobs::state, jobs::leased_by, deaths::died_at, deaths::awaited_by))
        .load(connection)?;
    let mut found = Vec::with_capacity(rows.len());
    for (id, role, queue, stands, held_by, since, awaited_by) in rows {
        let suspect = Suspect { job: JobId(id), role, queue, state: state(&stands)?, held_by, since, awaited_by };
        match suspect.state {
            JobState::Available | JobState::Running => found.push(suspect),
            // Ended while nobody held it.
            state if state.is_final() => clear(connection, suspect.job)?,
            _ => {}
        }
    }
    let is_listed = |id: &String, connection: &mut SqliteConnection| {
        diesel::select(exists(workers::table.find(id))).get_result::<bool>(connection)
    };
    for suspect in &mut found {
        if let Some(by) = &suspect.awaited_by
            && !is_listed(by, connection)?
        {
            suspect.awaited_by = None;
        }
        suspect.held_by = suspect.held_by.take().filter(|_| suspect.state == JobState::Running);
    }
    Ok(found)
}

/// Whether a worker has any job in hand.
pub(super) fn has_jobs(connection: &mut SqliteConnection, worker: &str) -> QueryResult<bool> {
    let held = jobs::table.filter(IsRunning).filter(jobs::leased_by.eq(worker));
    diesel::select(exists(held)).get_result(connection)
}

/// From now on `worker` claims nothing until its hands are empty for this job.
pub(super) fn await_empty_hands(connection: &mut SqliteConnection, job: JobId, worker: &str) -> QueryResult<()> {
    update(deaths::table, deaths::job_id.eq(job.0), deaths::awaited_by.eq(worker)).execute(connection).map(drop)
}

/// It is suspected no more: an attempt came to its end, and its worker lived.
pub(super) fn clear(connection: &mut SqliteConnection, job: JobId) -> QueryResult<()> {
    let cleared = (deaths::suspect.eq(false), deaths::in_a_row.eq(0));
    update(deaths::table, deaths::job_id.eq(job.0), cleared).execute(connection).map(drop)
}

/// What was known of it counts no more.
pub(super) fn forget(connection: &mut SqliteConnection, job: JobId) -> QueryResult<()> {
    diesel::delete(deaths::table.find(job.0)).execute(connection).map(drop)
}
