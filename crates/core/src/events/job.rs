//! What happens to one job, from what is stored: its attempts and its journal.

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Millis;
use crate::job::{Attempt, Job, JobId};
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
    /// That an attempt has begun.
    pub(super) fn claimed(job: &Job, attempt: &Attempt) -> JobEvent {
        let (number, worker, at) = (attempt.number, attempt.worker.clone(), attempt.started_at);
        JobEvent::Claimed { job: job.id, attempt: number, max_attempts: job.max_attempts, worker, at }
    }

    /// That an entry was committed.
    pub fn entry(job: JobId, recorded: Recorded) -> JobEvent {
        JobEvent::Entry { job, recorded: Box::new(recorded) }
    }

    /// That an attempt has ended.
    pub(super) fn attempt_ended(job: JobId, attempt: &Attempt, at: Millis, next_at: Option<Millis>) -> JobEvent {
        let outcome = attempt.outcome.clone().unwrap_or_else(|| "ended".into());
        JobEvent::AttemptEnded { job, attempt: attempt.number, outcome, reason: attempt.reason.clone(), at, next_at }
    }
}
