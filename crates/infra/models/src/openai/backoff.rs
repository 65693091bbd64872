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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_a_cap() {
        let longest = |retry| wait(retry, Duration::from_millis(500), None, 1.0);
        assert_eq!(longest(0), Some(Duration::from_millis(500)));
        assert_eq!(longest(3), Some(Duration::from_secs(4)));
        assert_eq!(longest(40), Some(CAP));
        assert_eq!(wait(3, CAP, None, 0.0), Some(Duration::ZERO));
    }

    #[test]
    fn a_wish_for_no_wait_has_a_floor_that_grows() {
        let longest = |retry| wait(retry, Duration::from_millis(500), Some(Duration::ZERO), 0.0);
        assert_eq!([0, 1, 2, 40].map(longest), [250, 500, 1000, 10_000].map(|ms| Some(Duration::from_millis(ms))));
    }

    #[test]
    fn never_less_than_asked() {
        let asked = |seconds, roll| wait(0, Duration::ZERO, Some(Duration::from_secs_f64(seconds)), roll);
        assert_eq!(asked(2.0, 0.0), Some(Duration::from_secs(2)));
        assert_eq!(asked(2.0, 0.5), Some(Duration::from_millis(2500)));
        assert_eq!(asked(0.1, 0.5), Some(Duration::from_millis(150)));
        assert_eq!(asked(61.0, 0.5), None);
    }
}
