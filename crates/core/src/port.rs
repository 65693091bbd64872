//! What the core needs of the world. Ports speak of jobs, never of databases.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::annotation::{Annotation, NewAnnotation};
use crate::clock::Millis;
use crate::job::dependency::empty_group;
use crate::job::lease::{Lease, WorkerId};
use crate::job::question::{Answered, Question, QuestionId};
use crate::job::transition::{Event, IllegalTransition};
use crate::job::unique::Became;
use crate::job::{Attempt, Job, JobId, JobProgress, JobState, NewJob, Output};
use crate::run::fork::Fork;
use crate::run::journal::{Entry, LedgerRow, Recorded};
use crate::run::results::ResultCounts;
use crate::session::{Exchange, NewSession, Session, SessionId, Stretch};

mod care;

pub use care::{Awaited, CareRepository, ClockJump, DueJobs, Firing, HeldJob, Pruned, Storage, Waiting};

mod limits;
mod relations;

pub use limits::{QueueRepository, RateLimiter, Rules};
pub use relations::{BatchMark, BatchStanding, Chunk, JobRelations, JobSearch, Reach, StateRow};

mod metrics;
mod store;
mod upkeep;

pub use metrics::{JobsIn, MetricsQueries, Standing, Written};
pub use store::Store;
pub use upkeep::{Backup, Compacted, Database, Resealed, Restored, SchemaSteps, Upkeep};

/// A repository call that did not do what was asked, by what the caller should do about it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RepositoryError {
    /// The lease is no longer ours: drop everything about this job. Nothing was changed.
    #[error("the lease on job {0} is lost")]
    LeaseLost(JobId),
    /// There is no such job.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// A job cannot wait for a group in which there is none. Nothing was changed.
    #[error("{}", empty_group(.0))]
    EmptyGroup(String),
    /// The job's state does not allow it. Nothing was changed.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// What was asked cannot be, for a reason the caller can mend; in words, with the way out.
    /// Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The job would need a unique key that another job holds. Nothing was changed.
    #[error(
        "job {job} cannot run again: its unique key '{key}' is held by job {holder}; wait until that one ends, or \
         cancel it (posse job cancel {holder})"
    )]
    KeyHeld {
        /// The job.
        job: JobId,
        /// The key.
        key: String,
        /// The job that holds it.
        holder: JobId,
    },
    /// The database cannot take writes now (full disk, read-only, locked for too long); trying
    /// later may help. In words for a person, with the way out.
    #[error("{0}")]
    Unavailable(String),
    /// The database is no longer the one that was opened: its file was deleted, moved or replaced. What was asked for
    /// may be in a file that nobody will find. In words, with the way out.
    #[error("{0}")]
    Gone(String),
    /// The database cannot be used at all (newer schema, damage). In words, with the way out.
    #[error("{0}")]
    Unusable(String),
    /// What was asked for breaks a rule of what is stored (an entry out of place, a value out of range):
    /// a fault of the caller, not of the database. Nothing was changed.
    #[error("{0}")]
    Misused(String),
}

/// How much of what was to be appended to a journal is in it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// All of it.
    Whole,
    /// What came before a call would have been started: the job is to be cancelled.
    UpToCancellation,
}

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
    /// The proof.
    pub lease: Lease,
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
    /// Jobs made beneath this one in the same transaction, for which it then waits. Only with
    /// [`Event::Suspend`]; none are made if the job is cancelled instead.
    pub children: Vec<NewJob>,
}

/// The end of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    /// The attempt's proof that it may end it.
    pub lease: Lease,
    /// How it ends.
    pub ending: Ending,
}

/// What a heartbeat learned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Leases that are no longer ours.
    pub lost: Vec<JobId>,
    /// Jobs whose end was asked for.
    pub cancelled: Vec<JobId>,
}

/// A job taken back from a vanished worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescued {
    /// The job.
    pub job: JobId,
    /// The worker that vanished.
    pub worker: String,
    /// What became of it.
    pub state: JobState,
}

/// A lease that ended without being renewed, as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// The lease.
    pub lease: Lease,
    /// Who holds it.
    pub worker: WorkerId,
    /// Until when it stood.
    pub until: Millis,
}

/// An overdue lease that is to be taken from its worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forfeit {
    /// The lease as it was seen; one that was renewed since then stays where it is.
    pub overdue: Overdue,
    /// Whether its worker lives: then the job meets no death, and has its attempt back.
    pub is_alive: bool,
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

/// One worker process, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerRecord {
    /// Its id.
    pub id: String,
    /// The machine and boot it runs on; equal only for processes whose ids can be compared.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// When that process started, in the kernel's own ticks; tells a process from a later one with
    /// the same id.
    pub pid_started: u64,
    /// The roles it serves.
    pub roles: Vec<String>,
    /// Jobs it works at once.
    pub slots: u32,
    /// When it started.
    pub started_at: Millis,
    /// Its last sign of life.
    pub heartbeat_at: Millis,
    /// How long its leases stand without a heartbeat.
    #[serde(default)]
    pub lease_ms: Millis,
    /// Since when it is asked to finish what is in hand and end, if it is.
    #[serde(default)]
    pub drain_requested_at: Option<Millis>,
}

/// Jobs whose texts and metadata are searched at most, newest first, among those that fit the rest of a
/// filter. Older ones are not found by them.
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
    /// Only with this text in goal, reason or answer, in any case of A to Z; among the newest
    /// [`SEARCHED_AT_MOST`].
    pub text: Option<String>,
    /// Only with this in their metadata: a key, and the value it has as text; among the newest
    /// [`SEARCHED_AT_MOST`].
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

/// Which questions to list: oldest first.
#[derive(Debug, Clone, Default)]
pub struct QuestionFilter {
    /// Settled ones too.
    pub settled: bool,
    /// Only of this job.
    pub job: Option<JobId>,
    /// At most so many.
    pub limit: u32,
}

/// Questions to people. Each method is one transaction, and returns after it is durable.
#[async_trait]
pub trait QuestionRepository: Send + Sync {
    /// Saves an answer and tells the run; the job goes on once all its questions are settled. No
    /// worker needs to be there. `None` if there is no such question.
    async fn answer(
        &self,
        question: QuestionId,
        answer: String,
        by: String,
        now: Millis,
    ) -> Result<Option<Answered>, RepositoryError>;

    /// Settles questions whose time is over and gives how many there were.
    async fn expire_questions(&self, now: Millis) -> Result<u32, RepositoryError>;
}

/// Memory that outlives the conversation it comes from.
#[async_trait]
pub trait MemoryRepository: Send + Sync {
    /// Keeps what leaves a run's conversation with its entry `seq`. Archiving the same again
    /// changes nothing.
    async fn archive(&self, lease: Lease, seq: u64, content: String, now: Millis) -> Result<(), RepositoryError>;
}

/// Jobs that go on from the middle of others.
#[async_trait]
pub trait ForkRepository: Send + Sync {
    /// Stores a fork in one transaction: its job, its journal with original times, and what the
    /// entries mean for its ledger and its questions. Open questions are closed until it waits.
    async fn fork(&self, fork: Fork, now: Millis) -> Result<JobId, RepositoryError>;
}

/// Sessions. Each method is one transaction, and returns after it is durable. A job becomes an exchange
/// of the session that its payload names in the transaction that enqueues it.
#[async_trait]
pub trait SessionRepository: Send + Sync {
    /// Begins a session that remembers the one of the same role that was used last. Where a session
    /// has the name already, gives that one, with false.
    async fn begin_session(&self, new: NewSession, now: Millis) -> Result<(Session, bool), RepositoryError>;

    /// Deletes a session with its exchanges, their journals, its summaries and what was archived of it, and gives how many
    /// exchanges it had; none if there is no such session. Refused while one of its exchanges has not ended or is waited for.
    /// The session is nobody's in one transaction; who is interrupted after it leaves jobs that retention deletes next.
    async fn delete_session(&self, id: SessionId, now: Millis) -> Result<Option<u64>, RepositoryError>;

    /// Keeps a summary. The first one stays: gives the one that is kept.
    async fn keep_summary(&self, of: Stretch, text: String, now: Millis) -> Result<String, RepositoryError>;
}

/// Everything that is asked about sessions.
#[async_trait]
pub trait SessionQueries: Send + Sync {
    /// One session.
    async fn session(&self, id: SessionId) -> Result<Option<Session>, RepositoryError>;

    /// The session of that name.
    async fn session_named(&self, name: String) -> Result<Option<Session>, RepositoryError>;

    /// At most `limit` sessions, of one role or of all, those used last first.
    async fn sessions(&self, role: Option<String>, limit: u32) -> Result<Vec<Session>, RepositoryError>;

    /// What was said in a session, oldest first; only before the job `before`, if there is one.
    async fn exchanges(&self, id: SessionId, before: Option<JobId>) -> Result<Vec<Exchange>, RepositoryError>;

    /// The summary that is kept of a part of a session.
    async fn session_summary(&self, of: Stretch) -> Result<Option<String>, RepositoryError>;
}

/// Everything that changes jobs. Each method is one transaction, and returns after it is durable.
#[async_trait]
pub trait JobRepository:
    QuestionRepository + MemoryRepository + SessionRepository + ForkRepository + Send + Sync
{
    /// Stores jobs, all or none, and says what became of each, in the same order. A job whose unique
    /// key is held, by an earlier job of this call too, is not stored; see
    /// [`Unique`](crate::job::Unique) for what becomes of the one that holds it. A job that waits for
    /// one that is not there is [`RepositoryError::NoSuchJob`], for a group without jobs
    /// [`RepositoryError::EmptyGroup`]; one that would wait for itself, by becoming a job that others
    /// wait for, is [`RepositoryError::Refused`].
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Millis) -> Result<Vec<Enqueued>, RepositoryError>;

    /// Takes due jobs in the order of [`rank`](crate::job::rank), or key by key where a rule says so, as far
    /// as the rules let them start (see [`rules`](crate::queue::rules)): each becomes `running` with a new lease, and its attempt
    /// is written down before anything is done.
    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, RepositoryError>;

    /// Appends entries from place `seq` on, with what they change in the ledger and the annotations
    /// they bring. Once somebody has asked for the job's end no call is started any more: what stands from the
    /// first start on is left out, and the answer says so.
    async fn append(
        &self,
        lease: Lease,
        seq: u64,
        entries: Vec<Entry>,
        now: Millis,
    ) -> Result<Appended, RepositoryError>;

    /// Ends attempts and gives their leases back; tells in the same order where each job is then.
    /// Each counts by itself: one that is refused changes nothing, and takes nothing from the others.
    async fn finish_all(
        &self,
        ends: &[AttemptEnd],
        now: Millis,
    ) -> Result<Vec<Result<JobState, RepositoryError>>, RepositoryError>;

    /// Ends one attempt and gives its lease back; tells where the job is then.
    async fn finish(&self, lease: Lease, ending: Ending, now: Millis) -> Result<JobState, RepositoryError> {
        let mut states = self.finish_all(&[AttemptEnd { lease, ending }], now).await?;
        states.pop().unwrap_or(Err(RepositoryError::LeaseLost(lease.job)))
    }

    /// Keeps how far a running job's work is, in place of what was kept before.
    async fn report_progress(&self, lease: Lease, progress: JobProgress) -> Result<(), RepositoryError>;

    /// Renews `leases` until `lease_until` and marks the worker alive.
    async fn heartbeat(
        &self,
        worker: WorkerId,
        leases: Vec<Lease>,
        lease_until: Millis,
        now: Millis,
    ) -> Result<Heartbeat, RepositoryError>;

    /// Takes back jobs leased by workers in `dead`, whatever their leases say; takes those workers off the list.
    async fn rescue_from(&self, dead: Vec<WorkerId>, now: Millis) -> Result<Vec<Rescued>, RepositoryError>;

    /// Takes back jobs whose leases ended and were not renewed.
    async fn take_back(&self, forfeits: Vec<Forfeit>, now: Millis) -> Result<Vec<Rescued>, RepositoryError>;

    /// Asks for the end of a job and of those beneath it ([`Reach::Beneath`]); tells of the job.
    async fn cancel(&self, job: JobId, reason: String, now: Millis) -> Result<Cancelled, RepositoryError>;

    /// Makes a final job available again, by hand. Its journal stays; the run goes on from there
    /// (a [`Entry::Reopened`] is appended when it had ended). Refused while another job holds its
    /// unique key.
    async fn retry(&self, job: JobId, now: Millis) -> Result<(), RepositoryError>;

    /// Adds a remark.
    async fn annotate(
        &self,
        job: JobId,
        author: String,
        annotation: NewAnnotation,
        now: Millis,
    ) -> Result<i64, RepositoryError>;

    /// Announces a worker process.
    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), RepositoryError>;

    /// Takes a worker process off the list, which gives back what it still holds.
    async fn unregister_worker(&self, worker: WorkerId, now: Millis) -> Result<(), RepositoryError>;

    /// Lets others know that a worker process that is still on the list ended by itself: what it holds met no death. For
    /// where it can write nothing any more; so it is left as well as can be, and outside of what is stored.
    fn leave_word(&self, worker: &WorkerId);
}

/// Everything that is asked about jobs. Reads never wait for writes.
#[async_trait]
pub trait JobQueries: SessionQueries + Send + Sync {
    /// One job.
    async fn job(&self, id: JobId) -> Result<Option<Job>, RepositoryError>;

    /// Jobs by filter, newest first.
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>, RepositoryError>;

    /// The jobs a job has made, oldest first, with their outputs.
    async fn children(&self, parent: JobId) -> Result<Vec<Job>, RepositoryError>;

    /// How the jobs stand that a job waited for, by name or by group, and those it has made.
    async fn result_counts(&self, of: JobId) -> Result<ResultCounts, RepositoryError>;

    /// These jobs with their answers, by id, those with higher ids than `after`, at most `limit`.
    async fn results(&self, of: JobId, after: JobId, limit: u32) -> Result<Vec<Job>, RepositoryError>;

    /// How many jobs of each role are in each state; rows without jobs are left out.
    async fn counts(&self) -> Result<Vec<(String, JobState, u64)>, RepositoryError>;

    /// A run's entries from place `from` on, in order.
    async fn journal(&self, job: JobId, from: u64) -> Result<Vec<Recorded>, RepositoryError>;

    /// A run's tool calls, in order.
    async fn ledger(&self, job: JobId) -> Result<Vec<LedgerRow>, RepositoryError>;

    /// A job's attempts, oldest first.
    async fn attempts(&self, job: JobId) -> Result<Vec<Attempt>, RepositoryError>;

    /// Remarks about a job, oldest first.
    async fn annotations(&self, job: JobId) -> Result<Vec<Annotation>, RepositoryError>;

    /// The earliest time at which an open question expires.
    async fn next_expiry(&self) -> Result<Option<Millis>, RepositoryError>;

    /// One question.
    async fn question(&self, id: QuestionId) -> Result<Option<Question>, RepositoryError>;

    /// Questions by filter, oldest first.
    async fn questions(&self, filter: QuestionFilter) -> Result<Vec<Question>, RepositoryError>;

    /// What was archived of a job's conversation, oldest first, with the entries it left with.
    async fn archived(&self, job: JobId) -> Result<Vec<(u64, String)>, RepositoryError>;

    /// Worker processes on the list.
    async fn workers(&self) -> Result<Vec<WorkerRecord>, RepositoryError>;

    /// Running jobs whose end was asked for.
    async fn cancel_requested(&self) -> Result<Vec<JobId>, RepositoryError>;

    /// The earliest time at which a waiting job becomes due, a lease expires, or, after `now`, a rule
    /// on the rate of jobs lets the next one start.
    async fn next_deadline(&self, now: Millis) -> Result<Option<Millis>, RepositoryError>;

    /// Leases that ended before or at `now` and were not renewed, by job.
    async fn overdue(&self, now: Millis) -> Result<Vec<Overdue>, RepositoryError>;

    /// The earliest time at which a lease ends unless it is renewed.
    async fn next_lease_end(&self) -> Result<Option<Millis>, RepositoryError>;

    /// Fails with [`RepositoryError::Gone`] from the moment on at which what is stored here is not what others find:
    /// the file was deleted, moved or replaced. To be asked about once a second.
    fn still_there(&self) -> Result<(), RepositoryError>;

    /// A random text that tells this database from every other; part of every effect key.
    fn installation(&self) -> &str;

    /// Changes whenever a job may have become claimable, or a running one's end was asked for, in
    /// this process or another.
    fn wakes(&self) -> watch::Receiver<u64>;
}

/// Tells which of the listed worker processes are certainly gone.
pub trait ProcessProbe: Send + Sync {
    /// Those of `workers` that ran on this host and boot and exist no more.
    fn dead(&self, workers: &[WorkerRecord]) -> Vec<WorkerId>;

    /// Those of `workers` that run on this host and boot.
    fn alive(&self, workers: &[WorkerRecord]) -> Vec<WorkerId>;
}
