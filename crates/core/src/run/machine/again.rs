//! What a model's failure means for the work that needed it.

use std::time::Duration;

use super::{Effect, Recorder};
use crate::model::{ModelError, ModelErrorKind, breaker};
use crate::run::compaction::Decision;
use crate::run::journal::{Entry, Overflow};

/// Whether another attempt at a failed piece of work may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Not by itself.
    Never,
    /// After the usual wait; it counts as a failed attempt.
    Later,
    /// Not before this time has passed. Nothing is wrong with the job, so no attempt is spent.
    After(Duration),
}

impl Again {
    /// What a model's failure means for the work that needed it.
    pub fn after(kind: ModelErrorKind, retry_after: Option<Duration>) -> Again {
        Again::after_some(kind, retry_after, 0)
    }

    /// What a worker's want of something (open files, memory) means for a call that it could not begin, after `before`
    /// such ends of the same call: such things come free again soon, here or elsewhere.
    pub fn after_lack(before: u32) -> Again {
        Again::After(SHORTEST_WAIT * (1 << before.min(MOST_DOUBLINGS)))
    }

    /// The same as [`Again::after`], after `before` failures with no reply between them.
    pub fn after_some(kind: ModelErrorKind, retry_after: Option<Duration>, before: u32) -> Again {
        match kind {
            // A provider's wish costs no attempt, for a while: one that says "at once" for ever would
            // otherwise never be given up.
            ModelErrorKind::RateLimited => match retry_after.filter(|_| before < FREE_WISHES) {
                Some(asked) => Again::After(asked.max(SHORTEST_WAIT * (1 << before))),
                None => Again::Later,
            },
            // Nothing was asked, so nothing of the job's has failed.
            ModelErrorKind::Unavailable => Again::After(retry_after.unwrap_or(breaker::REST).max(SHORTEST_REST)),
            // Nothing is wrong with the job. Another worker may be able to, or this one later.
            ModelErrorKind::WorkerUnfit => {
                Again::After(retry_after.unwrap_or(WAIT_FOR_ANOTHER_WORKER).max(SHORTEST_WAIT))
            }
            // A person has to mend a key or an account; the job tries again by itself meanwhile.
            ModelErrorKind::OutOfCredit => Again::After(retry_after.unwrap_or(WAIT_FOR_CREDENTIALS).max(SHORTEST_WAIT)),
            ModelErrorKind::Unauthorized => Again::After(WAIT_FOR_CREDENTIALS),
            ModelErrorKind::Transient
            | ModelErrorKind::Unreachable
            | ModelErrorKind::Stopped
            | ModelErrorKind::InvalidToolCall => Again::Later,
            ModelErrorKind::ContextOverflow | ModelErrorKind::Rejected => Again::Never,
        }
    }
}

impl Recorder<'_> {
    /// What failed before the run has begun is written down as a request of the run is, so that the next attempt knows how
    /// often it failed.
    pub(super) fn model_failed(&mut self, error: ModelError, ms: u64) -> Option<Effect> {
        if let Some(end) = not_asked(&error) {
            return Some(end);
        }
        let ModelError { kind, message, failed_tries, retry_after, context_window } = error;
        // A provider that does not tell its window has told that this request is larger.
        let has_begun = self.run.opening().is_some();
        let overflow = (has_begun && kind == ModelErrorKind::ContextOverflow)
            .then(|| Overflow { window: context_window, counted: self.run.request_tokens() });
        let before = self.run.failures_in_a_row;
        self.record(Entry::TurnFailed { reason: message.clone(), failed_tries, overflow, ms });
        if self.run.limit_reached().is_some() {
            return None;
        }
        let again = match kind {
            ModelErrorKind::InvalidToolCall if has_begun => {
                self.record(Entry::Note { text: format!("{BAD_CALL}\n{message}") });
                return None;
            }
            // Once what is too much has been taken out.
            ModelErrorKind::ContextOverflow if has_begun && self.run.fit() != Ok(Decision::Send) => return None,
            _ => Again::after_some(kind, retry_after, before),
        };
        Some(Effect::FailAttempt { reason: message, again })
    }
}

/// What follows where nothing happened that the journal would have to keep, however often it is found.
fn not_asked(error: &ModelError) -> Option<Effect> {
    let may_be =
        matches!(error.kind, ModelErrorKind::Stopped | ModelErrorKind::Unavailable | ModelErrorKind::WorkerUnfit);
    (may_be && error.failed_tries.is_empty()).then(|| Effect::FailAttempt {
        reason: error.message.clone(),
        again: Again::after(error.kind, error.retry_after),
    })
}

const BAD_CALL: &str = "Your last reply could not be read as a tool call. Try again with valid JSON arguments. \
                        The provider said:";

const WAIT_FOR_CREDENTIALS: Duration = Duration::from_secs(15 * 60);

/// How long a job waits that its worker cannot work.
const WAIT_FOR_ANOTHER_WORKER: Duration = Duration::from_secs(60);

/// No job that waits for a provider or a worker comes back sooner.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);

/// A wait for what a worker lacks is doubled so often: up to ten minutes.
const MOST_DOUBLINGS: u32 = 6;

/// No job that waits for its turn comes back sooner.
const SHORTEST_REST: Duration = Duration::from_secs(1);

/// So many times in a row a provider's wish for a wait costs no attempt.
const FREE_WISHES: u32 = 4;
