//! What outlives the conversation it comes from.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::lease::Lease;

/// Memory of runs; [`JobQueries::archived`](super::JobQueries::archived) reads it.
#[async_trait]
pub trait MemoryRepository: Send + Sync {
    /// Keeps what leaves a run's conversation with its entry `seq`; the same again changes nothing.
    async fn archive(&self, lease: Lease, seq: u64, content: String, now: Millis) -> Result<()>;
}
