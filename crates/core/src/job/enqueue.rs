//! Accepting work: everything is checked here, once, before anything is stored.

use crate::clock::Millis;
use crate::job::change::Edit;
use crate::job::deaths::{DEFAULT_MAX_CRASHES, MOST_CRASHES};
use crate::job::dependency::{After, MAX_AFTER, MAX_AFTER_GROUPS, OnFailed};
use crate::job::name::{check_key, check_queue, check_role, role_name};
use crate::job::retry::{MAX_ATTEMPTS, RetryPolicy, Strategy};
use crate::job::{
    DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_PRIORITY_STEP_MS, DEFAULT_QUEUE, IfHeld, Meta, NewJob, Payload,
    Unique,
};
use crate::text::{check_nul, has_too_many, plural};
use crate::workspace::folder::FolderId;

/// Most bytes of a goal.
pub const MAX_GOAL_BYTES: usize = 256 * 1024;

/// Longest time a job that completed may go on holding its unique key: ten years.
pub const MAX_UNIQUE_MS: Millis = 3650 * 24 * 60 * 60 * 1000;

/// Most that a step of priority may be worth: a week.
pub const MAX_PRIORITY_STEP_MS: Millis = 7 * 24 * 60 * 60 * 1000;

/// Most bytes of a group's name, a batch's name or a tag.
pub const MAX_LABEL_BYTES: usize = 128;

/// Most tags of a job.
pub const MAX_TAGS: usize = 20;

/// Most bytes of a job's metadata as JSON.
pub const MAX_META_BYTES: usize = 4096;

/// Work as a person asks for it, unchecked.
#[derive(Debug, Clone)]
pub struct EnqueueRequest {
    /// The role that shall work it.
    pub role: String,
    /// What is asked for.
    pub goal: String,
    /// The queue it waits in.
    pub queue: String,
    /// 1 (first) to 9 (last); the usual one when absent.
    pub priority: Option<u8>,
    /// Not before this time.
    pub run_at: Option<Millis>,
    /// How much waiting one step of priority is worth; see [`rank`](crate::job::rank).
    pub priority_step_ms: Millis,
    /// Attempts it gets; by its retry policy when absent.
    pub max_attempts: Option<u32>,
    /// Deaths of workers in a row that it may meet without getting any further; the usual number when absent.
    pub max_crashes: Option<u32>,
    /// When it is tried again: its own policy or its persona's.
    pub retry: Option<RetryPolicy>,
    /// The key of which there is one job at a time.
    pub unique: Option<Unique>,
    /// The key by which limits count it.
    pub concurrency_key: Option<String>,
    /// The folder its tools are confined to; absolute, or empty for the worker's default.
    pub workspace: String,
    /// Which folder that is.
    pub workspace_id: Option<FolderId>,
    /// The configured model to use instead of the persona's.
    pub model: Option<String>,
    /// Jobs that must have completed before.
    pub after: Vec<After>,
    /// Groups of which every job must have completed before.
    pub after_groups: Vec<String>,
    /// What becomes of it when one of those is cancelled or discarded.
    pub on_failed: OnFailed,
    /// The group it is counted in.
    pub group: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What its owner keeps with it.
    pub meta: Meta,
}

impl Default for EnqueueRequest {
    fn default() -> Self {
        EnqueueRequest {
            role: String::new(),
            goal: String::new(),
            queue: DEFAULT_QUEUE.into(),
            priority: None,
            run_at: None,
            priority_step_ms: DEFAULT_PRIORITY_STEP_MS,
            max_attempts: None,
            max_crashes: None,
            retry: None,
            unique: None,
            concurrency_key: None,
            workspace: String::new(),
            workspace_id: None,
            model: None,
            after: Vec::new(),
            after_groups: Vec::new(),
            on_failed: OnFailed::default(),
            group: None,
            tags: Vec::new(),
            meta: Meta::new(),
        }
    }
}

/// Work that is not accepted: which field, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct Refused {
    /// Which field, as it is written.
    pub field: &'static str,
    /// What is wrong and the way out.
    pub message: String,
}

pub(crate) fn refuse<T>(field: &'static str, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { field, message: message.into() })
}

/// Checks `request` against `roles`, the roles that some persona plays.
pub fn accept(mut request: EnqueueRequest, roles: &[String]) -> Result<NewJob, Refused> {
    request.role = role_name(&request.role);
    accept_role(&request.role, roles)?;
    accept_goal(&request.goal)?;
    without_nul("workspace", &request.workspace)?;
    accept_queue(&request.queue)?;
    let priority = request.priority.unwrap_or(DEFAULT_PRIORITY);
    accept_priority(priority)?;
    accept_step(request.priority_step_ms)?;
    if let Some(problem) = request.retry.and_then(|retry| retry.problem()) {
        return refuse("retry", problem);
    }
    let by_policy = request.retry.and_then(|retry| retry.attempts());
    let max_attempts = request.max_attempts.or(by_policy).unwrap_or(DEFAULT_MAX_ATTEMPTS);
    accept_attempts(max_attempts)?;
    if max_attempts > 1 && request.retry.is_some_and(|retry| retry.strategy == Strategy::None) {
        let message = "allows other attempts, and the retry strategy none makes one; leave one of them out";
        return refuse("max_attempts", message);
    }
    let max_crashes = request.max_crashes.unwrap_or(DEFAULT_MAX_CRASHES);
    if !(1..=MOST_CRASHES).contains(&max_crashes) {
        return refuse("max_crashes", format!("is {max_crashes}; it must lie between 1 and {MOST_CRASHES}"));
    }
    accept_keys(&request)?;
    if request.after.len() > MAX_AFTER {
        return refuse(
            "after",
            format!("names {}; at most {MAX_AFTER} are allowed", plural(request.after.len() as u64, "job")),
        );
    }
    if let Some(group) = &request.group {
        accept_label("group", group)?;
    }
    let after_groups = accept_groups(request.after_groups, request.group.as_deref())?;
    if request.tags.len() > MAX_TAGS {
        return refuse("tags", format!("are {}; at most {MAX_TAGS} are allowed", request.tags.len()));
    }
    for tag in &request.tags {
        accept_label("tags", tag)?;
    }
    let mut tags = request.tags;
    tags.sort();
    tags.dedup();
    accept_meta(&request.meta)?;
    Ok(NewJob {
        queue: request.queue,
        role: request.role,
        priority,
        run_at: request.run_at,
        priority_step_ms: request.priority_step_ms,
        max_attempts,
        max_crashes,
        // The number of attempts is the job's own from here on.
        retry: request.retry.map(|retry| RetryPolicy { max_attempts: None, ..retry }),
        unique: request.unique,
        concurrency_key: request.concurrency_key,
        payload: Payload {
            goal: request.goal,
            workspace: request.workspace,
            workspace_id: request.workspace_id,
            model: request.model,
            ..Payload::default()
        },
        after: request.after,
        after_groups,
        on_failed: request.on_failed,
        group: request.group,
        tags,
        meta: request.meta,
    })
}

/// Checks what is to be asked for differently.
pub fn accept_edit(edit: &Edit, roles: &[String]) -> Result<(), Refused> {
    if edit.is_empty() {
        return refuse("edit", "changes nothing; say what is to be different");
    }
    edit.role.as_deref().map_or(Ok(()), |role| accept_role(role, roles))?;
    edit.goal.as_deref().map_or(Ok(()), accept_goal)?;
    edit.queue.as_deref().map_or(Ok(()), accept_queue)?;
    edit.priority.map_or(Ok(()), accept_priority)?;
    edit.max_attempts.map_or(Ok(()), accept_attempts)
}

/// Checks a word that jobs are found or counted by; `field` is what it is.
pub fn accept_label(field: &'static str, label: &str) -> Result<(), Refused> {
    let fits = label.len() <= MAX_LABEL_BYTES && !label.trim().is_empty() && label.trim() == label;
    if fits && !label.chars().any(char::is_control) {
        return Ok(());
    }
    let shown = label.escape_debug();
    let rule = "it must have 1 to {MAX} bytes, no control characters, and no space at its ends";
    refuse(field, format!("'{shown}' cannot be used; {}", rule.replace("{MAX}", &MAX_LABEL_BYTES.to_string())))
}

fn accept_role(role: &str, roles: &[String]) -> Result<(), Refused> {
    if let Err(message) = check_role(role) {
        return refuse("role", message);
    }
    if !roles.iter().any(|known| known == role) {
        let known = roles.join(", ");
        return refuse(
            "role",
            format!(
                "'{role}' has no persona; there are: {known}. Add config/personas/{role}.json (posse persona new {role})"
            ),
        );
    }
    Ok(())
}

fn accept_goal(goal: &str) -> Result<(), Refused> {
    if goal.trim().is_empty() {
        return refuse("goal", "is empty; say what is to be done");
    }
    if goal.len() > MAX_GOAL_BYTES {
        let too_many = has_too_many(goal.len(), "byte", MAX_GOAL_BYTES);
        return refuse("goal", format!("{too_many}. Put the text in a file and name it"));
    }
    without_nul("goal", goal)
}

pub(crate) fn accept_queue(queue: &str) -> Result<(), Refused> {
    without_nul("queue", queue)?;
    check_queue(queue).or_else(|message| refuse("queue", message))
}

pub(crate) fn accept_priority(priority: u8) -> Result<(), Refused> {
    if (1..=9).contains(&priority) {
        return Ok(());
    }
    refuse("priority", format!("is {priority}; it must lie between 1 (first) and 9 (last)"))
}

pub(crate) fn accept_step(step: Millis) -> Result<(), Refused> {
    if (0..=MAX_PRIORITY_STEP_MS).contains(&step) {
        return Ok(());
    }
    refuse("priority_step", format!("is {step} ms; it must lie between 0 and {MAX_PRIORITY_STEP_MS}"))
}

pub(crate) fn accept_attempts(max_attempts: u32) -> Result<(), Refused> {
    if (1..=MAX_ATTEMPTS).contains(&max_attempts) {
        return Ok(());
    }
    refuse("max_attempts", format!("is {max_attempts}; it must lie between 1 and {MAX_ATTEMPTS}"))
}

fn accept_keys(request: &EnqueueRequest) -> Result<(), Refused> {
    let unique_key = request.unique.as_ref().map(|unique| unique.key.as_str());
    for (field, key) in [("unique", unique_key), ("concurrency_key", request.concurrency_key.as_deref())] {
        if let Some(Err(message)) = key.map(check_key) {
            return refuse(field, message);
        }
    }
    let Some(unique) = &request.unique else { return Ok(()) };
    let at_most = match unique.if_held {
        IfHeld::Debounce { .. } if request.run_at.is_none() => {
            return refuse(
                "if_held",
                "debounce puts off when the job is due, and this one is due at once; give it a delay",
            );
        }
        IfHeld::Debounce { at_most_ms } => at_most_ms,
        IfHeld::Keep | IfHeld::Replace => None,
    };
    for (field, time) in [("unique_for", unique.for_ms), ("debounce_at_most", at_most)] {
        if let Some(ms) = time.filter(|ms| !(1..=MAX_UNIQUE_MS).contains(ms)) {
            return refuse(field, format!("is {ms} ms; it must lie between 1 ms and ten years"));
        }
    }
    Ok(())
}

/// The groups to wait for, each once.
fn accept_groups(mut groups: Vec<String>, own: Option<&str>) -> Result<Vec<String>, Refused> {
    groups.sort();
    groups.dedup();
    if groups.len() > MAX_AFTER_GROUPS {
        let named = plural(groups.len() as u64, "group");
        return refuse("after_group", format!("names {named}; at most {MAX_AFTER_GROUPS} are allowed"));
    }
    for group in &groups {
        accept_label("after_group", group)?;
        if own == Some(group) {
            return refuse(
                "after_group",
                format!("'{group}' is its own group, and it would wait for itself; leave one out"),
            );
        }
    }
    Ok(groups)
}

fn accept_meta(meta: &Meta) -> Result<(), Refused> {
    for key in meta.keys() {
        accept_label("meta", key)?;
    }
    let text = serde_json::Value::Object(meta.clone()).to_string();
    if text.len() > MAX_META_BYTES {
        return refuse("meta", has_too_many(text.len(), "byte", MAX_META_BYTES) + ", as JSON");
    }
    if text.contains("\\u0000") {
        return refuse("meta", "contains a NUL character; remove it");
    }
    Ok(())
}

fn without_nul(field: &'static str, text: &str) -> Result<(), Refused> {
    check_nul(text).or_else(|message| refuse(field, message))
}
