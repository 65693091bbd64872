//! Claiming: due jobs become available, available jobs become somebody's.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::job::transition::{Event, transition};
use posse_core::lease::Lease;
use posse_core::port::{ClaimRequest, Claimed};

use super::attempts;
use super::fault::Outcome;
use super::jobs::{DataRow, JobRow, stored, to_job};
use super::lines::{self, Choice};
use super::literal::{IsAvailable, IsWaiting, update};
use super::schema::{job_data, jobs};
use super::writer::Transaction;

/// Most jobs whose time has come that one claim makes available, so that a great many due at one
/// instant do not hold the write lock for seconds. The next claim goes on.
const PROMOTED_AT_ONCE: i64 = 5_000;

/// Takes due jobs in the order of their rank, as far as the rules let them start.
pub(super) fn claim(tx: &mut Transaction<'_>, request: &ClaimRequest) -> Outcome<Vec<Claimed>> {
    promote(tx, request.now)?;
    let worker = &request.worker.0;
    select(tx.connection, request)?
        .into_iter()
        .map(|(mut row, data)| {
            let to = transition(row.standing()?, Event::Claim, request.now)?.to;
            row.state = to.state.as_str().to_owned();
            row.attempt = stored(to.attempt);
            row.lease_token += 1;
            row.lease_until = Some(request.lease_until);
            row.leased_by = Some(worker.clone());
            let taken = (
                jobs::state.eq(&row.state),
                jobs::attempt.eq(row.attempt),
                jobs::lease_token.eq(row.lease_token),
                jobs::lease_until.eq(row.lease_until),
                jobs::leased_by.eq(worker),
            );
            update(jobs::table, jobs::id.eq(row.id), taken).execute(tx.connection)?;
            let (token, number) = (row.lease_token, row.attempt);
            let job = to_job((row, data))?;
            let lease = Lease { job: job.id, token };
            attempts::begin(tx.connection, lease, number, worker, request.now)?;
            Ok(Claimed { job, lease })
        })
        .collect()
}

/// Makes waiting jobs whose time has come available: those of every role, since a job that is due
/// and still waiting would keep every timer firing.
fn promote(tx: &mut Transaction<'_>, now: Millis) -> Outcome<()> {
    let due: Vec<i64> = jobs::table
        .filter(IsWaiting)
        .filter(jobs::run_at.le(now))
        .order(jobs::run_at)
        .limit(PROMOTED_AT_ONCE)
        .select(jobs::id)
        .load(tx.connection)?;
    // `Event::Due` changes nothing but the state, and is legal for exactly the rows of this index.
    for id in &due {
        let available = jobs::state.eq(JobState::Available.as_str());
        update(jobs::table, jobs::id.eq(id), available).execute(tx.connection)?;
    }
    if !due.is_empty() {
        // Whoever serves their roles is waiting for a time that nobody will tell them of again.
        tx.ring();
    }
    Ok(())
}

fn select(connection: &mut SqliteConnection, request: &ClaimRequest) -> Outcome<Vec<(JobRow, DataRow)>> {
    let rows = jobs::table.inner_join(job_data::table).select((JobRow::as_select(), DataRow::as_select()));
    match lines::choose(connection, request)? {
        Choice::Line(queue, key) => Ok(rows
            .filter(IsAvailable)
            .filter(jobs::role.eq(&request.role))
            .filter(jobs::queue.eq(queue))
            .filter(jobs::concurrency_key.eq(key))
            .order((jobs::rank, jobs::id))
            .limit(i64::from(request.limit))
            .load(connection)?),
        Choice::Jobs(ids) => ids.into_iter().map(|id| Ok(rows.filter(jobs::id.eq(id)).first(connection)?)).collect(),
    }
}
