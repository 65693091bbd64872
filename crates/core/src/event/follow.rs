//! Following a job's events by reading, so that they are the same whoever works it, in whatever
//! process.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream as streams};
use tokio::sync::watch;

use super::{Events, Happened};
use crate::job::{Job, JobId, JobState};
use crate::model::ToolCalling;
use crate::port::{JobQueries, RepositoryError};
use crate::run::journal::Recorded;

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

/// Reads a job and its journal as it grows, each entry once. Where it is follows from the entries' own places and not
/// from how many there were, so a journal that lacks some is not read twice.
pub struct JournalReader {
    queries: Arc<dyn JobQueries>,
    job: JobId,
    next_seq: u64,
}

impl JournalReader {
    /// From the journal's beginning.
    pub fn new(queries: Arc<dyn JobQueries>, job: JobId) -> JournalReader {
        JournalReader { queries, job, next_seq: 0 }
    }

    /// The place behind the last entry that was read.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The job as it is, and the entries that came since the last call. Once the job is final, there is nothing more.
    pub async fn poll(&mut self) -> Result<(Job, Vec<Recorded>), RepositoryError> {
        self.queries.still_there()?;
        // The job first: what is read after it is at least as new, so a final job's journal is whole.
        let job = self.queries.job(self.job).await?.ok_or(RepositoryError::NoSuchJob(self.job))?;
        let entries = self.queries.journal(self.job, self.next_seq).await?;
        if let Some(last) = entries.last() {
            self.next_seq = last.seq + 1;
        }
        Ok((job, entries))
    }
}

/// Follows the events of one job.
pub struct Follower {
    reader: JournalReader,
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
        let reader = JournalReader::new(queries, job);
        Follower { reader, wakes, job, events: Events::default(), state: None, done: false }
    }

    /// Whether `done` has been given: nothing more will come.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Where the job was at the last look.
    pub fn state(&self) -> Option<JobState> {
        self.state
    }

    /// How the run's model is asked for tools, once it has begun and where what it says next is for the person: a skill
    /// speaks to the agent alone.
    pub fn calling_for_person(&self) -> Option<ToolCalling> {
        let run = self.events.run();
        run.opening().filter(|_| run.depth() == 0).map(|opening| opening.calling)
    }

    /// What happened since the last call.
    pub async fn poll(&mut self) -> Result<Vec<Happened>, RepositoryError> {
        if self.done {
            return Ok(Vec::new());
        }
        self.wakes.borrow_and_update();
        let (job, entries) = self.reader.poll().await?;
        let mut happened: Vec<_> =
            entries.iter().flat_map(|recorded| self.events.happened(self.job, recorded)).collect();
        self.state = Some(job.state);
        if job.state.is_final() {
            self.done = true;
            let (seq, at) = (self.reader.next_seq(), job.finalized_at.unwrap_or(job.created_at));
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
