//! So many in a minute: a token bucket, and the port through which requests to models are counted
//! for all processes together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::model::breaker::Breaker;

/// Microseconds in a minute.
const MINUTE_US: i64 = 60_000_000;

/// How far a bucket can be overdrawn, by requests that turn out larger than it holds.
const MOST_OWED_US: i64 = 10 * MINUTE_US;

/// A bucket that fills evenly, at so many in a minute, and holds a share of a minute's worth.
///
/// All there is to store is the moment at which it will be full again: what is taken moves that
/// moment on. What is missing from the bucket then follows from the time alone, so nothing ever has
/// to be put back by somebody who may have died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// How many a minute adds; at least 1.
    pub per_minute: u64,
    /// How many it holds; at least 1.
    pub holds: u64,
    /// When it will be full again, in microseconds since 1970; past when it is full.
    pub full_at_us: i64,
}

impl Bucket {
    /// A bucket of which a tenth of a minute's worth, at least one, may go at once. In no minute do
    /// more than eleven tenths of `per_minute` go.
    pub fn paced(per_minute: u64, full_at_us: i64) -> Bucket {
        Bucket { per_minute: per_minute.max(1), holds: (per_minute / 10).max(1), full_at_us }
    }

    /// A bucket of which a whole minute's worth may go at once, as providers count tokens.
    pub fn whole(per_minute: u64, full_at_us: i64) -> Bucket {
        Bucket { per_minute: per_minute.max(1), holds: per_minute.max(1), full_at_us }
    }

    /// How long, in milliseconds, until `count` can be taken; 0 when they can be now. More than the
    /// bucket holds can be taken when it is full.
    pub fn wait_ms(&self, count: u64, now: Millis) -> Millis {
        let missing_at_most = self.holds.saturating_sub(count);
        let us = (self.owed_until(now) - self.worth_us(missing_at_most)).saturating_sub(us(now));
        us.max(0).saturating_add(999) / 1000
    }

    /// Takes `count`, whether they are there or not.
    pub fn take(&mut self, count: u64, now: Millis) {
        self.full_at_us = self.owed_until(now).max(us(now)).saturating_add(self.worth_us(count));
    }

    /// Gives `count` back.
    pub fn give_back(&mut self, count: u64) {
        self.full_at_us = self.full_at_us.saturating_sub(self.worth_us(count));
    }

    /// When it is full again. A moment more than a bucketful and [`MOST_OWED_US`] ahead was written by
    /// a clock that has been set back since, and counts as a bucketful.
    fn owed_until(&self, now: Millis) -> i64 {
        let bucketful = self.worth_us(self.holds);
        let latest = us(now).saturating_add(bucketful).saturating_add(MOST_OWED_US);
        if self.full_at_us > latest { us(now).saturating_add(bucketful) } else { self.full_at_us }
    }

    /// How long it takes to fill `count`, rounded up.
    fn worth_us(&self, count: u64) -> i64 {
        let us = (u128::from(count) * MINUTE_US as u128).div_ceil(u128::from(self.per_minute.max(1)));
        i64::try_from(us).unwrap_or(i64::MAX)
    }
}

fn us(now: Millis) -> i64 {
    now.saturating_mul(1000)
}

/// What one model may be asked in a minute, all processes together. No limit where absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelRates {
    /// Requests.
    pub requests_per_minute: Option<u64>,
    /// Tokens, read and written.
    pub tokens_per_minute: Option<u64>,
}

/// Tokens of a request that is about to be made or was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelUse {
    /// Where the model is; what fails, fails for everybody who asks there.
    pub endpoint: String,
    /// The provider's name of the model; rates are the model's at its endpoint.
    pub model: String,
    /// What it may be asked.
    pub rates: ModelRates,
    /// Requests.
    pub requests: u64,
    /// Tokens, read and written; estimated beforehand.
    pub tokens: u64,
    /// Whether it is the one request that finds out whether its endpoint is back.
    pub is_probe: bool,
}

/// Whether a request may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// It may, after this wait in milliseconds, and is already counted.
    Go {
        /// 0 for now.
        after_ms: Millis,
    },
    /// It may, now, and is the one that finds out whether its endpoint is back.
    Probe,
    /// Not now, because as many were made as may be. Nothing was counted.
    Wait {
        /// For how long, in milliseconds.
        ms: Millis,
        /// Why, in words.
        reason: String,
    },
    /// Not now, because its endpoint is out. Nothing was counted.
    Out {
        /// For how long, in milliseconds.
        ms: Millis,
        /// Why, in words.
        reason: String,
    },
}

impl ModelUse {
    /// The endpoint as it is known that takes nothing for this model.
    pub fn endpoint_of_model(&self) -> String {
        format!("{} {}", self.endpoint, self.model)
    }

    /// The names under which it is known whether the model may be asked: its endpoint's, and its own there.
    pub fn names(&self) -> [String; 2] {
        [self.endpoint.clone(), self.endpoint_of_model()]
    }
}

/// How a request to a model went, as far as its endpoint is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The endpoint answered, if only to refuse.
    Answered,
    /// It could not be reached, or failed on its side; in words.
    Failed(String),
    /// It answered that the model is asked too often.
    Limited {
        /// What it said, in words.
        reason: String,
        /// For how long it is to be left alone, in milliseconds, where it says so.
        ms: Option<Millis>,
    },
    /// It answered that it takes nothing for a while.
    Closed {
        /// What it said, in words.
        reason: String,
        /// Whom this concerns.
        whom: Whom,
        /// For how long, in milliseconds, where it says so.
        ms: Option<Millis>,
    },
    /// The request was stopped from our side, or never made.
    Unknown,
}

/// Whom an endpoint means that takes nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// Everybody: the account has no credit.
    Everybody,
    /// Those who ask for the same model.
    Model,
}

/// An endpoint as [`RateLimiter`] knows it. One that takes nothing for one of its models has that model's
/// name behind it, after a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointState {
    /// Where it is.
    pub endpoint: String,
    /// How it has been doing.
    #[serde(flatten)]
    pub breaker: Breaker,
    /// What it said last when it failed.
    pub reason: Option<String>,
}
