//! The core's port for the care of a database, onto the writer and the readers.

use async_trait::async_trait;
use posse_core::clock::Millis;
use posse_core::job::lease::WorkerId;
use posse_core::job::{JobId, NewJob};
use posse_core::port::{
    CareRepository, ClockJump, DueJobs, Enqueued, Firing, HeldJob, Pruned, RepositoryError, Storage, Waiting,
};
use posse_core::queue::retention::{Keep, Retention};
use posse_core::schedule::Schedule;

use super::fault::Fault;
use super::log::Log;
use super::repository::{MANY_ROWS, ROW, unwritable};
use super::{SqliteStore, care, holders, jobs, prune, retention, schedules};

#[async_trait]
impl CareRepository for SqliteStore {
    async fn add_schedule(&self, schedule: Schedule) -> Result<bool, RepositoryError> {
        let bytes = ROW + schedule.job.payload.goal.len();
        self.writer()?.run(bytes, move |tx| schedules::add(tx, &schedule)).await
    }

    async fn replace_schedule(&self, schedule: Schedule, keeps_next: bool) -> Result<bool, RepositoryError> {
        let bytes = ROW + schedule.job.payload.goal.len();
        self.writer()?.run(bytes, move |tx| schedules::replace(tx, &schedule, keeps_next)).await
    }

    async fn run_schedule(&self, name: String, job: NewJob, now: Millis) -> Result<Option<Enqueued>, RepositoryError> {
        let batch = jobs::Batch::new(vec![job], now).map_err(unwritable)?;
        self.writer()?.run(ROW + batch.bytes(), move |tx| schedules::run_now(tx, &name, &batch, now)).await
    }

    async fn remove_schedule(&self, name: String) -> Result<bool, RepositoryError> {
        self.writer()?.run(ROW, move |tx| schedules::remove(tx, &name)).await
    }

    async fn pause_schedule(
        &self,
        name: String,
        resume_at: Option<Millis>,
        now: Millis,
    ) -> Result<bool, RepositoryError> {
        self.writer()?.run(ROW, move |tx| schedules::pause(tx, &name, resume_at, now)).await
    }

    async fn fire(&self, firing: Firing, now: Millis) -> Result<Option<Vec<JobId>>, RepositoryError> {
        let new = firing.jobs.iter().map(|(_, job)| job.clone()).collect();
        let batch = jobs::Batch::new(new, now).map_err(unwritable)?;
        self.writer()?.run(ROW + batch.bytes(), move |tx| schedules::fire(tx, &firing, &batch)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>, RepositoryError> {
        self.read(schedules::all).await
    }

    async fn due_schedules(&self, now: Millis) -> Result<Vec<Schedule>, RepositoryError> {
        self.read(move |connection, keys| schedules::due(connection, keys, now)).await
    }

    async fn schedule_jobs(&self, name: String, limit: u32) -> Result<Vec<(Millis, JobId)>, RepositoryError> {
        self.readers.run(move |connection| schedules::jobs_of(connection, &name, limit)).await
    }

    async fn take_duty(
        &self,
        duty: &'static str,
        worker: WorkerId,
        until: Millis,
        now: Millis,
    ) -> Result<bool, RepositoryError> {
        self.writer()?.run(ROW, move |tx| care::take_duty(tx, duty, &worker, until, now)).await
    }

    async fn retention(&self) -> Result<Option<Retention>, RepositoryError> {
        self.readers.run(retention::stored).await
    }

    async fn set_retention(&self, said: Vec<Keep>) -> Result<Retention, RepositoryError> {
        self.writer()?.run(ROW, move |tx| retention::set(tx, &said)).await
    }

    async fn has_prunable(&self, now: Millis) -> Result<bool, RepositoryError> {
        self.readers.run(move |connection| prune::has_any(connection, now)).await
    }

    async fn prune(&self, now: Millis) -> Result<Pruned, RepositoryError> {
        self.writer()?.run(MANY_ROWS, move |tx| prune::prune(tx, now)).await
    }

    async fn shrink(&self) -> Result<bool, RepositoryError> {
        self.writer()?.run(MANY_ROWS, prune::shrink).await
    }

    async fn clock_jumped(&self, jump: ClockJump) -> Result<(), RepositoryError> {
        self.writer()?.run(MANY_ROWS, move |tx| care::clock_jumped(tx, &jump)).await
    }

    async fn request_drain(&self, worker: Option<WorkerId>, now: Millis) -> Result<Vec<String>, RepositoryError> {
        self.writer()?.run(ROW, move |tx| care::request_drain(tx, worker.as_ref(), now)).await
    }

    async fn drain_requested(&self, worker: WorkerId) -> Result<bool, RepositoryError> {
        self.readers.run(move |connection| care::drain_requested(connection, &worker)).await
    }

    async fn held_jobs(&self) -> Result<Vec<HeldJob>, RepositoryError> {
        self.readers.run(care::held).await
    }

    async fn due_jobs(&self, now: Millis) -> Result<Vec<DueJobs>, RepositoryError> {
        self.readers.run(move |connection| care::due(connection, now)).await
    }

    async fn key_holders(&self, before: Millis, limit: u32) -> Result<Vec<Waiting>, RepositoryError> {
        self.readers.run(move |connection| holders::of_keys(connection, before, limit)).await
    }

    async fn clock_jumps(&self) -> Result<Vec<ClockJump>, RepositoryError> {
        self.readers.run(care::jumps).await
    }

    async fn storage(&self) -> Result<Storage, RepositoryError> {
        let (pages, gives_back) = self.readers.run(|c| Ok::<_, Fault>((care::pages(c)?, care::gives_back(c)?))).await?;
        let (pages, free, size) = pages;
        let log_bytes = Log::of(&self.path).bytes();
        Ok(Storage { bytes: pages * size, free_bytes: free * size, log_bytes, gives_back })
    }
}
