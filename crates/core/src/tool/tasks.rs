//! What tools may ask about tasks: jobs that the run gives to others.

use std::fmt;

use async_trait::async_trait;

use super::{ToolContext, ToolError, ToolOutput};
use crate::id::JobId;

/// The tool that gives a task.
pub const TASK_CREATE: &str = "task_create";

/// The tool that waits for tasks.
pub const TASK_WAIT: &str = "task_wait";

/// The tool that ends a task.
pub const TASK_CANCEL: &str = "task_cancel";

/// What is asked about tasks of the run that calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskAsk {
    /// That there be one. Asked twice with one effect key, there is one.
    Create {
        /// Who shall work it.
        role: String,
        /// What is asked for.
        goal: String,
    },
    /// Which there are.
    List,
    /// How one stands.
    Status {
        /// The task.
        task: JobId,
        /// Where in its answer to begin, in bytes.
        offset: u64,
    },
    /// That one ends.
    Cancel {
        /// The task.
        task: JobId,
        /// Why, in words.
        reason: String,
    },
    /// What they came to, once they have ended.
    Wait {
        /// The tasks; all of the run where none is named.
        tasks: Vec<JobId>,
    },
}

/// Who is asked about tasks.
#[async_trait]
pub trait Tasks: fmt::Debug + Send + Sync {
    /// Does what is asked for, in the name of the call of `cx`, and tells of it as the model reads it.
    async fn ask(&self, cx: &ToolContext, ask: TaskAsk) -> Result<ToolOutput, ToolError>;
}
