//! Rows of `schedules` and `schedule_jobs`, of `batches` and `batch_names`.

use std::str::FromStr;

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::port::BatchMark;
use posse_core::schedule::{LastJob, Schedule};
use posse_core::store::driver::{ScheduleRow, ScheduleRows};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::{Rows, state};
use crate::literal::{IsNotPaused, update};
use crate::schema::{batch_names, batches, jobs, schedule_jobs, schedules};
use crate::sealed_text::Text;

type Columns = (String, String, String, Sealed, String, String, i64, Option<i64>, i64);

impl Rows {
    /// With the last job it made.
    fn schedule(&mut self, row: Columns) -> Done<ScheduleRow> {
        let (name, cron, zone, job, missed, overlap, next_at, paused_at, created_at) = row;
        let last: Option<(i64, i64, String)> = schedule_jobs::table
            .inner_join(jobs::table)
            .filter(schedule_jobs::schedule.eq(&name))
            .order(schedule_jobs::due_at.desc())
            .select((jobs::id, schedule_jobs::due_at, jobs::state))
            .first(&mut self.0)
            .optional()?;
        let last = last.map(|(id, due_at, name)| Done::Ok(LastJob { id: JobId(id), due_at, state: state(&name)? }));
        let (missed, overlap, last) = (named(&missed)?, named(&overlap)?, last.transpose()?);
        Ok(ScheduleRow { name, cron, zone, job, missed, overlap, next_at, paused_at, created_at, last })
    }
}

fn named<T: FromStr<Err = String>>(name: &str) -> Done<T> {
    Ok(name.parse().map_err(Unreadable)?)
}

impl ScheduleRows for Rows {
    fn add_schedule(&mut self, schedule: &Schedule, job: Sealed) -> Done<bool> {
        let added = diesel::insert_into(schedules::table)
            .values((
                schedules::name.eq(&schedule.name),
                schedules::cron.eq(&schedule.cron),
                schedules::zone.eq(&schedule.zone),
                schedules::job.eq(Text(job)),
                schedules::missed.eq(schedule.missed.as_str()),
                schedules::overlap.eq(schedule.overlap.as_str()),
                schedules::next_at.eq(schedule.next_at),
                schedules::paused_at.eq(schedule.paused_at),
                schedules::created_at.eq(schedule.created_at),
            ))
            .on_conflict_do_nothing()
            .execute(&mut self.0)?;
        Ok(added == 1)
    }

    fn replace_schedule(&mut self, schedule: &Schedule, job: Sealed, keeps_next: bool) -> Done<bool> {
        let this = schedules::name.eq(&schedule.name);
        let row = (
            schedules::cron.eq(&schedule.cron),
            schedules::zone.eq(&schedule.zone),
            schedules::job.eq(Text(job)),
            schedules::missed.eq(schedule.missed.as_str()),
            schedules::overlap.eq(schedule.overlap.as_str()),
        );
        let next = schedules::next_at.eq(schedule.next_at);
        let replaced = match keeps_next {
            true => update(schedules::table, this, row).execute(&mut self.0)?,
            false => update(schedules::table, this, (row, next)).execute(&mut self.0)?,
        };
        Ok(replaced == 1)
    }

    fn forget_schedule(&mut self, name: &str) -> Done<bool> {
        Ok(diesel::delete(schedules::table.find(name)).execute(&mut self.0)? == 1)
    }

    fn has_schedule(&mut self, name: &str) -> Done<bool> {
        let there: i64 = schedules::table.filter(schedules::name.eq(name)).count().get_result(&mut self.0)?;
        Ok(there > 0)
    }

    fn pause_schedule(&mut self, name: &str, at: Millis) -> Done<bool> {
        let first = schedules::name.eq(name).and(schedules::paused_at.is_null());
        Ok(update(schedules::table, first, schedules::paused_at.eq(at)).execute(&mut self.0)? == 1)
    }

    fn resume_schedule(&mut self, name: &str, next_at: Millis) -> Done<bool> {
        let goes_on = (schedules::paused_at.eq(None::<i64>), schedules::next_at.eq(next_at));
        Ok(update(schedules::table, schedules::name.eq(name), goes_on).execute(&mut self.0)? == 1)
    }

    fn set_next_run(&mut self, name: &str, expected: Millis, next_at: Millis) -> Done<bool> {
        let as_read = schedules::name.eq(name).and(schedules::next_at.eq(expected)).and(schedules::paused_at.is_null());
        Ok(update(schedules::table, as_read, schedules::next_at.eq(next_at)).execute(&mut self.0)? > 0)
    }

    fn add_run(&mut self, schedule: &str, due_at: Millis, job: JobId) -> Done<()> {
        diesel::insert_into(schedule_jobs::table)
            .values((
                schedule_jobs::schedule.eq(schedule),
                schedule_jobs::due_at.eq(due_at),
                schedule_jobs::job_id.eq(job.0),
            ))
            .execute(&mut self.0)?;
        Ok(())
    }

    fn schedules(&mut self) -> Done<Vec<ScheduleRow>> {
        let rows: Vec<Columns> = schedules::table.order(schedules::name).load(&mut self.0)?;
        rows.into_iter().map(|row| self.schedule(row)).collect()
    }

    fn due_schedules(&mut self, now: Millis) -> Done<Vec<ScheduleRow>> {
        let rows: Vec<Columns> = schedules::table
            .filter(IsNotPaused)
            .filter(schedules::next_at.le(now))
            .order(schedules::next_at)
            .load(&mut self.0)?;
        rows.into_iter().map(|row| self.schedule(row)).collect()
    }

    fn runs(&mut self, name: &str, most: u32) -> Done<Vec<(Millis, JobId)>> {
        let made: Vec<(i64, i64)> = schedule_jobs::table
            .filter(schedule_jobs::schedule.eq(name))
            .order(schedule_jobs::due_at.desc())
            .limit(i64::from(most))
            .select((schedule_jobs::due_at, schedule_jobs::job_id))
            .load(&mut self.0)?;
        Ok(made.into_iter().map(|(due_at, job)| (due_at, JobId(job))).collect())
    }

    fn batch(&mut self, name: &str) -> Done<Option<(BatchMark, u64)>> {
        let row: Option<(i64, Vec<u8>, i64)> = batches::table
            .find(name)
            .select((batches::lines, batches::digest, batches::jobs))
            .first(&mut self.0)
            .optional()?;
        let mark = |(lines, digest, jobs): (i64, Vec<u8>, i64)| {
            (BatchMark { lines: lines.unsigned_abs(), digest }, jobs.unsigned_abs())
        };
        Ok(row.map(mark))
    }

    fn set_batch(&mut self, name: &str, mark: &BatchMark, jobs: u64, at: Millis) -> Done<()> {
        let (lines, jobs) = (mark.lines.cast_signed(), jobs.cast_signed());
        diesel::insert_into(batches::table)
            .values((
                batches::name.eq(name),
                batches::lines.eq(lines),
                batches::digest.eq(&mark.digest),
                batches::jobs.eq(jobs),
                batches::created_at.eq(at),
                batches::changed_at.eq(at),
            ))
            .on_conflict(batches::name)
            .do_update()
            .set((
                batches::lines.eq(lines),
                batches::digest.eq(&mark.digest),
                batches::jobs.eq(batches::jobs + jobs),
                batches::changed_at.eq(at),
            ))
            .execute(&mut self.0)?;
        Ok(())
    }

    fn batch_names(&mut self, batch: &str) -> Done<Vec<(String, JobId)>> {
        let names: Vec<(String, i64)> = batch_names::table
            .filter(batch_names::batch.eq(batch))
            .select((batch_names::name, batch_names::job_id))
            .load(&mut self.0)?;
        Ok(names.into_iter().map(|(name, id)| (name, JobId(id))).collect())
    }

    fn name_in_batch(&mut self, batch: &str, name: &str, job: JobId) -> Done<()> {
        diesel::insert_into(batch_names::table)
            .values((batch_names::batch.eq(batch), batch_names::name.eq(name), batch_names::job_id.eq(job.0)))
            .execute(&mut self.0)?;
        Ok(())
    }
}
