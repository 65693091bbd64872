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

/// How long an endpoint that limits everybody is left alone the first time; twice as long each time after.
pub const FIRST_LIMITED_MS: Millis = 2 * 1000;

/// The same for one that has closed its doors (no credit, a limit of hours) and names no time.
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

    /// The endpoint failed, on its probe if `is_probe`. Tells how long it is to be left alone, when it counts as out.
    pub fn fail(&mut self, now: Millis, is_probe: bool) -> Option<Millis> {
        self.fail_for(FIRST_REST_MS, 0, now, is_probe)
    }

    /// The endpoint is asked too often, and perhaps says for how long. It counts as a failure does.
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
