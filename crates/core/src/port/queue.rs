//! Queues: what limits how many jobs start and how often models are asked.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::JobId;
use crate::queue::rate::{EndpointState, ModelUse, Pass, RequestOutcome};
use crate::queue::rules::{Held, Limits, LimitsChange, QueueState, Rule, Scope};
use crate::queue::{Queue, QueueChange};

/// Keeps the rules; each change holds for every claim after it, in every process.
#[async_trait]
pub trait Rules: Send + Sync {
    /// Sets all limits of a scope; what is absent is no limit. Without any, and not paused, a scope has no rule.
    async fn set_limits(&self, scope: Scope, limits: Limits, now: Millis) -> Result<()>;

    /// Changes the limits of a scope, and gives them as they are then. What others change at the same time stays.
    async fn change_limits(&self, scope: Scope, change: LimitsChange, now: Millis) -> Result<Limits>;

    /// Lets no job of the scope start until it is resumed; false when it was paused before.
    async fn pause(&self, scope: Scope, now: Millis) -> Result<bool>;

    /// Takes a pause back; false when there was none.
    async fn resume(&self, scope: Scope) -> Result<bool>;

    /// All rules, by scope.
    async fn rules(&self) -> Result<Vec<Rule>>;

    /// Why an available job may not start, if it may not by the rules.
    async fn held(&self, job: JobId, now: Millis) -> Result<Option<Held>>;
}

/// Keeps what is said of queues.
#[async_trait]
pub trait QueueRepository: Send + Sync {
    /// The queue of this name, whether anything is said of it or not.
    async fn queue(&self, name: String) -> Result<Queue>;

    /// The queues of which something is said, by name.
    async fn queues(&self) -> Result<Vec<Queue>>;

    /// Changes a queue, and gives it as it is then. What others change at the same time stays.
    async fn change_queue(&self, name: String, change: QueueChange, now: Millis) -> Result<Queue>;

    /// The queues that have jobs which are not final, or of which something is said, by name. Reads of each job that is
    /// not final its place in an index.
    async fn queue_states(&self) -> Result<Vec<QueueState>>;
}

/// Counts requests to models, and knows which endpoints are out, for all processes together.
#[async_trait]
pub trait RateLimiter: Send + Sync {
    /// Asks leave for a request: at most `patience_ms` are booked and told as a wait, for longer it is a no.
    async fn reserve(&self, about: ModelUse, patience_ms: Millis, now: Millis) -> Result<Pass>;

    /// Says what the request of `reserved` came to; gives the milliseconds for which the endpoint is now out, if it is.
    async fn settle(
        &self,
        reserved: ModelUse,
        used: ModelUse,
        outcome: RequestOutcome,
        now: Millis,
    ) -> Result<Option<Millis>>;

    /// The endpoints that have failed since they last answered.
    async fn failing_endpoints(&self) -> Result<Vec<EndpointState>>;
}
