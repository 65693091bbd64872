//! What happens to a job, in order, from what is stored: its attempts and its journal.

use std::sync::Arc;

use posse_core::clock::Millis;
use posse_core::event::JournalReader;
use posse_core::job::{Attempt, Job, JobId};
use posse_core::port::{JobQueries, RepositoryError};
use posse_core::run::journal::Recorded;
use serde::Serialize;

/// One thing that happened. Serialises to one line of `--json`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
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

/// Follows one job by reading, so that it sees the same whoever works it, in whatever process.
pub struct Follower {
    queries: Arc<dyn JobQueries>,
    reader: JournalReader,
    id: JobId,
    attempts_begun: usize,
    attempts_ended: usize,
    last: Option<Job>,
    ended: bool,
}

impl Follower {
    /// From the job's beginning.
    pub fn new(queries: Arc<dyn JobQueries>, id: JobId) -> Follower {
        let reader = JournalReader::new(Arc::clone(&queries), id);
        Follower { queries, reader, id, attempts_begun: 0, attempts_ended: 0, last: None, ended: false }
    }

    /// The job as it was last read.
    pub fn job(&self) -> Option<&Job> {
        self.last.as_ref()
    }

    /// What happened since the last call. After [`Happening::Ended`] there is nothing more.
    pub async fn poll(&mut self) -> Result<Vec<Happening>, RepositoryError> {
        if self.ended {
            return Ok(Vec::new());
        }
        let (job, journal) = self.reader.poll().await?;
        let moved = self.last.as_ref().is_none_or(|last| {
            let standing = |j: &Job| (j.state, j.attempt, j.crashes, j.leased_by.clone());
            standing(last) != standing(&job)
        });
        let mut all = Vec::new();
        if moved {
            let attempts = self.queries.attempts(self.id).await?;
            all.extend(self.of_attempts(&job, &attempts));
        }
        all.extend(journal.into_iter().map(|recorded| {
            let recorded = Box::new(recorded);
            (recorded.at, 1, Happening::Entry { job: self.id, recorded })
        }));
        all.sort_by_key(|(at, rank, _)| (*at, *rank));
        let mut happenings: Vec<_> = all.into_iter().map(|(_, _, happening)| happening).collect();
        if job.state.is_final() {
            self.ended = true;
            happenings.push(Happening::Ended { job: Box::new(job.clone()) });
        }
        self.last = Some(job);
        Ok(happenings)
    }

    fn of_attempts(&mut self, job: &Job, attempts: &[Attempt]) -> Vec<(Millis, u8, Happening)> {
        let mut all = Vec::new();
        for attempt in attempts.iter().skip(self.attempts_begun) {
            all.push((attempt.started_at, 0, claimed(job, attempt)));
        }
        let ended = attempts.iter().enumerate().skip(self.attempts_ended);
        for (i, attempt) in ended {
            let Some(at) = attempt.ended_at else { continue };
            let newest = i + 1 == attempts.len();
            // The end of a job tells its reason itself.
            let tells = !(newest && job.state.is_final()) && attempt.outcome.as_deref() != Some("completed");
            if tells {
                let next_at = (newest && !job.state.is_final() && job.run_at > at).then_some(job.run_at);
                all.push((at, 2, attempt_ended(job.id, attempt, at, next_at)));
            }
        }
        self.attempts_begun = attempts.len();
        self.attempts_ended = attempts.iter().take_while(|a| a.ended_at.is_some()).count();
        all
    }
}

fn claimed(job: &Job, attempt: &Attempt) -> Happening {
    let (number, worker, at) = (attempt.number, attempt.worker.clone(), attempt.started_at);
    Happening::Claimed { job: job.id, attempt: number, max_attempts: job.max_attempts, worker, at }
}

fn attempt_ended(job: JobId, attempt: &Attempt, at: Millis, next_at: Option<Millis>) -> Happening {
    let outcome = attempt.outcome.clone().unwrap_or_else(|| "ended".into());
    Happening::AttemptEnded { job, attempt: attempt.number, outcome, reason: attempt.reason.clone(), at, next_at }
}
