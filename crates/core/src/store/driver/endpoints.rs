//! Rows of what models were asked, and of which endpoints are out.

use crate::model::breaker::Breaker;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of what models were asked, and of which endpoints are out.
pub trait EndpointRows {
    /// What is known of endpoints of these names; nothing where all is well.
    fn breakers(&mut self, names: &[String; 2]) -> Done<Vec<BreakerRow>>;
    /// All that failed since they last answered, by name.
    fn failing(&mut self) -> Done<Vec<BreakerRow>>;
    /// Stores what is known of an endpoint. What was said of it stays unless there is a `reason`.
    fn set_breaker(&mut self, endpoint: &str, breaker: &Breaker, reason: Option<&Sealed>) -> Done<()>;
    /// Deletes what is known of an endpoint: all is well.
    fn forget_breaker(&mut self, endpoint: &str) -> Done<()>;
    /// When the buckets of a model's requests and tokens are full again, in microseconds; 0 where nothing is known.
    fn rates(&mut self, endpoint: &str, model: &str) -> Done<(i64, i64)>;
    /// Stores when they are.
    fn set_rates(&mut self, endpoint: &str, model: &str, requests_us: i64, tokens_us: i64) -> Done<()>;
}

/// What is known of an endpoint.
#[derive(Debug)]
pub struct BreakerRow {
    /// Its name.
    pub endpoint: String,
    /// Whether it may be asked.
    pub breaker: Breaker,
    /// What was said when it failed.
    pub reason: Option<Sealed>,
}
