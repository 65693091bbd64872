//! Knowing that an endpoint is out, so that a fleet leaves it alone instead of failing job after job.

use posse_core::clock::Millis;
use posse_core::model::breaker::*;
use proptest::prelude::*;

fn out_at(now: Millis) -> Breaker {
    let mut breaker = Breaker::default();
    for _ in 1..FAILURES {
        assert_eq!(breaker.fail(now, false), None);
        assert_eq!(breaker.ask(now), Leave::Go);
    }
    assert_eq!(breaker.fail(now, false), Some(FIRST_REST_MS));
    breaker
}

#[test]
fn an_endpoint_that_is_out_is_probed_by_one_and_rests_longer_each_time() {
    let mut now = 1_000_000;
    let mut breaker = out_at(now);
    for rest in [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000] {
        assert_eq!(breaker.ask(now), Leave::Wait(rest));
        now += rest;
        assert_eq!(breaker.ask(now), Leave::Probe);
        assert_eq!(breaker.ask(now), Leave::Wait(FIRST_REST_MS), "one at a time");
        let probed = breaker;
        assert!(breaker.fail(now, false).is_some(), "one that was on its way");
        assert_eq!((breaker.rests, breaker.probe_until), (probed.rests, probed.probe_until), "tells nothing new");
        breaker.fail(now, true);
    }
    now += MAX_REST_MS;
    assert_eq!(breaker.ask(now), Leave::Probe);
    breaker.succeed();
    assert_eq!(breaker.ask(now), Leave::Go);
}

#[test]
fn failures_far_apart_or_with_success_between_are_not_in_a_row() {
    let mut breaker = Breaker::default();
    for i in 0..50 {
        assert_eq!(breaker.fail(i * (WINDOW_MS + 1), false), None);
    }
    for _ in 0..50 {
        breaker.fail(0, false);
        breaker.succeed();
        assert_eq!(breaker.ask(0), Leave::Go);
    }
}

#[test]
fn a_probe_whose_sender_died_is_sent_again() {
    let mut breaker = out_at(0);
    assert_eq!(breaker.ask(FIRST_REST_MS), Leave::Probe);
    assert_eq!(breaker.ask(FIRST_REST_MS + PROBE_MS - 1), Leave::Wait(1));
    assert_eq!(breaker.ask(FIRST_REST_MS + PROBE_MS), Leave::Probe);
    breaker.forget_probe();
    assert_eq!(breaker.ask(FIRST_REST_MS + PROBE_MS), Leave::Probe);
}

#[test]
fn what_a_provider_wishes_has_a_floor_that_grows_and_an_end() {
    let (mut breaker, mut now) = (Breaker::default(), 1_000_000);
    let mut waits = Vec::new();
    for _ in 0..8 {
        waits.push(breaker.close(Some(0), now, true));
        now += waits[waits.len() - 1];
        assert_eq!(breaker.ask(now), Leave::Probe);
    }
    assert_eq!(waits, [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000]);
    let mut breaker = Breaker::default();
    assert_eq!(breaker.close(Some(24 * MAX_CLOSED_MS), now, false), MAX_CLOSED_MS);
    assert_eq!(breaker.ask(now), Leave::Wait(MAX_CLOSED_MS), "found by one, known to all");
    assert_eq!(breaker.close(Some(1), now + 5, false), MAX_CLOSED_MS - 5, "and not shortened by the next");
    let mut unpaid = Breaker::default();
    assert_eq!(unpaid.close(None, now, false), FIRST_CLOSED_MS);
    assert_eq!(unpaid.close(None, now + FIRST_CLOSED_MS, true), 2 * FIRST_CLOSED_MS);
}

#[test]
fn who_limits_everybody_is_left_alone_for_a_time_that_grows() {
    let (mut breaker, now) = (Breaker::default(), 1_000_000);
    for _ in 1..FAILURES {
        assert_eq!(breaker.limit(Some(0), now, false), None, "each follows its wish by itself");
    }
    assert_eq!(breaker.limit(Some(0), now, false), Some(2_000));
    assert_eq!(breaker.limit(Some(0), now + 2_000, true), Some(4_000));
    assert_eq!(breaker.limit(Some(30_000), now + 6_000, true), Some(30_000), "it may ask for more");
    breaker.succeed();
    assert_eq!(breaker.limit(None, now, false), None);
}

#[test]
fn a_clock_that_is_set_back_makes_no_rest_longer() {
    let mut breaker = out_at(100 * MAX_REST_MS);
    assert_eq!(breaker.ask(99 * MAX_REST_MS), Leave::Probe);
}

#[derive(Debug, Clone)]
enum Op {
    Ask,
    Succeed,
    Fail(bool),
    Close(Option<Millis>, bool),
    Forget,
    Pass(Millis),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => Just(Op::Ask),
        1 => Just(Op::Succeed),
        6 => any::<bool>().prop_map(Op::Fail),
        2 => (prop::option::of(0..100_000_000_i64), any::<bool>()).prop_map(|(ms, probe)| Op::Close(ms, probe)),
        1 => Just(Op::Forget),
        // Clocks are set back, too.
        4 => (-3_600_000..900_000_i64).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..200)
}

proptest! {
    /// Whatever happens: waits are bounded and never zero, only an endpoint that is out is ever
    /// refused or probed, and it is never refused for ever.
    #[test]
    fn any_history_keeps_the_invariants(ops in ops()) {
        let mut breaker = Breaker::default();
        let mut now = 10_000_000_000;
        for op in ops {
            match op {
                Op::Ask => match breaker.ask(now) {
                    Leave::Go => prop_assert!(!breaker.is_out()),
                    Leave::Probe => prop_assert!(breaker.is_out()),
                    Leave::Wait(ms) => {
                        prop_assert!(breaker.is_out() && (1..=MAX_CLOSED_MS).contains(&ms));
                    }
                },
                Op::Succeed => {
                    breaker.succeed();
                    prop_assert_eq!(breaker, Breaker::default());
                }
                Op::Close(ms, is_probe) => {
                    let rest = breaker.close(ms, now, is_probe);
                    prop_assert!(breaker.is_out() && (1..=MAX_CLOSED_MS).contains(&rest));
                }
                Op::Fail(is_probe) => {
                    let was_out = breaker.is_out();
                    let rest = breaker.fail(now, is_probe);
                    prop_assert_eq!(rest.is_some(), breaker.is_out());
                    prop_assert!(was_out || !breaker.is_out() || breaker.failures >= FAILURES);
                }
                Op::Forget => breaker.forget_probe(),
                Op::Pass(ms) => now += ms,
            }
            let (mut later, mut at) = (breaker, now);
            let patient = (0..20).any(|_| match later.ask(at) {
                Leave::Wait(ms) => {
                    at += ms;
                    false
                }
                _ => true,
            });
            prop_assert!(patient, "whoever waits as told may ask some time");
        }
    }
}
