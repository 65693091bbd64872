//! Accepting work: everything is checked here, once, before anything is stored.

use crate::clock::Millis;
use crate::job::{NewJob, Payload};
use crate::persona::check_role;

/// Most bytes of a goal.
pub const MAX_GOAL_BYTES: usize = 256 * 1024;

/// Most attempts a job may ask for.
pub const MAX_ATTEMPTS: u32 = 100;

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
    /// Attempts it gets.
    pub max_attempts: u32,
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
    if !(1..=MAX_ATTEMPTS).contains(&ask.max_attempts) {
        return refuse("max_attempts", format!("is {}; it must lie between 1 and {MAX_ATTEMPTS}", ask.max_attempts));
    }
    Ok(NewJob {
        queue: ask.queue,
        role: ask.role,
        priority: ask.priority,
        run_at: ask.run_at,
        max_attempts: ask.max_attempts,
        payload: Payload { goal: ask.goal, workspace: ask.workspace, model: ask.model },
        ..NewJob::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE};

    fn ask(change: impl FnOnce(&mut Ask)) -> Result<NewJob, Refused> {
        let mut ask = Ask {
            role: "researcher".into(),
            goal: "find it".into(),
            queue: DEFAULT_QUEUE.into(),
            priority: DEFAULT_PRIORITY,
            run_at: None,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
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
        assert_eq!(field(ask(|a| a.max_attempts = 0)), Err("max_attempts"));
        assert_eq!(field(ask(|a| a.queue = "Mail Out".into())), Err("queue"));
        let unknown = ask(|a| a.role = "plumber".into()).expect_err("no such persona").to_string();
        assert!(unknown.contains("there are: researcher, scribe"), "{unknown}");
        let odd = ask(|a| a.role = "Big Boss".into()).expect_err("not a role name").to_string();
        assert!(odd.contains("\"big-boss\""), "{odd}");
    }
}
