//! Queues as they are shown.

use posse_core::port::Store;
use posse_core::queue::rules::{QueueState, Rule, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;

/// A queue with its own rule: an item of `posse queue list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct QueueView {
    /// The queue.
    pub queue: String,
    /// Jobs that may be claimed, as far as the rules let them start.
    pub available: u64,
    /// Jobs that are due later, after a failure too.
    pub scheduled: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait for a person, a child job or an event.
    pub suspended: u64,
    /// Its own rule; null when there is none.
    pub rule: Option<Rule>,
}

impl From<QueueState> for QueueView {
    fn from(state: QueueState) -> QueueView {
        let QueueState { queue, available, scheduled, running, suspended } = state;
        let rule = Some(queue.rule()).filter(|rule| !rule.is_empty());
        QueueView { queue: queue.name, available, scheduled, running, suspended, rule }
    }
}

/// Queues with jobs that have not ended, or of which something is said.
pub async fn list(store: &dyn Store) -> Result<Vec<QueueView>> {
    Ok(store.queue_states().await?.into_iter().map(QueueView::from).collect())
}

/// Whether everything is paused.
pub async fn all_paused(store: &dyn Store) -> Result<bool> {
    Ok(store.rules().await?.iter().any(|rule| rule.scope == Scope::All && rule.paused_at.is_some()))
}
