//! How long jobs are kept after their end.

use crate::clock::Millis;
use crate::job::JobState;

/// How long a job is kept after its end unless configured: 30 days, in milliseconds.
pub const DEFAULT_KEEP_MS: Millis = 30 * 24 * 3_600_000;

/// How long jobs of each final state are kept, in milliseconds; for ever where it is absent. With a job
/// go its journal, ledger, attempts, remarks and every content that no other job refers to. A job that
/// others wait for, or that holds its unique key after it completed, is kept until that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Those that are done.
    pub completed: Option<Millis>,
    /// Those that were stopped on request.
    pub cancelled: Option<Millis>,
    /// Those that were given up.
    pub discarded: Option<Millis>,
}

impl Default for Retention {
    fn default() -> Self {
        let keep = Some(DEFAULT_KEEP_MS);
        Retention { completed: keep, cancelled: keep, discarded: keep }
    }
}

impl Retention {
    /// For each state whose jobs are not kept for ever: those that ended before this time may go.
    pub fn cutoffs(&self, now: Millis) -> Vec<(JobState, Millis)> {
        let all = [
            (JobState::Completed, self.completed),
            (JobState::Cancelled, self.cancelled),
            (JobState::Discarded, self.discarded),
        ];
        all.into_iter().filter_map(|(state, keep)| keep.map(|keep| (state, now.saturating_sub(keep)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_ever_has_no_cutoff() {
        let retention = Retention { discarded: None, completed: Some(5), ..Retention::default() };
        let cutoffs = retention.cutoffs(7);
        assert_eq!(cutoffs, [(JobState::Completed, 2), (JobState::Cancelled, 7 - DEFAULT_KEEP_MS)]);
    }
}
