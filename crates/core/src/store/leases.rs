//! Keeping leases, and taking jobs back from those who no longer do.

use std::collections::HashMap;

use super::driver::{Driver, Forgets, IdsOf, JobChange, JobRow, JobsOf};
use super::jobs::{Why, end_attempts, store};
use super::{Done, Outcome, Tx, cancel, deaths, waits};
use crate::clock::Millis;
use crate::job::JobState;
use crate::job::deaths::{deadly, died_in_last_attempt};
use crate::job::lease::{Lease, WorkerId};
use crate::job::transition::{Event, Transition, transition};
use crate::port::{Heartbeat, Overdue, Rescued, WorkerRecord};

/// Renews leases and marks the worker alive.
pub fn heartbeat<D: Driver>(
    tx: &mut Tx<'_, D>,
    worker: &WorkerId,
    leases: &[Lease],
    lease_until: Millis,
    now: Millis,
) -> Done<Heartbeat> {
    let (lease_until, now) = (lease_until + tx.late_ms, now + tx.late_ms);
    tx.db.beat(worker, now)?;
    let mut heard = Heartbeat::default();
    let asked: Vec<_> = leases.iter().map(|lease| lease.job).collect();
    let tokens: HashMap<_, _> = tx.db.running(&asked)?.into_iter().map(|row| (row.id, row.lease_token)).collect();
    let stands = |lease: &Lease| tokens.get(&lease.job) == Some(&lease.token);
    let held: Vec<_> = leases.iter().filter(|lease| stands(lease)).map(|lease| lease.job).collect();
    heard.lost = leases.iter().filter(|lease| !stands(lease)).map(|lease| lease.job).collect();
    tx.db.change_jobs(&held, JobChange::LeaseUntil(lease_until))?;
    heard.cancelled = tx.db.ids(IdsOf::ToBeCancelled)?.into_iter().filter(|job| held.contains(job)).collect();
    Ok(heard)
}

/// Leases that ended and were not renewed, by job.
pub fn overdue<D: Driver>(db: &mut D, now: Millis) -> Done<Vec<Overdue>> {
    let overdue = |row: JobRow| Overdue {
        lease: Lease { job: row.id, token: row.lease_token },
        worker: WorkerId(row.leased_by.unwrap_or_default()),
        until: row.lease_until.unwrap_or_default(),
    };
    Ok(db.jobs(JobsOf::Overdue(now))?.into_iter().map(overdue).collect())
}

/// What became of a worker that holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is gone, and nobody knows why.
    Died,
    /// It ended by itself, and could not give back what it held.
    Ended,
    /// It runs, and did not renew its lease.
    Lives,
}

/// Takes back jobs of workers known to be gone, and those workers off the list. With each, whether it ended by itself.
pub fn rescue<D: Driver>(tx: &mut Tx<'_, D>, gone: &[(bool, WorkerId)], now: Millis) -> Outcome<Vec<Rescued>> {
    let mut rows = Vec::new();
    for (has_ended, worker) in gone {
        let fate = if *has_ended { Fate::Ended } else { Fate::Died };
        rows.extend(tx.db.jobs(JobsOf::HeldBy(&worker.0))?.into_iter().map(|row| (fate, row)));
    }
    rows.sort_by_key(|(_, row)| row.id);
    let rescued = rows.into_iter().map(|(fate, row)| lost(tx, fate, row, now)).collect::<Outcome<Vec<_>>>()?;
    for (_, worker) in gone {
        Forgets::<WorkerRecord>::forget(tx.db, worker)?;
    }
    if !rescued.is_empty() {
        tx.notify();
    }
    Ok(rescued)
}

/// A worker leaves, and gives back what it holds: attempts whose ends could not be stored.
pub fn leave<D: Driver>(tx: &mut Tx<'_, D>, worker: &WorkerId, now: Millis) -> Outcome<()> {
    let rows = tx.db.jobs(JobsOf::HeldBy(&worker.0))?;
    if !rows.is_empty() {
        tx.notify();
    }
    for row in rows {
        lost(tx, Fate::Ended, row, now)?;
    }
    Forgets::<WorkerRecord>::forget(tx.db, worker)?;
    Ok(())
}

/// Takes back jobs whose leases ended, and are still what they were then.
pub fn take_back<D: Driver>(tx: &mut Tx<'_, D>, forfeits: &[(Fate, Overdue)], now: Millis) -> Outcome<Vec<Rescued>> {
    let mut rescued = Vec::with_capacity(forfeits.len());
    for (fate, Overdue { lease, until, .. }) in forfeits {
        let row = tx.db.job(lease.job)?;
        let Some(row) = row.filter(|row| row.is_leased_as(lease.token) && row.lease_until == Some(*until)) else {
            continue;
        };
        rescued.push(lost(tx, *fate, row, now)?);
    }
    if !rescued.is_empty() {
        tx.notify();
    }
    Ok(rescued)
}

/// A job's worker works it no more.
fn lost<D: Driver>(tx: &mut Tx<'_, D>, fate: Fate, row: JobRow, now: Millis) -> Outcome<Rescued> {
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
fn died<D: Driver>(tx: &mut Tx<'_, D>, row: JobRow, now: Millis) -> Outcome<Rescued> {
    let (job, worker) = (row.id, row.leased_by.clone().unwrap_or_default());
    let from = row.standing;
    let (event, in_a_row) = deaths::meet(tx.db, job, now)?;
    let change = transition(from, event, now)?;
    let lost = format!("worker {worker} was lost while working on it");
    end_attempts(tx, &[row.id], event, Some(&lost), now)?;
    let said = match change.to.state {
        JobState::Discarded if event == Event::Deadly => deadly(job, in_a_row),
        JobState::Discarded => died_in_last_attempt(job, from.max_attempts),
        _ => lost,
    };
    store(tx, &row, &change, unless_cancelled(&change, &said), now)?;
    if change.to.state == JobState::Discarded {
        cancel::tasks_of(tx, job, change.to.state, now)?;
    }
    waits::ended(tx, &row, change.to.state, now)?;
    Ok(Rescued { job, worker, state: change.to.state })
}

/// A job goes back to the queue, and nothing happened to it.
pub fn given_back<D: Driver>(tx: &mut Tx<'_, D>, row: JobRow, why: &str, now: Millis) -> Outcome<Rescued> {
    let (job, worker) = (row.id, row.leased_by.clone().unwrap_or_default());
    let change = transition(row.standing, Event::Interrupt, now)?;
    end_attempts(tx, &[row.id], Event::Interrupt, Some(why), now)?;
    store(tx, &row, &change, unless_cancelled(&change, why), now)?;
    waits::ended(tx, &row, change.to.state, now)?;
    Ok(Rescued { job, worker, state: change.to.state })
}

/// A job that is cancelled keeps what was said when its end was asked for.
fn unless_cancelled<'a>(change: &Transition, why: &'a str) -> Why<'a> {
    if change.to.state == JobState::Cancelled { Why::AsBefore } else { Why::Said(why) }
}
