//! So many in a minute.

use posse_core::clock::Millis;
use posse_core::queue::rate::Bucket;
use proptest::prelude::*;

#[test]
fn a_tenth_goes_at_once_and_the_rest_evenly() {
    let mut bucket = Bucket::paced(60, 0);
    let now = 1_000_000;
    for _ in 0..6 {
        assert_eq!(bucket.wait_ms(1, now), 0);
        bucket.take(1, now);
    }
    assert_eq!([now, now + 999, now + 1000].map(|at| bucket.wait_ms(1, at)), [1000, 1, 0]);
    bucket.give_back(1);
    assert_eq!(bucket.wait_ms(1, now), 0);
}

#[test]
fn what_is_larger_than_the_bucket_waits_until_it_is_full() {
    let mut bucket = Bucket::whole(1000, 0);
    bucket.take(500, 0);
    assert_eq!(bucket.wait_ms(5000, 0), 30_000);
    assert_eq!(bucket.wait_ms(5000, 30_000), 0);
}

#[test]
fn a_clock_set_back_costs_a_bucketful_at_most() {
    let mut bucket = Bucket::paced(60, 0);
    bucket.take(1, 3_600_000);
    assert_eq!(bucket.wait_ms(1, 0), 1000);
}

proptest! {
    /// Whatever is asked whenever: no window of a minute lets more through than it may, and
    /// whoever waits as told is served.
    #[test]
    fn no_minute_has_too_many(per_minute in 1..600_u64, gaps in prop::collection::vec(0..3000_i64, 1..300)) {
        let mut bucket = Bucket::paced(per_minute, 0);
        let mut now = 1_000_000;
        let mut gone: Vec<Millis> = Vec::new();
        for gap in gaps {
            now += gap;
            let wait = bucket.wait_ms(1, now);
            if wait > 0 {
                now += wait;
                prop_assert_eq!(bucket.wait_ms(1, now), 0, "the wait was the whole wait");
            }
            bucket.take(1, now);
            gone.push(now);
            let window = gone.iter().filter(|at| **at > now - 60_000).count() as u64;
            prop_assert!(window <= per_minute + bucket.holds, "{window} in a minute");
        }
    }
}
