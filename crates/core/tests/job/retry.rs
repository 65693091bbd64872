//! How long a failed job waits for its next attempt.

use posse_core::job::retry::{MAX_WAIT_SECONDS, RetryPolicy, Strategy};
use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

#[test]
fn the_usual_waits_grow_stay_capped_and_differ_between_jobs() {
    let policy = RetryPolicy::default();
    for seed in 0..100 {
        for attempt in 1..200 {
            let wait = policy.wait_ms(attempt, seed);
            assert!((1500..=900_000).contains(&wait), "attempt {attempt}: {wait}");
        }
        assert!(policy.wait_ms(2, seed) > policy.wait_ms(1, seed));
    }
    let distinct: std::collections::HashSet<_> = (0..100).map(|seed| policy.wait_ms(1, seed)).collect();
    assert!(distinct.len() > 50);
}

#[test]
fn a_policy_is_checked() {
    let usual = RetryPolicy::default();
    assert_eq!(usual.problem(), None);
    for (policy, words) in [
        (RetryPolicy { base_seconds: 0, ..usual }, "base_seconds 0"),
        (RetryPolicy { base_seconds: 9, max_seconds: 8, ..usual }, "max_seconds 8"),
        (RetryPolicy { max_seconds: MAX_WAIT_SECONDS + 1, ..usual }, "604800"),
        (RetryPolicy { jitter: f64::NAN, ..usual }, "jitter NaN"),
        (RetryPolicy { max_attempts: Some(0), ..usual }, "max_attempts 0"),
        (RetryPolicy { strategy: Strategy::None, max_attempts: Some(2), ..usual }, "strategy none"),
    ] {
        let problem = policy.problem().expect("is wrong");
        assert!(problem.contains(words), "{problem}");
    }
}

proptest! {
    #[test]
    fn every_legal_policy_keeps_its_bounds(
        base in 1..=MAX_WAIT_SECONDS,
        more in 0..=MAX_WAIT_SECONDS,
        jitter in 0.0..=1.0,
        attempt in any::<u32>(),
        seed in any::<u64>(),
        strategy in prop::sample::select(vec![Strategy::Exponential, Strategy::Fixed]),
    ) {
        let max_seconds = base.saturating_add(more).min(MAX_WAIT_SECONDS);
        let policy = RetryPolicy { strategy, base_seconds: base, max_seconds, jitter, max_attempts: None };
        prop_assert_eq!(policy.problem(), None);
        let wait = policy.wait_ms(attempt, seed);
        prop_assert!(wait >= 0 && wait <= i64::from(max_seconds) * 1000);
        prop_assert!(wait as f64 >= f64::from(base) * 1000.0 * (1.0 - jitter) - 1.0);
        if strategy == Strategy::Fixed {
            prop_assert!(wait <= i64::from(base) * 1000);
        }
    }
}
