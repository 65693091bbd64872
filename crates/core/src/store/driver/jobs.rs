//! Rows of jobs and of their attempts.

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
