//! `task_create`, `task_list`, `task_status`, `task_cancel`, `task_wait`: jobs that an agent gives to others.

use posse_core::job::JobId;
use posse_core::tool::tasks::{TASK_CANCEL, TASK_CREATE, TASK_WAIT, TaskAsk};
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// Who does it.
    role: String,
    /// The whole task in your own words. Whoever does it sees the same files, and of what you know only this text.
    #[schemars(length(min = 1))]
    goal: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Status {
    /// The task's number.
    task: i64,
    /// Where in its answer to begin, in bytes.
    #[serde(default)]
    offset: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cancel {
    /// The task's number.
    task: i64,
    /// Why, for the people who look at it.
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// Numbers of tasks; all of yours when left out.
    #[serde(default)]
    tasks: Vec<i64>,
}

/// One task for each effect key, so it may run again.
pub(super) fn create() -> FnTool {
    FnTool::new(
        TASK_CREATE,
        "Gives a task to another agent, who begins at once. task_wait gives you the answer.",
        EffectClass::Idempotent,
        |cx, Create { role, goal }| ask(cx, TaskAsk::Create { role, goal }),
    )
}

pub(super) fn list() -> FnTool {
    let description = "Lists the tasks that you have given, and how each stands.";
    FnTool::new("task_list", description, EffectClass::Pure, |cx, List {}| ask(cx, TaskAsk::List))
        .writing(Writes::Nothing)
}

pub(super) fn status() -> FnTool {
    FnTool::new(
        "task_status",
        "Tells how one of your tasks stands. Of one that has ended, it reads the answer from offset on.",
        EffectClass::Pure,
        |cx, Status { task, offset }| ask(cx, TaskAsk::Status { task: JobId(task), offset }),
    )
    .writing(Writes::Nothing)
}

pub(super) fn cancel() -> FnTool {
    FnTool::new(
        TASK_CANCEL,
        "Ends one of your tasks whose answer you do not need any more.",
        EffectClass::Idempotent,
        |cx, Cancel { task, reason }| ask(cx, TaskAsk::Cancel { task: JobId(task), reason }),
    )
    .writing(Writes::Nothing)
}

/// It only reads: what it waits for is said in its output, and it is called again when that is there.
pub(super) fn wait() -> FnTool {
    FnTool::new(
        TASK_WAIT,
        "Waits until your tasks have ended, and gives their answers.",
        EffectClass::Pure,
        |cx, Wait { tasks }| ask(cx, TaskAsk::Wait { tasks: tasks.into_iter().map(JobId).collect() }),
    )
    .writing(Writes::Nothing)
}

async fn ask(cx: ToolContext, what: TaskAsk) -> Result<ToolOutput, ToolError> {
    match &cx.tasks {
        Some(tasks) => tasks.ask(&cx, what).await,
        None => {
            let none = "you may give no tasks: the persona names nobody in may_delegate_to, or tasks lie too deep here";
            Err(ToolError::new(ToolErrorCategory::PermissionDenied, none))
        }
    }
}
