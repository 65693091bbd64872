//! Who does the work of a job, and what it is given to do it with.

use async_trait::async_trait;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fleet::{Fleet, Progress};
pub use super::halt::Halt;
use super::halt::until_available;
use super::memory::JobMemory;
pub use super::tasks::{Delegation, TaskDesk};
use crate::annotation::{Annotation, AnnotationFilter, NewAnnotation, Remarks, Tagging};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::job::{Job, JobId, JobProgress, NewJob, Output};
use crate::memory::SHARED;
use crate::memory::block::Block;
use crate::port::{Appended, RepositoryError};
use crate::run::Run;
use crate::run::journal::{Entry, Recorded};
use crate::run::results::ResultCounts;
use crate::session::{Exchange, Session, SessionId, Stretch};
use crate::stop::{Stop, StopReason};
use crate::tool::Memory;

/// What became of one step.
#[derive(Debug, Clone)]
pub enum StepOutcome {
    /// There is more to do.
    Continue,
    /// The job is done. The entries are committed together with the job's end.
    Completed {
        /// The answer and what it took.
        output: Output,
        /// Last entries of the journal.
        entries: Vec<Entry>,
    },
    /// The job ends without its answer, and trying again cannot mend it.
    GaveUp {
        /// Why, in words.
        reason: String,
        /// What there is all the same.
        output: Option<Output>,
        /// Last entries of the journal.
        entries: Vec<Entry>,
    },
    /// This attempt failed; another may succeed.
    Failed {
        /// Why, in words.
        reason: String,
    },
    /// The job cannot go on now, through no fault of its own; the attempt is given back.
    Snoozed {
        /// Why, in words.
        reason: String,
        /// How long it has to wait.
        wait: Duration,
    },
    /// The job waits for what the step asked for, without a slot; the attempt is given back.
    Suspended {
        /// Why, in words.
        reason: String,
        /// Jobs to be made beneath it. It is taken up again when the last of them has ended, however
        /// they end; [`JobContext::children`] then gives their outputs.
        children: Vec<NewJob>,
        /// Jobs that are there for which it waits in the same way.
        waits_for: Vec<JobId>,
        /// Last entries of the journal, committed together with it.
        entries: Vec<Entry>,
    },
    /// The executor has completed the job itself, in a transaction of its own that stored more
    /// (`posse_infra::sqlite::complete_in`) and was committed. Should the job not be completed, the attempt
    /// has failed.
    AlreadyCompleted,
    /// The step was asked to end, and did.
    Stopped(StopReason),
}

/// Works jobs of one role, one step at a time.
#[async_trait]
pub trait AgentExecutor: Send + Sync {
    /// Takes the job one step on: at most one model request and one round of tools.
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome;
}

/// A job in a worker's hands.
pub struct JobContext {
    /// The job, as it was claimed.
    pub job: Job,
    /// Fires when the step should end early.
    pub stop: Stop,
    /// The run between two steps of one attempt, so that it need not be loaded again.
    pub run: Option<Run>,
    /// What the model had said to the person in a reply that was cut short.
    pub cut_short: Option<String>,
    lease: Lease,
    fleet: Arc<Fleet>,
    /// Progress that waits for the next commit.
    unsaved: Mutex<Option<JobProgress>>,
    progress_saved_at: AtomicI64,
}

/// A report of progress is a commit of its own at most so often, in milliseconds.
const PROGRESS_EVERY: Millis = 1000;

impl From<Halt> for StepOutcome {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Stop(reason) => StepOutcome::Stopped(reason),
            Halt::Broken(reason) => StepOutcome::Failed { reason },
        }
    }
}

impl JobContext {
    pub(crate) fn new(job: Job, lease: Lease, stop: Stop, fleet: Arc<Fleet>) -> Self {
        let (unsaved, progress_saved_at) = (Mutex::default(), Millis::MIN.into());
        JobContext { job, stop, run: None, cut_short: None, lease, fleet, unsaved, progress_saved_at }
    }

    /// Whether work may go on, by the signal and by the clock: a frozen process finds out by itself.
    pub fn check(&self) -> Result<(), Halt> {
        match self.stop.reason() {
            Some(reason) => Err(reason.into()),
            None if !self.fleet.heartbeat.holds(self.lease) => Err(StopReason::LeaseLost.into()),
            None => Ok(()),
        }
    }

    /// Whether work may go on: to be asked before every model request and every tool. A lease whose end has come is
    /// renewed first: after a stall of the process, of the machine or of the
    /// database only the database knows whose the job is, and what it says is waited for.
    pub async fn still_ours(&self) -> Result<(), Halt> {
        loop {
            match self.check() {
                Err(Halt::Stop(StopReason::LeaseLost)) if self.stop.reason().is_none() => {}
                known => return known,
            }
            tokio::select! {
                () = self.fleet.heartbeat.beaten() => {}
                reason = self.stop.stopped() => return Err(reason.into()),
            }
            if self.check().is_err() && self.stop.reason().is_none() {
                // Not renewed, and not lost: the database cannot say yet.
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(100)) => {}
                    reason = self.stop.stopped() => return Err(reason.into()),
                }
            }
        }
    }

    /// What makes this worker the job's owner: only with it can its end be stored.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// The run's journal, from the database.
    pub async fn journal(&self) -> Result<Vec<Recorded>, Halt> {
        self.until_available(|| self.fleet.store.journal(self.job.id, 0)).await
    }

    /// Commits entries from position `seq` on. A database that cannot take them now is waited for: what a tool did must
    /// not be forgotten because a disk was full, and the token tells whether the job is still ours. Stops a job that is
    /// to be cancelled rather than start a call for it.
    pub async fn append(&self, seq: u64, entries: Vec<Entry>) -> Result<(), Halt> {
        if entries.is_empty() {
            return Ok(());
        }
        let told = if self.fleet.is_watched() { entries.clone() } else { Vec::new() };
        // Side by side, so that both are in one commit.
        let (appended, ()) = futures::join!(
            self.until_available(|| self.fleet.store.append(self.lease, seq, entries.clone(), self.now())),
            self.save_progress(),
        );
        if appended? == Appended::UpToCancellation {
            return Err(StopReason::Cancelled.into());
        }
        let at = self.now();
        for (i, entry) in told.into_iter().enumerate() {
            let recorded = Box::new(Recorded { seq: seq + i as u64, at, entry });
            self.report(Progress::Recorded { job: self.job.id, recorded });
        }
        Ok(())
    }

    /// Keeps what is about to leave the run's conversation with its entry `seq`.
    pub async fn archive(&self, seq: u64, content: String) -> Result<(), Halt> {
        self.until_available(|| self.fleet.store.archive(self.lease, seq, content.clone(), self.now())).await
    }

    /// Makes a remark about the job.
    pub async fn annotate(&self, author: &str, annotation: NewAnnotation) -> Result<(), Halt> {
        let add = || self.fleet.store.annotate(self.job.id, author.to_owned(), annotation.clone(), self.now());
        self.until_available(add).await.map(drop)
    }

    /// What agents of this role remember, for the tools of this job.
    pub fn memory(&self, role: &str) -> Arc<dyn Memory> {
        let (fleet, stop) = (Arc::clone(&self.fleet), self.stop.clone());
        Arc::new(JobMemory { role: role.to_owned(), lease: self.lease, fleet, stop })
    }

    /// The blocks that a run of this role begins with.
    pub async fn blocks(&self, role: &str) -> Result<Vec<Block>, Halt> {
        let scopes = || Some(vec![role.to_owned(), SHARED.to_owned()]);
        self.until_available(|| self.fleet.store.memory_blocks(scopes())).await
    }

    /// What was said before in the session that this job is an exchange of.
    pub async fn exchanges_before(&self, session: SessionId) -> Result<Vec<Exchange>, Halt> {
        self.until_available(|| self.fleet.store.exchanges(session, Some(self.job.id))).await
    }

    /// The session of that number.
    pub async fn session(&self, id: SessionId) -> Result<Option<Session>, Halt> {
        self.until_available(|| self.fleet.store.session(id)).await
    }

    /// What was said in a part of a session.
    pub async fn exchanges_of(&self, of: Stretch) -> Result<Vec<Exchange>, Halt> {
        let after = JobId(of.through.0.saturating_add(1));
        self.until_available(|| self.fleet.store.exchanges(of.session, Some(after))).await
    }

    /// The summary that is kept of a part of a session.
    pub async fn session_summary(&self, of: Stretch) -> Result<Option<String>, Halt> {
        self.until_available(|| self.fleet.store.session_summary(of)).await
    }

    /// Keeps a summary; gives the one that was kept first.
    pub async fn keep_summary(&self, of: Stretch, text: String) -> Result<String, Halt> {
        self.until_available(|| self.fleet.store.keep_summary(of, text.clone(), self.now())).await
    }

    /// Notes how far the work is, 0 to 1 and in a few words; saved with the entries appended next.
    pub fn note_progress(&self, share: f64, text: &str) {
        *self.unsaved() = Some(JobProgress::new(share, text, self.now()));
    }

    /// The same, for work that appends nothing for long: saved now, unless that was done within the
    /// last second; then it waits for the next report or entries. Progress is worth no trouble: what
    /// cannot be saved is left out.
    pub async fn report_progress(&self, share: f64, text: &str) {
        self.note_progress(share, text);
        if self.now().saturating_sub(self.progress_saved_at.load(Ordering::Relaxed)) >= PROGRESS_EVERY {
            self.save_progress().await;
        }
    }

    fn unsaved(&self) -> MutexGuard<'_, Option<JobProgress>> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn save_progress(&self) {
        let Some(progress) = self.unsaved().take() else { return };
        self.progress_saved_at.store(progress.at, Ordering::Relaxed);
        if let Err(error) = self.fleet.store.report_progress(self.lease, progress).await {
            tracing::debug!(job.id = self.job.id.0, "progress was not saved: {error}");
        }
    }

    /// The jobs this one has made, oldest first, with their outputs.
    pub async fn children(&self) -> Result<Vec<Job>, Halt> {
        self.until_available(|| self.fleet.store.children(self.job.id)).await
    }

    /// How the jobs stand that `of` waited for, and those it has made.
    pub async fn result_counts(&self, of: JobId) -> Result<ResultCounts, Halt> {
        self.until_available(|| self.fleet.store.result_counts(of)).await
    }

    /// These jobs with their answers, by id, those with higher ids than `after`, at most `limit`.
    pub async fn results(&self, of: JobId, after: JobId, limit: u32) -> Result<Vec<Job>, Halt> {
        self.until_available(|| self.fleet.store.results(of, after, limit)).await
    }

    /// One job.
    pub async fn job_of(&self, id: JobId) -> Result<Option<Job>, Halt> {
        self.until_available(|| self.fleet.store.job(id)).await
    }

    /// Tells whoever watches.
    pub fn report(&self, progress: Progress) {
        self.fleet.report(progress);
    }

    /// The current time.
    pub fn now(&self) -> Millis {
        self.fleet.clock.now()
    }

    /// The text that tells this database from every other.
    pub fn installation(&self) -> &str {
        self.fleet.store.installation()
    }

    /// The remarks that are there, for tools.
    pub fn remarks(&self) -> Arc<dyn Remarks> {
        Arc::new(Stored { fleet: Arc::clone(&self.fleet), stop: self.stop.clone(), lease: self.lease })
    }

    async fn until_available<T, F>(&self, call: impl FnMut() -> F) -> Result<T, Halt>
    where
        F: Future<Output = Result<T, RepositoryError>>,
    {
        until_available(&self.fleet, &self.stop, call).await
    }

    /// The desk at which the run asks about its tasks.
    pub fn task_desk(&self, delegation: Arc<Delegation>, run: &Run) -> TaskDesk {
        TaskDesk::new((Arc::clone(&self.fleet), self.stop.clone(), self.lease), &self.job, delegation, run)
    }

    /// The tasks of the job that have not ended.
    pub async fn open_tasks(&self) -> Result<Vec<JobId>, Halt> {
        let children = self.children().await?;
        Ok(children.iter().filter(|job| !job.state.is_final()).map(|job| job.id).collect())
    }

    /// Asks for the end of a task of the job.
    pub async fn cancel_task(&self, task: JobId, reason: &str) -> Result<(), Halt> {
        let cancel = || self.fleet.store.cancel_task(self.lease, task, reason.to_owned(), self.now());
        self.until_available(cancel).await.map(drop)
    }
}

/// What a tool of a job may read of the database.
struct Stored {
    fleet: Arc<Fleet>,
    stop: Stop,
    lease: Lease,
}

fn in_words(halt: Halt) -> String {
    match halt {
        Halt::Stop(_) => "the call was stopped".into(),
        Halt::Broken(why) => why,
    }
}

#[async_trait]
impl Remarks for Stored {
    async fn find(&self, filter: AnnotationFilter) -> Result<Vec<Annotation>, String> {
        let found = until_available(&self.fleet, &self.stop, || self.fleet.store.find_annotations(filter.clone()));
        found.await.map_err(in_words)
    }

    async fn tag(&self, id: i64, add: Vec<String>) -> Result<Option<Annotation>, String> {
        let tagging = || Tagging { add: add.clone(), remove: Vec::new() };
        let tagged = || self.fleet.store.tag_annotation(id, tagging(), Some(self.lease));
        until_available(&self.fleet, &self.stop, tagged).await.map_err(in_words)
    }
}
