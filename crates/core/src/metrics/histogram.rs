//! How long things take, counted by ranges.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::clock::Millis;

/// The upper ends of the ranges, in milliseconds: from a tool's call to an hour's run, each two to four
/// times the one before.
const BOUNDS_MS: [u64; 14] =
    [5, 10, 25, 100, 250, 1_000, 2_500, 5_000, 15_000, 60_000, 150_000, 600_000, 1_800_000, 3_600_000];

/// Durations as they are observed.
#[derive(Debug, Default)]
pub struct Histogram {
    /// How many in each range, the last one without an end.
    counts: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_ms: AtomicU64,
}

/// Durations that were observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// The upper end of each range in milliseconds, and how many durations were not longer.
    pub up_to_ms: Vec<(u64, u64)>,
    /// How many there were.
    pub count: u64,
    /// All of them together, in milliseconds.
    pub sum_ms: u64,
}

impl Histogram {
    /// Counts one. A negative one, as of a clock that was set, counts as none.
    pub fn observe(&self, duration: Millis) {
        let ms = duration.max(0).unsigned_abs();
        self.counts[BOUNDS_MS.partition_point(|bound| *bound < ms)].fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn read(&self) -> Observed {
        let mut count = 0;
        let mut below = |i: usize| {
            count += self.counts[i].load(Ordering::Relaxed);
            count
        };
        let up_to_ms = BOUNDS_MS.iter().enumerate().map(|(i, bound)| (*bound, below(i))).collect();
        below(BOUNDS_MS.len());
        Observed { up_to_ms, count, sum_ms: self.sum_ms.load(Ordering::Relaxed) }
    }
}
