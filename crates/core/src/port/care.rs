//! What keeps a database in order over months: schedules, retention, and what doctors ask.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Enqueued, Result};
use crate::clock::Millis;
use crate::job::dependency::OnFailed;
use crate::job::lease::WorkerId;
use crate::job::{JobId, JobState, NewJob};
use crate::queue::retention::{Keep, Retention};
use crate::schedule::Schedule;

/// The jobs of a schedule that fell due.
#[derive(Debug, Clone)]
pub struct Firing {
    /// The name of the schedule.
    pub schedule: String,
    /// Its next run as it was read: another one by now means that another process was first.
    pub expected: Millis,
    /// Its next run from now on.
    pub next_at: Millis,
    /// The run each job is made for, and the job.
    pub jobs: Vec<(Millis, NewJob)>,
}

/// What one small deletion took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs deleted, with all that belonged to them.
    pub jobs: u64,
    /// Contents deleted that nothing refers to any more.
    pub contents: u64,
    /// Sessions that are nobody's from now on; their jobs follow.
    pub sessions: u64,
    /// Whether there is more to delete.
    pub more: bool,
}

/// A time at which the host's clock was set, as a worker noticed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClockJump {
    /// The worker that noticed.
    pub worker: String,
    /// When, by the new time.
    pub noticed_at: Millis,
    /// By how many milliseconds; negative when it was set back.
    pub by_ms: Millis,
}

/// A job in a worker's hands, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeldJob {
    /// The job.
    pub job: JobId,
    /// Its role.
    pub role: String,
    /// The worker that holds the lease.
    pub worker: String,
    /// Since when.
    pub since: Millis,
    /// Until when the lease stands.
    pub lease_until: Millis,
    /// Entries in its journal, and the kind and time of the last one.
    pub entries: u64,
    /// What the last entry is.
    pub last_entry: Option<String>,
    /// When it was appended.
    pub last_entry_at: Option<Millis>,
}

/// Jobs of one role that could be claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DueJobs {
    /// The role.
    pub role: String,
    /// How many there are.
    pub jobs: u64,
    /// Since when the oldest is due.
    pub oldest_due_at: Millis,
}

/// What there is on disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Storage {
    /// The database.
    pub bytes: u64,
    /// What is free inside it; used before it grows.
    pub free_bytes: u64,
    /// The log beside it that is not taken in yet.
    pub log_bytes: u64,
    /// Whether it can give free space back to the disk.
    pub gives_back: bool,
}

/// A job that has not ended and is not at work, as far as it matters to those who wait for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The one that waits.
    pub job: JobId,
    /// The unique key it holds.
    pub key: Option<String>,
    /// The role it asks for.
    pub role: String,
    /// The queue it stands in.
    pub queue: String,
    /// Its concurrency key; empty without one.
    pub concurrency_key: String,
    /// Where it is.
    pub state: JobState,
    /// Due from this time on.
    pub due_at: Millis,
    /// The jobs it still waits for.
    pub waits_for: Vec<Awaited>,
    /// Since when its oldest open question is unanswered.
    pub asked_at: Option<Millis>,
}

/// A job that another one waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// The one that is waited for.
    pub job: JobId,
    /// Where it is; absent if it was deleted.
    pub state: Option<JobState>,
    /// What its failure means for the one that waits.
    pub on_failed: OnFailed,
    /// When it ended, if it has.
    pub ended_at: Option<Millis>,
}

/// Schedules, retention and what doctors ask.
#[async_trait]
pub trait CareRepository: Send + Sync {
    /// Adds a schedule; false if there is one of that name, and then nothing is changed.
    async fn add_schedule(&self, schedule: Schedule) -> Result<bool>;

    /// Puts a schedule in place of the one of its name, of which jobs, pause and, if `keeps_next`, next run stay.
    async fn replace_schedule(&self, schedule: Schedule, keeps_next: bool) -> Result<bool>;

    /// Makes a job of a schedule now, paused or not; its next run stays. `None` if there is no such schedule.
    async fn run_schedule(&self, name: String, job: NewJob, now: Millis) -> Result<Option<Enqueued>>;

    /// Takes a schedule away; false if there is none. The jobs it made stay.
    async fn remove_schedule(&self, name: String) -> Result<bool>;

    /// Pauses a schedule at `now`, or has it go on with its next run at `resume_at`; false if there is none.
    async fn pause_schedule(&self, name: String, resume_at: Option<Millis>, now: Millis) -> Result<bool>;

    /// Makes the jobs that fell due, and sets the next run. None, and nothing, if another process was first.
    async fn fire(&self, firing: Firing, now: Millis) -> Result<Option<Vec<JobId>>>;

    /// All schedules, by name.
    async fn schedules(&self) -> Result<Vec<Schedule>>;

    /// The schedules whose next run is not ahead of `now`, paused ones left out.
    async fn due_schedules(&self, now: Millis) -> Result<Vec<Schedule>>;

    /// The jobs that a schedule made and that are still there, newest first, at most `limit`.
    async fn schedule_jobs(&self, name: String, limit: u32) -> Result<Vec<(Millis, JobId)>>;

    /// Gives `worker` a duty until `until`, unless another worker has it; true if it has it now. One
    /// that is held for longer than `until` was taken before the clock was set back, and does not count.
    async fn take_duty(&self, duty: &'static str, worker: WorkerId, until: Millis, now: Millis) -> Result<bool>;

    /// How long what has ended is kept; none if nobody has said, and then it is [`Retention::default`].
    async fn retention(&self) -> Result<Option<Retention>>;

    /// Has some kinds be kept for another time from now on, by whoever deletes; gives how it is then.
    async fn set_retention(&self, said: Vec<Keep>) -> Result<Retention>;

    /// Whether [`CareRepository::prune`] would delete anything.
    async fn has_prunable(&self, now: Millis) -> Result<bool>;

    /// Deletes some of what was kept long enough by this database's [`Retention`]: as much as takes a moment.
    async fn prune(&self, now: Millis) -> Result<Pruned>;

    /// Gives some of the free space inside the file back to the disk; true if there is more to give.
    async fn shrink(&self) -> Result<bool>;

    /// Records that the clock was set, and shortens leases that now stand for longer than their workers asked for.
    async fn clock_jumped(&self, jump: ClockJump) -> Result<()>;

    /// Asks a worker, or all on the list, to finish what is in hand and end; gives who was asked.
    async fn request_drain(&self, worker: Option<WorkerId>, now: Millis) -> Result<Vec<String>>;

    /// Whether a worker was asked to end.
    async fn drain_requested(&self, worker: WorkerId) -> Result<bool>;

    /// Jobs in workers' hands, by worker and job.
    async fn held_jobs(&self) -> Result<Vec<HeldJob>>;

    /// Jobs that are due at `now`, by role.
    async fn due_jobs(&self, now: Millis) -> Result<Vec<DueJobs>>;

    /// Jobs that hold unique keys, are not at work and were enqueued before `before`: at most `limit`,
    /// oldest first; and behind them the jobs they wait for, directly or not, at most as many again.
    async fn key_holders(&self, before: Millis, limit: u32) -> Result<Vec<Waiting>>;

    /// The latest times at which the clock was set, newest first.
    async fn clock_jumps(&self) -> Result<Vec<ClockJump>>;

    /// What there is on disk.
    async fn storage(&self) -> Result<Storage>;
}
