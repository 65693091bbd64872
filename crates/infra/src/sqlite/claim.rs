//! Claiming: due jobs become available, available jobs become somebody's.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::job::transition::{Event, Standing, transition};
use posse_core::lease::Lease;
use posse_core::port::{ClaimRequest, Claimed};

use super::fault::Outcome;
use super::jobs::{JobRow, stored, to_job};
use super::literal::{IsAvailable, IsWaiting, in_ids, in_queues, update};
use super::schema::{job_data, jobs};
use super::writer::Transaction;

/// Most jobs whose time has come that one claim makes available, so that a great many due at one
/// instant do not hold the write lock for seconds. The next claim goes on.
const PROMOTED_AT_ONCE: i64 = 5_000;

/// Takes due jobs, most urgent first.
pub(super) fn claim(tx: &mut Transaction<'_>, request: &ClaimRequest) -> Outcome<Vec<Claimed>> {
    promote(tx, request.now)?;
    let mut rows = select(tx.connection, request)?;
    // Jobs that stand alike are taken by one statement; nearly always that is all of them.
    let mut alike: Vec<(Standing, Vec<i64>)> = Vec::new();
    for (row, _) in &mut rows {
        let to = transition(row.standing()?, Event::Claim, request.now)?.to;
        row.state = to.state.as_str().to_owned();
        row.attempt = stored(to.attempt);
        row.lease_token += 1;
        row.lease_until = Some(request.lease_until);
        row.leased_by = Some(request.worker.0.clone());
        match alike.iter_mut().find(|(other, _)| (other.state, other.attempt) == (to.state, to.attempt)) {
            Some((_, ids)) => ids.push(row.id),
            None => alike.push((to, vec![row.id])),
        }
    }
    for (to, ids) in alike {
        let taken = (
            jobs::state.eq(to.state.as_str()),
            jobs::attempt.eq(stored(to.attempt)),
            jobs::lease_token.eq(jobs::lease_token + 1),
            jobs::lease_until.eq(request.lease_until),
            jobs::leased_by.eq(&request.worker.0),
            jobs::claimed_at.eq(request.now),
        );
        update(jobs::table, in_ids(&ids), taken).execute(tx.connection)?;
    }
    let claimed = |(row, payload): (JobRow, String)| {
        let token = row.lease_token;
        let job = to_job((row, payload))?;
        Ok(Claimed { lease: Lease { job: job.id, token }, job })
    };
    rows.into_iter().map(claimed).collect()
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
    if !due.is_empty() {
        // `Event::Due` changes nothing but the state, and is legal for exactly the rows of this index.
        let available = jobs::state.eq(JobState::Available.as_str());
        update(jobs::table, in_ids(&due), available).execute(tx.connection)?;
        // Whoever serves their roles is waiting for a time that nobody will tell them of again.
        tx.ring();
    }
    Ok(())
}

fn select(connection: &mut SqliteConnection, request: &ClaimRequest) -> QueryResult<Vec<(JobRow, String)>> {
    let in_order = jobs::table
        .inner_join(job_data::table)
        .filter(IsAvailable)
        .filter(jobs::role.eq(&request.role))
        .order((jobs::priority, jobs::run_at, jobs::id))
        .select((JobRow::as_select(), job_data::payload))
        .limit(i64::from(request.limit));
    if request.queues.is_empty() {
        in_order.load(connection)
    } else {
        in_order.filter(in_queues(&request.queues)).load(connection)
    }
}
