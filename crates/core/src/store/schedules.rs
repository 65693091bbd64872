//! Schedules, and the jobs they make.

use super::driver::{Driver, Run, ScheduleRow, SchedulesOf};
use super::enqueue::{self, Batch};
use super::seal::{Keys, Place};
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::JobId;
use crate::port::{Enqueued, Firing};
use crate::schedule::{LastJob, Schedule};

fn row(keys: &Keys, schedule: &Schedule) -> Result<ScheduleRow, serde_json::Error> {
    let job = keys.seal(Place::schedule(&schedule.name), serde_json::to_string(&schedule.job)?);
    Ok(ScheduleRow { schedule: schedule.clone(), job })
}

fn named<D: Driver>(db: &mut D, name: &str) -> Done<Option<ScheduleRow>> {
    Ok(db.kept(SchedulesOf::Name(name))?.pop())
}

/// Adds a schedule, unless there is one of its name.
pub fn add<D: Driver>(tx: &mut Tx<'_, D>, schedule: &Schedule) -> Outcome<bool> {
    let is_new = named(tx.db, &schedule.name)?.is_none();
    if is_new {
        tx.db.keep(&row(tx.keys, schedule)?)?;
    }
    Ok(is_new)
}

/// Puts a schedule in the place of the one of its name, with its pause, and with its next run where that stays.
pub fn replace<D: Driver>(tx: &mut Tx<'_, D>, schedule: &Schedule, keeps_next: bool) -> Outcome<bool> {
    let Some(ScheduleRow { schedule: before, .. }) = named(tx.db, &schedule.name)? else { return Ok(false) };
    let mut row = row(tx.keys, schedule)?;
    (row.schedule.paused_at, row.schedule.created_at) = (before.paused_at, before.created_at);
    if keeps_next {
        row.schedule.next_at = before.next_at;
    }
    tx.db.keep(&row)?;
    // Its next run may be sooner than anybody waits for.
    tx.notify();
    Ok(true)
}

/// Makes the job of `batch` for a schedule, at no time of its rule.
pub fn run_now<D: Driver>(tx: &mut Tx<'_, D>, name: &str, batch: &Batch, now: Millis) -> Outcome<Option<Enqueued>> {
    if named(tx.db, name)?.is_none() {
        return Ok(None);
    }
    let made = enqueue::enqueue(tx, batch, None)?.pop();
    if let Some(made) = made.filter(|made| !made.existed()) {
        tx.db.keep(&Run { schedule: name.to_owned(), due_at: now, job: made.id })?;
    }
    Ok(made)
}

/// Pauses a schedule, or has it go on with its next run at `resume_at`. Pausing twice keeps the first time.
pub fn pause<D: Driver>(tx: &mut Tx<'_, D>, name: &str, resume_at: Option<Millis>, now: Millis) -> Done<bool> {
    let Some(mut row) = named(tx.db, name)? else { return Ok(false) };
    match resume_at {
        Some(next_at) => (row.schedule.paused_at, row.schedule.next_at) = (None, next_at),
        None => row.schedule.paused_at = row.schedule.paused_at.or(Some(now)),
    }
    tx.db.keep(&row)?;
    Ok(true)
}

/// Makes the jobs of a schedule that fell due, if its next run is still the one that was read.
pub fn fire<D: Driver>(tx: &mut Tx<'_, D>, firing: &Firing, batch: &Batch) -> Outcome<Option<Vec<JobId>>> {
    let row = named(tx.db, &firing.schedule)?;
    let is_as_read = |row: &ScheduleRow| row.schedule.next_at == firing.expected && row.schedule.paused_at.is_none();
    let Some(mut row) = row.filter(is_as_read) else { return Ok(None) };
    row.schedule.next_at = firing.next_at;
    tx.db.keep(&row)?;
    if firing.jobs.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let enqueued = enqueue::enqueue(tx, batch, None)?;
    let mut ids = Vec::with_capacity(enqueued.len());
    // A run whose unique key is held has no job of its own.
    for ((due_at, _), made) in firing.jobs.iter().zip(&enqueued).filter(|(_, made)| !made.existed()) {
        tx.db.keep(&Run { schedule: firing.schedule.clone(), due_at: *due_at, job: made.id })?;
        ids.push(made.id);
    }
    Ok(Some(ids))
}

/// Schedules as they are asked for.
pub fn list<D: Driver>(db: &mut D, keys: &Keys, of: SchedulesOf<'_>) -> Done<Vec<Schedule>> {
    let rows = db.kept(of)?;
    rows.into_iter().map(|row| to_schedule(db, keys, row)).collect()
}

fn to_schedule<D: Driver>(db: &mut D, keys: &Keys, row: ScheduleRow) -> Done<Schedule> {
    let ScheduleRow { mut schedule, job } = row;
    // One that cannot be read must not keep the others from making their jobs.
    match keys.open(Place::schedule(&schedule.name), &job).map(|job| serde_json::from_str(&job)) {
        Ok(Ok(job)) => schedule.job = job,
        Ok(Err(error)) => schedule.damage = Some(format!("the job it makes cannot be read: {error}")),
        Err(closed) => schedule.damage = Some(format!("the job it makes is {closed}")),
    }
    if let Some(Run { due_at, job, .. }) = db.kept((schedule.name.as_str(), 1))?.pop() {
        let state = db.job(job)?.map(|job| job.standing.state);
        schedule.last = state.map(|state| LastJob { id: job, due_at, state });
    }
    Ok(schedule)
}
