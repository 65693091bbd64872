//! A queue: where jobs wait, and what holds for all that wait there.

pub mod rate;
pub mod retention;
pub mod rules;

use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::Millis;
use crate::job::enqueue::{
    EnqueueRequest, Refused, accept_attempts, accept_priority, accept_queue, accept_step, refuse,
};
use crate::queue::retention::{Keep, Kept};
use crate::queue::rules::{Limits, Rule, Scope};

/// Where jobs wait until a worker claims them.
///
/// A queue begins with the first job that names it and ends with the last. Nearly all are no more than that name
/// ([`Queue::named`]), and are stored nowhere but on their jobs. Whoever pauses or limits one, gives it defaults or has its
/// jobs kept for a time of their own makes it known; it is forgotten when nothing of that is left.
///
/// What is said of it is read where it matters, and holds from then on: pause and limits at every claim ([`rules`]),
/// defaults when a job is asked for (one that is stored stays as it is), times when old jobs are deleted ([`retention`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    /// What jobs call it.
    pub name: String,
    /// Since when none of its jobs starts, if it is paused. Running ones go on.
    pub paused_at: Option<Millis>,
    /// How many may run or start, and whether their keys are served in rotation.
    pub limits: Limits,
    /// When the bucket behind [`Limits::per_minute`] is full again, in microseconds.
    pub full_at_us: i64,
    /// What its jobs begin with.
    pub defaults: QueueDefaults,
    /// How long its jobs are kept after their end, where it is otherwise than in the rest of the database.
    pub keep: Vec<Keep>,
    /// Since when something is said of it.
    pub created_at: Option<Millis>,
}

/// What a job of a queue begins with, where neither whoever asks for it nor its persona says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct QueueDefaults {
    /// 1 (first) to 9 (last); null when nothing is said, as below.
    pub priority: Option<u8>,
    /// How much waiting one step of priority is worth, in milliseconds.
    pub priority_step_ms: Option<Millis>,
    /// Attempts it gets.
    pub max_attempts: Option<u32>,
}

impl QueueDefaults {
    /// What `request` leaves open, its retry policy too, as the queue has it.
    pub fn fill(self, request: EnqueueRequest) -> EnqueueRequest {
        let by_policy = request.retry.and_then(|retry| retry.attempts());
        EnqueueRequest {
            priority: request.priority.or(self.priority),
            priority_step_ms: self.priority_step_ms.unwrap_or(request.priority_step_ms),
            max_attempts: request.max_attempts.or(by_policy).or(self.max_attempts),
            ..request
        }
    }
}

impl Queue {
    /// A queue of which nothing is said.
    pub fn named(name: impl Into<String>) -> Queue {
        Queue { name: name.into(), ..Queue::default() }
    }

    /// Whether its name is all there is to know of it.
    pub fn is_only_a_name(&self) -> bool {
        self.rule().is_empty() && self.defaults == QueueDefaults::default() && self.keep.is_empty()
    }

    /// What holds for its jobs that may start.
    pub fn rule(&self) -> Rule {
        let Queue { paused_at, limits, full_at_us, .. } = *self;
        Rule { scope: Scope::Queue(self.name.clone()), paused_at, limits, full_at_us }
    }
}

/// What is to be different about a queue. What is absent stays as it is; what is absent within is taken off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueChange {
    /// See [`QueueDefaults::priority`].
    pub priority: Option<Option<u8>>,
    /// See [`QueueDefaults::priority_step_ms`].
    pub priority_step_ms: Option<Option<Millis>>,
    /// See [`QueueDefaults::max_attempts`].
    pub max_attempts: Option<Option<u32>>,
    /// See [`Queue::keep`].
    pub keep: Vec<(Kept, Option<Option<Millis>>)>,
}

impl QueueChange {
    /// Whether it may be made of the queue `name`; what is wrong and the way out if not.
    pub fn check(&self, name: &str) -> Result<(), Refused> {
        accept_queue(name)?;
        self.priority.flatten().map_or(Ok(()), accept_priority)?;
        self.priority_step_ms.flatten().map_or(Ok(()), accept_step)?;
        self.max_attempts.flatten().map_or(Ok(()), accept_attempts)?;
        if self.keep.iter().any(|(kind, _)| *kind == Kept::Sessions) {
            return refuse("keep", "sessions is no queue's matter; posse db retention --sessions is for the database");
        }
        Ok(())
    }

    /// Makes it.
    pub fn apply(self, queue: &mut Queue) {
        let of = &mut queue.defaults;
        of.priority = self.priority.unwrap_or(of.priority);
        of.priority_step_ms = self.priority_step_ms.unwrap_or(of.priority_step_ms);
        of.max_attempts = self.max_attempts.unwrap_or(of.max_attempts);
        for (kind, keep) in self.keep {
            queue.keep.retain(|(known, _)| *known != kind);
            queue.keep.extend(keep.map(|keep| (kind, keep)));
        }
        queue.keep.sort_unstable();
    }
}
