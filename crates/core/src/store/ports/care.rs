//! The care of a database: schedules, retention, and what those ask who look after it.

use async_trait::async_trait;

use super::unwritable;
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::job::{JobId, NewJob};
use crate::port::{
    CareRepository, ClockJump, DueJobs, Enqueued, Firing, HeldJob, Pruned, Result, Storage, Waiting, WorkerRecord,
};
use crate::queue::retention::{Keep, Retention};
use crate::schedule::Schedule;
use crate::store::driver::{Forgets, Keeps as _, Run, ScheduleRow, SchedulesOf};
use crate::store::engine::Engine;
use crate::store::enqueue::Batch;
use crate::store::{MANY_ROWS, ROW, care, find, retention, schedules};

#[async_trait]
impl<E: Engine> CareRepository for E {
    async fn add_schedule(&self, schedule: Schedule) -> Result<bool> {
        let bytes = ROW + schedule.job.payload.goal.len();
        self.write(bytes, move |tx| schedules::add(tx, &schedule)).await
    }

    async fn replace_schedule(&self, schedule: Schedule, keeps_next: bool) -> Result<bool> {
        let bytes = ROW + schedule.job.payload.goal.len();
        self.write(bytes, move |tx| schedules::replace(tx, &schedule, keeps_next)).await
    }

    async fn run_schedule(&self, name: String, job: NewJob, now: Millis) -> Result<Option<Enqueued>> {
        let batch = Batch::new(vec![job], now).map_err(unwritable)?;
        self.write(ROW + batch.bytes(), move |tx| schedules::run_now(tx, &name, &batch, now)).await
    }

    async fn remove_schedule(&self, name: String) -> Result<bool> {
        self.write(ROW, move |tx| Forgets::<ScheduleRow>::forget(tx.db, &name)).await
    }

    async fn pause_schedule(&self, name: String, resume_at: Option<Millis>, now: Millis) -> Result<bool> {
        self.write(ROW, move |tx| schedules::pause(tx, &name, resume_at, now)).await
    }

    async fn fire(&self, firing: Firing, now: Millis) -> Result<Option<Vec<JobId>>> {
        let new = firing.jobs.iter().map(|(_, job)| job.clone()).collect();
        let batch = Batch::new(new, now).map_err(unwritable)?;
        self.write(ROW + batch.bytes(), move |tx| schedules::fire(tx, &firing, &batch)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.read(|db, keys| schedules::list(db, keys, SchedulesOf::All)).await
    }

    async fn due_schedules(&self, now: Millis) -> Result<Vec<Schedule>> {
        self.read(move |db, keys| schedules::list(db, keys, SchedulesOf::Due(now))).await
    }

    async fn schedule_jobs(&self, name: String, limit: u32) -> Result<Vec<(Millis, JobId)>> {
        let runs: Vec<Run> = self.read(move |db, _| db.kept((name.as_str(), limit))).await?;
        Ok(runs.into_iter().map(|run| (run.due_at, run.job)).collect())
    }

    async fn take_duty(&self, duty: &'static str, worker: WorkerId, until: Millis, now: Millis) -> Result<bool> {
        self.write(ROW, move |tx| care::take_duty(tx, duty, &worker, until, now)).await
    }

    async fn retention(&self) -> Result<Option<Retention>> {
        self.read(|db, _| retention::stored(db)).await
    }

    async fn set_retention(&self, said: Vec<Keep>) -> Result<Retention> {
        self.write(ROW, move |tx| retention::set(tx, &said)).await
    }

    async fn has_prunable(&self, now: Millis) -> Result<bool> {
        self.read(move |db, _| retention::has_any(db, now)).await
    }

    async fn prune(&self, now: Millis) -> Result<Pruned> {
        let old = self.read(move |db, _| retention::old(db, now)).await?;
        self.write(MANY_ROWS, move |tx| retention::prune(tx, &old, now)).await
    }

    async fn shrink(&self) -> Result<bool> {
        self.give_back().await
    }

    async fn clock_jumped(&self, jump: ClockJump) -> Result<()> {
        self.write(MANY_ROWS, move |tx| care::clock_jumped(tx, &jump)).await
    }

    async fn request_drain(&self, worker: Option<WorkerId>, now: Millis) -> Result<Vec<String>> {
        self.write(ROW, move |tx| care::request_drain(tx, worker.as_ref(), now)).await
    }

    async fn drain_requested(&self, worker: WorkerId) -> Result<bool> {
        let listed: Vec<WorkerRecord> = self.read(move |db, _| db.kept(Some(worker.0.as_str()))).await?;
        Ok(listed.iter().any(|worker| worker.drain_requested_at.is_some()))
    }

    async fn held_jobs(&self) -> Result<Vec<HeldJob>> {
        self.read_at_once(|db, _| care::held_jobs(db)).await
    }

    async fn due_jobs(&self, now: Millis) -> Result<Vec<DueJobs>> {
        self.read(move |db, _| care::due(db, now)).await
    }

    async fn key_holders(&self, before: Millis, limit: u32) -> Result<Vec<Waiting>> {
        self.read(move |db, _| find::key_holders(db, before, limit)).await
    }

    async fn clock_jumps(&self) -> Result<Vec<ClockJump>> {
        self.read(|db, _| db.kept(())).await
    }

    async fn storage(&self) -> Result<Storage> {
        self.space().await
    }
}
