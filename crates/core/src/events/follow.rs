//! What happens to one job, from what is stored, its attempts and its journal: read, so that it looks the same whoever
//! works it, in whatever process.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::clock::Millis;
use crate::job::{Attempt, Job, JobId, JobState};
use crate::port::{JobQueries, RepositoryError};
use crate::run::journal::Recorded;

/// One thing that happened to a job, in the order in which it did.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum JobEvent {
    /// A worker claimed the job.
    Claimed {
        /// The job.
        job: JobId,
        /// The attempt's number.
        attempt: u32,
        /// Attempts it gets.
        max_attempts: u32,
        /// The worker.
        worker: String,
        /// When.
        at: Millis,
    },
    /// An entry of the journal was committed.
    Entry {
        /// The job.
        job: JobId,
        /// The entry.
        #[serde(flatten)]
        recorded: Box<Recorded>,
    },
    /// An attempt ended without ending the job.
    AttemptEnded {
        /// The job.
        job: JobId,
        /// The attempt's number.
        attempt: u32,
        /// How it ended.
        outcome: String,
        /// Why, in words.
        reason: Option<String>,
        /// When.
        at: Millis,
        /// When the next attempt is due, if it is known and in the future.
        next_at: Option<Millis>,
    },
    /// The job is in a final state.
    Ended {
        /// The job as it is then.
        job: Box<Job>,
    },
}

impl JobEvent {
    /// That an entry was committed.
    pub fn entry(job: JobId, recorded: Recorded) -> JobEvent {
        JobEvent::Entry { job, recorded: Box::new(recorded) }
    }
}

/// How often a running job's journal is looked at: nobody is notified of its entries.
const RUNNING: Duration = Duration::from_millis(150);

/// How often any other job is looked at, as a net under lost wake-ups.
const AT_REST: Duration = Duration::from_secs(1);

/// The least time between two looks, under a flood of wake-ups.
const AT_LEAST: Duration = Duration::from_millis(10);

/// Follows one job, by the positions of its entries: a journal that lacks some is not read twice.
pub struct Follower {
    queries: Arc<dyn JobQueries>,
    wakes: watch::Receiver<u64>,
    id: JobId,
    next_seq: u64,
    attempts_begun: usize,
    attempts_ended: usize,
    last: Option<Job>,
    done: bool,
}

impl Follower {
    /// From the job's beginning.
    pub fn new(queries: Arc<dyn JobQueries>, id: JobId) -> Follower {
        let wakes = queries.wakes();
        Follower { queries, wakes, id, next_seq: 0, attempts_begun: 0, attempts_ended: 0, last: None, done: false }
    }

    /// The job as it was at the last look.
    pub fn job(&self) -> Option<&Job> {
        self.last.as_ref()
    }

    /// Whether [`JobEvent::Ended`] has been given: nothing more will come.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// What happened since the last call.
    pub async fn poll(&mut self) -> Result<Vec<JobEvent>, RepositoryError> {
        if self.done {
            return Ok(Vec::new());
        }
        self.wakes.borrow_and_update();
        self.queries.still_there()?;
        // The job first: what is read after it is at least as new, so a final job's journal is whole.
        let job = self.queries.job(self.id).await?.ok_or(RepositoryError::NoSuchJob(self.id))?;
        let entries = self.queries.journal(self.id, self.next_seq).await?;
        if let Some(last) = entries.last() {
            self.next_seq = last.seq + 1;
        }
        let standing = |job: &Job| (job.state, job.attempt, job.crashes, job.leased_by.clone());
        let attempts = match self.last.as_ref().is_none_or(|last| standing(last) != standing(&job)) {
            true => self.queries.attempts(self.id).await?,
            false => Vec::new(),
        };
        let mut events = merged(self.id, self.of_attempts(&job, &attempts), entries);
        if job.state.is_final() {
            self.done = true;
            events.push(JobEvent::Ended { job: Box::new(job.clone()) });
        }
        self.last = Some(job);
        Ok(events)
    }

    fn of_attempts(&mut self, job: &Job, attempts: &[Attempt]) -> Vec<OfAttempt> {
        let claimed = |attempt: &Attempt| JobEvent::Claimed {
            job: job.id,
            attempt: attempt.number,
            max_attempts: job.max_attempts,
            worker: attempt.worker.clone(),
            at: attempt.started_at,
        };
        let begun = attempts.iter().skip(self.attempts_begun);
        let mut all: Vec<_> = begun.map(|attempt| (attempt.started_at, false, claimed(attempt))).collect();
        for (i, attempt) in attempts.iter().enumerate().skip(self.attempts_ended) {
            let Some(at) = attempt.ended_at else { continue };
            let newest = i + 1 == attempts.len();
            // The end of a job tells its reason itself.
            let tells = !(newest && job.state.is_final()) && attempt.outcome.as_deref() != Some("completed");
            if tells {
                let next_at = (newest && !job.state.is_final() && job.run_at > at).then_some(job.run_at);
                let (number, reason) = (attempt.number, attempt.reason.clone());
                let outcome = attempt.outcome.clone().unwrap_or_else(|| "ended".into());
                let ended = JobEvent::AttemptEnded { job: job.id, attempt: number, outcome, reason, at, next_at };
                all.push((at, true, ended));
            }
        }
        if !attempts.is_empty() {
            self.attempts_begun = attempts.len();
            self.attempts_ended = attempts.iter().take_while(|attempt| attempt.ended_at.is_some()).count();
        }
        all.sort_by_key(|(at, is_end, _)| (*at, *is_end));
        all
    }

    /// Waits until there may be something new.
    pub async fn changed(&mut self) {
        let most = if self.last.as_ref().is_some_and(|job| job.state == JobState::Running) { RUNNING } else { AT_REST };
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

/// An event of an attempt, when it was, and whether it ends the attempt: of entries of the same millisecond a beginning
/// stands before all, an end behind all.
type OfAttempt = (Millis, bool, JobEvent);

/// Events of attempts put between entries by their times. Entries stay in their own order, whatever a clock said.
fn merged(job: JobId, attempts: Vec<OfAttempt>, entries: Vec<Recorded>) -> Vec<JobEvent> {
    let mut attempts = attempts.into_iter().peekable();
    let mut events = Vec::with_capacity(entries.len() + attempts.len() + 1);
    for entry in entries {
        let is_earlier = |(at, is_end, _): &OfAttempt| *at < entry.at || *at == entry.at && !is_end;
        while let Some((_, _, event)) = attempts.next_if(is_earlier) {
            events.push(event);
        }
        events.push(JobEvent::entry(job, entry));
    }
    events.extend(attempts.map(|(_, _, event)| event));
    events
}
