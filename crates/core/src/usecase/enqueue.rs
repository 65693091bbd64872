//! Accepting work: everything is checked here, once, before anything is stored.

use crate::clock::Millis;
use crate::job::retry::{MAX_ATTEMPTS, RetryPolicy, Strategy};
use crate::job::{DEFAULT_MAX_ATTEMPTS, NewJob, Payload, Unique};
use crate::persona::check_role;
use crate::rules::check_key;

/// Most bytes of a goal.
pub const MAX_GOAL_BYTES: usize = 256 * 1024;

/// Longest time a job that completed may go on holding its unique key: ten years.
pub const MAX_UNIQUE_MS: Millis = 3650 * 24 * 60 * 60 * 1000;

/// Most that a step of priority may be worth: a week.
pub const MAX_PRIORITY_STEP_MS: Millis = 7 * 24 * 60 * 60 * 1000;

/// Work as a person asks for it, unchecked.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The role that shall work it.
    pub role: String,
    /// What is asked for.
    pub goal: String,
    /// The queue.
    pub queue: String,
    /// 1 (first) to 9 (last).
    pub priority: u8,
    /// Not before this time.
    pub run_at: Option<Millis>,
    /// How much waiting one step of priority is worth; see [`rank`](crate::job::rank).
    pub priority_step_ms: Millis,
    /// Attempts it gets; by its retry policy when absent.
    pub max_attempts: Option<u32>,
    /// When it is tried again: its own policy or its persona's.
    pub retry: Option<RetryPolicy>,
    /// The key of which there is one job at a time.
    pub unique: Option<Unique>,
    /// The key by which limits count it.
    pub concurrency_key: Option<String>,
    /// The folder its tools are confined to; absolute, or empty for the worker's default.
    pub workspace: String,
    /// The configured model to use instead of the persona's.
    pub model: Option<String>,
}

/// Work that is not accepted: which field, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct Refused {
    /// The field.
    pub field: &'static str,
    /// What is wrong and the way out.
    pub message: String,
}

/// Checks `ask` against `roles`, the roles that some persona plays.
pub fn accept(ask: Ask, roles: &[String]) -> Result<NewJob, Refused> {
    let refuse = |field, message: String| Err(Refused { field, message });
    if let Err(message) = check_role(&ask.role) {
        return refuse("role", message);
    }
    if !roles.contains(&ask.role) {
        let known = roles.join(", ");
        return refuse(
            "role",
            format!(
                "'{}' has no persona; there are: {known}. Add config/personas/{}.json (posse persona new {})",
                ask.role, ask.role, ask.role
            ),
        );
    }
    if ask.goal.trim().is_empty() {
        return refuse("goal", "is empty; say what is to be done".into());
    }
    if ask.goal.len() > MAX_GOAL_BYTES {
        let (size, max) = (ask.goal.len(), MAX_GOAL_BYTES);
        return refuse(
            "goal",
            format!("has {size} bytes; at most {max} are allowed. Put the text in a file and name it"),
        );
    }
    for (field, text) in [("goal", &ask.goal), ("workspace", &ask.workspace), ("queue", &ask.queue)] {
        if let Some(at) = text.find('\0') {
            return refuse(field, format!("contains a NUL character at byte {at}; remove it"));
        }
    }
    if let Err(message) = check_role(&ask.queue) {
        return refuse("queue", message);
    }
    if !(1..=9).contains(&ask.priority) {
        return refuse("priority", format!("is {}; it must lie between 1 (first) and 9 (last)", ask.priority));
    }
    if !(0..=MAX_PRIORITY_STEP_MS).contains(&ask.priority_step_ms) {
        let step = ask.priority_step_ms;
        return refuse("priority_step", format!("is {step} ms; it must lie between 0 and {MAX_PRIORITY_STEP_MS}"));
    }
    if let Some(problem) = ask.retry.and_then(|retry| retry.problem()) {
        return refuse("retry", problem);
    }
    let by_policy = ask.retry.and_then(|retry| retry.attempts());
    let max_attempts = ask.max_attempts.or(by_policy).unwrap_or(DEFAULT_MAX_ATTEMPTS);
    if !(1..=MAX_ATTEMPTS).contains(&max_attempts) {
        return refuse("max_attempts", format!("is {max_attempts}; it must lie between 1 and {MAX_ATTEMPTS}"));
    }
    if max_attempts > 1 && ask.retry.is_some_and(|retry| retry.strategy == Strategy::None) {
        let message = "allows other attempts, and the retry strategy none makes one; leave one of them out";
        return refuse("max_attempts", message.into());
    }
    let unique_key = ask.unique.as_ref().map(|unique| unique.key.as_str());
    for (field, key) in [("unique", unique_key), ("concurrency_key", ask.concurrency_key.as_deref())] {
        if let Some(Err(message)) = key.map(check_key) {
            return refuse(field, message);
        }
    }
    if let Some(for_ms) = ask.unique.as_ref().and_then(|unique| unique.for_ms)
        && !(1..=MAX_UNIQUE_MS).contains(&for_ms)
    {
        return refuse("unique_for", format!("is {for_ms} ms; it must lie between 1 ms and ten years"));
    }
    Ok(NewJob {
        queue: ask.queue,
        role: ask.role,
        priority: ask.priority,
        run_at: ask.run_at,
        priority_step_ms: ask.priority_step_ms,
        max_attempts,
        // The number of attempts is the job's own from here on.
        retry: ask.retry.map(|retry| RetryPolicy { max_attempts: None, ..retry }),
        unique: ask.unique,
        concurrency_key: ask.concurrency_key,
        payload: Payload { goal: ask.goal, workspace: ask.workspace, model: ask.model, ..Payload::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{DEFAULT_PRIORITY, DEFAULT_PRIORITY_STEP_MS, DEFAULT_QUEUE};

    fn ask(change: impl FnOnce(&mut Ask)) -> Result<NewJob, Refused> {
        let mut ask = Ask {
            role: "researcher".into(),
            goal: "find it".into(),
            queue: DEFAULT_QUEUE.into(),
            priority: DEFAULT_PRIORITY,
            run_at: None,
            priority_step_ms: DEFAULT_PRIORITY_STEP_MS,
            max_attempts: None,
            retry: None,
            unique: None,
            concurrency_key: None,
            workspace: String::new(),
            model: None,
        };
        change(&mut ask);
        accept(ask, &["researcher".into(), "scribe".into()])
    }

    #[test]
    fn refusals_name_the_field_and_the_way_out() {
        let field = |r: Result<NewJob, Refused>| r.map_err(|e| e.field);
        assert!(ask(|_| ()).is_ok());
        assert!(ask(|a| a.goal = "e\u{301} \u{202e}gpj.exe \\u0000".into()).is_ok());
        assert_eq!(field(ask(|a| a.goal = " \n".into())), Err("goal"));
        assert_eq!(field(ask(|a| a.goal = "x".repeat(MAX_GOAL_BYTES + 1))), Err("goal"));
        assert_eq!(
            ask(|a| a.goal = "a\0b".into()).expect_err("NUL").to_string(),
            "goal contains a NUL character at byte 1; remove it"
        );
        assert_eq!(field(ask(|a| a.priority = 0)), Err("priority"));
        assert_eq!(field(ask(|a| a.max_attempts = Some(0))), Err("max_attempts"));
        assert_eq!(field(ask(|a| a.priority_step_ms = -1)), Err("priority_step"));
        assert_eq!(field(ask(|a| a.concurrency_key = Some("a\nb".into()))), Err("concurrency_key"));
        let unique = |key: &str, for_ms| Some(Unique { key: key.into(), for_ms });
        assert_eq!(field(ask(|a| a.unique = unique("", None))), Err("unique"));
        assert_eq!(field(ask(|a| a.unique = unique(&"k".repeat(257), None))), Err("unique"));
        assert_eq!(field(ask(|a| a.unique = unique("k", Some(0)))), Err("unique_for"));
        assert_eq!(field(ask(|a| a.queue = "Mail Out".into())), Err("queue"));
        let unknown = ask(|a| a.role = "plumber".into()).expect_err("no such persona").to_string();
        assert!(unknown.contains("there are: researcher, scribe"), "{unknown}");
        let odd = ask(|a| a.role = "Big Boss".into()).expect_err("not a role name").to_string();
        assert!(odd.contains("\"big-boss\""), "{odd}");
    }

    #[test]
    fn the_policy_says_how_many_attempts_unless_the_job_does() {
        let with = |retry: RetryPolicy, own| {
            let new = ask(|a| (a.retry, a.max_attempts) = (Some(retry), own));
            new.map(|job| job.max_attempts).map_err(|refused| refused.field)
        };
        let (usual, none) = (RetryPolicy::default(), RetryPolicy { strategy: Strategy::None, ..Default::default() });
        assert_eq!(ask(|_| ()).expect("is legal").max_attempts, DEFAULT_MAX_ATTEMPTS);
        assert_eq!(with(RetryPolicy { max_attempts: Some(7), ..usual }, None), Ok(7));
        assert_eq!(with(RetryPolicy { max_attempts: Some(7), ..usual }, Some(2)), Ok(2));
        assert_eq!((with(none, None), with(none, Some(1))), (Ok(1), Ok(1)));
        assert_eq!(with(none, Some(2)), Err("max_attempts"));
        assert_eq!(with(RetryPolicy { base_seconds: 0, ..usual }, None), Err("retry"));
    }
}
