//! Queues as they are shown.

use posse_core::port::Store;
use posse_core::queue::rules::{QueueState, Rule, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;

/// A queue with its own rule: an item of `posse queue list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct QueueView {
    /// How many of its jobs are where.
    #[serde(flatten)]
    pub state: QueueState,
    /// Its own rule; null when there is none.
    pub rule: Option<Rule>,
}

/// Queues with jobs that have not ended, or with a rule.
pub async fn list(store: &dyn Store) -> Result<Vec<QueueView>> {
    let (queues, rules) = (store.queues().await?, store.rules().await?);
    let view = |state: QueueState| {
        let scope = Scope::Queue(state.queue.clone());
        QueueView { rule: rules.iter().find(|rule| rule.scope == scope).cloned(), state }
    };
    Ok(queues.into_iter().map(view).collect())
}

/// Whether everything is paused.
pub async fn all_paused(store: &dyn Store) -> Result<bool> {
    Ok(store.rules().await?.iter().any(|rule| rule.scope == Scope::All && rule.paused_at.is_some()))
}
