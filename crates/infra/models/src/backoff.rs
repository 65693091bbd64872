//! How long to wait before a request is made again.

use std::time::Duration;

/// Longest wait of our own choosing.
const CAP: Duration = Duration::from_secs(20);

/// Longest wait that is spent holding a worker. A provider that asks for more gets the error handed
/// up with its figure, so that the job waits and not the worker.
const MOST: Duration = Duration::from_secs(60);

/// The wait before retry number `retry` (from 0), or `None` if it is too long to wait here.
///
/// Without a figure from the provider: full jitter, anything up to `base * 2^retry`, so that
/// workers that failed together do not come back together. With one: at least that long, and a
/// little more for the same reason; but never sooner than half of our own longest, since a provider
/// that says "at once" for ever would be asked without a pause. `roll` is from `[0, 1)`.
pub(crate) fn wait(retry: u32, base: Duration, asked: Option<Duration>, roll: f64) -> Option<Duration> {
    let own = base.saturating_mul(1 << retry.min(16)).min(CAP);
    match asked {
        Some(asked) if asked > MOST => None,
        Some(asked) => {
            let wished = asked + asked.min(Duration::from_secs(1)).mul_f64(roll);
            Some(wished.max(own.mul_f64(0.5 + roll / 2.0)))
        }
        None => Some(own.mul_f64(roll)),
    }
}
