//! Jobs that are claimed before there is a slot for them.
//!
//! Where jobs take less time than the commit of their claim, slots would mostly stand idle and every commit
//! be about a few jobs. So as many more are claimed as the slots get through in a few milliseconds, and
//! none where jobs take longer than that. They are leased and can be cancelled like those at work. Should
//! the slots be taken for longer after all, they are given back and their attempts do not count.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Sleep, sleep};

use crate::clock::Millis;
use crate::port::Claimed;
use crate::stop::Stop;

/// How long a claimed job is to wait for its slot, in microseconds.
const WAIT_US: i64 = 5_000;
/// No more jobs wait than this, since each has met a death if their worker dies.
const AT_MOST: usize = 100;
/// How long one waits in fact, before it is given back.
const GIVEN_BACK_AFTER: Duration = Duration::from_millis(100);
/// What longer jobs are counted as, in milliseconds: that they are long is all that matters.
const LONG_MS: Millis = 1_000;

/// A job that this worker has claimed.
pub(super) struct LeasedJob {
    pub claimed: Claimed,
    pub stop: Stop,
}

/// The jobs that wait for a slot, and how long jobs take.
pub(super) struct Prefetch {
    waiting: VecDeque<LeasedJob>,
    /// Until those that wait do so for too long.
    patience: Option<Pin<Box<Sleep>>>,
    /// A moving mean over about sixteen jobs.
    job_us: i64,
}

impl Prefetch {
    /// Nothing waits, and jobs are taken to be long until they have been short for a while.
    pub fn new() -> Prefetch {
        Prefetch { waiting: VecDeque::new(), patience: None, job_us: LONG_MS * 1000 }
    }

    /// A job took `ms` milliseconds.
    pub fn took(&mut self, ms: Millis) {
        self.job_us += (ms.clamp(0, LONG_MS) * 1000 - self.job_us) / 16;
    }

    /// How many jobs to claim beyond those that there are slots for.
    pub fn wanted(&self, slots: usize) -> usize {
        if self.job_us >= WAIT_US {
            return 0;
        }
        let in_time = slots.saturating_mul(WAIT_US as usize) / self.job_us.max(1) as usize;
        in_time.min(AT_MOST)
    }

    /// Has jobs wait that were just claimed.
    pub fn add(&mut self, claimed: Vec<LeasedJob>) {
        self.patience = Some(Box::pin(sleep(GIVEN_BACK_AFTER)));
        self.waiting.extend(claimed);
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The one that waits longest.
    pub fn next(&mut self) -> Option<LeasedJob> {
        self.waiting.pop_front()
    }

    /// Pends until those that wait do so for too long; for ever if none does.
    pub async fn overdue(&mut self) {
        match &mut self.patience {
            Some(patience) if !self.waiting.is_empty() => patience.await,
            _ => std::future::pending().await,
        }
    }

    /// All that wait. Jobs are long then, whatever they were before.
    pub fn give_back(&mut self) -> VecDeque<LeasedJob> {
        self.job_us = LONG_MS * 1000;
        self.patience = None;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_jobs_have_been_short_for_a_while_are_more_wanted_and_never_many() {
        let mut prefetch = Prefetch::new();
        assert_eq!(prefetch.wanted(10), 0, "nothing is known yet");
        (0..20).for_each(|_| prefetch.took(0));
        assert_eq!(prefetch.wanted(10), 0, "a few short ones prove nothing");
        (0..100).for_each(|_| prefetch.took(0));
        assert_eq!(prefetch.wanted(10), AT_MOST);
        (0..200).for_each(|_| prefetch.took(2));
        assert_eq!(prefetch.wanted(10), 25, "what ten slots get through in 5 ms");
        // One long job is seen at once, and a thousand hours are no longer than a second.
        prefetch.took(3_600_000_000);
        assert_eq!(prefetch.wanted(10), 0);
        (0..60).for_each(|_| prefetch.took(0));
        assert!(prefetch.wanted(10) > 0);
    }
}
