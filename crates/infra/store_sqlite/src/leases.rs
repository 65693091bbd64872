//! Keeping leases, and taking jobs back from those who no longer do.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::deaths::{deadly, died_in_last_attempt};
use posse_core::job::lease::{Lease, WorkerId};
use posse_core::job::transition::{Event, transition};
use posse_core::job::{JobId, JobState};
use posse_core::port::{Heartbeat, Overdue, Rescued};
use posse_core::store::attempts;

use super::fault::Outcome;
use super::literal::{IsRunning, among, update};
use super::rows::JobColumns;
use super::schema::{jobs, workers};
use super::writer::Transaction;
use super::{deaths, queries, relations, workers as list};
use posse_core::store::Done;
use posse_core::store::driver::{JobRow, JobRows as _};
use posse_core::store::jobs::{set_reason, store};

/// What of a wait is made up for, so that a lease does not begin with what others held the lock for.
const NOTABLE_WAIT: Duration = Duration::from_secs(1);

/// How much later than it was asked for something is written, in milliseconds; 0 where that is not worth mentioning.
pub(super) fn late_by(asked: Instant) -> Millis {
    let waited = asked.elapsed();
    if waited < NOTABLE_WAIT { 0 } else { Millis::try_from(waited.as_millis()).unwrap_or(0) }
}

/// Renews leases and marks the worker alive.
pub(super) fn heartbeat(
    tx: &mut Transaction<'_>,
    worker: &WorkerId,
    leases: &[Lease],
    lease_until: Millis,
    now: Millis,
) -> Outcome<Heartbeat> {
    update(workers::table, workers::id.eq(&worker.0), workers::heartbeat_at.eq(now)).execute(&mut tx.db.0)?;
    let mut heard = Heartbeat::default();
    let asked: Vec<_> = leases.iter().map(|lease| lease.job.0).collect();
    let tokens: HashMap<i64, i64> = jobs::table
        .filter(among(&asked))
        .filter(IsRunning)
        .select((jobs::id, jobs::lease_token))
        .load_iter(&mut tx.db.0)?
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
    update(jobs::table, among(&kept), jobs::lease_until.eq(lease_until)).execute(&mut tx.db.0)?;
    heard.cancelled = queries::cancel_requested(&mut tx.db.0)?.into_iter().filter(|job| held.contains(job)).collect();
    Ok(heard)
}

/// Leases that ended and were not renewed, by job.
pub(super) fn overdue(connection: &mut SqliteConnection, now: Millis) -> Outcome<Vec<Overdue>> {
    let rows: Vec<(i64, i64, Option<String>, Option<i64>)> = jobs::table
        .filter(IsRunning)
        .filter(jobs::lease_until.le(now))
        .select((jobs::id, jobs::lease_token, jobs::leased_by, jobs::lease_until))
        .load(connection)?;
    let overdue = |(job, token, worker, until): (i64, i64, Option<String>, Option<i64>)| Overdue {
        lease: Lease { job: JobId(job), token },
        worker: WorkerId(worker.unwrap_or_default()),
        until: until.unwrap_or_default(),
    };
    let mut found: Vec<_> = rows.into_iter().map(overdue).collect();
    found.sort_by_key(|overdue| overdue.lease.job);
    Ok(found)
}

/// What became of a worker that holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is gone, and nobody knows why.
    Died,
    /// It ended by itself, and could not give back what it held.
    Ended,
    /// It runs, and did not renew its lease.
    Lives,
}

/// Takes back jobs of workers known to be gone, and those workers off the list. With each, whether it ended by itself.
pub(super) fn rescue(tx: &mut Transaction<'_>, gone: &[(bool, WorkerId)], now: Millis) -> Outcome<Vec<Rescued>> {
    let mut rows = Vec::new();
    for (has_ended, worker) in gone {
        let fate = if *has_ended { Fate::Ended } else { Fate::Died };
        rows.extend(held(tx, worker)?.into_iter().map(|row| (fate, row)));
    }
    rows.sort_by_key(|(_, row)| row.id);
    let rescued = rows.into_iter().map(|(fate, row)| lost(tx, fate, row, now)).collect::<Outcome<Vec<_>>>()?;
    for (_, worker) in gone {
        list::unregister(tx, worker)?;
    }
    if !rescued.is_empty() {
        tx.ring();
    }
    Ok(rescued)
}

/// A worker leaves, and gives back what it holds: attempts whose ends could not be stored.
pub(super) fn leave(tx: &mut Transaction<'_>, worker: &WorkerId, now: Millis) -> Outcome<()> {
    let rows = held(tx, worker)?;
    if !rows.is_empty() {
        tx.ring();
    }
    for row in rows {
        lost(tx, Fate::Ended, row, now)?;
    }
    list::unregister(tx, worker)
}

/// The jobs that a worker holds.
fn held(tx: &mut Transaction<'_>, worker: &WorkerId) -> Outcome<Vec<JobRow>> {
    // By the index of leases, whatever they say.
    let held = jobs::table.filter(IsRunning).filter(jobs::lease_until.gt(Millis::MIN));
    let held = held.filter(jobs::leased_by.eq(&worker.0)).select(JobColumns::as_select());
    let rows: Vec<JobColumns> = held.load(&mut tx.db.0)?;
    Ok(rows.into_iter().map(JobColumns::read).collect::<Done<_>>()?)
}

/// Takes back jobs whose leases ended, and are still what they were then.
pub(super) fn take_back(tx: &mut Transaction<'_>, forfeits: &[(Fate, Overdue)], now: Millis) -> Outcome<Vec<Rescued>> {
    let mut rescued = Vec::with_capacity(forfeits.len());
    for (fate, Overdue { lease, until, .. }) in forfeits {
        let row = tx.db.job(lease.job)?;
        let Some(row) = row.filter(|row| row.is_leased_as(lease.token) && row.lease_until == Some(*until)) else {
            continue;
        };
        rescued.push(lost(tx, *fate, row, now)?);
    }
    if !rescued.is_empty() {
        tx.ring();
    }
    Ok(rescued)
}

/// A job's worker works it no more.
fn lost(tx: &mut Transaction<'_>, fate: Fate, row: JobRow, now: Millis) -> Outcome<Rescued> {
    let worker = row.leased_by.as_deref().unwrap_or_default();
    let why = match fate {
        Fate::Died => return died(tx, row, now),
        Fate::Ended => format!(
            "worker {worker} ended, and could not store how far it was (its database was lost, locked or full); the attempt \
             was given back"
        ),
        Fate::Lives => format!(
            "worker {worker} lives, and did not renew its lease in time (it was stopped, or could not reach the database); \
             the attempt was given back"
        ),
    };
    given_back(tx, row, &why, now)
}

/// The worker of a job died.
fn died(tx: &mut Transaction<'_>, row: JobRow, now: Millis) -> Outcome<Rescued> {
    let (job, worker) = (row.id, row.leased_by.clone().unwrap_or_default());
    let from = row.standing;
    let (event, in_a_row) = deaths::meet(&mut tx.db.0, job, now)?;
    let change = transition(from, event, now)?;
    let lost = format!("worker {worker} was lost while working on it");
    attempts::end(tx, &[row.id], event, Some(&lost), now)?;
    store(tx.db, job, &change, now)?;
    match change.to.state {
        // It keeps what was said when its end was asked for.
        JobState::Cancelled => {}
        JobState::Discarded if event == Event::Deadly => set_reason(tx, job, Some(&deadly(job, in_a_row)))?,
        JobState::Discarded => set_reason(tx, job, Some(&died_in_last_attempt(job, from.max_attempts)))?,
        _ => set_reason(tx, job, Some(&lost))?,
    }
    relations::ended(tx, &row, change.to.state, now)?;
    Ok(Rescued { job, worker, state: change.to.state })
}

/// A job goes back to the queue, and nothing happened to it.
pub(super) fn given_back(tx: &mut Transaction<'_>, row: JobRow, why: &str, now: Millis) -> Outcome<Rescued> {
    let (job, worker) = (row.id, row.leased_by.clone().unwrap_or_default());
    let change = transition(row.standing, Event::Interrupt, now)?;
    attempts::end(tx, &[row.id], Event::Interrupt, Some(why), now)?;
    store(tx.db, job, &change, now)?;
    if change.to.state != JobState::Cancelled {
        set_reason(tx, job, Some(why))?;
    }
    relations::ended(tx, &row, change.to.state, now)?;
    Ok(Rescued { job, worker, state: change.to.state })
}
