//! Schedules, and the jobs they make.

use std::str::FromStr;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::{JobId, NewJob};
use posse_core::port::{Enqueued, Firing};
use posse_core::schedule::{LastJob, Schedule};

use super::fault::{Outcome, unusable};
use super::jobs::{self, Batch};
use super::literal::{IsNotPaused, update};
use super::rows::state;
use super::schema::{jobs as job_rows, schedule_jobs, schedules};
use super::sealed_text::Text;
use super::writer::Transaction;
use posse_core::store::seal::{Keys, Place, Sealed};

/// Adds a schedule, unless there is one of its name.
pub(super) fn add(tx: &mut Transaction<'_>, schedule: &Schedule) -> Outcome<bool> {
    let added = diesel::insert_into(schedules::table)
        .values((
            schedules::name.eq(&schedule.name),
            schedules::cron.eq(&schedule.cron),
            schedules::zone.eq(&schedule.zone),
            schedules::job
                .eq(Text(tx.keys.seal(Place::schedule(&schedule.name), serde_json::to_string(&schedule.job)?))),
            schedules::missed.eq(schedule.missed.as_str()),
            schedules::overlap.eq(schedule.overlap.as_str()),
            schedules::next_at.eq(schedule.next_at),
            schedules::paused_at.eq(schedule.paused_at),
            schedules::created_at.eq(schedule.created_at),
        ))
        .on_conflict_do_nothing()
        .execute(&mut tx.db.0)?;
    Ok(added == 1)
}

/// Puts a schedule in the place of the one of its name, with its pause, and with its next run where that stays.
pub(super) fn replace(tx: &mut Transaction<'_>, schedule: &Schedule, keeps_next: bool) -> Outcome<bool> {
    let this = schedules::name.eq(&schedule.name);
    let row = (
        schedules::cron.eq(&schedule.cron),
        schedules::zone.eq(&schedule.zone),
        schedules::job.eq(Text(tx.keys.seal(Place::schedule(&schedule.name), serde_json::to_string(&schedule.job)?))),
        schedules::missed.eq(schedule.missed.as_str()),
        schedules::overlap.eq(schedule.overlap.as_str()),
    );
    let changed = match keeps_next {
        true => update(schedules::table, this, row).execute(&mut tx.db.0)?,
        false => {
            update(schedules::table, this, (row, schedules::next_at.eq(schedule.next_at))).execute(&mut tx.db.0)?
        }
    };
    // Its next run may be sooner than anybody waits for.
    tx.ring();
    Ok(changed == 1)
}

/// Makes the job of `batch` for a schedule, at no time of its rule.
pub(super) fn run_now(tx: &mut Transaction<'_>, name: &str, batch: &Batch, now: Millis) -> Outcome<Option<Enqueued>> {
    let there: i64 = schedules::table.filter(schedules::name.eq(name)).count().get_result(&mut tx.db.0)?;
    if there == 0 {
        return Ok(None);
    }
    let made = jobs::enqueue(tx, batch, None)?.pop();
    if let Some(made) = made.filter(|made| !made.existed()) {
        diesel::insert_into(schedule_jobs::table)
            .values((
                schedule_jobs::schedule.eq(name),
                schedule_jobs::due_at.eq(now),
                schedule_jobs::job_id.eq(made.id.0),
            ))
            .execute(&mut tx.db.0)?;
    }
    Ok(made)
}

/// Takes a schedule away. What it made stays.
pub(super) fn remove(tx: &mut Transaction<'_>, name: &str) -> Outcome<bool> {
    Ok(diesel::delete(schedules::table.find(name)).execute(&mut tx.db.0)? == 1)
}

/// Pauses a schedule, or has it go on with its next run at `resume_at`. Pausing twice keeps the first time.
pub(super) fn pause(tx: &mut Transaction<'_>, name: &str, resume_at: Option<Millis>, now: Millis) -> Outcome<bool> {
    let this = schedules::name.eq(name);
    let changed = match resume_at {
        Some(next_at) => {
            let goes_on = (schedules::paused_at.eq(None::<i64>), schedules::next_at.eq(next_at));
            update(schedules::table, this, goes_on).execute(&mut tx.db.0)?
        }
        None => {
            let first = this.and(schedules::paused_at.is_null());
            let paused = update(schedules::table, first, schedules::paused_at.eq(now)).execute(&mut tx.db.0)?;
            if paused == 1 {
                1
            } else {
                schedules::table.filter(this).count().get_result::<i64>(&mut tx.db.0)? as usize
            }
        }
    };
    Ok(changed == 1)
}

/// Makes the jobs of a schedule that fell due, if its next run is still the one that was read.
pub(super) fn fire(tx: &mut Transaction<'_>, firing: &Firing, batch: &Batch) -> Outcome<Option<Vec<JobId>>> {
    let as_read = schedules::name
        .eq(&firing.schedule)
        .and(schedules::next_at.eq(firing.expected))
        .and(schedules::paused_at.is_null());
    if update(schedules::table, as_read, schedules::next_at.eq(firing.next_at)).execute(&mut tx.db.0)? == 0 {
        return Ok(None);
    }
    if firing.jobs.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let enqueued = jobs::enqueue(tx, batch, None)?;
    let mut ids = Vec::with_capacity(enqueued.len());
    // A run whose unique key is held has no job of its own.
    for ((due_at, _), made) in firing.jobs.iter().zip(&enqueued).filter(|(_, made)| !made.existed()) {
        diesel::insert_into(schedule_jobs::table)
            .values((
                schedule_jobs::schedule.eq(&firing.schedule),
                schedule_jobs::due_at.eq(due_at),
                schedule_jobs::job_id.eq(made.id.0),
            ))
            .execute(&mut tx.db.0)?;
        ids.push(made.id);
    }
    Ok(Some(ids))
}

/// All schedules, by name.
pub(super) fn all(connection: &mut SqliteConnection, keys: &Keys) -> Outcome<Vec<Schedule>> {
    let rows: Vec<Row> = schedules::table.order(schedules::name).load(connection)?;
    rows.into_iter().map(|row| to_schedule(connection, keys, row)).collect()
}

/// Those whose next run is not ahead, the most overdue first.
pub(super) fn due(connection: &mut SqliteConnection, keys: &Keys, now: Millis) -> Outcome<Vec<Schedule>> {
    let rows: Vec<Row> = schedules::table
        .filter(IsNotPaused)
        .filter(schedules::next_at.le(now))
        .order(schedules::next_at)
        .load(connection)?;
    rows.into_iter().map(|row| to_schedule(connection, keys, row)).collect()
}

/// The jobs a schedule made, newest first.
pub(super) fn jobs_of(connection: &mut SqliteConnection, name: &str, limit: u32) -> Outcome<Vec<(Millis, JobId)>> {
    let made: Vec<(i64, i64)> = schedule_jobs::table
        .filter(schedule_jobs::schedule.eq(name))
        .order(schedule_jobs::due_at.desc())
        .limit(i64::from(limit))
        .select((schedule_jobs::due_at, schedule_jobs::job_id))
        .load(connection)?;
    Ok(made.into_iter().map(|(due_at, job)| (due_at, JobId(job))).collect())
}

type Row = (String, String, String, Sealed, String, String, i64, Option<i64>, i64);

fn to_schedule(connection: &mut SqliteConnection, keys: &Keys, row: Row) -> Outcome<Schedule> {
    let (name, cron, zone, job, missed, overlap, next_at, paused_at, created_at) = row;
    let last: Option<(i64, i64, String)> = schedule_jobs::table
        .inner_join(job_rows::table)
        .filter(schedule_jobs::schedule.eq(&name))
        .order(schedule_jobs::due_at.desc())
        .select((job_rows::id, schedule_jobs::due_at, job_rows::state))
        .first(connection)
        .optional()?;
    let last = last
        .map(|(id, due_at, name)| Ok::<_, super::fault::Fault>(LastJob { id: JobId(id), due_at, state: state(&name)? }))
        .transpose()?;
    let (missed, overlap) = (named(&missed)?, named(&overlap)?);
    // One that cannot be read must not keep the others from making their jobs.
    let (job, damage) = match keys.open(Place::schedule(&name), &job).map(|job| serde_json::from_str(&job)) {
        Ok(Ok(job)) => (job, None),
        Ok(Err(error)) => (NewJob::default(), Some(format!("the job it makes cannot be read: {error}"))),
        Err(closed) => (NewJob::default(), Some(format!("the job it makes is {closed}"))),
    };
    Ok(Schedule { job, damage, name, cron, zone, missed, overlap, next_at, paused_at, created_at, last })
}

fn named<T: FromStr<Err = String>>(name: &str) -> Outcome<T> {
    name.parse().map_err(unusable)
}
