//! Rows of what is paused and limited, of queues, and of what counts against limits.

use super::{LastServed, Passing, Record};
use crate::port::JobsIn;
use crate::queue::Queue;
use crate::queue::rules::{Rule, Running, Scope};
use crate::store::Done;

/// Rows of what counts against limits.
pub trait LimitRows {
    /// The jobs that run.
    fn started(&mut self) -> Done<Vec<Running>>;
    /// How many jobs there are that have not ended, by role, queue and state.
    fn jobs_in(&mut self) -> Done<Vec<JobsIn>>;
}

/// All of them, by the kind and the name of their scopes. Nearly always none, and then nearly free. That of a queue is a
/// part of the queue's row: it is kept where there is one.
impl Record for Rule {
    type Of<'a> = ();
}

/// That of a scope, a queue's with all that is said of it.
impl Passing for Rule {
    type Which<'a> = &'a Scope;
}

/// The one of a name, or all of which something is said, by name.
impl Record for Queue {
    type Of<'a> = Option<&'a str>;
}

/// All of them.
impl Passing for LastServed {
    type Which<'a> = ();
}
