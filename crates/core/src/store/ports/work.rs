//! What is done: jobs enqueued, worked, ended and changed.

use std::sync::Arc;

use async_trait::async_trait;

use super::unwritable;
use crate::annotation::{Annotation, NewAnnotation, Tagging};
use crate::clock::Millis;
use crate::job::change::{Change, Changed};
use crate::job::lease::{Lease, WorkerId};
use crate::job::question::{Answered, QuestionId};
use crate::job::task::Given;
use crate::job::{JobId, JobProgress, JobState, NewJob};
use crate::port::{
    AnnotationRepository, Appended, AttemptEnd, Cancelled, Chunk, ClaimRequest, Claimed, Enqueued, Forfeit,
    ForkRepository, Heartbeat, JobRelations, JobRepository, QuestionRepository, Reach, RepositoryError, Rescued,
    Result, SessionRepository, TaskRepository, WorkerRecord,
};
use crate::run::fork::Fork;
use crate::run::journal::Entry;
use crate::session::{NewSession, Session, SessionId, Stretch};
use crate::store::driver::Keeps as _;
use crate::store::engine::Engine;
use crate::store::enqueue::Batch;
use crate::store::leases::Fate;
use crate::store::{
    MANY_ROWS, ROW, annotations, cancel, change, claim, enqueue, finish, forks, journal, leases, questions, retention,
    sessions, tasks,
};

#[async_trait]
impl<E: Engine> JobRepository for E {
    async fn enqueue(&self, new: Vec<NewJob>, now: Millis) -> Result<Vec<Enqueued>> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        self.enqueue_all(Batch::new(new, now).map_err(unwritable)?).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<Claimed>> {
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let (bytes, asked) = (ROW * request.limit as usize, request.clone());
        let taken = self.write_passing(bytes, move |tx| claim::claim(tx, &asked)).await?;
        let (claimed, unworkable) = taken.read(self.sealing_keys(), &request);
        if !unworkable.is_empty() {
            let bytes = ROW * unworkable.len();
            let given_up = self.write(bytes, move |tx| claim::give_up(tx, &unworkable, request.now)).await;
            // The others are claimed all the same.
            let _ =
                given_up.inspect_err(|error| tracing::warn!("unreadable jobs wait until their leases end: {error}"));
        }
        Ok(claimed)
    }

    async fn append(&self, lease: Lease, seq: u64, entries: Vec<Entry>, now: Millis) -> Result<Appended> {
        let sheets = journal::Sheet::all(&entries).map_err(unwritable)?;
        let bytes = sheets.iter().map(journal::Sheet::bytes).sum();
        self.write(bytes, move |tx| finish::append(tx, lease, seq, &sheets, now)).await
    }

    async fn finish_all(&self, ends: &[AttemptEnd], now: Millis) -> Result<Vec<Result<JobState>>> {
        let written = ends.iter().map(|end| finish::End::new(end, now));
        let ends = written.collect::<Result<Vec<_>, _>>().map_err(unwritable)?;
        self.finish_ends(ends).await
    }

    async fn report_progress(&self, lease: Lease, progress: JobProgress) -> Result<()> {
        self.write(ROW, move |tx| finish::report(tx, lease, &progress)).await
    }

    async fn heartbeat(
        &self,
        worker: WorkerId,
        leases: Vec<Lease>,
        lease_until: Millis,
        now: Millis,
    ) -> Result<Heartbeat> {
        let bytes = ROW * leases.len();
        self.write_passing(bytes, move |tx| leases::heartbeat(tx, &worker, &leases, lease_until, now)).await
    }

    async fn rescue_from(&self, dead: Vec<WorkerId>, now: Millis) -> Result<Vec<Rescued>> {
        let gone: Vec<_> = dead.into_iter().map(|worker| (self.ended_by_itself(&worker), worker)).collect();
        let ended: Vec<_> = gone.iter().filter(|(ended, _)| *ended).map(|(_, worker)| worker.clone()).collect();
        let rescued = self.write(MANY_ROWS, move |tx| leases::rescue(tx, &gone, now)).await?;
        ended.iter().for_each(|worker| self.forget_word(worker));
        Ok(rescued)
    }

    async fn take_back(&self, forfeits: Vec<Forfeit>, now: Millis) -> Result<Vec<Rescued>> {
        let fate = |forfeit: &Forfeit| match forfeit.is_alive {
            true => Fate::Lives,
            false if self.ended_by_itself(&forfeit.overdue.worker) => Fate::Ended,
            false => Fate::Died,
        };
        let forfeits: Vec<_> = forfeits.into_iter().map(|forfeit| (fate(&forfeit), forfeit.overdue)).collect();
        self.write(ROW * forfeits.len(), move |tx| leases::take_back(tx, &forfeits, now)).await
    }

    async fn cancel(&self, job: JobId, reason: String, now: Millis) -> Result<Cancelled> {
        let told = self.cancel_within(job, Reach::Beneath, reason, now).await?;
        told.first().map(|(_, became)| *became).ok_or(RepositoryError::NoSuchJob(job))
    }

    async fn retry(&self, job: JobId, now: Millis) -> Result<()> {
        self.write(ROW, move |tx| change::retry(tx, job, now)).await
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<()> {
        self.write(ROW, move |tx| tx.db.keep(&worker)).await
    }

    async fn unregister_worker(&self, worker: WorkerId, now: Millis) -> Result<()> {
        self.write(MANY_ROWS, move |tx| leases::leave(tx, &worker, now)).await
    }

    fn leave_word(&self, worker: &WorkerId) {
        self.say_word(worker);
    }
}

#[async_trait]
impl<E: Engine> AnnotationRepository for E {
    async fn annotate(&self, job: JobId, author: String, annotation: NewAnnotation, now: Millis) -> Result<i64> {
        let bytes = ROW + annotation.text.len();
        self.write(bytes, move |tx| annotations::annotate(tx, job, &author, &annotation, now)).await
    }

    async fn tag_annotation(&self, id: i64, tagging: Tagging, by: Option<Lease>) -> Result<Option<Annotation>> {
        self.write(ROW, move |tx| annotations::tag(tx, id, &tagging, by)).await
    }
}

#[async_trait]
impl<E: Engine> QuestionRepository for E {
    async fn answer(&self, question: QuestionId, answer: String, by: String, now: Millis) -> Result<Option<Answered>> {
        let bytes = ROW + answer.len();
        self.write(bytes, move |tx| questions::answer(tx, question, &answer, &by, now)).await
    }

    async fn expire_questions(&self, now: Millis) -> Result<u32> {
        self.write(MANY_ROWS, move |tx| questions::expire(tx, now)).await
    }
}

#[async_trait]
impl<E: Engine> SessionRepository for E {
    async fn begin_session(&self, new: NewSession, now: Millis) -> Result<(Session, bool)> {
        self.write(ROW, move |tx| sessions::begin(tx, &new, now)).await
    }

    async fn keep_summary(&self, of: Stretch, text: String, now: Millis) -> Result<String> {
        self.write(MANY_ROWS + text.len(), move |tx| sessions::keep_summary(tx, of, &text, now)).await
    }

    async fn delete_session(&self, id: SessionId, now: Millis) -> Result<Option<u64>> {
        let deleted = self.write(ROW, move |tx| sessions::delete_by_hand(tx, id, now)).await?;
        if deleted.is_some() {
            while self.write(MANY_ROWS, move |tx| retention::finish_sessions(tx, now)).await? {}
        }
        Ok(deleted)
    }
}

#[async_trait]
impl<E: Engine> ForkRepository for E {
    async fn fork(&self, fork: Fork, now: Millis) -> Result<JobId> {
        let prepared = forks::Prepared::new(fork, self.sealing_keys(), now).map_err(unwritable)?;
        self.write(prepared.bytes(), move |tx| forks::fork(tx, &prepared, now)).await
    }
}

#[async_trait]
impl<E: Engine> TaskRepository for E {
    async fn give_task(&self, lease: Lease, job: NewJob, now: Millis) -> Result<Given> {
        let Some(task) = job.payload.task.clone() else {
            let said = format!("a job that is no task was to be given by job {}; nothing was saved", lease.job);
            return Err(RepositoryError::Misused(said));
        };
        let batch = Batch::new(vec![job], now).map_err(unwritable)?;
        self.write(batch.bytes(), move |tx| tasks::give(tx, lease, &batch, &task)).await
    }

    async fn cancel_task(&self, lease: Lease, task: JobId, reason: String, now: Millis) -> Result<Cancelled> {
        self.write(MANY_ROWS, move |tx| tasks::cancel(tx, lease, task, &reason, now)).await
    }
}

#[async_trait]
impl<E: Engine> JobRelations for E {
    async fn cancel_within(
        &self,
        job: JobId,
        reach: Reach,
        reason: String,
        now: Millis,
    ) -> Result<Vec<(JobId, Cancelled)>> {
        self.write(MANY_ROWS, move |tx| cancel::cancel_within(tx, job, reach, &reason, now)).await
    }

    async fn change(&self, jobs: Vec<JobId>, change: Change, now: Millis) -> Result<Vec<Changed>> {
        let installation = Arc::clone(self.database_id());
        let bytes = ROW * jobs.len();
        self.write(bytes, move |tx| change::change(tx, &installation, &jobs, &change, now)).await
    }

    async fn enqueue_chunk(&self, chunk: Chunk, now: Millis) -> Result<Vec<Enqueued>> {
        let mut chunk = chunk;
        let batch = Batch::new(std::mem::take(&mut chunk.jobs), now).map_err(unwritable)?;
        self.write(batch.bytes(), move |tx| enqueue::enqueue_chunk(tx, &chunk, &batch, now)).await
    }
}
