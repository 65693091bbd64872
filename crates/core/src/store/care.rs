//! Keeping a database in order.

use std::collections::BTreeMap;

use super::driver::{Driver, LeaseRow};
use super::{Done, Tx};
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::port::{ClockJump, DueJobs};

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
    let held = tx.db.duty(duty)?;
    if held.is_some_and(|(holder, held_until)| holder != *worker && held_until > now && held_until <= until) {
        return Ok(false);
    }
    tx.db.set_duty(duty, worker, until)?;
    Ok(true)
}

/// Keeps a jump of the clock on record, and cuts leases that stand for longer than was asked for.
pub fn clock_jumped<D: Driver>(tx: &mut Tx<'_, D>, jump: &ClockJump) -> Done<()> {
    tx.db.add_jump(jump, JUMPS_KEPT)?;
    let lease_ms = tx.db.lease_times()?;
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
    let mut asked = tx.db.listed()?;
    asked.retain(|id| worker.is_none_or(|worker| worker.0 == *id));
    asked.iter().try_for_each(|id| tx.db.ask_to_end(id, now))?;
    tx.notify();
    Ok(asked)
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
