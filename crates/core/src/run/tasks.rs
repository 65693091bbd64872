//! What a run is told of the tasks that it gave to others, and how giving them is offered to it.
//!
//! As in [`results`](super::results), each line that others wrote stands behind a quote.

use std::fmt::Write as _;

use serde_json::json;

use super::results::{answer, entry, fair_cap, is_data, one_line, page, quoted, standing};
use crate::job::{Job, JobId, JobState};
use crate::text::plural;
use crate::tool::tasks::{TASK_CANCEL, TASK_WAIT};
use crate::tool::{ToolError, ToolErrorCategory, ToolSpec};

/// Most bytes of answers that one wait gives, where it is not known how much its reader takes.
const MOST_BYTES: usize = 16 * 1024;

/// An answer is cut to no less.
const LEAST_SHARE: usize = 200;

/// Most bytes of what is said of a role.
const MAX_PURPOSE: usize = 160;

/// What the tool that gives tasks says where tasks may be given to these, each with what it is for.
pub fn offered(spec: &ToolSpec, to: &[(&str, &str)]) -> ToolSpec {
    let mut spec = spec.clone();
    let who = to.iter().map(|(role, goal)| format!("{role}: {}", shortened(goal)));
    let roles: Vec<_> = to.iter().map(|(role, _)| *role).collect();
    let described = format!("Who does it. {}", who.collect::<Vec<_>>().join(" "));
    spec.parameters["properties"]["role"] = json!({"type": "string", "enum": roles, "description": described});
    spec
}

fn shortened(purpose: &str) -> String {
    super::compaction::shorter(&one_line(purpose.trim()), MAX_PURPOSE)
}

/// What is told of a task that was given.
pub fn given(task: JobId, role: &str) -> String {
    format!("Task {task} was given to {role}. Give the others, or call {TASK_WAIT} for the answers.")
}

/// The tasks of a run, one in each line.
pub fn list(tasks: &[Job]) -> String {
    if tasks.is_empty() {
        return "You have given no tasks.".into();
    }
    let lines = tasks.iter().map(|task| {
        let goal = task.payload.goal.lines().next().unwrap_or_default();
        format!("{}\n{}", named(task), quoted(&super::compaction::shorter(goal, MAX_PURPOSE)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// How one task stands; of one that has ended, its answer from byte `offset` on.
pub fn status(task: &Job, offset: u64) -> String {
    if task.state.is_final() {
        return page(task, offset);
    }
    let mut out = named(task);
    if let Some(why) = task.reason.as_deref().filter(|why| !why.trim().is_empty()) {
        let _ = write!(out, "\n{}", quoted(why));
    }
    if let Some(progress) = &task.progress {
        let _ = write!(out, "\n{:.0} % done", progress.share * 100.0);
    }
    let _ = write!(out, "\nIt has no answer yet; {TASK_WAIT} waits for it.");
    out
}

/// What tasks came to that have all ended, in about `most` bytes.
pub fn answers(tasks: &[Job], most: Option<usize>) -> String {
    let answers: Vec<_> = tasks.iter().map(answer).collect();
    let frames = tasks.len() * 200;
    let room = most.unwrap_or(MOST_BYTES).saturating_sub(frames);
    let cap = fair_cap(answers.iter().map(String::len), room).max(LEAST_SHARE);
    let mut out = format!("{} came to the following. {}\n", plural(tasks.len() as u64, "task"), is_data());
    for (task, answer) in tasks.iter().zip(&answers) {
        let end = answer.floor_char_boundary(cap);
        out += &entry(&named(task), &task.payload.goal, &answer[..end]);
        if end < answer.len() {
            let (all, task) = (plural(answer.len() as u64, "byte"), task.id);
            let _ = writeln!(
                out,
                "(the first {end} of {all}; task_status with task {task} and offset {end} gives the rest)"
            );
        }
    }
    out.trim_end().to_owned()
}

/// What a worked example is told of tasks that completed, each with its role, what was asked and its answer.
pub(super) fn answers_in_example(tasks: &[(JobId, &str, &str, &str)]) -> String {
    let task = |(id, role, goal, answer): &(JobId, &str, &str, &str)| {
        entry(&format!("Task {id} ({role}): {}", JobState::Completed), goal, answer)
    };
    let entries: String = tasks.iter().map(task).collect();
    format!("{} came to the following. {}\n{entries}", plural(tasks.len() as u64, "task"), is_data()).trim_end().into()
}

fn named(task: &Job) -> String {
    let asks = match (task.state, task.reason.as_deref()) {
        (JobState::Suspended, Some(_)) => ", waits",
        _ => "",
    };
    format!("{}{asks}", standing(task).replacen("Job", "Task", 1))
}

/// That a job is none of the run's tasks.
pub fn not_yours(task: JobId, yours: &[Job]) -> ToolError {
    let names: Vec<_> = yours.iter().map(|task| task.id.to_string()).collect();
    let yours = if names.is_empty() { "you have given none".into() } else { format!("yours are {}", names.join(", ")) };
    ToolError::new(ToolErrorCategory::NotFound, format!("job {task} is none of your tasks; {yours}"))
}

/// That tasks may not be given to a role.
pub fn may_not(role: &str, roles: &[&str]) -> ToolError {
    let to = if roles.is_empty() { "nobody".into() } else { roles.join(", ") };
    let message = format!("you may not give tasks to '{}'; you may to {to}", one_line(role));
    ToolError::new(ToolErrorCategory::PermissionDenied, message)
}

/// Why a run cannot give its answer yet, as it is told.
pub(super) fn not_ended(open: &[JobId]) -> String {
    let them = if open.len() == 1 { "its answer" } else { "their answers" };
    format!("Not accepted: {}. Call {TASK_WAIT} for {them}, or {TASK_CANCEL} if that is not needed.", have_not(open))
}

/// The same for people.
pub(super) fn had_not_ended(open: &[JobId]) -> String {
    format!("{} when its limit was reached; they were cancelled", have_not(open))
}

fn have_not(open: &[JobId]) -> String {
    let names: Vec<_> = open.iter().map(ToString::to_string).collect();
    match names.len() {
        1 => format!("task {} has not ended", names[0]),
        _ => format!("tasks {} have not ended", names.join(", ")),
    }
}

/// Why a job waits for tasks.
pub fn waits_for(open: &[JobId]) -> String {
    let names: Vec<_> = open.iter().map(ToString::to_string).collect();
    format!("waits for {} {}", if names.len() == 1 { "task" } else { "tasks" }, names.join(", "))
}
