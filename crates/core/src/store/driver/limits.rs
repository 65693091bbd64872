//! Rows of what is paused and limited, and of what counts against limits.

use crate::port::JobsIn;
use crate::queue::rules::{Rule, Running, Scope};
use crate::store::Done;

/// Rows of what is paused and limited, and of what counts against limits.
pub trait LimitRows {
    /// All rules, by the kind and the name of their scopes. Nearly always none, and then nearly free.
    fn rules(&mut self) -> Done<Vec<Rule>>;
    /// Stores a rule of a scope that has none.
    fn add_rule(&mut self, rule: &Rule) -> Done<()>;
    /// Deletes the rule of a scope, if it has one.
    fn forget_rule(&mut self, scope: &Scope) -> Done<()>;
    /// Stores when the bucket of a scope is full again, in microseconds.
    fn set_full_at(&mut self, scope: &Scope, full_at_us: i64) -> Done<()>;
    /// Whether any rule counts jobs that run: then the end of one can let another one start.
    fn any_counts_running(&mut self) -> Done<bool>;
    /// The jobs that run.
    fn started(&mut self) -> Done<Vec<Running>>;
    /// How many jobs there are that have not ended, by role, queue and state.
    fn jobs_in(&mut self) -> Done<Vec<JobsIn>>;
    /// Deletes whose turn it is everywhere.
    fn forget_turns(&mut self) -> Done<()>;
}
