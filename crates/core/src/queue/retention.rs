//! How long jobs are kept after their end, and sessions after they were last used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::job::JobState;
#[cfg(doc)]
use crate::queue::Queue;
use crate::text::named;

/// How long a job is kept after its end unless configured: 30 days, in milliseconds.
pub const DEFAULT_KEEP_MS: Millis = 30 * 24 * 3_600_000;

/// How long a session is kept after it was last used unless configured: a year, in milliseconds.
pub const DEFAULT_KEEP_SESSIONS_MS: Millis = 365 * 24 * 3_600_000;

/// What is kept for a time of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Jobs that are done.
    Completed,
    /// Jobs that were stopped on request.
    Cancelled,
    /// Jobs that were given up.
    Discarded,
    /// Sessions, with all that was said in them.
    Sessions,
}

named!(Kept: Completed = "completed", Cancelled = "cancelled", Discarded = "discarded", Sessions = "sessions");

/// How long one kind is kept, in milliseconds; for ever where the time is absent.
pub type Keep = (Kept, Option<Millis>);

/// How long each kind is kept, in milliseconds; for ever where it is absent. It belongs to a database: every
/// process deletes by what is stored there. Jobs of a queue with times of its own ([`Queue::keep`]) are kept by those.
///
/// With a job go its journal, ledger, attempts, remarks and every content that no other job refers to. A job that
/// others wait for, or that holds its unique key after it completed, is kept until that is over. An exchange of a session
/// is kept as long as the session, whatever its state; a session counts from its last exchange, from when that was said
/// and from when it ended, and is kept while it has an open exchange and while a session that remembers it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Retention {
    /// Jobs that are done.
    pub completed: Option<Millis>,
    /// Those that were stopped on request.
    pub cancelled: Option<Millis>,
    /// Those that were given up.
    pub discarded: Option<Millis>,
    /// Sessions, since they were last used.
    pub sessions: Option<Millis>,
}

impl Default for Retention {
    fn default() -> Self {
        let keep = Some(DEFAULT_KEEP_MS);
        Retention { completed: keep, cancelled: keep, discarded: keep, sessions: Some(DEFAULT_KEEP_SESSIONS_MS) }
    }
}

impl Retention {
    /// How long `kind` is kept.
    pub fn of(&self, kind: Kept) -> Option<Millis> {
        match kind {
            Kept::Completed => self.completed,
            Kept::Cancelled => self.cancelled,
            Kept::Discarded => self.discarded,
            Kept::Sessions => self.sessions,
        }
    }

    /// The same, with some kinds kept for another time.
    pub fn with(mut self, said: &[Keep]) -> Retention {
        for (kind, keep) in said {
            *match kind {
                Kept::Completed => &mut self.completed,
                Kept::Cancelled => &mut self.cancelled,
                Kept::Discarded => &mut self.discarded,
                Kept::Sessions => &mut self.sessions,
            } = *keep;
        }
        self
    }

    /// Of what is `said`, the kinds that are kept for another time here.
    pub fn unlike(&self, said: &[Keep]) -> Vec<Keep> {
        said.iter().copied().filter(|(kind, keep)| self.of(*kind) != *keep).collect()
    }

    /// For each state whose jobs are not kept for ever: those that ended before this time may go.
    pub fn cutoffs(&self, now: Millis) -> Vec<(JobState, Millis)> {
        let all = [
            (JobState::Completed, self.completed),
            (JobState::Cancelled, self.cancelled),
            (JobState::Discarded, self.discarded),
        ];
        all.into_iter().filter_map(|(state, keep)| keep.map(|keep| (state, now.saturating_sub(keep)))).collect()
    }

    /// Sessions last used before this time may go; absent where they are kept for ever.
    pub fn session_cutoff(&self, now: Millis) -> Option<Millis> {
        self.sessions.map(|keep| now.saturating_sub(keep))
    }
}
