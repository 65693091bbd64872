//! A job: one durable unit of asked-for work, and the life it leads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

use crate::clock::Millis;
use crate::id::SessionId;
use crate::workspace::folder::FolderId;
use retry::RetryPolicy;

pub mod change;
pub mod deaths;
pub mod dependency;
pub mod enqueue;
pub mod lease;
pub mod name;
pub mod question;
pub mod retry;
pub mod task;
pub mod transition;
pub mod unique;

pub use crate::id::JobId;
use crate::text::{head, named};
use dependency::{After, OnFailed};
pub use unique::{IfHeld, Unique, holds_key};

/// Where a job is in its life.
// In the order of that life, by which counts are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Due at a later time. Put there at enqueue or by a snooze; becomes `available` when its time
    /// comes, by itself.
    Scheduled,
    /// May be claimed now. Stays so until a worker of its role claims it.
    Available,
    /// A worker holds the lease. If that worker dies, the lease expires and a rescue makes the job
    /// `available` again, or `discarded` when it has crashed too often.
    Running,
    /// An attempt failed and the next is due at a time; then it becomes `available` by itself.
    Retryable,
    /// Waits for a person, a child job or an event; holds no lease and no slot. Stays so until that
    /// decision arrives.
    Suspended,
    /// Done, has output. Final.
    Completed,
    /// Stopped on request. Final.
    Cancelled,
    /// Attempts or limits spent, or given up for a reason that trying again cannot mend. Final, but
    /// can be looked at and re-run by hand.
    Discarded,
}

named!(
    JobState: Scheduled = "scheduled", Available = "available", Running = "running", Retryable = "retryable",
        Suspended = "suspended", Completed = "completed", Cancelled = "cancelled", Discarded = "discarded"
);

impl JobState {
    /// Whether nothing happens to the job any more by itself.
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Completed | JobState::Cancelled | JobState::Discarded)
    }
}

/// A text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no job state; states are scheduled, available, running, retryable, suspended, completed, cancelled, discarded"
)]
pub struct UnknownState(pub String);

impl FromStr for JobState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        JobState::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| UnknownState(text.into()))
    }
}

/// Attempts a job gets unless it asks for another number.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 5;

/// Priority unless asked otherwise; 1 is served first, 9 last.
pub const DEFAULT_PRIORITY: u8 = 5;

/// How much waiting one step of priority is worth unless asked otherwise; see [`rank`].
pub const DEFAULT_PRIORITY_STEP_MS: Millis = 10 * 60 * 1000;

/// Where a job stands among those that may be claimed: lower is served first, and among equals the
/// one enqueued first. A job of priority 3 is served before one of priority 5 unless that one has
/// been due for two steps longer; so the last in priority starts too, however many urgent ones come.
/// The rank depends on nothing that changes while a job waits, so an index keeps jobs in its order.
///
/// A step of 0 serves in the order of `run_at` alone.
pub fn rank(run_at: Millis, priority: u8, step_ms: Millis) -> Millis {
    run_at.saturating_add(step_ms.saturating_mul(Millis::from(priority)))
}

/// The queue used where none is named.
pub const DEFAULT_QUEUE: &str = "default";

/// A job about to be enqueued. [`crate::job::enqueue`] checks it; repositories store it as is.
/// Schedules keep it as JSON: a field that an earlier version did not write has its default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NewJob {
    /// The queue it waits in.
    pub queue: String,
    /// The persona role that must work it.
    pub role: String,
    /// 1 (first) to 9 (last).
    pub priority: u8,
    /// Not before this time; due at once when absent.
    pub run_at: Option<Millis>,
    /// How much waiting one step of priority is worth; see [`rank`].
    pub priority_step_ms: Millis,
    /// Attempts it gets, at least 1.
    pub max_attempts: u32,
    /// How many workers may die in a row while they hold it, without it getting any further; see [`deaths`].
    pub max_crashes: u32,
    /// How long it waits after a failed attempt; the usual way when absent.
    pub retry: Option<RetryPolicy>,
    /// The key it holds, so that there is one such job at a time.
    pub unique: Option<Unique>,
    /// Jobs of one concurrency key are counted together by limits per key.
    pub concurrency_key: Option<String>,
    /// What is asked for.
    pub payload: Payload,
    /// Jobs that must have completed before it runs; none for nearly all jobs.
    pub after: Vec<After>,
    /// Groups of which every job must have completed before it runs, those too that come to be in one while
    /// it waits.
    pub after_groups: Vec<String>,
    /// What becomes of it when one of those is cancelled or discarded.
    pub on_failed: OnFailed,
    /// The group it is counted in.
    pub group: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What its owner wants to be kept with it; a small JSON object.
    pub meta: Meta,
}

/// What an owner keeps with a job; see [`crate::job::enqueue`] for its limits.
pub type Meta = serde_json::Map<String, serde_json::Value>;

impl Default for NewJob {
    fn default() -> Self {
        NewJob {
            queue: DEFAULT_QUEUE.into(),
            role: String::new(),
            priority: DEFAULT_PRIORITY,
            run_at: None,
            priority_step_ms: DEFAULT_PRIORITY_STEP_MS,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            max_crashes: deaths::DEFAULT_MAX_CRASHES,
            retry: None,
            unique: None,
            concurrency_key: None,
            payload: Payload::default(),
            after: Vec::new(),
            after_groups: Vec::new(),
            on_failed: OnFailed::default(),
            group: None,
            tags: Vec::new(),
            meta: Meta::new(),
        }
    }
}

/// What is asked of the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Payload {
    /// The goal, in a person's words.
    pub goal: String,
    /// The folder its tools are confined to; absolute. Empty means the worker's default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
    /// The folder that was there when the job was accepted. No other one is worked in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<FolderId>,
    /// The configured model to use instead of the persona's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session it is said in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Where its journal was copied from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// Who gave it to whom, where it is a task of another job's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<task::TaskOf>,
}

/// Where a fork's journal was copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkedFrom {
    /// The job.
    pub job: JobId,
    /// The position of the last entry that was copied.
    pub step: u64,
}

/// A job as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The queue it waits in.
    pub queue: String,
    /// The persona role that must work it.
    pub role: String,
    /// Where it is in its life.
    pub state: JobState,
    /// 1 (first) to 9 (last).
    pub priority: u8,
    /// Due from this time on.
    pub run_at: Millis,
    /// Attempts begun so far, this one included.
    pub attempt: u32,
    /// Attempts it gets.
    pub max_attempts: u32,
    /// Times a worker died while it held this job.
    pub crashes: u32,
    /// How long it waits after a failed attempt; the usual way when absent.
    pub retry: Option<RetryPolicy>,
    /// The unique key it was enqueued with.
    pub unique_key: Option<String>,
    /// Jobs of one concurrency key are counted together by limits per key.
    pub concurrency_key: Option<String>,
    /// The worker that holds the lease, while one does.
    pub leased_by: Option<String>,
    /// Until when the lease stands, while one does.
    pub lease_until: Option<Millis>,
    /// True once somebody asked for its end while it was running.
    pub cancel_requested: bool,
    /// What is asked for.
    pub payload: Payload,
    /// The answer of a completed job, or what a job ended early had so far.
    pub output: Option<Output>,
    /// Why it is where it is, in words.
    pub reason: Option<String>,
    /// When it was enqueued.
    pub created_at: Millis,
    /// When it reached a final state, if it has.
    pub finalized_at: Option<Millis>,
    /// The job that made it, and may be waiting for it.
    pub parent: Option<JobId>,
    /// The topmost job above it; absent when that is itself.
    pub root: Option<JobId>,
    /// The group it is counted in.
    pub group: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What its owner keeps with it.
    pub meta: Meta,
    /// How far its work is, while it runs and where its executor tells. A claim leaves it out.
    pub progress: Option<JobProgress>,
    /// Which parts of it are stored in a way that cannot be read, and why; those are empty here. Such a
    /// job is shown and counted, and discarded when it comes to be worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// How far a running job's work is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobProgress {
    /// The part that is done, 0 to 1.
    pub share: f64,
    /// What is being done, in a few words.
    pub text: String,
    /// When that was reported.
    pub at: Millis,
}

impl JobProgress {
    /// Most bytes of the text; more is cut.
    pub const MAX_TEXT: usize = 200;

    /// A report, brought within its limits.
    pub fn new(share: f64, text: &str, at: Millis) -> JobProgress {
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        JobProgress { share, text: head(text, Self::MAX_TEXT).replace('\0', " "), at }
    }
}

/// How a group of jobs stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupStanding {
    /// Its name.
    pub group: String,
    /// Jobs in each state, in the order of a job's life; states without jobs are left out.
    pub states: Vec<(JobState, u64)>,
}

impl GroupStanding {
    /// Jobs in it.
    pub fn jobs(&self) -> u64 {
        self.states.iter().map(|(_, jobs)| jobs).sum()
    }

    /// Jobs that have ended.
    pub fn ended(&self) -> u64 {
        self.states.iter().filter(|(state, _)| state.is_final()).map(|(_, jobs)| jobs).sum()
    }

    /// The part that has ended, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.jobs() == 0 { 1.0 } else { self.ended() as f64 / self.jobs() as f64 }
    }
}

/// What the jobs of a group have used, those that left an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupUse {
    /// Model requests answered.
    pub turns: u64,
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Price in millionths of a US dollar, of the jobs whose price is known.
    pub cost_microusd: u64,
}

/// What a job leaves behind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// The answer; of a run that ended without one, what it said until then, and a warning where a limit ended it.
    pub text: String,
    /// How the run ended: `completed`, or the limit or failure that ended it.
    pub status: String,
    /// Why it ended so, where that is not plainly the answer: of one that is `partial`, what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How an agent that goes by phases judges its work: `solved`, `partial` or `stuck`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_status: Option<String>,
    /// Names of the tools it used, sorted.
    pub tools_used: Vec<String>,
    /// Model requests answered.
    pub turns: u32,
    /// Tokens used, over all attempts.
    pub usage: crate::model::Usage,
    /// Price in millionths of a US dollar, where prices are configured.
    pub cost_microusd: Option<u64>,
    /// Where in its work the run was: `end` when it ended by itself, else the phase it was in last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What the run had read that others wrote: names of tools, and where else it comes from. Absent where that was not
    /// noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Vec<String>>,
}

/// One claim's try at a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// The attempt's number; repeats when an attempt was given back.
    pub number: u32,
    /// The worker that made it.
    pub worker: String,
    /// When it was claimed.
    pub started_at: Millis,
    /// When it ended, if it has.
    pub ended_at: Option<Millis>,
    /// The event that ended it, by its name.
    pub outcome: Option<String>,
    /// Why, in words.
    pub reason: Option<String>,
}
