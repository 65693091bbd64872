//! Rows of what is paused and limited, and of what counts against limits.

use crate::port::JobsIn;
use crate::queue::Queue;
use crate::queue::rules::{Rule, Running, Scope};
use crate::store::Done;

/// Rows of what is paused and limited, and of what counts against limits.
pub trait LimitRows {
    /// All rules, those of queues too, by the kind and the name of their scopes. Nearly always none, and then nearly free.
    fn rules(&mut self) -> Done<Vec<Rule>>;
    /// Stores a rule in the place of its scope's. A queue's is a part of its row, which is there.
    fn set_rule(&mut self, rule: &Rule) -> Done<()>;
    /// Deletes the row of a scope, if it has one; a queue's with all that is said of it.
    fn forget_rule(&mut self, scope: &Scope) -> Done<()>;
    /// The queues of which something is said, or the one of this name, by name.
    fn queues(&mut self, only: Option<&str>) -> Done<Vec<Queue>>;
    /// Stores a queue in the place of that of its name.
    fn set_queue(&mut self, queue: &Queue) -> Done<()>;
    /// The jobs that run.
    fn started(&mut self) -> Done<Vec<Running>>;
    /// How many jobs there are that have not ended, by role, queue and state.
    fn jobs_in(&mut self) -> Done<Vec<JobsIn>>;
    /// Deletes whose turn it is everywhere.
    fn forget_turns(&mut self) -> Done<()>;
}
