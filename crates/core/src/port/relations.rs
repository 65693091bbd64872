//! What the core needs to know and change of jobs that belong together, and of many at once.

use async_trait::async_trait;
use tokio::sync::watch;

#[cfg(doc)]
use super::JobQueries;
#[cfg(doc)]
use super::RepositoryError;
use super::{Cancelled, Enqueued, JobFilter, Result};
use crate::clock::Millis;
use crate::job::change::{Change, Changed};
use crate::job::dependency::{Dependency, GroupWait};
use crate::job::{GroupStanding, GroupUse, JobId, JobState, NewJob};

/// Which jobs beside the one named are meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// None.
    Alone,
    /// Its children, their children, and so on.
    #[default]
    Beneath,
    /// The whole tree it is part of, from the root down.
    Tree,
}

/// A part of a large batch.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The batch that remembers how far it is; none for one that begins again from the start.
    pub batch: Option<String>,
    /// How far the batch must be for the chunk to fit.
    pub from: BatchMark,
    /// How far it is afterwards.
    pub to: BatchMark,
    /// What is to be stored.
    pub jobs: Vec<NewJob>,
    /// Names that later jobs of the batch use for these, with their places in `jobs`.
    pub names: Vec<(String, usize)>,
}

/// How far a batch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchMark {
    /// Lines of its file that are dealt with.
    pub lines: u64,
    /// A digest of those lines; empty at the start.
    pub digest: Vec<u8>,
}

/// A batch that was begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchStanding {
    /// How far it is.
    pub mark: BatchMark,
    /// Jobs it has made.
    pub jobs: u64,
    /// Names its jobs have for later ones.
    pub names: Vec<(String, JobId)>,
}

/// Changes of jobs that belong together, and of many at once.
#[async_trait]
pub trait JobRelations: Send + Sync {
    /// Asks for the end of a job and of those within `reach` that have not ended; tells of each, the one named first.
    async fn cancel_within(
        &self,
        job: JobId,
        reach: Reach,
        reason: String,
        now: Millis,
    ) -> Result<Vec<(JobId, Cancelled)>>;

    /// Changes each of `jobs` whose state allows it and tells of each; those that are not there are
    /// left out. For many jobs, call it many times: all others who write wait meanwhile.
    async fn change(&self, jobs: Vec<JobId>, change: Change, now: Millis) -> Result<Vec<Changed>>;

    /// Stores a part of a batch, or nothing and [`RepositoryError::Refused`] where the batch is not where it begins.
    async fn enqueue_chunk(&self, chunk: Chunk, now: Millis) -> Result<Vec<Enqueued>>;
}

/// A job's state, as [`JobSearch::states`] gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRow {
    /// Whose state it is.
    pub job: JobId,
    /// Where it is.
    pub state: JobState,
    /// Attempts begun so far.
    pub attempt: u32,
}

/// What is asked about jobs that belong together, and about many. Reads never wait for writes.
#[async_trait]
pub trait JobSearch: Send + Sync {
    /// The jobs a job waits for or waited for, in order.
    async fn dependencies(&self, job: JobId) -> Result<Vec<Dependency>>;

    /// The groups a job waits for or waited for, by name.
    async fn awaited_groups(&self, job: JobId) -> Result<Vec<GroupWait>>;

    /// The numbers of jobs by filter, newest first.
    async fn ids(&self, filter: JobFilter) -> Result<Vec<JobId>>;

    /// Groups, by name.
    async fn groups(&self) -> Result<Vec<GroupStanding>>;

    /// One group with what it used, if it has jobs.
    async fn group(&self, name: String) -> Result<Option<(GroupStanding, GroupUse)>>;

    /// How far a batch is; the start when nobody began it.
    async fn batch(&self, name: String) -> Result<BatchStanding>;

    /// The states of `jobs`, by id; those that are not there are left out.
    async fn states(&self, jobs: Vec<JobId>) -> Result<Vec<StateRow>>;

    /// The states of jobs with numbers above `after`, by id, at most `limit`; of one group if named.
    async fn states_after(&self, after: JobId, group: Option<String>, limit: u32) -> Result<Vec<StateRow>>;

    /// The jobs that have not ended, by id, of one group if named; and the highest number there was at that moment.
    async fn live(&self, group: Option<String>) -> Result<(JobId, Vec<StateRow>)>;

    /// Changes whenever this process commits; of others it tells as much as [`JobQueries::wakes`].
    fn committed(&self) -> watch::Receiver<u64>;
}
