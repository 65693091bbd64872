//! Jobs that go on from the middle of others.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::JobId;
use crate::run::fork::Fork;

/// Makes forks.
#[async_trait]
pub trait ForkRepository: Send + Sync {
    /// Stores a fork in one transaction: its job, its journal with original times, and what the
    /// entries mean for its ledger and its questions. Open questions are closed until it waits.
    async fn fork(&self, fork: Fork, now: Millis) -> Result<JobId>;
}
