//! Rows of jobs that may be claimed, and the lines they stand in.

use super::{DataRow, Record};
use crate::clock::Millis;
use crate::job::transition::Standing;
use crate::job::{JobId, JobState};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of jobs that may be claimed. Where rows are locked, what others have locked is left out.
pub trait ClaimRows {
    /// Jobs that wait for a time that has come, the earliest first, at most `most`.
    fn due(&mut self, now: Millis, most: u32) -> Done<Vec<JobId>>;
    /// Stores the state of these jobs, and nothing else.
    fn set_state(&mut self, ids: &[JobId], to: JobState) -> Done<()>;
    /// The head of the first of these lines of a role.
    fn head(&mut self, role: &str, of: Lines<'_>) -> Done<Option<Head>>;
    /// The jobs of a line that stand behind one of them, at most `most`.
    fn line(&mut self, role: &str, queue: &str, key: &str, behind: Front, most: u32) -> Done<Vec<Front>>;
    /// The first jobs of a line, at most `most`.
    fn first_of_line(&mut self, role: &str, queue: &str, key: &str, most: u32) -> Done<Vec<(ClaimRow, DataRow)>>;
    /// These jobs, which are available.
    fn available(&mut self, ids: &[JobId]) -> Done<Vec<(ClaimRow, DataRow)>>;
    /// Stores that somebody has these jobs, each with the next lease token.
    fn take(&mut self, ids: &[JobId], to: &Taking<'_>) -> Done<()>;
}

/// A place in a line, and among all: rank and id of a job.
pub type Front = (i64, JobId);

/// The first job of a line.
#[derive(Debug)]
pub struct Head {
    /// The line's queue.
    pub queue: String,
    /// The line's concurrency key.
    pub key: String,
    /// The job.
    pub front: Front,
}

/// Some of a role's lines, which stand in the order of queue and concurrency key.
#[derive(Debug, Clone, Copy)]
pub enum Lines<'a> {
    /// All of them.
    All,
    /// Those of a queue.
    Of(&'a str),
    /// Those of a queue behind that of this key.
    Behind(&'a str, &'a str),
    /// Those of all queues behind this one.
    After(&'a str),
}

/// What a claim reads of a job's row: what it does not know already.
#[derive(Debug)]
pub struct ClaimRow {
    /// Its number.
    pub id: JobId,
    /// Its queue.
    pub queue: String,
    /// That it is available, and the rest of what transitions are about.
    pub standing: Standing,
    /// 1 to 9.
    pub priority: u8,
    /// The last one's.
    pub lease_token: i64,
    /// When it was enqueued.
    pub created_at: Millis,
    /// Empty where it has none.
    pub concurrency_key: String,
    /// The key that no two live jobs have.
    pub unique_key: Option<String>,
    /// JSON.
    pub output: Option<Sealed>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
}

/// How claimed jobs stand that all stand alike.
#[derive(Debug, Clone, Copy)]
pub struct Taking<'a> {
    /// Their state.
    pub state: JobState,
    /// Their attempt.
    pub attempt: u32,
    /// Who has them.
    pub worker: &'a str,
    /// When that begins.
    pub at: Millis,
    /// When it ends unless it is renewed.
    pub until: Millis,
}

/// Who was served last. Found by role and scope.
#[derive(Debug)]
pub struct LastServed {
    /// The role that jobs were claimed for.
    pub role: String,
    /// The queues that were asked for.
    pub scope: String,
    /// The queue that was served.
    pub queue: String,
    /// The concurrency key that was served.
    pub key: String,
}

impl Record for LastServed {
    type Of<'a> = (&'a str, &'a str);
}
