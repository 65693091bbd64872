//! Queues and limits: what is shown of them, and what is changed.

use std::collections::BTreeMap;

use posse_core::clock::Millis;
use posse_core::port::Store;
use posse_core::queue::retention::{Kept, Retention};
use posse_core::queue::rules::{Limits, LimitsChange, QueueState, Rule, Scope, problem};
use posse_core::queue::{Queue, QueueChange, QueueDefaults};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Code, Error, Result};

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

/// A queue with all that is said of it: the document of `posse queue show --json` and `posse queue set --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct QueueDocument {
    /// How many of its jobs are where, and its rule.
    #[serde(flatten)]
    pub view: QueueView,
    /// What its jobs begin with where neither whoever asks for one nor its persona says.
    pub defaults: QueueDefaults,
    /// For how long its jobs are kept after each end.
    pub kept: BTreeMap<Kept, KeepView>,
    /// Since when something is said of it; null when nothing is.
    pub created_at: Option<Millis>,
}

/// For how long jobs are kept.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct KeepView {
    /// In milliseconds; null for ever.
    pub keep_ms: Option<Millis>,
    /// Whether the queue says so, and not only the database.
    pub is_own: bool,
}

impl From<QueueState> for QueueView {
    fn from(state: QueueState) -> QueueView {
        let QueueState { queue, available, scheduled, running, suspended } = state;
        let rule = Some(queue.rule()).filter(|rule| !rule.is_empty());
        QueueView { queue: queue.name, available, scheduled, running, suspended, rule }
    }
}

impl QueueDocument {
    /// A queue of a database that keeps its jobs for `kept`.
    pub fn new(state: QueueState, kept: Retention) -> QueueDocument {
        let Queue { defaults, created_at, ref keep, .. } = state.queue;
        let kept = kept.with(keep);
        let of = |kind| KeepView { keep_ms: kept.of(kind), is_own: keep.iter().any(|(own, _)| *own == kind) };
        let kept = [Kept::Completed, Kept::Cancelled, Kept::Discarded].map(|kind| (kind, of(kind))).into();
        QueueDocument { view: state.into(), defaults, kept, created_at }
    }
}

/// Queues with jobs that have not ended, or of which something is said.
pub async fn list(store: &dyn Store) -> Result<Vec<QueueView>> {
    Ok(store.queue_states().await?.into_iter().map(QueueView::from).collect())
}

/// The queue of a name; one that nobody has named has no jobs, and that is all.
pub async fn show(store: &dyn Store, name: &str) -> Result<QueueDocument> {
    let found = store.queue_states().await?.into_iter().find(|state| state.queue.name == name);
    let state = found.unwrap_or_else(|| QueueState { queue: Queue::named(name), ..QueueState::default() });
    Ok(QueueDocument::new(state, store.retention().await?.unwrap_or_default()))
}

/// Refuses a change that cannot be made of the queue `name`.
pub fn check(name: &str, change: &QueueChange) -> Result<()> {
    if *change == QueueChange::default() {
        let flags =
            "--priority, --priority-step, --max-attempts or --keep-completed, --keep-cancelled, --keep-discarded";
        return Err(Error::invalid(format!("say what is to be set: {flags} (posse queue show tells what is)")));
    }
    Ok(change.check(name)?)
}

/// Changes what is said of a queue; gives it as it is then.
pub async fn set(store: &dyn Store, name: &str, change: QueueChange, now: Millis) -> Result<QueueDocument> {
    check(name, &change)?;
    store.change_queue(name.into(), change, now).await?;
    show(store, name).await
}

/// Whether everything is paused.
pub async fn all_paused(store: &dyn Store) -> Result<bool> {
    Ok(store.rules().await?.iter().any(|rule| rule.scope == Scope::All && rule.paused_at.is_some()))
}

/// Refuses what cannot hold for a scope.
pub fn check_limits(scope: &Scope, limits: &Limits) -> Result<()> {
    problem(scope, limits).map_or(Ok(()), |why| Err(Error::invalid(why)))
}

/// Refuses a change of limits that changes nothing, or cannot hold for the scope. What is there already was right.
pub fn check_limits_change(scope: &Scope, change: LimitsChange) -> Result<()> {
    if change == LimitsChange::default() {
        return Err(Error::invalid(
            "say which limit: --running, --running-per-key, --per-minute or --fair (posse limit remove takes them off)",
        ));
    }
    check_limits(scope, &change.apply(Limits::default()))
}

/// Changes limits; gives the rule of the scope as it is then, none where nothing is left of it.
pub async fn set_limits(store: &dyn Store, scope: &Scope, change: LimitsChange, now: Millis) -> Result<Option<Rule>> {
    check_limits_change(scope, change)?;
    store.change_limits(scope.clone(), change, now).await?;
    Ok(store.rules().await?.into_iter().find(|rule| rule.scope == *scope))
}

/// Takes the limits of a scope off; a pause stays.
pub async fn remove_limits(store: &dyn Store, scope: &Scope, now: Millis) -> Result<()> {
    let limited = |rule: &Rule| rule.scope == *scope && rule.limits != Limits::default();
    if !store.rules().await?.iter().any(limited) {
        return Err(Error::new(Code::LimitNotFound, format!("{scope} has no limits (posse limit list)")));
    }
    Ok(store.set_limits(scope.clone(), Limits::default(), now).await?)
}
