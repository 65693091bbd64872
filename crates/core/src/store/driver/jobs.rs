//! Rows of jobs and of their attempts.

use super::Record;
use crate::clock::Millis;
use crate::job::transition::Standing;
use crate::job::{JobId, JobState};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of jobs and of their attempts.
pub trait JobRows {
    /// A job's row, if there is such a job.
    fn job(&mut self, id: JobId) -> Done<Option<JobRow>>;
    /// Stores where a job is. `frees_lease` takes its lease off too.
    fn stand(&mut self, id: JobId, to: &Standing, finalized_at: Option<Millis>, frees_lease: bool) -> Done<()>;
    /// Stores why a job is where it is.
    fn set_reason(&mut self, id: JobId, reason: Option<Sealed>) -> Done<()>;
    /// Stores whether others wait for these jobs.
    fn set_awaited(&mut self, ids: &[JobId], awaited: bool) -> Done<()>;
    /// Gives the attempts that these jobs' rows tell of rows of their own.
    fn end_attempts(&mut self, ids: &[JobId], outcome: &str, reason: Option<&Sealed>, at: Millis) -> Done<()>;
    /// A job's attempts that have rows of their own, oldest first, and the one that the job's row tells of.
    fn attempts(&mut self, id: JobId) -> Done<(Vec<AttemptRow>, Option<AttemptRow>)>;
    /// The number that the next job has. Those after it follow.
    fn next_id(&mut self) -> Done<JobId>;
    /// Stores jobs. What is sealed is taken out of the rows.
    fn insert_jobs<'r, R: AsMut<JobInsert<'r>>>(&mut self, rows: &mut [R]) -> Done<()>;
    /// Stores everything about a job anew but its number, its key, its attempts and its place beneath others.
    fn replace_job(&mut self, row: JobInsert<'_>) -> Done<()>;
    /// Takes a job out of its group.
    fn leave_group(&mut self, id: JobId) -> Done<()>;
    /// The job that may hold a unique key: it has not ended, or has completed with a time for which it holds it. Where
    /// rows are locked the key is: there may be no row.
    fn key_holder(&mut self, key: &str) -> Done<Option<HolderRow>>;
    /// Has a completed job hold its key no more.
    fn free_key(&mut self, id: JobId) -> Done<()>;
    /// Those of some jobs that run.
    fn running(&mut self, ids: &[JobId]) -> Done<Vec<RunningRow>>;
    /// Stores what running jobs left behind that all leave the same. `keeps_holder`: their rows go on to tell of the
    /// attempt.
    fn leave(&mut self, ids: &[JobId], to: &Leaving<'_>, keeps_holder: bool) -> Done<()>;
}

/// What most moves of a job need of its row.
#[derive(Debug)]
pub struct JobRow {
    /// Its number.
    pub id: JobId,
    /// Its queue.
    pub queue: String,
    /// Who works it.
    pub role: String,
    /// What transitions are about.
    pub standing: Standing,
    /// 1 to 9.
    pub priority: u8,
    /// Rises with each claim and never falls.
    pub lease_token: i64,
    /// When the lease ends, if there is one.
    pub lease_until: Option<Millis>,
    /// Who holds it, or completed it.
    pub leased_by: Option<String>,
    /// When it was enqueued.
    pub created_at: Millis,
    /// When it ended.
    pub finalized_at: Option<Millis>,
    /// Whether somebody waits for it.
    pub awaited: bool,
    /// Empty where it has none.
    pub concurrency_key: String,
    /// The key that no two live jobs have.
    pub unique_key: Option<String>,
    /// JSON.
    pub output: Option<Sealed>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
}

impl JobRow {
    /// Whether `token` is the one of the lease that stands.
    pub fn is_leased_as(&self, token: i64) -> bool {
        self.lease_token == token && self.standing.state == JobState::Running
    }
}

/// What a job was enqueued with and seldom needed. All but the sealed payload, the group and the numbers is JSON.
#[derive(Debug)]
pub struct DataRow {
    /// JSON.
    pub payload: Sealed,
    /// Its retry policy, where it has one of its own.
    pub retry: Option<String>,
    /// The job above it.
    pub parent: Option<JobId>,
    /// The topmost job above it.
    pub root: Option<JobId>,
    /// Its group.
    pub group: Option<String>,
    /// A list.
    pub tags: Option<String>,
    /// A map.
    pub meta: Option<String>,
}

/// Both rows of a job.
pub type StoredJob = (JobRow, DataRow);

/// One attempt.
#[derive(Debug)]
pub struct AttemptRow {
    /// From 1 on.
    pub number: u32,
    /// Who made it.
    pub worker: String,
    /// When it began.
    pub started_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// The name of the event that ended it; none for the attempt that a job's row tells of.
    pub outcome: Option<String>,
    /// Why it ended.
    pub reason: Option<Sealed>,
}

/// A job to be stored.
#[derive(Debug)]
pub struct JobInsert<'a> {
    /// Its number.
    pub id: JobId,
    /// Its queue.
    pub queue: &'a str,
    /// Who works it.
    pub role: &'a str,
    /// Where it begins.
    pub state: JobState,
    /// 1 to 9.
    pub priority: u8,
    /// Due from this time on.
    pub run_at: Millis,
    /// Attempts it gets.
    pub max_attempts: u32,
    /// When it is enqueued.
    pub created_at: Millis,
    /// When it ended, if it ends as it begins.
    pub finalized_at: Option<Millis>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
    /// How much waiting one step of priority is worth.
    pub priority_step_ms: Millis,
    /// Empty where it has none.
    pub concurrency_key: &'a str,
    /// The key that no two live jobs have.
    pub unique_key: Option<&'a str>,
    /// How long it holds that after it was enqueued, in milliseconds.
    pub unique_ms: Option<Millis>,
    /// JSON.
    pub payload: Sealed,
    /// Its retry policy as JSON, where it has one of its own.
    pub retry: Option<&'a str>,
    /// A list as JSON.
    pub tags_json: Option<&'a str>,
    /// What it is found by.
    pub tags: &'a [String],
    /// A map as JSON.
    pub meta: Option<&'a str>,
    /// The job above it.
    pub parent: Option<JobId>,
    /// The topmost job above it.
    pub root: Option<JobId>,
    /// Its group.
    pub group: Option<&'a str>,
    /// Deaths it may meet, where that is not the usual number.
    pub max_crashes: Option<u32>,
}

/// The job that may hold a unique key.
#[derive(Debug)]
pub struct HolderRow {
    /// Its number.
    pub id: JobId,
    /// Where it is.
    pub state: JobState,
    /// When it ended.
    pub finalized_at: Option<Millis>,
    /// How long it holds the key, in milliseconds.
    pub for_ms: Option<Millis>,
    /// Rises with each claim and never falls.
    pub lease_token: i64,
    /// When it was enqueued.
    pub created_at: Millis,
    /// Due from this time on.
    pub run_at: Millis,
}

/// What an ending needs of a running job's row.
#[derive(Debug)]
pub struct RunningRow {
    /// Its number.
    pub id: JobId,
    /// Who works it.
    pub role: String,
    /// What transitions are about.
    pub standing: Standing,
    /// The token of its lease.
    pub lease_token: i64,
    /// Whether somebody waits for it.
    pub awaited: bool,
    /// JSON.
    pub output: Option<Sealed>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
}

/// What a running job leaves behind.
#[derive(Debug)]
pub struct Leaving<'a> {
    /// Where it is then.
    pub to: &'a Standing,
    /// When it ended, if it did.
    pub finalized_at: Option<Millis>,
    /// JSON.
    pub output: Option<&'a Sealed>,
    /// Why it is where it is.
    pub reason: Option<&'a Sealed>,
}

/// How far a job is, as it told.
#[derive(Debug)]
pub struct ProgressRow {
    /// The job.
    pub job: JobId,
    /// From 0 to 1.
    pub share: f64,
    /// In words.
    pub text: Sealed,
    /// When that was said.
    pub at: Millis,
}

/// Of these jobs.
impl Record for ProgressRow {
    type Of<'a> = &'a [JobId];
}
