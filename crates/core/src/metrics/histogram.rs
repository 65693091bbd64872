//! How long things take, counted by ranges.

use serde::Serialize;

use crate::clock::Millis;

/// The upper ends of the ranges, in milliseconds: from a tool's call to an hour's run.
const BOUNDS_MS: [u64; 14] =
    [5, 10, 25, 100, 250, 1_000, 2_500, 5_000, 15_000, 60_000, 150_000, 600_000, 1_800_000, 3_600_000];

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

impl Default for Observed {
    fn default() -> Self {
        Observed { up_to_ms: BOUNDS_MS.map(|bound| (bound, 0)).into(), count: 0, sum_ms: 0 }
    }
}

impl Observed {
    /// Counts one. A negative one, as of a clock that was set, counts as none.
    pub fn observe(&mut self, duration: Millis) {
        let ms = duration.max(0).unsigned_abs();
        self.up_to_ms.iter_mut().filter(|(bound, _)| ms <= *bound).for_each(|(_, count)| *count += 1);
        self.count += 1;
        self.sum_ms += ms;
    }
}
