//! The core's ports, onto the writer and the readers.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use posse_core::annotation::{Annotation, NewAnnotation};
use posse_core::clock::Millis;
use posse_core::job::change::{Change, Changed};
use posse_core::job::dependency::{Dependency, GroupWait};
use posse_core::job::lease::{Lease, WorkerId};
use posse_core::job::question::{Answered, Question, QuestionId};
use posse_core::job::{Attempt, GroupStanding, GroupUse, Job, JobId, JobProgress, JobState, NewJob};
use posse_core::port::{
    Appended, AttemptEnd, BatchStanding, Cancelled, Chunk, ClaimRequest, Claimed, Enqueued, Forfeit, ForkRepository,
    Heartbeat, JobFilter, JobQueries, JobRelations, JobRepository, JobSearch, MemoryRepository, Overdue,
    QuestionFilter, QuestionRepository, Reach, RepositoryError, Rescued, SessionQueries, SessionRepository, StateRow,
    WorkerRecord,
};
use posse_core::run::fork::Fork;
use posse_core::run::journal::{Entry, LedgerRow, Recorded};
use posse_core::run::results::ResultCounts;
use posse_core::session::{NewSession, Session, SessionId, SessionTurn, Stretch};
use posse_core::store::{annotations, attempts};
use tokio::sync::watch;

use super::journal::Sheet;
use super::leases::Fate;
use super::rows::Rows;
use super::writer::Transaction;
use super::{
    SqliteStore, batches, change, claim, finish, forks, group_waits, groups, jobs, journal, leases, ledger, memory,
    people, progress, prune, quarantine, queries, questions, relations, results, search, sessions, workers,
};

/// Roughly what a change of a row takes, in bytes.
pub(super) const ROW: usize = 300;
/// What is said of a change that may touch any number of rows.
pub(super) const MANY_ROWS: usize = 1000 * ROW;

#[async_trait]
impl JobRepository for SqliteStore {
    async fn enqueue(&self, new: Vec<NewJob>, now: Millis) -> Result<Vec<Enqueued>, RepositoryError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let batch = jobs::Batch::new(new, now).map_err(unwritable)?;
        self.writer()?.enqueue(batch.bytes(), batch).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>, RepositoryError> {
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let (bytes, asked, at) = (ROW * request.limit as usize, request.clone(), Instant::now());
        let claim = move |tx: &mut Transaction<'_>| {
            let late = leases::late_by(at);
            let asked = ClaimRequest { now: asked.now + late, lease_until: asked.lease_until + late, ..asked.clone() };
            claim::claim(tx, &asked)
        };
        let taken = self.writer()?.run_passing(bytes, claim).await?;
        let (claimed, unreadable) = taken.read(&self.keys, &request);
        if !unreadable.is_empty() {
            let bytes = ROW * unreadable.len();
            let given_up = self.writer()?.run(bytes, move |tx| quarantine::give_up(tx, &unreadable, request.now)).await;
            // The others are claimed all the same.
            let _ =
                given_up.inspect_err(|error| tracing::warn!("unreadable jobs wait until their leases end: {error}"));
        }
        Ok(claimed)
    }

    async fn append(
        &self,
        lease: Lease,
        seq: u64,
        entries: Vec<Entry>,
        now: Millis,
    ) -> Result<Appended, RepositoryError> {
        let sheets = Sheet::all(&entries).map_err(unwritable)?;
        let bytes = sheets.iter().map(Sheet::bytes).sum();
        self.writer()?.run(bytes, move |tx| finish::append(tx, lease, seq, &sheets, now)).await
    }

    async fn finish_all(
        &self,
        ends: &[AttemptEnd],
        now: Millis,
    ) -> Result<Vec<Result<JobState, RepositoryError>>, RepositoryError> {
        let written = ends.iter().map(|end| finish::End::new(end, now));
        let ends = written.collect::<Result<Vec<_>, _>>().map_err(unwritable)?;
        let bytes = ends.iter().map(finish::End::bytes).sum();
        self.writer()?.finish(bytes, ends).await
    }

    async fn report_progress(&self, lease: Lease, progress: JobProgress) -> Result<(), RepositoryError> {
        self.writer()?.run(ROW, move |tx| progress::report(tx, lease, &progress)).await
    }

    async fn heartbeat(
        &self,
        worker: WorkerId,
        leases: Vec<Lease>,
        lease_until: Millis,
        now: Millis,
    ) -> Result<Heartbeat, RepositoryError> {
        let leases_count = leases.len();
        let asked = Instant::now();
        let beat = move |tx: &mut Transaction<'_>| {
            let late = leases::late_by(asked);
            leases::heartbeat(tx, &worker, &leases, lease_until + late, now + late)
        };
        self.writer()?.run_passing(ROW * leases_count, beat).await
    }

    async fn rescue_from(&self, dead: Vec<WorkerId>, now: Millis) -> Result<Vec<Rescued>, RepositoryError> {
        let gone: Vec<_> = dead.into_iter().map(|worker| (self.last_words.has(&worker), worker)).collect();
        let ended: Vec<_> = gone.iter().filter(|(ended, _)| *ended).map(|(_, worker)| worker.clone()).collect();
        let rescued = self.writer()?.run(MANY_ROWS, move |tx| leases::rescue(tx, &gone, now)).await?;
        ended.iter().for_each(|worker| self.last_words.forget(worker));
        Ok(rescued)
    }

    async fn take_back(&self, forfeits: Vec<Forfeit>, now: Millis) -> Result<Vec<Rescued>, RepositoryError> {
        let fate = |forfeit: &Forfeit| match forfeit.is_alive {
            true => Fate::Lives,
            false if self.last_words.has(&forfeit.overdue.worker) => Fate::Ended,
            false => Fate::Died,
        };
        let forfeits: Vec<_> = forfeits.into_iter().map(|forfeit| (fate(&forfeit), forfeit.overdue)).collect();
        self.writer()?.run(ROW * forfeits.len(), move |tx| leases::take_back(tx, &forfeits, now)).await
    }

    async fn cancel(&self, job: JobId, reason: String, now: Millis) -> Result<Cancelled, RepositoryError> {
        let told = self.cancel_within(job, Reach::Beneath, reason, now).await?;
        told.first().map(|(_, became)| *became).ok_or(RepositoryError::NoSuchJob(job))
    }

    async fn retry(&self, job: JobId, now: Millis) -> Result<(), RepositoryError> {
        self.writer()?.run(ROW, move |tx| people::retry(tx, job, now)).await
    }

    async fn annotate(
        &self,
        job: JobId,
        author: String,
        annotation: NewAnnotation,
        now: Millis,
    ) -> Result<i64, RepositoryError> {
        let bytes = ROW + annotation.text.len();
        self.writer()?.run(bytes, move |tx| annotations::annotate(tx, job, &author, &annotation, now)).await
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), RepositoryError> {
        self.writer()?.run(ROW, move |tx| workers::register(tx, &worker)).await
    }

    async fn unregister_worker(&self, worker: WorkerId, now: Millis) -> Result<(), RepositoryError> {
        self.writer()?.run(MANY_ROWS, move |tx| leases::leave(tx, &worker, now)).await
    }

    fn leave_word(&self, worker: &WorkerId) {
        if let Err(error) = self.last_words.say(worker) {
            tracing::warn!(
                "nothing could be left beside {} that tells that this worker ended by itself ({error}): its jobs are \
                 charged as if it had died",
                self.path.display()
            );
        }
    }
}

#[async_trait]
impl QuestionRepository for SqliteStore {
    async fn answer(
        &self,
        question: QuestionId,
        answer: String,
        by: String,
        now: Millis,
    ) -> Result<Option<Answered>, RepositoryError> {
        let bytes = ROW + answer.len();
        self.writer()?.run(bytes, move |tx| questions::answer(tx, question, &answer, &by, now)).await
    }

    async fn expire_questions(&self, now: Millis) -> Result<u32, RepositoryError> {
        self.writer()?.run(MANY_ROWS, move |tx| questions::expire(tx, now)).await
    }
}

#[async_trait]
impl MemoryRepository for SqliteStore {
    async fn archive(&self, lease: Lease, seq: u64, content: String, now: Millis) -> Result<(), RepositoryError> {
        self.writer()?.run(content.len(), move |tx| memory::archive(tx, lease, seq, &content, now)).await
    }
}

#[async_trait]
impl SessionRepository for SqliteStore {
    async fn begin_session(&self, new: NewSession, now: Millis) -> Result<(Session, bool), RepositoryError> {
        self.writer()?.run(ROW, move |tx| sessions::begin(tx, &new, now)).await
    }

    async fn keep_summary(&self, of: Stretch, text: String, now: Millis) -> Result<String, RepositoryError> {
        self.writer()?.run(ROW + text.len(), move |tx| sessions::keep_summary(tx, of, &text, now)).await
    }

    async fn delete_session(&self, id: SessionId, now: Millis) -> Result<Option<u64>, RepositoryError> {
        let deleted = self.writer()?.run(ROW, move |tx| sessions::delete_by_hand(tx, id, now)).await?;
        if deleted.is_some() {
            while self.writer()?.run(MANY_ROWS, move |tx| prune::finish_sessions(tx, now)).await? {}
        }
        Ok(deleted)
    }
}

#[async_trait]
impl ForkRepository for SqliteStore {
    async fn fork(&self, fork: Fork, now: Millis) -> Result<JobId, RepositoryError> {
        let prepared = forks::Prepared::new(fork, &self.keys, now).map_err(unwritable)?;
        self.writer()?.run(prepared.bytes(), move |tx| forks::fork(tx, &prepared, now)).await
    }
}

#[async_trait]
impl SessionQueries for SqliteStore {
    async fn session(&self, id: SessionId) -> Result<Option<Session>, RepositoryError> {
        self.readers.run(move |connection| sessions::one(connection, id)).await
    }

    async fn session_named(&self, name: String) -> Result<Option<Session>, RepositoryError> {
        self.readers.run(move |connection| sessions::named(connection, &name)).await
    }

    async fn sessions(&self, role: Option<String>, limit: u32) -> Result<Vec<Session>, RepositoryError> {
        self.readers.run(move |connection| sessions::list(connection, role.as_deref(), limit)).await
    }

    async fn session_turns(&self, id: SessionId, before: Option<JobId>) -> Result<Vec<SessionTurn>, RepositoryError> {
        self.read(move |connection, keys| sessions::turns(connection, keys, id, before)).await
    }

    async fn session_summary(&self, of: Stretch) -> Result<Option<String>, RepositoryError> {
        self.read(move |connection, keys| sessions::summary(connection, keys, of)).await
    }
}

#[async_trait]
impl JobQueries for SqliteStore {
    async fn job(&self, id: JobId) -> Result<Option<Job>, RepositoryError> {
        self.read(move |connection, keys| queries::job(connection, keys, id)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>, RepositoryError> {
        self.read(move |connection, keys| search::list(connection, keys, &filter)).await
    }

    async fn children(&self, parent: JobId) -> Result<Vec<Job>, RepositoryError> {
        self.read(move |connection, keys| relations::children(connection, keys, parent)).await
    }

    async fn result_counts(&self, of: JobId) -> Result<ResultCounts, RepositoryError> {
        self.readers.run(move |connection| results::counts(connection, of)).await
    }

    async fn results(&self, of: JobId, after: JobId, limit: u32) -> Result<Vec<Job>, RepositoryError> {
        self.read(move |connection, keys| results::page(connection, keys, of, after, limit)).await
    }

    async fn counts(&self) -> Result<Vec<(String, JobState, u64)>, RepositoryError> {
        self.readers.run(queries::counts).await
    }

    async fn journal(&self, job: JobId, from: u64) -> Result<Vec<Recorded>, RepositoryError> {
        self.read(move |connection, keys| journal::read(connection, keys, job, from)).await
    }

    async fn ledger(&self, job: JobId) -> Result<Vec<LedgerRow>, RepositoryError> {
        let installation = Arc::clone(&self.installation);
        self.readers.run(move |connection| ledger::read(connection, &installation, job)).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<Attempt>, RepositoryError> {
        self.read(move |connection, keys| attempts::of(Rows::of(connection), keys, job)).await
    }

    async fn annotations(&self, job: JobId) -> Result<Vec<Annotation>, RepositoryError> {
        self.read(move |connection, keys| annotations::of(Rows::of(connection), keys, job)).await
    }

    async fn next_expiry(&self) -> Result<Option<Millis>, RepositoryError> {
        self.readers.run(questions::next_expiry).await
    }

    async fn question(&self, id: QuestionId) -> Result<Option<Question>, RepositoryError> {
        self.read(move |connection, keys| questions::one(connection, keys, id)).await
    }

    async fn questions(&self, filter: QuestionFilter) -> Result<Vec<Question>, RepositoryError> {
        self.read(move |connection, keys| questions::list(connection, keys, &filter)).await
    }

    async fn archived(&self, job: JobId) -> Result<Vec<(u64, String)>, RepositoryError> {
        self.read(move |connection, keys| memory::of(connection, keys, job)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, RepositoryError> {
        self.readers.run(workers::all).await
    }

    async fn cancel_requested(&self) -> Result<Vec<JobId>, RepositoryError> {
        self.readers.run(queries::cancel_requested).await
    }

    async fn overdue(&self, now: Millis) -> Result<Vec<Overdue>, RepositoryError> {
        self.readers.run(move |connection| leases::overdue(connection, now)).await
    }

    async fn next_lease_end(&self) -> Result<Option<Millis>, RepositoryError> {
        self.readers.run(queries::next_lease_end).await
    }

    async fn next_deadline(&self, now: Millis) -> Result<Option<Millis>, RepositoryError> {
        self.readers.run(move |connection| queries::next_deadline(connection, now)).await
    }

    fn still_there(&self) -> Result<(), RepositoryError> {
        self.identity.check()
    }

    fn installation(&self) -> &str {
        &self.installation
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.bell.listen()
    }
}

#[async_trait]
impl JobRelations for SqliteStore {
    async fn cancel_within(
        &self,
        job: JobId,
        reach: Reach,
        reason: String,
        now: Millis,
    ) -> Result<Vec<(JobId, Cancelled)>, RepositoryError> {
        self.writer()?.run(MANY_ROWS, move |tx| relations::cancel_within(tx, job, reach, &reason, now)).await
    }

    async fn change(&self, jobs: Vec<JobId>, change: Change, now: Millis) -> Result<Vec<Changed>, RepositoryError> {
        let installation = Arc::clone(&self.installation);
        let bytes = ROW * jobs.len();
        self.writer()?.run(bytes, move |tx| change::change(tx, &installation, &jobs, &change, now)).await
    }

    async fn enqueue_chunk(&self, chunk: Chunk, now: Millis) -> Result<Vec<Enqueued>, RepositoryError> {
        let mut chunk = chunk;
        let batch = jobs::Batch::new(std::mem::take(&mut chunk.jobs), now).map_err(unwritable)?;
        self.writer()?.run(batch.bytes(), move |tx| batches::enqueue(tx, &chunk, &batch, now)).await
    }
}

#[async_trait]
impl JobSearch for SqliteStore {
    async fn dependencies(&self, job: JobId) -> Result<Vec<Dependency>, RepositoryError> {
        self.readers.run(move |connection| relations::of(connection, job)).await
    }

    async fn awaited_groups(&self, job: JobId) -> Result<Vec<GroupWait>, RepositoryError> {
        self.readers.run(move |connection| group_waits::of(connection, job)).await
    }

    async fn ids(&self, filter: JobFilter) -> Result<Vec<JobId>, RepositoryError> {
        let ids = self.read(move |connection, keys| search::numbers(connection, keys, &filter)).await?;
        Ok(ids.into_iter().map(JobId).collect())
    }

    async fn groups(&self) -> Result<Vec<GroupStanding>, RepositoryError> {
        self.readers.run(groups::all).await
    }

    async fn group(&self, name: String) -> Result<Option<(GroupStanding, GroupUse)>, RepositoryError> {
        self.read(move |connection, keys| groups::one(connection, keys, &name)).await
    }

    async fn batch(&self, name: String) -> Result<BatchStanding, RepositoryError> {
        self.readers.run(move |connection| batches::standing(connection, &name)).await
    }

    async fn states(&self, jobs: Vec<JobId>) -> Result<Vec<StateRow>, RepositoryError> {
        self.readers.run(move |connection| search::states(connection, &jobs)).await
    }

    async fn states_after(
        &self,
        after: JobId,
        group: Option<String>,
        limit: u32,
    ) -> Result<Vec<StateRow>, RepositoryError> {
        self.readers.run(move |connection| search::states_after(connection, after, group.as_deref(), limit)).await
    }

    async fn live(&self, group: Option<String>) -> Result<(JobId, Vec<StateRow>), RepositoryError> {
        self.readers.run(move |connection| search::live(connection, group.as_deref())).await
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.bell.listen_to_commits()
    }
}

pub(super) fn unwritable(error: serde_json::Error) -> RepositoryError {
    RepositoryError::Misused(format!("a value cannot be written as JSON: {error}"))
}
