//! What roles, queues and keys may be called.

use super::DEFAULT_QUEUE;
use crate::text::has_too_many;

/// Most bytes of a unique key or a concurrency key.
pub const MAX_KEY_BYTES: usize = 256;

/// The name of a role that somebody wrote with capitals or spaces (`Code Reviewer`, `RESEARCHER`): in small letters,
/// with a hyphen for each gap. Whatever else is wrong with it stays, and is told by [`check_role`].
pub fn role_name(written: &str) -> String {
    written.split_whitespace().collect::<Vec<_>>().join("-").to_lowercase()
}

/// Whether `role` may name a role, and if not, why.
pub fn check_role(role: &str) -> Result<(), String> {
    check_name(role, "role", "researcher")
}

/// Whether `name` may name a queue, and if not, why.
pub fn check_queue(name: &str) -> Result<(), String> {
    check_name(name, "queue", DEFAULT_QUEUE)
}

/// Whether something of that kind may be called so: roles and queues are named alike.
fn check_name(name: &str, kind: &str, example: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() {
        return Err(format!("is empty; name the {kind}, for instance \"{example}\""));
    }
    if name.len() > 64 {
        return Err(has_too_many(name.len(), "character", 64));
    }
    match name.chars().find(|c| !legal(*c)) {
        Some(c) => Err(format!(
            "'{name}' contains {c:?}; use lower-case letters, digits, '-' and '_', for instance \"{}\"",
            suggestion(name, example)
        )),
        None => Ok(()),
    }
}

fn suggestion(name: &str, example: &str) -> String {
    let mut out: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    while out.contains("--") {
        out = out.replace("--", "-");
    }
    let out = out.trim_matches('-').to_owned();
    if out.is_empty() { example.into() } else { out }
}

/// Whether `key` may be a unique key or a concurrency key, and if not, why.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("is empty; leave it out for none".into());
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(has_too_many(key.len(), "byte", MAX_KEY_BYTES));
    }
    match key.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("contains the control character {c:?}; remove it")),
        None => Ok(()),
    }
}
