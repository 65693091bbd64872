//! Rows of what models were asked, and of which endpoints are out.

use super::{Passing, Record};
use crate::model::breaker::Breaker;
use crate::store::seal::Sealed;

/// What is known of an endpoint; nothing where all is well.
#[derive(Debug)]
pub struct BreakerRow {
    /// Its name.
    pub endpoint: String,
    /// Whether it may be asked.
    pub breaker: Breaker,
    /// What was said when it failed.
    pub reason: Option<Sealed>,
}

/// Rows of some endpoints.
#[derive(Debug)]
pub enum BreakersOf<'a> {
    /// Of those of these names.
    Either(&'a [String; 2]),
    /// Of all, by name.
    All,
}

impl Record for BreakerRow {
    type Of<'a> = BreakersOf<'a>;
}

/// That of a name.
impl Passing for BreakerRow {
    type Which<'a> = &'a str;
}

/// When the buckets of a model are full again, in microseconds. Found by endpoint and model.
#[derive(Debug)]
pub struct Rates {
    /// Where it is asked.
    pub endpoint: String,
    /// The model.
    pub model: String,
    /// That of its requests.
    pub requests_us: i64,
    /// That of its tokens.
    pub tokens_us: i64,
}

impl Record for Rates {
    type Of<'a> = (&'a str, &'a str);
}
