//! How long a failed job waits for its next attempt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;

/// Longest wait between two attempts that may be asked for, in seconds: a week.
pub const MAX_WAIT_SECONDS: u32 = 7 * 24 * 60 * 60;

/// Most attempts a job may ask for.
pub const MAX_ATTEMPTS: u32 = 100;

/// How waits grow from one failed attempt to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Four times as long after each failure.
    #[default]
    Exponential,
    /// Always the same.
    Fixed,
    /// No other attempt is made: the first failure discards the job.
    None,
}

/// When a failed job is tried again, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// How waits grow.
    pub strategy: Strategy,
    /// The first wait, in seconds; at least 1.
    pub base_seconds: u32,
    /// No wait is longer, in seconds; at most a week.
    pub max_seconds: u32,
    /// The share, 0 to 1, by which a wait may be shortened at random, so that jobs that failed together
    /// do not return together.
    pub jitter: f64,
    /// Attempts a job gets, 1 to 100, where it does not ask for another number; 5 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

impl Default for RetryPolicy {
    /// 2 s, 8 s, 32 s, … up to a quarter of an hour, each shortened by up to a quarter.
    fn default() -> Self {
        let strategy = Strategy::Exponential;
        RetryPolicy { strategy, base_seconds: 2, max_seconds: 15 * 60, jitter: 0.25, max_attempts: None }
    }
}

impl RetryPolicy {
    /// What is wrong with it, if anything, and what would be right.
    pub fn problem(&self) -> Option<String> {
        let RetryPolicy { strategy, base_seconds, max_seconds, jitter, max_attempts } = *self;
        if base_seconds == 0 {
            return Some("has base_seconds 0; the shortest wait is 1".into());
        }
        if max_seconds < base_seconds || max_seconds > MAX_WAIT_SECONDS {
            return Some(format!(
                "has max_seconds {max_seconds}; it must lie between base_seconds ({base_seconds}) and {MAX_WAIT_SECONDS}"
            ));
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Some(format!("has jitter {jitter}; it must lie between 0 and 1"));
        }
        match max_attempts {
            Some(n) if !(1..=MAX_ATTEMPTS).contains(&n) => {
                Some(format!("has max_attempts {n}; it must lie between 1 and {MAX_ATTEMPTS}"))
            }
            Some(n) if strategy == Strategy::None && n > 1 => {
                Some(format!("has max_attempts {n} with the strategy none, which makes one attempt; leave one out"))
            }
            _ => None,
        }
    }

    /// Attempts it stands for, if it says.
    pub fn attempts(&self) -> Option<u32> {
        if self.strategy == Strategy::None { Some(1) } else { self.max_attempts }
    }

    /// The wait after the failure of `attempt`, from 1; the same `seed` shortens it by the same.
    pub fn wait_ms(&self, attempt: u32, seed: u64) -> Millis {
        let base = Millis::from(self.base_seconds) * 1000;
        let grown = match self.strategy {
            Strategy::Exponential => base << (2 * attempt.saturating_sub(1).min(15)),
            Strategy::Fixed | Strategy::None => base,
        };
        let wait = grown.min(Millis::from(self.max_seconds) * 1000);
        let share = (mix(seed ^ u64::from(attempt)) % 1000) as f64 / 1000.0;
        wait - (wait as f64 * self.jitter * share) as Millis
    }
}

/// SplitMix64's finaliser: turns neighbouring numbers into unrelated ones.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
