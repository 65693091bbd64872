//! What a worker process says of its work as it goes, for programs.

use posse_core::job::{JobId, JobState};
use posse_core::run::journal::Recorded;
use posse_core::worker::Progress;
use schemars::JsonSchema;
use serde::Serialize;

/// A job event as the process knows it that works the job: one line of `posse work --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkEvent<'a> {
    /// An attempt has begun.
    Claimed {
        /// The job.
        job: JobId,
        /// Who works it.
        role: &'a str,
        /// The attempt's number.
        attempt: u32,
        /// Attempts it gets.
        max_attempts: u32,
    },
    /// An entry of the journal was committed.
    Entry {
        /// The job.
        job: JobId,
        /// The entry.
        #[serde(flatten)]
        recorded: &'a Recorded,
    },
    /// The attempt has ended.
    AttemptEnded {
        /// The job.
        job: JobId,
        /// Where the job is now.
        state: JobState,
        /// Why, in words.
        reason: Option<&'a str>,
    },
    /// The job is another worker's now.
    LeaseLost {
        /// The job.
        job: JobId,
    },
}

impl<'a> WorkEvent<'a> {
    /// What was heard, where it is durable.
    pub fn of(heard: &'a Progress) -> Option<WorkEvent<'a>> {
        match heard {
            Progress::Claimed { job } => {
                let (role, attempt, max_attempts) = (job.role.as_str(), job.attempt, job.max_attempts);
                Some(WorkEvent::Claimed { job: job.id, role, attempt, max_attempts })
            }
            Progress::Recorded { job, recorded } => Some(WorkEvent::Entry { job: *job, recorded }),
            Progress::Ended { job, state, reason } => {
                Some(WorkEvent::AttemptEnded { job: *job, state: *state, reason: reason.as_deref() })
            }
            Progress::LeaseLost { job } => Some(WorkEvent::LeaseLost { job: *job }),
            Progress::AskingModel { .. } | Progress::Delta { .. } => None,
        }
    }
}
