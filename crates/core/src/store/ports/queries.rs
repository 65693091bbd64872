//! What is asked about jobs and sessions.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::annotation::{Annotation, AnnotationFilter};
use crate::clock::Millis;
use crate::job::dependency::{Dependency, GroupWait};
use crate::job::question::{Question, QuestionId};
use crate::job::{Attempt, GroupStanding, GroupUse, Job, JobId, JobState};
use crate::port::{
    AnnotationQueries, BatchStanding, JobFilter, JobQueries, JobSearch, Overdue, QuestionFilter, Result,
    SessionQueries, StateRow, WorkerRecord,
};
use crate::run::journal::{LedgerRow, Recorded};
use crate::run::results::ResultCounts;
use crate::session::{Exchange, Session, SessionId, Stretch};
use crate::store::driver::{
    GroupWaitsOf, IdsOf, Keeps as _, Number, SessionRows as _, SessionsOf, StatesOf, ViewRows as _, WaitRows as _,
};
use crate::store::engine::Engine;
use crate::store::seal::Keys;
use crate::store::{
    Done, annotations, enqueue, find, jobs, journal, leases, ledger, memory, questions, sessions, waits,
};

#[async_trait]
impl<E: Engine> SessionQueries for E {
    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        self.read(move |db, _| sessions::one(db, id)).await
    }

    async fn session_named(&self, name: String) -> Result<Option<Session>> {
        self.read(move |db, _| sessions::named(db, &name)).await
    }

    async fn sessions(&self, role: Option<String>, limit: u32) -> Result<Vec<Session>> {
        self.read(move |db, _| db.sessions(SessionsOf::Latest(role.as_deref(), limit))).await
    }

    async fn exchanges(&self, id: SessionId, before: Option<JobId>) -> Result<Vec<Exchange>> {
        self.read(move |db, keys| sessions::exchanges(db, keys, id, before)).await
    }

    async fn session_summary(&self, of: Stretch) -> Result<Option<String>> {
        self.read(move |db, keys| sessions::summary(db, keys, of)).await
    }
}

#[async_trait]
impl<E: Engine> AnnotationQueries for E {
    async fn annotations(&self, job: JobId) -> Result<Vec<Annotation>> {
        self.read(move |db, keys| annotations::of(db, keys, job)).await
    }

    async fn find_annotations(&self, filter: AnnotationFilter) -> Result<Vec<Annotation>> {
        self.read(move |db, keys| annotations::find(db, keys, &filter)).await
    }
}

#[async_trait]
impl<E: Engine> JobQueries for E {
    async fn job(&self, id: JobId) -> Result<Option<Job>> {
        self.read(move |db, keys| find::job(db, keys, id)).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>> {
        self.read(move |db, keys| find::list(db, keys, &filter)).await
    }

    async fn children(&self, parent: JobId) -> Result<Vec<Job>> {
        self.read(move |db, keys| find::those(db, keys, IdsOf::Children(parent))).await
    }

    async fn result_counts(&self, of: JobId) -> Result<ResultCounts> {
        self.read(move |db, _| find::result_counts(db, of)).await
    }

    async fn results(&self, of: JobId, after: JobId, limit: u32) -> Result<Vec<Job>> {
        self.read(move |db, keys| find::those(db, keys, IdsOf::Results { of, after, most: limit })).await
    }

    async fn counts(&self) -> Result<Vec<(String, JobState, u64)>> {
        self.read(|db, _| find::counts(db)).await
    }

    async fn journal(&self, job: JobId, from: u64) -> Result<Vec<Recorded>> {
        self.read(move |db, keys| journal::read(db, keys, job, from)).await
    }

    async fn ledger(&self, job: JobId) -> Result<Vec<LedgerRow>> {
        let installation = Arc::clone(self.database_id());
        self.read(move |db, _| ledger::read(db, &installation, job)).await
    }

    async fn attempts(&self, job: JobId) -> Result<Vec<Attempt>> {
        self.read_at_once(move |db, keys| jobs::attempts(db, keys, job)).await
    }

    async fn next_expiry(&self) -> Result<Option<Millis>> {
        self.read(|db, _| db.number(Number::NextExpiry)).await
    }

    async fn question(&self, id: QuestionId) -> Result<Option<Question>> {
        self.read(move |db, keys| questions::one(db, keys, id)).await
    }

    async fn questions(&self, filter: QuestionFilter) -> Result<Vec<Question>> {
        self.read(move |db, keys| questions::list(db, keys, &filter)).await
    }

    async fn archived(&self, job: JobId) -> Result<Vec<(u64, String)>> {
        self.read(move |db, keys| memory::archived(db, keys, job)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.read(|db, _| db.kept(None)).await
    }

    async fn cancel_requested(&self) -> Result<Vec<JobId>> {
        self.read(|db, _| db.ids(IdsOf::ToBeCancelled)).await
    }

    async fn overdue(&self, now: Millis) -> Result<Vec<Overdue>> {
        self.read(move |db, _| leases::overdue(db, now)).await
    }

    async fn next_lease_end(&self) -> Result<Option<Millis>> {
        self.read(|db, _| db.number(Number::NextLeaseEnd)).await
    }

    async fn next_deadline(&self, now: Millis) -> Result<Option<Millis>> {
        self.read(move |db, _| find::next_deadline(db, now)).await
    }

    fn still_there(&self) -> Result<()> {
        self.check_identity()
    }

    fn installation(&self) -> &str {
        self.database_id()
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.listen()
    }
}

#[async_trait]
impl<E: Engine> JobSearch for E {
    async fn dependencies(&self, job: JobId) -> Result<Vec<Dependency>> {
        self.read_at_once(move |db, _| waits::dependencies(db, job)).await
    }

    async fn awaited_groups(&self, job: JobId) -> Result<Vec<GroupWait>> {
        let waits = self.read(move |db, _| db.group_waits(GroupWaitsOf::Job(job))).await?;
        Ok(waits.into_iter().map(|(_, wait)| wait).collect())
    }

    async fn ids(&self, filter: JobFilter) -> Result<Vec<JobId>> {
        self.read(move |db, keys| find::numbers(db, keys, &filter)).await
    }

    async fn groups(&self) -> Result<Vec<GroupStanding>> {
        self.read(|db, _| find::groups(db)).await
    }

    async fn group(&self, name: String) -> Result<Option<(GroupStanding, GroupUse)>> {
        self.read(move |db, keys| find::group(db, keys, &name)).await
    }

    async fn batch(&self, name: String) -> Result<BatchStanding> {
        self.read_at_once(move |db, _| enqueue::batch_standing(db, &name)).await
    }

    async fn states(&self, jobs: Vec<JobId>) -> Result<Vec<StateRow>> {
        self.read(move |db, _| db.states(StatesOf::Ids(&jobs))).await
    }

    async fn states_after(&self, after: JobId, group: Option<String>, limit: u32) -> Result<Vec<StateRow>> {
        self.read(move |db, _| db.states(StatesOf::After(after, group.as_deref(), limit))).await
    }

    async fn live(&self, group: Option<String>) -> Result<(JobId, Vec<StateRow>)> {
        let live = move |db: &mut E::Rows, _: &Keys| -> Done<_> {
            let newest = db.number(Number::Newest)?.unwrap_or(0);
            Ok((JobId(newest), db.states(StatesOf::Live(group.as_deref()))?))
        };
        self.read_at_once(live).await
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.listen_to_commits()
    }
}
