//! Knowing that an endpoint is out, so that a fleet leaves it alone instead of failing job after job.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::clock::Millis;

/// Failures in a row after which an endpoint counts as out.
pub const FAILURES: u32 = 5;

/// Failures further apart than this are not in a row.
pub const WINDOW_MS: Millis = 2 * 60 * 1000;

/// How long an endpoint is left alone the first time; twice as long each time after.
pub const FIRST_REST_MS: Millis = 10 * 1000;

/// [`FIRST_REST_MS`], for whoever is told of an outage without its length.
pub const REST: Duration = Duration::from_millis(FIRST_REST_MS as u64);

/// Longest time an endpoint is left alone.
pub const MAX_REST_MS: Millis = 10 * 60 * 1000;

/// How long a probe may take before another is sent: whoever sent it may have died.
pub const PROBE_MS: Millis = 2 * 60 * 1000;

/// How an endpoint has been doing since it last answered. The default is an endpoint that is well.
///
/// ```text
/// well      failure                    well; out after FAILURES in a row
/// out       its rest is over, asked    probed: one request may go, the others wait
/// probed    failure                    out, for twice as long
/// any       success                    well
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Failures in a row.
    pub failures: u32,
    /// When the last of them was.
    pub failed_at: Millis,
    /// How often it has been found out since it last answered; 0 while it counts as well.
    pub rests: u32,
    /// Left alone until then.
    pub out_until: Millis,
    /// While this is ahead, a probe is on its way.
    pub probe_until: Millis,
}

/// Whether an endpoint may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It may.
    Go,
    /// It may, to see whether it is back; nobody else may meanwhile.
    Probe,
    /// It is out; come back after so many milliseconds.
    Wait(Millis),
}

impl Breaker {
    /// Whether the endpoint counts as out.
    pub fn is_out(&self) -> bool {
        self.rests > 0
    }

    /// Asks to send a request.
    pub fn ask(&mut self, now: Millis) -> Leave {
        // No rest and no probe lasts longer than this: a time beyond was written by a clock that has
        // been set back since.
        let ahead = |until: Millis, longest: Millis| if until > now.saturating_add(longest) { 0 } else { until - now };
        if !self.is_out() {
            return Leave::Go;
        }
        let rest = ahead(self.out_until, MAX_REST_MS);
        if rest > 0 {
            return Leave::Wait(rest);
        }
        let probe = ahead(self.probe_until, PROBE_MS);
        if probe > 0 {
            return Leave::Wait(probe.min(FIRST_REST_MS));
        }
        self.probe_until = now.saturating_add(PROBE_MS);
        Leave::Probe
    }

    /// The endpoint answered.
    pub fn succeed(&mut self) {
        *self = Breaker::default();
    }

    /// The endpoint failed. Tells how long it is to be left alone, when it counts as out.
    pub fn fail(&mut self, now: Millis) -> Option<Millis> {
        let in_a_row = self.is_out() || (now - self.failed_at).abs() <= WINDOW_MS;
        self.failures = if in_a_row { self.failures.saturating_add(1) } else { 1 };
        self.failed_at = now;
        // Requests that were on their way when it was found out tell nothing new.
        if self.is_out() && self.out_until > now {
            return Some((self.out_until - now).min(MAX_REST_MS));
        }
        if !self.is_out() && self.failures < FAILURES {
            return None;
        }
        let rest = (FIRST_REST_MS << self.rests.min(16)).min(MAX_REST_MS);
        self.rests = self.rests.saturating_add(1);
        self.out_until = now.saturating_add(rest);
        self.probe_until = 0;
        Some(rest)
    }

    /// The probe came to nothing, neither way; somebody else may probe.
    pub fn forget_probe(&mut self) {
        self.probe_until = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn out_at(now: Millis) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 1..FAILURES {
            assert_eq!(breaker.fail(now), None);
            assert_eq!(breaker.ask(now), Leave::Go);
        }
        assert_eq!(breaker.fail(now), Some(FIRST_REST_MS));
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
            breaker.fail(now);
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
            assert_eq!(breaker.fail(i * (WINDOW_MS + 1)), None);
        }
        for _ in 0..50 {
            breaker.fail(0);
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

    #[derive(Debug, Clone)]
    enum Op {
        Ask,
        Succeed,
        Fail,
        Forget,
        Pass(Millis),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            5 => Just(Op::Ask),
            1 => Just(Op::Succeed),
            6 => Just(Op::Fail),
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
                            prop_assert!(breaker.is_out() && (1..=MAX_REST_MS).contains(&ms));
                        }
                    },
                    Op::Succeed => {
                        breaker.succeed();
                        prop_assert_eq!(breaker, Breaker::default());
                    }
                    Op::Fail => {
                        let was_out = breaker.is_out();
                        let rest = breaker.fail(now);
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
}
