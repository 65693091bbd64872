//! Knowing that an endpoint is out, so that a fleet leaves it alone instead of failing job after job.

use schemars::JsonSchema;
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

/// How long an endpoint that limits everybody who asks is left alone the first time; twice as long each time
/// after.
pub const FIRST_LIMITED_MS: Millis = 2 * 1000;

/// How long an endpoint that has closed its doors (no credit, a limit of hours) is left alone, where it
/// names no time; twice as long each time after.
pub const FIRST_CLOSED_MS: Millis = 60 * 1000;

/// Longest time that such an endpoint is left alone, whatever it says: a person may have paid meanwhile.
pub const MAX_CLOSED_MS: Millis = 60 * 60 * 1000;

/// Longest time that such an endpoint is left alone that names none.
pub const MAX_UNNAMED_MS: Millis = 15 * 60 * 1000;

/// What was written so much later than now was written by a clock that has been set back since.
const SET_BACK_MS: Millis = 60 * 1000;

/// How long a probe may take before another is sent: whoever sent it may have died.
pub const PROBE_MS: Millis = 2 * 60 * 1000;

/// How an endpoint has been doing since it last answered. The default is an endpoint that is well.
///
/// ```text
/// well      failure                    well; out after FAILURES in a row
/// out       its rest is over, asked    probed: one request may go, the others wait
/// probed    its failure                out, for twice as long
/// any       it closes its doors        out, for as long as it says, within bounds that grow
/// any       success                    well
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        // No rest and no probe lasts longer than this, and none was begun later than now: such times were
        // written by a clock that has been set back since.
        let is_of_later = self.failed_at > now.saturating_add(SET_BACK_MS);
        let ahead = |until: Millis, longest: Millis| match until > now.saturating_add(longest) || is_of_later {
            true => 0,
            false => until - now,
        };
        if !self.is_out() {
            return Leave::Go;
        }
        let rest = ahead(self.out_until, MAX_CLOSED_MS);
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

    /// The endpoint failed; `is_probe` if that was the request that was to find out whether it is back.
    /// Tells how long it is to be left alone, when it counts as out.
    pub fn fail(&mut self, now: Millis, is_probe: bool) -> Option<Millis> {
        self.fail_for(FIRST_REST_MS, 0, now, is_probe)
    }

    /// The endpoint answered that it is asked too often, and is to be left alone for `ms` where it says how
    /// long. Once is no reason to leave it alone for everybody; as often as a failure is.
    pub fn limit(&mut self, ms: Option<Millis>, now: Millis, is_probe: bool) -> Option<Millis> {
        self.fail_for(FIRST_LIMITED_MS, ms.unwrap_or(0).clamp(0, MAX_CLOSED_MS), now, is_probe)
    }

    fn fail_for(&mut self, first: Millis, at_least: Millis, now: Millis, is_probe: bool) -> Option<Millis> {
        let in_a_row = self.is_out() || (now - self.failed_at).abs() <= WINDOW_MS;
        self.failures = if in_a_row { self.failures.saturating_add(1) } else { 1 };
        self.failed_at = now;
        // Requests that were on their way when it was found out tell nothing new.
        if self.is_out() && !is_probe {
            return Some(self.left_alone(now));
        }
        if !self.is_out() && self.failures < FAILURES {
            return None;
        }
        Some(self.rest((first << self.rests.min(16)).min(MAX_REST_MS).max(at_least), now))
    }

    /// The endpoint answered that it takes nothing for a while: for `ms`, where it says how long. Tells how
    /// long it is to be left alone.
    ///
    /// What it says has a floor that grows each time, and an end, at which one request asks again.
    pub fn close(&mut self, ms: Option<Millis>, now: Millis, is_probe: bool) -> Millis {
        self.failures = self.failures.saturating_add(1);
        self.failed_at = now;
        let left = self.left_alone(now);
        if self.is_out() && !is_probe && self.out_until > now {
            return left;
        }
        let grown = |first: Millis, most: Millis| (first << self.rests.min(16)).min(most);
        let rest = match ms {
            Some(ms) => ms.max(grown(FIRST_REST_MS, MAX_REST_MS)).min(MAX_CLOSED_MS),
            None => grown(FIRST_CLOSED_MS, MAX_UNNAMED_MS),
        };
        self.rest(rest, now)
    }

    fn rest(&mut self, ms: Millis, now: Millis) -> Millis {
        self.rests = self.rests.saturating_add(1);
        self.out_until = now.saturating_add(ms);
        self.probe_until = 0;
        ms
    }

    /// How long it is still left alone, as somebody is told whose request was on its way meanwhile.
    fn left_alone(&self, now: Millis) -> Millis {
        let rest = self.out_until.saturating_sub(now);
        if rest > 0 { rest.min(MAX_CLOSED_MS) } else { FIRST_REST_MS }
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
}
