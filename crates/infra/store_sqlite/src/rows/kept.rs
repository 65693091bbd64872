//! Rows of small tables: `workers`, `duties`, `clock_jumps`, `retention`, `deaths`, `schedules` and `schedule_jobs`,
//! `batches` and `batch_names`, `breakers` and `rates`.

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use diesel::dsl::max;
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::deaths::{Deaths, Trail};
use posse_core::job::lease::WorkerId;
use posse_core::job::{JobId, NewJob};
use posse_core::model::breaker::Breaker;
use posse_core::port::{BatchMark, ClockJump, WorkerRecord};
use posse_core::schedule::Schedule;
use posse_core::store::driver::{
    BatchName, BatchRow, BreakerRow, BreakersOf, DeathRow, DeathsOf, Duty, FleetRows, Forgets, KeepFor, Keeps, Rates,
    Run, ScheduleRow, SchedulesOf,
};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::{Rows, count, stored};
use crate::literal::{IsNotPaused, IsSuspect, update};
use crate::schema::{
    batch_names, batches, breakers, clock_jumps, deaths, duties, rates, retention, schedule_jobs, schedules, workers,
};
use crate::sealed_text::Text;

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl FleetRows for Rows {
    fn beat(&mut self, worker: &WorkerId, at: Millis) -> Done<()> {
        self.run(update(workers::table, workers::id.eq(&worker.0), workers::heartbeat_at.eq(at)))
    }

    fn elapsed(&self) -> Duration {
        BEGUN.elapsed()
    }
}

impl Keeps<Duty> for Rows {
    fn kept(&mut self, name: &str) -> Done<Vec<Duty>> {
        let duty = |(name, worker, until): (String, String, i64)| Duty { name, worker: WorkerId(worker), until };
        self.load(duties::table.find(name), duty)
    }

    fn keep(&mut self, duty: &Duty) -> Done<()> {
        let row = (duties::name.eq(&duty.name), duties::worker.eq(&duty.worker.0), duties::held_until.eq(duty.until));
        self.run(diesel::replace_into(duties::table).values(row))
    }
}

impl Keeps<KeepFor> for Rows {
    fn kept(&mut self, (): ()) -> Done<Vec<KeepFor>> {
        self.load(retention::table, |(kind, keep): (String, Option<i64>)| KeepFor { kind, keep })
    }

    fn keep(&mut self, row: &KeepFor) -> Done<()> {
        let row = (retention::kind.eq(&row.kind), retention::keep_ms.eq(row.keep));
        self.run(diesel::replace_into(retention::table).values(row))
    }
}

impl Keeps<ClockJump> for Rows {
    fn kept(&mut self, (): ()) -> Done<Vec<ClockJump>> {
        let jump = |(worker, noticed_at, by_ms): (String, i64, i64)| ClockJump { worker, noticed_at, by_ms };
        let columns = (clock_jumps::worker, clock_jumps::noticed_at, clock_jumps::by_ms);
        self.load(clock_jumps::table.order(clock_jumps::id.desc()).select(columns), jump)
    }

    fn keep(&mut self, jump: &ClockJump) -> Done<()> {
        let row = (
            clock_jumps::worker.eq(&jump.worker),
            clock_jumps::noticed_at.eq(jump.noticed_at),
            clock_jumps::by_ms.eq(jump.by_ms),
        );
        self.run(diesel::insert_into(clock_jumps::table).values(row))
    }
}

impl Forgets<ClockJump> for Rows {
    fn forget(&mut self, but: i64) -> Done<bool> {
        let last: Option<i64> = clock_jumps::table.select(max(clock_jumps::id)).first(&mut self.0)?;
        let too_old = clock_jumps::id.le(last.unwrap_or(0) - but);
        Ok(diesel::delete(clock_jumps::table.filter(too_old)).execute(&mut self.0)? > 0)
    }
}

impl Keeps<WorkerRecord> for Rows {
    fn kept(&mut self, id: Option<&str>) -> Done<Vec<WorkerRecord>> {
        type Row = (String, String, i64, i64, String, i32, i64, i64, i64, Option<i64>);
        let worker = |row: Row| {
            let (id, host, pid, pid_started, roles, slots, started_at, heartbeat_at, lease_ms, drain_requested_at) =
                row;
            WorkerRecord {
                id,
                host,
                pid: u32::try_from(pid).unwrap_or(0),
                pid_started: pid_started.cast_unsigned(),
                // Its death must be noticed, whatever became of this.
                roles: serde_json::from_str(&roles).unwrap_or_default(),
                slots: u32::try_from(slots).unwrap_or(0),
                started_at,
                heartbeat_at,
                lease_ms,
                drain_requested_at,
            }
        };
        match id {
            Some(id) => self.load(workers::table.find(id), worker),
            None => self.load(workers::table.order(workers::id), worker),
        }
    }

    fn keep(&mut self, worker: &WorkerRecord) -> Done<()> {
        let row = (
            workers::id.eq(&worker.id),
            workers::host.eq(&worker.host),
            workers::pid.eq(i64::from(worker.pid)),
            workers::pid_started.eq(worker.pid_started.cast_signed()),
            workers::roles.eq(serde_json::to_string(&worker.roles)?),
            workers::slots.eq(i32::try_from(worker.slots).unwrap_or(i32::MAX)),
            workers::started_at.eq(worker.started_at),
            workers::heartbeat_at.eq(worker.heartbeat_at),
            workers::lease_ms.eq(worker.lease_ms),
            workers::drain_requested_at.eq(worker.drain_requested_at),
        );
        self.run(diesel::replace_into(workers::table).values(row))
    }
}

impl Forgets<WorkerRecord> for Rows {
    fn forget(&mut self, worker: &WorkerId) -> Done<bool> {
        Ok(diesel::delete(workers::table.find(&worker.0)).execute(&mut self.0)? > 0)
    }
}

impl Keeps<DeathRow> for Rows {
    fn kept(&mut self, of: DeathsOf) -> Done<Vec<DeathRow>> {
        type Row = (i64, i32, i64, i64, i64, bool, Option<String>);
        let row = |(job, in_a_row, entries, settled, died_at, suspect, awaited_by): Row| {
            let trail = Trail { entries: entries.unsigned_abs(), settled: settled.unsigned_abs(), in_flight: false };
            let met = Deaths { in_a_row: count(in_a_row), trail };
            DeathRow { job: JobId(job), met, died_at, suspect, awaited_by }
        };
        match of {
            DeathsOf::Job(job) => self.load(deaths::table.find(job.0), row),
            DeathsOf::Suspects => self.load(deaths::table.filter(IsSuspect), row),
        }
    }

    fn keep(&mut self, row: &DeathRow) -> Done<()> {
        let row = (
            deaths::job_id.eq(row.job.0),
            deaths::in_a_row.eq(stored(row.met.in_a_row)),
            deaths::entries.eq(row.met.trail.entries.cast_signed()),
            deaths::settled.eq(row.met.trail.settled.cast_signed()),
            deaths::died_at.eq(row.died_at),
            deaths::suspect.eq(row.suspect),
            deaths::awaited_by.eq(&row.awaited_by),
        );
        self.run(diesel::replace_into(deaths::table).values(row))
    }
}

impl Forgets<DeathRow> for Rows {
    fn forget(&mut self, job: JobId) -> Done<bool> {
        Ok(diesel::delete(deaths::table.find(job.0)).execute(&mut self.0)? > 0)
    }
}

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

impl Keeps<BreakerRow> for Rows {
    fn kept(&mut self, of: BreakersOf<'_>) -> Done<Vec<BreakerRow>> {
        type Row = (String, i64, i64, i64, i64, i64, Option<Sealed>);
        let row = |(endpoint, failures, failed_at, rests, out_until, probe_until, reason): Row| {
            let [failures, rests] = [failures, rests].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            BreakerRow { endpoint, breaker: Breaker { failures, failed_at, rests, out_until, probe_until }, reason }
        };
        match of {
            // A list would be prepared on every use.
            BreakersOf::Either([one, other]) => {
                let of_either = breakers::endpoint.eq(one).or(breakers::endpoint.eq(other));
                self.load(breakers::table.filter(of_either), row)
            }
            BreakersOf::All => self.load(breakers::table.order(breakers::endpoint), row),
        }
    }

    fn keep(&mut self, row: &BreakerRow) -> Done<()> {
        let row = (
            breakers::endpoint.eq(&row.endpoint),
            breakers::failures.eq(i64::from(row.breaker.failures)),
            breakers::failed_at.eq(row.breaker.failed_at),
            breakers::rests.eq(i64::from(row.breaker.rests)),
            breakers::out_until.eq(row.breaker.out_until),
            breakers::probe_until.eq(row.breaker.probe_until),
            breakers::reason.eq(row.reason.as_ref().map(Text)),
        );
        self.run(diesel::replace_into(breakers::table).values(row))
    }
}

impl Forgets<BreakerRow> for Rows {
    fn forget(&mut self, endpoint: &str) -> Done<bool> {
        Ok(diesel::delete(breakers::table.find(endpoint)).execute(&mut self.0)? > 0)
    }
}

impl Keeps<Rates> for Rows {
    fn kept(&mut self, key: (&str, &str)) -> Done<Vec<Rates>> {
        let rates = |(endpoint, model, requests_us, tokens_us): (String, String, i64, i64)| Rates {
            endpoint,
            model,
            requests_us,
            tokens_us,
        };
        self.load(rates::table.find(key), rates)
    }

    fn keep(&mut self, row: &Rates) -> Done<()> {
        let row = (
            rates::endpoint.eq(&row.endpoint),
            rates::model.eq(&row.model),
            rates::requests_full_at_us.eq(row.requests_us),
            rates::tokens_full_at_us.eq(row.tokens_us),
        );
        self.run(diesel::replace_into(rates::table).values(row))
    }
}
