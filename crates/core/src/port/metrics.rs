//! What a store tells of itself to those who watch it.

use async_trait::async_trait;
use serde::Serialize;

use super::{DueJobs, Result, Storage};
use crate::clock::Millis;
use crate::job::JobState;
use crate::queue::rate::EndpointState;

/// Jobs of one role and queue in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobsIn {
    /// The role they ask for.
    pub role: String,
    /// The queue they stand in.
    pub queue: String,
    /// The state; not a final one.
    pub state: JobState,
    /// How many there are.
    pub jobs: u64,
}

/// What a database says of its fleet. Jobs that have ended are not counted: looking at each would cost ever more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// When this was so.
    pub at: Millis,
    /// Jobs that have not ended.
    pub jobs: Vec<JobsIn>,
    /// Jobs that are due, by role.
    pub due: Vec<DueJobs>,
    /// Jobs enqueued since the database was made, deleted ones too.
    pub enqueued: u64,
    /// Worker processes on the list.
    pub workers: u64,
    /// Jobs that all of them can have in their hands at once.
    pub slots: u64,
    /// Questions that wait for an answer.
    pub open_questions: u64,
    /// Endpoints of models that have failed since they last answered.
    pub failing_endpoints: Vec<EndpointState>,
    /// What there is on disk.
    pub storage: Storage,
}

impl Standing {
    /// Leases that are held: one for each job that runs.
    pub fn leases(&self) -> u64 {
        self.jobs.iter().filter(|jobs| jobs.state == JobState::Running).map(|jobs| jobs.jobs).sum()
    }
}

/// What the writer of this process's store did, from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Transactions committed.
    pub commits: u64,
    /// Commands in them: together with `commits`, how well writes are grouped.
    pub commands: u64,
}

/// What a store tells of itself.
#[async_trait]
pub trait MetricsQueries: Send + Sync {
    /// What there is at `now`. Costs nothing for jobs that have ended.
    async fn standing(&self, now: Millis) -> Result<Standing>;

    /// What this process wrote.
    fn written(&self) -> Written;
}
