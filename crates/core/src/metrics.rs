//! Numbers to watch a fleet by.
//!
//! What the database knows is read from it, at one moment ([`Standing`]). What only happens is counted by
//! the process it happens in, from its start ([`WorkTally`], [`ModelTallies`]): counting in the database
//! would cost each job a write, and whoever collects these numbers adds processes up anyway.
//! [`Metrics`] has both; [`Metrics::text`] is what Prometheus reads.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex;

use crate::clock::{Clock, Millis};
use crate::port::RepositoryError;
pub use crate::port::{JobsIn, MetricsQueries, Standing, Written};

mod tally;
mod text;

pub use tally::{ModelCounts, ModelTallies, ModelTally, Observed, RoleCounts, RoleTally, WorkTally};

/// Queues told apart, those with the most jobs; others count as one, for whoever collects keeps each name for ever.
pub const MOST_QUEUES: usize = 200;

/// The name under which queues beyond [`MOST_QUEUES`] are counted; no queue can have it.
pub const OTHER_QUEUES: &str = "(others)";

/// How long the database is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same with at most [`MOST_QUEUES`] queues.
fn bounded(mut standing: Standing) -> Standing {
    let mut queues: std::collections::BTreeMap<&str, u64> = Default::default();
    for jobs in &standing.jobs {
        *queues.entry(&jobs.queue).or_default() += jobs.jobs;
    }
    if queues.len() <= MOST_QUEUES {
        return standing;
    }
    let mut by_jobs: Vec<(u64, String)> = queues.into_iter().map(|(queue, jobs)| (jobs, queue.to_owned())).collect();
    by_jobs.sort_by(|a, b| b.cmp(a));
    let few: std::collections::BTreeSet<_> = by_jobs.into_iter().skip(MOST_QUEUES).map(|(_, queue)| queue).collect();
    let mut others: std::collections::BTreeMap<(String, &str), JobsIn> = Default::default();
    let (rare, mut kept): (Vec<_>, Vec<_>) = standing.jobs.into_iter().partition(|jobs| few.contains(&jobs.queue));
    for jobs in rare {
        let (key, many) = ((jobs.role.clone(), jobs.state.as_str()), jobs.jobs);
        let none = JobsIn { queue: OTHER_QUEUES.into(), jobs: 0, ..jobs };
        others.entry(key).or_insert(none).jobs += many;
    }
    kept.extend(others.into_values());
    standing.jobs = kept;
    standing
}

/// What one process did, from its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessCounts {
    /// What each role did.
    pub roles: Vec<RoleCounts>,
    /// Jobs taken back from vanished workers.
    pub rescued: u64,
    /// What each model was asked.
    pub models: Vec<ModelCounts>,
    /// What was written.
    pub written: Written,
}

/// Every number, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// What the database says; absent where it could not be read, or not soon.
    pub standing: Option<Standing>,
    /// What this process did; absent in one that works no jobs.
    pub process: Option<ProcessCounts>,
}

/// Where the numbers of a worker process come from.
pub struct MetricsSource {
    /// Where the database is asked.
    pub store: Arc<dyn MetricsQueries>,
    /// What is counted as the process works ([`Fleet::tally`](crate::worker::Fleet::tally)).
    pub work: Arc<WorkTally>,
    /// What its models count.
    pub models: Arc<ModelTallies>,
    /// Says of which moment they are.
    pub clock: Arc<dyn Clock>,
    /// Held by whoever asks the database, so that questions do not pile up before one that is stuck.
    asking: Mutex<()>,
}

impl MetricsSource {
    /// A source of these numbers.
    pub fn new(
        store: Arc<dyn MetricsQueries>,
        work: Arc<WorkTally>,
        models: Arc<ModelTallies>,
        clock: Arc<dyn Clock>,
    ) -> MetricsSource {
        MetricsSource { store, work, models, clock, asking: Mutex::new(()) }
    }

    /// The numbers as they are now, without the database's where it does not answer within five seconds.
    pub async fn read(&self) -> Metrics {
        let asked = tokio::time::timeout(PATIENCE, async {
            let _alone = self.asking.lock().await;
            standing(&*self.store, self.clock.now()).await
        });
        let standing = asked.await.ok().and_then(|read| {
            read.inspect_err(|error| tracing::debug!(%error, "the database's numbers were left out")).ok()
        });
        let process = ProcessCounts {
            roles: self.work.roles(),
            rescued: self.work.rescued(),
            models: self.models.read(),
            written: self.store.written(),
        };
        Metrics { standing, process: Some(process) }
    }
}

/// What a store says at `now`, with queues enough to tell and no more.
pub async fn standing(store: &dyn MetricsQueries, now: Millis) -> Result<Standing, RepositoryError> {
    store.standing(now).await.map(bounded)
}
