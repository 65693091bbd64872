//! Jobs: how they come in, are worked, and end.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use super::{
    AnnotationQueries, AnnotationRepository, Forfeit, ForkRepository, Heartbeat, MemoryRepository, Overdue,
    QuestionFilter, QuestionRepository, RepositoryError, Rescued, Result, SessionQueries, SessionRepository,
    WorkerRecord,
};
use crate::clock::Millis;
use crate::job::lease::{Lease, WorkerId};
use crate::job::question::{Question, QuestionId};
use crate::job::transition::Event;
use crate::job::unique::Became;
use crate::job::{Attempt, Job, JobId, JobProgress, JobState, NewJob, Output};
use crate::run::journal::{Entry, LedgerRow, Recorded};
use crate::run::results::ResultCounts;

/// What became of a job that was to be enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Enqueued {
    /// The job: the new one, or the one that holds its unique key.
    pub id: JobId,
    /// What became of it.
    pub became: Became,
}

impl Enqueued {
    /// Whether its unique key was held, so that no job was added.
    pub fn existed(&self) -> bool {
        self.became != Became::Stored
    }
}

/// Jobs whose texts and metadata are searched, the newest that fit the rest of a filter; older ones are not found.
pub const SEARCHED_AT_MOST: u32 = 20_000;

/// Which jobs to list: newest first.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only in these states; all when empty.
    pub states: Vec<JobState>,
    /// Only of this role.
    pub role: Option<String>,
    /// Only of this queue.
    pub queue: Option<String>,
    /// Only of this group.
    pub group: Option<String>,
    /// Only with this tag.
    pub tag: Option<String>,
    /// Only with this text in goal, reason or answer, in any case of A to Z; see [`SEARCHED_AT_MOST`].
    pub text: Option<String>,
    /// Only with this key and value, as text, in their metadata; see [`SEARCHED_AT_MOST`].
    pub meta: Option<(String, String)>,
    /// Only enqueued from this time on.
    pub created_from: Option<Millis>,
    /// Only enqueued before this time.
    pub created_before: Option<Millis>,
    /// Only ended from this time on.
    pub ended_from: Option<Millis>,
    /// Only ended before this time.
    pub ended_before: Option<Millis>,
    /// Only with ids below this one: the way to the next page.
    pub before: Option<JobId>,
    /// At most so many.
    pub limit: u32,
}

/// What a claim asks for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who claims.
    pub worker: WorkerId,
    /// Only jobs of this role.
    pub role: String,
    /// Only jobs of these queues; all when empty.
    pub queues: Vec<String>,
    /// At most so many.
    pub limit: u32,
    /// The current time.
    pub now: Millis,
    /// Until when the leases shall stand.
    pub lease_until: Millis,
}

/// A job and the proof that it is ours.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The job, already `running`.
    pub job: Job,
    /// With which this worker writes about it.
    pub lease: Lease,
}

/// How much of what was to be appended to a journal is in it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// All of it.
    Whole,
    /// What came before a call would have been started: the job is to be cancelled.
    UpToCancellation,
}

/// How an attempt ends.
#[derive(Debug, Clone)]
pub struct Ending {
    /// What happens to the job.
    pub event: Event,
    /// The time from which it is due next, for the events that have one.
    pub due_at: Millis,
    /// Why, in words.
    pub reason: Option<String>,
    /// The answer, or what there is of it. Absent leaves what was stored before.
    pub output: Option<Output>,
    /// Last entries of the journal, in the same transaction.
    pub entries: Vec<Entry>,
    /// The place of the first of them.
    pub seq: u64,
    /// Jobs made beneath this one, for which it waits; with [`Event::Suspend`] alone, and not if it is cancelled.
    pub children: Vec<NewJob>,
    /// Jobs that are there for which it waits as well, likewise; those that are not are left out.
    pub waits_for: Vec<JobId>,
}

/// The end of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    /// The attempt's proof that it may end it.
    pub lease: Lease,
    /// How it ends.
    pub ending: Ending,
}

/// What became of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// The job is cancelled.
    Now,
    /// It is running; its worker ends it at the next boundary.
    Requested,
    /// It was cancelled before.
    Already,
    /// It had ended in this state before the request.
    TooLate(JobState),
}

/// Everything that changes jobs.
#[async_trait]
pub trait JobRepository:
    AnnotationRepository + QuestionRepository + MemoryRepository + SessionRepository + ForkRepository + Send + Sync
{
    /// Stores jobs, all or none, and says what became of each, in the same order. A job whose unique
    /// key is held, by an earlier job of this call too, is not stored; see
    /// [`Unique`](crate::job::Unique) for what becomes of the one that holds it. A job that waits for
    /// one that is not there is [`RepositoryError::NoSuchJob`], for a group without jobs
    /// [`RepositoryError::EmptyGroup`]; one that would wait for itself, by becoming a job that others
    /// wait for, is [`RepositoryError::Refused`].
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Millis) -> Result<Vec<Enqueued>>;

    /// Takes due jobs by [`rank`](crate::job::rank), or key by key, as far as [rules](crate::queue::rules) let them start:
    /// each becomes `running` with a new lease, and its attempt is written down before anything is done.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>>;

    /// Appends entries from place `seq` on, with their ledger and annotations. What stands from the start of a call
    /// on is left out once somebody has asked for the job's end, and the answer says so.
    async fn append(&self, lease: Lease, seq: u64, entries: Vec<Entry>, now: Millis) -> Result<Appended>;

    /// Ends attempts, each by itself, and gives their leases back; tells in the same order where each job is then.
    async fn finish_all(&self, ends: &[AttemptEnd], now: Millis) -> Result<Vec<Result<JobState>>>;

    /// Ends one attempt and gives its lease back; tells where the job is then.
    async fn finish(&self, lease: Lease, ending: Ending, now: Millis) -> Result<JobState> {
        let mut states = self.finish_all(&[AttemptEnd { lease, ending }], now).await?;
        states.pop().unwrap_or(Err(RepositoryError::LeaseLost(lease.job)))
    }

    /// Keeps how far a running job's work is, in place of what was kept before.
    async fn report_progress(&self, lease: Lease, progress: JobProgress) -> Result<()>;

    /// Renews `leases` until `lease_until` and marks the worker alive.
    async fn heartbeat(
        &self,
        worker: WorkerId,
        leases: Vec<Lease>,
        lease_until: Millis,
        now: Millis,
    ) -> Result<Heartbeat>;

    /// Takes back jobs leased by workers in `dead`, whatever their leases say; takes those workers off the list.
    async fn rescue_from(&self, dead: Vec<WorkerId>, now: Millis) -> Result<Vec<Rescued>>;

    /// Takes back jobs whose leases ended and were not renewed.
    async fn take_back(&self, forfeits: Vec<Forfeit>, now: Millis) -> Result<Vec<Rescued>>;

    /// Asks for the end of a job and of those beneath it; tells of the job.
    async fn cancel(&self, job: JobId, reason: String, now: Millis) -> Result<Cancelled>;

    /// Makes a final job available again; its run goes on ([`Entry::Reopened`]). Refused while its key is another's.
    async fn retry(&self, job: JobId, now: Millis) -> Result<()>;

    /// Announces a worker process.
    async fn register_worker(&self, worker: WorkerRecord) -> Result<()>;

    /// Takes a worker process off the list, which gives back what it still holds.
    async fn unregister_worker(&self, worker: WorkerId, now: Millis) -> Result<()>;

    /// Tells others, outside of what is stored, that a worker ended by itself: its jobs met no death.
    fn leave_word(&self, worker: &WorkerId);
}

/// Everything that is asked about jobs.
#[async_trait]
pub trait JobQueries: AnnotationQueries + SessionQueries + Send + Sync {
    /// One job.
    async fn job(&self, id: JobId) -> Result<Option<Job>>;

    /// Jobs by filter, newest first.
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>>;

    /// The jobs a job has made, oldest first, with their outputs.
    async fn children(&self, parent: JobId) -> Result<Vec<Job>>;

    /// How the jobs stand that a job waited for, by name or by group, and those it has made.
    async fn result_counts(&self, of: JobId) -> Result<ResultCounts>;

    /// These jobs with their answers, by id, those with higher ids than `after`, at most `limit`.
    async fn results(&self, of: JobId, after: JobId, limit: u32) -> Result<Vec<Job>>;

    /// How many jobs of each role are in each state; rows without jobs are left out.
    async fn counts(&self) -> Result<Vec<(String, JobState, u64)>>;

    /// A run's entries from place `from` on, in order.
    async fn journal(&self, job: JobId, from: u64) -> Result<Vec<Recorded>>;

    /// A run's tool calls, in order.
    async fn ledger(&self, job: JobId) -> Result<Vec<LedgerRow>>;

    /// A job's attempts, oldest first.
    async fn attempts(&self, job: JobId) -> Result<Vec<Attempt>>;

    /// The earliest time at which an open question expires.
    async fn next_expiry(&self) -> Result<Option<Millis>>;

    /// One question.
    async fn question(&self, id: QuestionId) -> Result<Option<Question>>;

    /// Questions by filter, oldest first.
    async fn questions(&self, filter: QuestionFilter) -> Result<Vec<Question>>;

    /// What was archived of a job's conversation, oldest first, with the entries it left with.
    async fn archived(&self, job: JobId) -> Result<Vec<(u64, String)>>;

    /// Worker processes on the list.
    async fn workers(&self) -> Result<Vec<WorkerRecord>>;

    /// Running jobs whose end was asked for.
    async fn cancel_requested(&self) -> Result<Vec<JobId>>;

    /// The earliest time at which a job becomes due, a lease expires, or, after `now`, a rate lets the next one start.
    async fn next_deadline(&self, now: Millis) -> Result<Option<Millis>>;

    /// Leases that ended before or at `now` and were not renewed, by job.
    async fn overdue(&self, now: Millis) -> Result<Vec<Overdue>>;

    /// The earliest time at which a lease ends unless it is renewed.
    async fn next_lease_end(&self) -> Result<Option<Millis>>;

    /// Fails with [`RepositoryError::Gone`] once others find another file here. To be asked about once a second.
    fn still_there(&self) -> Result<()>;

    /// A random text that tells this database from every other; part of every effect key.
    fn installation(&self) -> &str;

    /// Changes whenever a job may be claimable, or its end was asked for, in this process or another.
    fn wakes(&self) -> watch::Receiver<u64>;
}
