//! How long a failed job waits for its next attempt.

use crate::clock::Millis;

/// Longest wait between two attempts.
pub const MAX_BACKOFF_MS: Millis = 15 * 60 * 1000;

/// The wait after the failure of attempt number `attempt` (1 for the first): 2 s, 8 s, 32 s, … up
/// to a quarter of an hour, each spread by up to a quarter so that jobs that failed together do
/// not return together. `seed` decides the spread; the same seed gives the same wait.
pub fn backoff_ms(attempt: u32, seed: u64) -> Millis {
    let exponent = attempt.saturating_sub(1).min(12);
    let base = (2000_i64 << (2 * exponent)).min(MAX_BACKOFF_MS);
    let spread = (mix(seed ^ u64::from(attempt)) % 1000) as Millis;
    base - base / 4 * spread / 1000
}

/// SplitMix64's finaliser: turns neighbouring numbers into unrelated ones.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_stay_capped_and_differ_between_jobs() {
        for seed in 0..100 {
            for attempt in 1..200 {
                let wait = backoff_ms(attempt, seed);
                assert!((1500..=MAX_BACKOFF_MS).contains(&wait), "attempt {attempt}: {wait}");
            }
            assert!(backoff_ms(2, seed) > backoff_ms(1, seed));
        }
        let distinct: std::collections::HashSet<_> = (0..100).map(|seed| backoff_ms(1, seed)).collect();
        assert!(distinct.len() > 50);
    }
}
