//! Schedules, and the jobs they make.

use super::driver::{Driver, ScheduleRow};
use super::enqueue::{self, Batch};
use super::seal::{Keys, Place, Sealed};
use super::{Outcome, Tx};
use crate::clock::Millis;
use crate::job::{JobId, NewJob};
use crate::port::{Enqueued, Firing};
use crate::schedule::Schedule;

fn sealed(keys: &Keys, schedule: &Schedule) -> Result<Sealed, serde_json::Error> {
    Ok(keys.seal(Place::schedule(&schedule.name), serde_json::to_string(&schedule.job)?))
}

/// Adds a schedule, unless there is one of its name.
pub fn add<D: Driver>(tx: &mut Tx<'_, D>, schedule: &Schedule) -> Outcome<bool> {
    Ok(tx.db.add_schedule(schedule, sealed(tx.keys, schedule)?)?)
}

/// Puts a schedule in the place of the one of its name, with its pause, and with its next run where that stays.
pub fn replace<D: Driver>(tx: &mut Tx<'_, D>, schedule: &Schedule, keeps_next: bool) -> Outcome<bool> {
    let replaced = tx.db.replace_schedule(schedule, sealed(tx.keys, schedule)?, keeps_next)?;
    // Its next run may be sooner than anybody waits for.
    tx.notify();
    Ok(replaced)
}

/// Makes the job of `batch` for a schedule, at no time of its rule.
pub fn run_now<D: Driver>(tx: &mut Tx<'_, D>, name: &str, batch: &Batch, now: Millis) -> Outcome<Option<Enqueued>> {
    if !tx.db.has_schedule(name)? {
        return Ok(None);
    }
    let made = enqueue::enqueue(tx, batch, None)?.pop();
    if let Some(made) = made.filter(|made| !made.existed()) {
        tx.db.add_run(name, now, made.id)?;
    }
    Ok(made)
}

/// Pauses a schedule, or has it go on with its next run at `resume_at`. Pausing twice keeps the first time.
pub fn pause<D: Driver>(tx: &mut Tx<'_, D>, name: &str, resume_at: Option<Millis>, now: Millis) -> Outcome<bool> {
    match resume_at {
        Some(next_at) => Ok(tx.db.resume_schedule(name, next_at)?),
        None => Ok(tx.db.pause_schedule(name, now)? || tx.db.has_schedule(name)?),
    }
}

/// Makes the jobs of a schedule that fell due, if its next run is still the one that was read.
pub fn fire<D: Driver>(tx: &mut Tx<'_, D>, firing: &Firing, batch: &Batch) -> Outcome<Option<Vec<JobId>>> {
    if !tx.db.set_next_run(&firing.schedule, firing.expected, firing.next_at)? {
        return Ok(None);
    }
    if firing.jobs.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let enqueued = enqueue::enqueue(tx, batch, None)?;
    let mut ids = Vec::with_capacity(enqueued.len());
    // A run whose unique key is held has no job of its own.
    for ((due_at, _), made) in firing.jobs.iter().zip(&enqueued).filter(|(_, made)| !made.existed()) {
        tx.db.add_run(&firing.schedule, *due_at, made.id)?;
        ids.push(made.id);
    }
    Ok(Some(ids))
}

/// All schedules, by name.
pub fn all<D: Driver>(db: &mut D, keys: &Keys) -> Outcome<Vec<Schedule>> {
    Ok(db.schedules()?.into_iter().map(|row| to_schedule(keys, row)).collect())
}

/// Those whose next run is not ahead, the most overdue first.
pub fn due<D: Driver>(db: &mut D, keys: &Keys, now: Millis) -> Outcome<Vec<Schedule>> {
    Ok(db.due_schedules(now)?.into_iter().map(|row| to_schedule(keys, row)).collect())
}

fn to_schedule(keys: &Keys, row: ScheduleRow) -> Schedule {
    let ScheduleRow { name, cron, zone, job, missed, overlap, next_at, paused_at, created_at, last } = row;
    // One that cannot be read must not keep the others from making their jobs.
    let (job, damage) = match keys.open(Place::schedule(&name), &job).map(|job| serde_json::from_str(&job)) {
        Ok(Ok(job)) => (job, None),
        Ok(Err(error)) => (NewJob::default(), Some(format!("the job it makes cannot be read: {error}"))),
        Err(closed) => (NewJob::default(), Some(format!("the job it makes is {closed}"))),
    };
    Schedule { job, damage, name, cron, zone, missed, overlap, next_at, paused_at, created_at, last }
}
