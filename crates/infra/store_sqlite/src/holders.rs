//! Jobs that hold unique keys and are not at work, and what they wait for: for whoever asks why a key
//! does not come free.

use std::collections::HashSet;

use diesel::dsl::min;
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState};
use posse_core::port::{Awaited, Waiting};

use super::fault::Outcome;
use super::literal::{IsOpen, IsOpenAsk, MayHoldKey, among};
use super::relations;
use super::rows::state;
use super::schema::{asks, dependencies, jobs};

type Row = (i64, Option<String>, String, String, String, String, i64);

/// See [`CareRepository::key_holders`](posse_core::port::CareRepository::key_holders).
pub(super) fn of_keys(connection: &mut SqliteConnection, before: Millis, limit: u32) -> Outcome<Vec<Waiting>> {
    let columns =
        (jobs::id, jobs::unique_key, jobs::role, jobs::queue, jobs::concurrency_key, jobs::state, jobs::run_at);
    let holders: Vec<Row> = jobs::table
        .filter(jobs::unique_key.is_not_null())
        .filter(MayHoldKey)
        .filter(jobs::finalized_at.is_null())
        .filter(jobs::state.ne(JobState::Running.as_str()))
        .filter(jobs::created_at.lt(before))
        // In the order of an expression: in its own, SQLite would walk all jobs.
        .order(jobs::id + 0)
        .limit(i64::from(limit))
        .select(columns)
        .load(connection)?;
    let mut known: HashSet<i64> = holders.iter().map(|row| row.0).collect();
    let most = known.len() + limit as usize;
    let (mut found, mut level) = (Vec::new(), holders);
    while !level.is_empty() {
        let mut next = Vec::new();
        for row in level {
            let waiting = waiting(connection, row)?;
            let others = waiting.waits_for.iter().filter(|on| on.state.is_some_and(|state| !state.is_final()));
            for on in others {
                if known.len() < most && known.insert(on.job.0) {
                    next.push(on.job.0);
                }
            }
            found.push(waiting);
        }
        level = jobs::table
            .filter(among(&next))
            .filter(jobs::state.ne(JobState::Running.as_str()))
            .order(jobs::id)
            .select(columns)
            .load(connection)?;
    }
    Ok(found)
}

fn waiting(connection: &mut SqliteConnection, row: Row) -> Outcome<Waiting> {
    let (id, key, role, queue, concurrency_key, name, due_at) = row;
    let is = state(&name)?;
    let (mut waits_for, mut asked_at) = (Vec::new(), None);
    if is == JobState::Suspended {
        type On = (i64, String, Option<String>, Option<i64>);
        let rows: Vec<On> = dependencies::table
            .left_join(jobs::table.on(jobs::id.eq(dependencies::on_job_id)))
            .filter(dependencies::job_id.eq(id))
            .filter(IsOpen)
            .order(dependencies::on_job_id)
            .select((
                dependencies::on_job_id,
                dependencies::on_failed,
                jobs::state.nullable(),
                jobs::finalized_at.nullable(),
            ))
            .load(connection)?;
        let awaited = |(on, rule, is, ended_at): On| {
            let (is, on_failed) = (is.as_deref().map(state).transpose()?, relations::on_failed(&rule)?);
            Ok(Awaited { job: JobId(on), state: is, on_failed, ended_at })
        };
        waits_for = rows.into_iter().map(awaited).collect::<Outcome<_>>()?;
        asked_at = asks::table
            .filter(asks::job_id.eq(id))
            .filter(IsOpenAsk)
            .select(min(asks::created_at))
            .first(connection)?;
    }
    Ok(Waiting { job: JobId(id), key, role, queue, concurrency_key, state: is, due_at, waits_for, asked_at })
}
