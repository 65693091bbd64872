//! Keeping leases, and taking jobs back from those who no longer do.

use std::collections::{HashMap, HashSet};

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::transition::{Event, transition};
use posse_core::job::{JobId, JobState, MAX_CRASHES};
use posse_core::lease::{Lease, WorkerId};
use posse_core::port::{Heartbeat, Rescued};

use super::fault::Outcome;
use super::jobs::{JobRow, set_reason, store};
use super::literal::{IsRunning, among, update};
use super::schema::{jobs, workers};
use super::writer::Transaction;
use super::{attempts, queries, relations};

/// Renews leases and marks the worker alive.
pub(super) fn heartbeat(
    tx: &mut Transaction<'_>,
    worker: &WorkerId,
    leases: &[Lease],
    lease_until: Millis,
    now: Millis,
) -> Outcome<Heartbeat> {
    update(workers::table, workers::id.eq(&worker.0), workers::heartbeat_at.eq(now)).execute(tx.connection)?;
    let mut heard = Heartbeat::default();
    let asked: Vec<_> = leases.iter().map(|lease| lease.job.0).collect();
    let tokens: HashMap<i64, i64> = jobs::table
        .filter(among(&asked))
        .filter(IsRunning)
        .select((jobs::id, jobs::lease_token))
        .load_iter(tx.connection)?
        .collect::<QueryResult<_>>()?;
    let mut held = HashSet::with_capacity(leases.len());
    for lease in leases {
        if tokens.get(&lease.job.0) == Some(&lease.token) {
            held.insert(lease.job);
        } else {
            heard.lost.push(lease.job);
        }
    }
    let kept: Vec<_> = held.iter().map(|job| job.0).collect();
    update(jobs::table, among(&kept), jobs::lease_until.eq(lease_until)).execute(tx.connection)?;
    heard.cancelled = queries::cancel_requested(tx.connection)?.into_iter().filter(|job| held.contains(job)).collect();
    Ok(heard)
}

/// Takes back jobs of workers known to be gone, and with `expired` those whose lease ran out.
pub(super) fn rescue(tx: &mut Transaction<'_>, dead: &[WorkerId], expired: bool, now: Millis) -> Outcome<Vec<Rescued>> {
    let running = || jobs::table.filter(IsRunning).select(JobRow::as_select());
    let stands_after = if expired { now } else { Millis::MIN };
    let mut rows: Vec<JobRow> = running().filter(jobs::lease_until.le(stands_after)).load(tx.connection)?;
    for worker in dead {
        let held = running().filter(jobs::leased_by.eq(&worker.0)).filter(jobs::lease_until.gt(stands_after));
        rows.extend(held.load::<JobRow>(tx.connection)?);
    }
    rows.sort_by_key(|row| row.id);
    let mut rescued = Vec::with_capacity(rows.len());
    for row in rows {
        let (job, worker) = (JobId(row.id), row.leased_by.clone().unwrap_or_default());
        let from = row.standing()?;
        let change = transition(from, Event::LeaseExpired, now)?;
        let lost = format!("worker {worker} was lost while working on it");
        attempts::end(tx, &[row.id], Event::LeaseExpired, Some(&lost), now)?;
        store(tx.connection, job, &change, now)?;
        match change.to.state {
            // It keeps what was said when its end was asked for.
            JobState::Cancelled => {}
            JobState::Discarded if change.to.crashes >= MAX_CRASHES => {
                let reason = format!("its worker was lost {} times while working on it", change.to.crashes);
                set_reason(tx, job, Some(&reason))?;
            }
            JobState::Discarded => {
                let reason = format!("its worker was lost in the last of its {} attempts", from.max_attempts);
                set_reason(tx, job, Some(&reason))?;
            }
            _ => set_reason(tx, job, Some(&lost))?,
        }
        relations::ended(tx, &row, change.to.state, now)?;
        rescued.push(Rescued { job, worker, state: change.to.state });
    }
    for worker in dead {
        diesel::delete(workers::table.find(&worker.0)).execute(tx.connection)?;
    }
    if !rescued.is_empty() {
        tx.ring();
    }
    Ok(rescued)
}
