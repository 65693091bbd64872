//! Unique keys: who holds one, and what becomes of that job when another is enqueued with the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

use super::{JobState, NewJob};
use crate::clock::Millis;

/// A key that one job at a time holds, whatever its queue and role.
///
/// It is held while the job is not final. A job that completed holds it for `for_ms` longer, if
/// that is given; one that was cancelled or discarded does not. Enqueueing a job whose key is held
/// stores no second one; what becomes of the holder says `if_held`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Unique {
    /// The key.
    pub key: String,
    /// How long a job that completed goes on holding it.
    pub for_ms: Option<Millis>,
    /// What becomes of a job that holds it and has not begun.
    pub if_held: IfHeld,
}

/// What becomes of a job that holds a key when another is enqueued with the same. Only of one that has not
/// begun, which no worker ever claimed: one that has is never changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfHeld {
    /// It stays as it is, and the new one is dropped.
    #[default]
    Keep,
    /// It becomes what the new one would have been. Its number, its time of enqueueing, the job above it and
    /// those that wait for it stay. If both are due it keeps its place among those that wait for a worker.
    Replace,
    /// As [`IfHeld::Replace`], and it is due when the new one would have been, be that later: so it runs once,
    /// when no more of them have come for a while.
    Debounce {
        /// It is due no later than so long after the first of them was enqueued; without it they can put it
        /// off for ever.
        at_most_ms: Option<Millis>,
    },
}

impl fmt::Display for IfHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IfHeld::Keep => "keep",
            IfHeld::Replace => "replace",
            IfHeld::Debounce { .. } => "debounce",
        })
    }
}

/// What became of a job that was to be enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    /// It is stored.
    Stored,
    /// Its key is held by a job that has not begun, and that stays as it is.
    Kept,
    /// Its key is held by a job that has begun, or has completed and holds it still. Nothing was changed.
    Begun,
    /// The job that holds its key has not begun, and became this one.
    Replaced,
    /// The same, and it is due when this one asked for, or at the latest moment.
    Debounced,
}

/// Whether a job in this state holds its unique key at `now`. See [`Unique`].
pub fn holds_key(state: JobState, finalized_at: Option<Millis>, for_ms: Option<Millis>, now: Millis) -> bool {
    match (state, finalized_at, for_ms) {
        (JobState::Completed, Some(at), Some(for_ms)) => now < at.saturating_add(for_ms),
        _ => !state.is_final(),
    }
}

/// The job that holds a key, as far as another with the same key has to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Where it is.
    pub state: JobState,
    /// Whether a worker ever claimed it.
    pub was_claimed: bool,
    /// When it was enqueued.
    pub created_at: Millis,
    /// Due from this time on.
    pub run_at: Millis,
}

/// What follows for the holder of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meeting {
    /// What is told.
    pub became: Became,
    /// Where it becomes the new one: the time from which it is due then.
    pub due_at: Option<Millis>,
}

/// What follows when `new` is enqueued at `now` and `holder` holds its key.
pub fn meet(new: &NewJob, holder: &Holder, now: Millis) -> Meeting {
    let stays = |became| Meeting { became, due_at: None };
    if holder.was_claimed || holder.state.is_final() {
        return stays(Became::Begun);
    }
    match new.unique.as_ref().map(|unique| unique.if_held).unwrap_or_default() {
        IfHeld::Keep => stays(Became::Kept),
        IfHeld::Replace => {
            // Asked for again and again it would else be the last for ever.
            let due_at = new.run_at.unwrap_or_else(|| holder.run_at.min(now));
            Meeting { became: Became::Replaced, due_at: Some(due_at) }
        }
        IfHeld::Debounce { .. } => {
            Meeting { became: Became::Debounced, due_at: Some(first_due(new, holder.created_at, now)) }
        }
    }
}

/// The time from which `new` is due, enqueued at `now`, the first of its key at `first`.
pub fn first_due(new: &NewJob, first: Millis, now: Millis) -> Millis {
    let asked = new.run_at.unwrap_or(now);
    match new.unique.as_ref().map(|unique| unique.if_held) {
        Some(IfHeld::Debounce { at_most_ms: Some(most) }) => asked.min(first.saturating_add(most)),
        _ => asked,
    }
}
