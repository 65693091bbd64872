//! Following a job's events by reading, so that they are the same whoever works it, in whatever
//! process.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream as streams};
use tokio::sync::watch;

use super::{Events, Happened};
use crate::job::{JobId, JobState};
use crate::model::ToolCalling;
use crate::port::{JobQueries, RepositoryError};

/// How often a running job's journal is looked at: nothing rings for its entries, because nobody but
/// an onlooker would want to be woken by them.
const RUNNING: Duration = Duration::from_millis(150);

/// How often any other job is looked at, as a net under lost wake-ups.
const AT_REST: Duration = Duration::from_secs(1);

/// The least time between two looks, under a flood of wake-ups.
const AT_LEAST: Duration = Duration::from_millis(10);

/// The events of `job` from its beginning, as they come, until `done`. Ends after the first error.
pub fn stream(
    queries: Arc<dyn JobQueries>,
    job: JobId,
) -> impl Stream<Item = Result<Happened, RepositoryError>> + Send + Unpin {
    let looks = streams::unfold(Some((Follower::new(queries, job), false)), |following| async {
        let (mut follower, wait) = following?;
        if follower.is_done() {
            return None;
        }
        if wait {
            follower.changed().await;
        }
        match follower.poll().await {
            Ok(happened) => Some((Ok(happened), Some((follower, true)))),
            Err(error) => Some((Err(error), None)),
        }
    });
    let events = |look: Result<Vec<Happened>, RepositoryError>| {
        let (happened, error) = match look {
            Ok(happened) => (happened, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        streams::iter(happened.into_iter().map(Ok).chain(error.map(Err)))
    };
    looks.flat_map(events).boxed()
}

/// Follows the events of one job.
pub struct Follower {
    queries: Arc<dyn JobQueries>,
    wakes: watch::Receiver<u64>,
    job: JobId,
    events: Events,
    state: Option<JobState>,
    done: bool,
}

impl Follower {
    /// From the job's beginning.
    pub fn new(queries: Arc<dyn JobQueries>, job: JobId) -> Follower {
        let wakes = queries.wakes();
        Follower { queries, wakes, job, events: Events::default(), state: None, done: false }
    }

    /// Whether `done` has been given: nothing more will come.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Where the job was at the last look.
    pub fn state(&self) -> Option<JobState> {
        self.state
    }

    /// How the run's model is asked for tools, once it has begun.
    pub fn calling(&self) -> Option<ToolCalling> {
        self.events.run().opening().map(|opening| opening.calling)
    }

    /// What happened since the last call.
    pub async fn poll(&mut self) -> Result<Vec<Happened>, RepositoryError> {
        if self.done {
            return Ok(Vec::new());
        }
        self.queries.still_there()?;
        self.wakes.borrow_and_update();
        // The job first: what is read after it is at least as new, so a final job's journal is whole.
        let job = self.queries.job(self.job).await?.ok_or(RepositoryError::NoSuchJob(self.job))?;
        let entries = self.queries.journal(self.job, self.events.next_seq()).await?;
        let mut happened: Vec<_> =
            entries.iter().flat_map(|recorded| self.events.happened(self.job, recorded)).collect();
        self.state = Some(job.state);
        if job.state.is_final() {
            self.done = true;
            let (seq, at) = (self.events.next_seq(), job.finalized_at.unwrap_or(job.created_at));
            let last = self.events.finish(&job);
            happened.extend(last.into_iter().map(|event| Happened { job: self.job, seq, at, event }));
        }
        Ok(happened)
    }

    /// Waits until there may be something new.
    pub async fn changed(&mut self) {
        let most = if self.state == Some(JobState::Running) { RUNNING } else { AT_REST };
        let woken = async {
            tokio::time::sleep(AT_LEAST).await;
            if self.wakes.changed().await.is_err() {
                // The repository is closing: the next look will tell.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep(most) => {}
        }
    }
}
