//! Keeping a database in order, and what is asked of it to watch a fleet by.

use std::collections::{BTreeMap, HashMap};

use super::driver::{Driver, Duty, Forgets, JobChange, JobRow, JobsOf, Number};
use super::seal::Keys;
use super::{Done, Tx, endpoints};
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::port::{ClockJump, DueJobs, HeldJob, Standing, WorkerRecord};

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
    for row in tx.db.jobs(JobsOf::Running)? {
        // A worker that is not on the list renews nothing any more.
        let most = jump.noticed_at + row.leased_by.and_then(|worker| lease_ms.get(&worker).copied()).unwrap_or(0);
        if row.lease_until.is_some_and(|until| until > most) {
            tx.db.change_jobs(&[row.id], JobChange::LeaseUntil(most))?;
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

/// Jobs in workers' hands, by worker and job. To be asked in one look.
pub fn held_jobs<D: Driver>(db: &mut D) -> Done<Vec<HeldJob>> {
    let mut rows = db.jobs(JobsOf::Running)?;
    rows.sort_by(|a, b| a.leased_by.cmp(&b.leased_by));
    let held = |row: JobRow| {
        let last = db.last_step(row.id)?;
        Ok(HeldJob {
            job: row.id,
            role: row.role,
            worker: row.leased_by.unwrap_or_default(),
            since: row.claimed_at.unwrap_or(0),
            lease_until: row.lease_until.unwrap_or(0),
            entries: last.as_ref().map_or(0, |last| last.seq.unsigned_abs() + 1),
            last_entry_at: last.as_ref().map(|last| last.at),
            last_entry: last.map(|last| last.kind),
        })
    };
    rows.into_iter().map(held).collect()
}

/// What there is at `now`, but for what is on disk. To be asked in one look, so that all of it is of one moment.
pub fn standing<D: Driver>(db: &mut D, keys: &Keys, now: Millis) -> Done<Standing> {
    let workers: Vec<WorkerRecord> = db.kept(None)?;
    // Each role has as many slots as the process says; one whose roles cannot be read has one.
    let slots = |worker: &WorkerRecord| u64::from(worker.slots).saturating_mul(worker.roles.len().max(1) as u64);
    Ok(Standing {
        at: now,
        jobs: db.jobs_in()?,
        due: due(db, now)?,
        enqueued: db.number(Number::Enqueued)?.unwrap_or(0).unsigned_abs(),
        workers: workers.len() as u64,
        slots: workers.iter().map(slots).sum(),
        open_questions: db.number(Number::OpenAsks)?.unwrap_or(0).unsigned_abs(),
        failing_endpoints: endpoints::failing(db, keys)?,
        ..Standing::default()
    })
}
