//! Keeping a database in order.

use std::collections::{BTreeMap, HashMap};

use super::driver::{Driver, Duty, Forgets, LeaseRow};
use super::{Done, Tx};
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::port::{ClockJump, DueJobs, WorkerRecord};

/// How many times at which the clock was set are kept.
const JUMPS_KEPT: i64 = 20;

/// Gives `worker` a duty until `until`, unless another holds it.
pub fn take_duty<D: Driver>(
    tx: &mut Tx<'_, D>,
    duty: &str,
    worker: &WorkerId,
    until: Millis,
    now: Millis,
) -> Done<bool> {
    let held: Option<Duty> = tx.db.kept(duty)?.pop();
    if held.is_some_and(|held| held.worker != *worker && held.until > now && held.until <= until) {
        return Ok(false);
    }
    tx.db.keep(&Duty { name: duty.to_owned(), worker: worker.clone(), until })?;
    Ok(true)
}

/// Keeps a jump of the clock on record, and cuts leases that stand for longer than was asked for.
pub fn clock_jumped<D: Driver>(tx: &mut Tx<'_, D>, jump: &ClockJump) -> Done<()> {
    tx.db.keep(jump)?;
    Forgets::<ClockJump>::forget(tx.db, JUMPS_KEPT)?;
    let workers: Vec<WorkerRecord> = tx.db.kept(None)?;
    let lease_ms: HashMap<_, _> = workers.into_iter().map(|worker| (worker.id, worker.lease_ms)).collect();
    for LeaseRow { job, until, worker } in tx.db.leases()? {
        // A worker that is not on the list renews nothing any more.
        let most = jump.noticed_at + worker.and_then(|worker| lease_ms.get(&worker).copied()).unwrap_or(0);
        if until.is_some_and(|until| until > most) {
            tx.db.cut_lease(job, most)?;
        }
    }
    tx.notify();
    Ok(())
}

/// Asks a worker, or all on the list, to finish what is in hand and end.
pub fn request_drain<D: Driver>(tx: &mut Tx<'_, D>, worker: Option<&WorkerId>, now: Millis) -> Done<Vec<String>> {
    let mut asked: Vec<WorkerRecord> = tx.db.kept(worker.map(|worker| worker.0.as_str()))?;
    for worker in asked.iter_mut().filter(|worker| worker.drain_requested_at.is_none()) {
        worker.drain_requested_at = Some(now);
        tx.db.keep(worker)?;
    }
    tx.notify();
    Ok(asked.into_iter().map(|worker| worker.id).collect())
}

/// Jobs that are due, by role: those that may be claimed, and those whose time has come.
pub fn due<D: Driver>(db: &mut D, now: Millis) -> Done<Vec<DueJobs>> {
    let mut roles: BTreeMap<String, DueJobs> = BTreeMap::new();
    for due in db.due_by_role(now)? {
        match roles.get_mut(&due.role) {
            Some(of_role) => {
                of_role.jobs += due.jobs;
                of_role.oldest_due_at = of_role.oldest_due_at.min(due.oldest_due_at);
            }
            None => drop(roles.insert(due.role.clone(), due)),
        }
    }
    Ok(roles.into_values().collect())
}
