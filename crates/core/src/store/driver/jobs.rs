//! Rows of jobs and of their attempts.

use super::Record;
use crate::clock::Millis;
use crate::job::transition::Standing;
use crate::job::{JobId, JobState, NewJob};
use crate::session::SessionId;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of jobs and of their attempts.
pub trait JobRows {
    /// A job's row, if there is such a job.
    fn job(&mut self, id: JobId) -> Done<Option<JobRow>> {
        Ok(self.jobs(JobsOf::Ids(&[id]))?.pop())
    }
    /// Rows of jobs.
    fn jobs(&mut self, of: JobsOf<'_>) -> Done<Vec<JobRow>>;
    /// Of rows of jobs that run, what their workers' writes need. Others are left out.
    fn running(&mut self, ids: &[JobId]) -> Done<Vec<WorkedRow>>;
    /// Both rows of these jobs.
    fn whole_jobs(&mut self, ids: &[JobId]) -> Done<Vec<StoredJob>>;
    /// How many deaths a job may meet, where it has a limit of its own.
    fn death_limit(&mut self, id: JobId) -> Done<Option<u32>>;
    /// The number that the next job has. Those after it follow.
    fn next_id(&mut self) -> Done<JobId>;
    /// Stores jobs. What is sealed is taken out of the rows.
    fn insert_jobs<'r, R: AsMut<JobInsert<'r>>>(&mut self, rows: &mut [R]) -> Done<()>;
    /// Stores the same of all these jobs.
    fn change_jobs(&mut self, ids: &[JobId], to: JobChange<'_>) -> Done<()>;
    /// Stores everything about a job anew but its number, its key, its attempts and its place beneath others.
    fn replace_job(&mut self, row: JobInsert<'_>) -> Done<()>;
    /// Stores who works a job, and how.
    fn edit_job(&mut self, id: JobId, to: Edited<'_>) -> Done<()>;
    /// Deletes a job with all that belongs to it, and contents that nothing refers to any more; gives how many of these.
    fn delete_job(&mut self, id: JobId) -> Done<u64>;
    /// Gives the attempts that these jobs' rows tell of rows of their own.
    fn end_attempts(&mut self, ids: &[JobId], outcome: &str, reason: Option<&Sealed>, at: Millis) -> Done<()>;
    /// A job's attempts that have rows of their own, oldest first.
    fn attempts(&mut self, id: JobId) -> Done<Vec<AttemptRow>>;
}

/// Which jobs' rows are read.
#[derive(Debug, Clone, Copy)]
pub enum JobsOf<'a> {
    /// These, as far as they are there.
    Ids(&'a [JobId]),
    /// All that run.
    Running,
    /// All that a worker holds.
    HeldBy(&'a str),
    /// Those whose leases ended before or at this time.
    Overdue(Millis),
    /// The one that may hold a unique key: it has not ended, or has completed with a time for which it holds it. Where
    /// rows are locked the key is: there may be no row.
    MayHoldKey(&'a str),
    /// Those enqueued before that time which hold unique keys, have not ended and do not run, at most so many.
    KeyHolders(Millis, u32),
    /// Exchanges of a session that have not ended, or that somebody waits for.
    BusyExchanges(SessionId),
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
    /// Since when that worker has or had it.
    pub claimed_at: Option<Millis>,
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
    /// How long it holds that once it is completed, in milliseconds.
    pub unique_ms: Option<Millis>,
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

/// What is needed of the row of a job that is worked, by its claim and by whoever holds its lease. It is read many times for
/// each job, so it has no more columns than that.
#[derive(Debug)]
pub struct WorkedRow {
    /// Its number.
    pub id: JobId,
    /// Who works it.
    pub role: String,
    /// What transitions are about.
    pub standing: Standing,
    /// Rises with each claim and never falls.
    pub lease_token: i64,
    /// Whether somebody waits for it.
    pub awaited: bool,
    /// JSON.
    pub output: Option<Sealed>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
}

/// What a job was enqueued with and seldom needed. All but the sealed payload, the group and the numbers is JSON.
#[derive(Debug, Default)]
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

/// An attempt that has a row of its own.
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
    /// The name of the event that ended it.
    pub outcome: Option<String>,
    /// Why it ended.
    pub reason: Option<Sealed>,
}

/// A job to be stored.
#[derive(Debug)]
pub struct JobInsert<'a> {
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    pub new: &'a NewJob,
    /// Where it begins.
    pub state: JobState,
    /// Due from this time on.
    pub run_at: Millis,
    /// When it is enqueued.
    pub created_at: Millis,
    /// When it ended, if it ends as it begins.
    pub finalized_at: Option<Millis>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
    /// What of it is seldom needed.
    pub data: DataRow,
    /// Deaths it may meet, where that is not the usual number.
    pub max_crashes: Option<u32>,
}

/// What is stored of jobs that are there.
#[derive(Debug, Clone, Copy)]
pub enum JobChange<'a> {
    /// Their state, and nothing else.
    State(JobState),
    /// Whether others wait for them.
    Awaited(bool),
    /// Why they are where they are.
    Reason(&'a Sealed),
    /// Until when their leases stand.
    LeaseUntil(Millis),
    /// That somebody has them, each with the next lease token.
    Taken(Taken<'a>),
    /// Where they are, all alike.
    Moved(Moved<'a>),
    /// That they hold their keys no more, though they are completed.
    KeyFreed,
}

/// How claimed jobs stand that all stand alike.
#[derive(Debug, Clone, Copy)]
pub struct Taken<'a> {
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

/// How jobs stand after a move.
#[derive(Debug, Clone, Copy)]
pub struct Moved<'a> {
    /// Where they are.
    pub to: &'a Standing,
    /// When they ended, if they did.
    pub finalized_at: Option<Millis>,
    /// JSON.
    pub output: Option<&'a Sealed>,
    /// Why they are where they are.
    pub reason: Option<&'a Sealed>,
    /// What becomes of their leases.
    pub lease: LeaseAfter,
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAfter {
    /// It stands, if there is one.
    Stands,
    /// It is taken off.
    Ends,
    /// The same, and the row goes on to tell of the attempt.
    EndsAndTells,
}

/// Who works a job, and how.
#[derive(Debug)]
pub struct Edited<'a> {
    /// Who works it.
    pub role: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// 1 to 9.
    pub priority: u8,
    /// How many attempts it has.
    pub max_attempts: u32,
    /// What is to be done, if that is another thing now.
    pub payload: Option<Sealed>,
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
