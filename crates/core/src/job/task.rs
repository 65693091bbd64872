//! Tasks: jobs that a run gives to others, and how many of them there may be.
//!
//! How many there are is counted from rows, in the transaction that makes one more: a task that has ended has given its
//! place back, however it ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::text::{count, is_default, plural};

/// Tasks of one job that may be open at once, unless its persona says otherwise.
pub const DEFAULT_MAX_OPEN_TASKS: u32 = 8;

/// Tasks beneath one root, unless a persona says otherwise.
pub const DEFAULT_MAX_TASKS: u32 = 50;

/// How deep tasks may lie beneath their root, unless a persona says otherwise.
pub const DEFAULT_MAX_TASK_DEPTH: u32 = 3;

/// How many tasks there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBounds {
    /// Tasks of one job that have not ended.
    pub open: u32,
    /// Tasks beneath the root, those that have ended too.
    pub all: u32,
    /// How far beneath the root; the tasks of the root itself lie at 1.
    pub depth: u32,
}

impl Default for TaskBounds {
    fn default() -> Self {
        TaskBounds { open: DEFAULT_MAX_OPEN_TASKS, all: DEFAULT_MAX_TASKS, depth: DEFAULT_MAX_TASK_DEPTH }
    }
}

impl TaskBounds {
    /// What both allow: nobody has more room than whoever gave them their task.
    pub fn within(self, above: TaskBounds) -> TaskBounds {
        TaskBounds { open: self.open.min(above.open), all: self.all.min(above.all), depth: self.depth.min(above.depth) }
    }
}

/// Where a task comes from, and what it may use; part of its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskOf {
    /// The effect key of the call that gave it. There is one task for each.
    pub key: String,
    /// How far it lies beneath its root, from 1.
    pub depth: u32,
    /// What those above it allow.
    pub bounds: TaskBounds,
    /// Most tokens of its run: what was left to whoever gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Most seconds of its work, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u64>,
    /// Whether whoever gave it had read what others wrote.
    #[serde(default, skip_serializing_if = "is_default")]
    pub heard: bool,
}

/// What became of a task that was to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// It is there: made now, or by the same call before its worker died.
    Task(JobId),
    /// There is no room for it. Nothing was made.
    Refused(NoRoom),
    /// The end of the job that gives it was asked for. Nothing was made.
    Stopped,
}

/// Why there is no room for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoom {
    /// It would lie too deep.
    Depth {
        /// How deep.
        depth: u32,
        /// What is allowed.
        most: u32,
    },
    /// There are too many beneath the root.
    All {
        /// The root.
        root: JobId,
        /// What is allowed.
        most: u32,
    },
    /// Too many of the same job have not ended.
    Open {
        /// Those.
        tasks: Vec<JobId>,
        /// What is allowed.
        most: u32,
    },
}

/// Whether there is room for `task` beneath `root`, where its giver has `open` tasks and the root `all` beneath it.
pub fn room_for(task: &TaskOf, root: JobId, open: &[JobId], all: u32) -> Result<(), NoRoom> {
    let TaskBounds { open: most_open, all: most_all, depth } = task.bounds;
    if task.depth > depth {
        return Err(NoRoom::Depth { depth: task.depth, most: depth });
    }
    if all >= most_all {
        return Err(NoRoom::All { root, most: most_all });
    }
    if open.len() >= most_open as usize {
        return Err(NoRoom::Open { tasks: open.to_vec(), most: most_open });
    }
    Ok(())
}

impl NoRoom {
    /// What whoever wanted to give the task is told: the limit, and the way out.
    pub fn told(&self) -> String {
        match self {
            NoRoom::Depth { depth, most } => format!(
                "This task was not given: it would lie {} beneath its root, at most {} allowed (limits.max_task_depth). \
                 Do the work yourself.",
                plural(u64::from(*depth), "level"),
                allowed(*most)
            ),
            NoRoom::All { root, most } => format!(
                "This task was not given: there are {} beneath job {root}, the most there may be (limits.max_tasks). Do \
                 the rest yourself, or say plainly what was left out.",
                plural(u64::from(*most), "task")
            ),
            NoRoom::Open { tasks, most } => {
                let names: Vec<_> = tasks.iter().map(ToString::to_string).collect();
                let open = match tasks.len() {
                    0 => String::new(),
                    1 => format!(", and task {} has not ended", names[0]),
                    _ => format!(", and tasks {} have not ended", names.join(", ")),
                };
                format!(
                    "This task was not given: at most {} allowed to be open at once (limits.max_open_tasks){open}. Call \
                     task_wait, then give it again.",
                    allowed(*most)
                )
            }
        }
    }
}

fn allowed(most: u32) -> String {
    format!("{} {}", count(most.into()), if most == 1 { "is" } else { "are" })
}
