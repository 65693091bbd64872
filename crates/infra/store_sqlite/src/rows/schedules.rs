//! Rows of `schedules` and `schedule_jobs`, of `batches` and `batch_names`.

use std::str::FromStr;

use diesel::prelude::*;
use posse_core::job::{JobId, NewJob};
use posse_core::port::BatchMark;
use posse_core::schedule::Schedule;
use posse_core::store::driver::{BatchName, BatchRow, Forgets, Keeps, Run, ScheduleRow, SchedulesOf};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::IsNotPaused;
use crate::schema::{batch_names, batches, schedule_jobs, schedules};
use crate::sealed_text::Text;

fn named<T: FromStr<Err = String>>(name: &str) -> Done<T> {
    Ok(name.parse().map_err(Unreadable)?)
}

impl Keeps<ScheduleRow> for Rows {
    fn kept(&mut self, of: SchedulesOf<'_>) -> Done<Vec<ScheduleRow>> {
        type Row = (String, String, String, Sealed, String, String, i64, Option<i64>, i64);
        let row = |(name, cron, zone, sealed, missed, overlap, next_at, paused_at, created_at): Row| {
            let (missed, overlap, job) = (named(&missed)?, named(&overlap)?, NewJob::default());
            let (last, damage) = (None, None);
            let schedule =
                Schedule { name, cron, zone, job, missed, overlap, next_at, paused_at, created_at, last, damage };
            Ok(ScheduleRow { schedule, job: sealed })
        };
        let rows = match of {
            SchedulesOf::Name(name) => self.load(schedules::table.find(name), row),
            SchedulesOf::All => self.load(schedules::table.order(schedules::name), row),
            SchedulesOf::Due(now) => {
                let due = schedules::table.filter(IsNotPaused).filter(schedules::next_at.le(now));
                self.load(due.order(schedules::next_at), row)
            }
        };
        rows?.into_iter().collect()
    }

    fn keep(&mut self, ScheduleRow { schedule, job }: &ScheduleRow) -> Done<()> {
        let row = (
            schedules::name.eq(&schedule.name),
            schedules::cron.eq(&schedule.cron),
            schedules::zone.eq(&schedule.zone),
            schedules::job.eq(Text(job)),
            schedules::missed.eq(schedule.missed.as_str()),
            schedules::overlap.eq(schedule.overlap.as_str()),
            schedules::next_at.eq(schedule.next_at),
            schedules::paused_at.eq(schedule.paused_at),
            schedules::created_at.eq(schedule.created_at),
        );
        // Its runs would go with a row that is replaced.
        let there = diesel::insert_into(schedules::table).values(row).on_conflict(schedules::name);
        self.run(there.do_update().set(row))
    }
}

impl Forgets<ScheduleRow> for Rows {
    fn forget(&mut self, name: &str) -> Done<bool> {
        Ok(diesel::delete(schedules::table.find(name)).execute(&mut self.0)? > 0)
    }
}

impl Keeps<Run> for Rows {
    fn kept(&mut self, (name, most): (&str, u32)) -> Done<Vec<Run>> {
        let of_schedule = schedule_jobs::table.filter(schedule_jobs::schedule.eq(name));
        let run = |(schedule, due_at, job): (String, i64, i64)| Run { schedule, due_at, job: JobId(job) };
        self.load(of_schedule.order(schedule_jobs::due_at.desc()).limit(i64::from(most)), run)
    }

    fn keep(&mut self, run: &Run) -> Done<()> {
        let row = (
            schedule_jobs::schedule.eq(&run.schedule),
            schedule_jobs::due_at.eq(run.due_at),
            schedule_jobs::job_id.eq(run.job.0),
        );
        self.run(diesel::insert_into(schedule_jobs::table).values(row))
    }
}

impl Keeps<BatchRow> for Rows {
    fn kept(&mut self, name: &str) -> Done<Vec<BatchRow>> {
        type Row = (String, i64, Vec<u8>, i64, i64, i64);
        let row = |(name, lines, digest, jobs, created_at, changed_at): Row| {
            let mark = BatchMark { lines: lines.unsigned_abs(), digest };
            BatchRow { name, mark, jobs: jobs.unsigned_abs(), created_at, changed_at }
        };
        self.load(batches::table.find(name), row)
    }

    fn keep(&mut self, row: &BatchRow) -> Done<()> {
        let row = (
            batches::name.eq(&row.name),
            batches::lines.eq(row.mark.lines.cast_signed()),
            batches::digest.eq(&row.mark.digest),
            batches::jobs.eq(row.jobs.cast_signed()),
            batches::created_at.eq(row.created_at),
            batches::changed_at.eq(row.changed_at),
        );
        // Its names would go with a row that is replaced.
        let there = diesel::insert_into(batches::table).values(row).on_conflict(batches::name);
        self.run(there.do_update().set(row))
    }
}

impl Keeps<BatchName> for Rows {
    fn kept(&mut self, batch: &str) -> Done<Vec<BatchName>> {
        let name = |(batch, name, job): (String, String, i64)| BatchName { batch, name, job: JobId(job) };
        self.load(batch_names::table.filter(batch_names::batch.eq(batch)), name)
    }

    fn keep(&mut self, row: &BatchName) -> Done<()> {
        let row =
            (batch_names::batch.eq(&row.batch), batch_names::name.eq(&row.name), batch_names::job_id.eq(row.job.0));
        self.run(diesel::insert_into(batch_names::table).values(row))
    }
}
