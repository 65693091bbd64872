//! Personas: the roles that agents play, as people write them down.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Model requests a run may make unless its persona says otherwise.
pub const DEFAULT_MAX_TURNS: u32 = 20;

/// An agent, described. One JSON file in `config/personas` is one persona; a new file is a new kind
/// of agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PersonaTemplate {
    /// Where the schema of this file is, for editors.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The name jobs are addressed to: lower-case letters, digits, `-` and `_`, at most 64.
    pub role: String,
    /// What this agent is for, in one sentence; it is told so.
    pub goal: String,
    /// Who it is and how it works; it is told so.
    #[serde(default)]
    pub backstory: String,
    /// Tools it may use: names of tools (`read_file`) or of packs (`filesystem`).
    #[serde(default)]
    pub tools: Vec<String>,
    /// The model it asks, by its name in `config/posse.toml`; the default model when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling temperature, 0 to 2; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Most tokens of one reply; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reply_tokens: Option<u32>,
    /// What one run may use before it is ended.
    #[serde(default)]
    pub limits: Limits,
}

/// What one run may use. Zero means nothing may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Model requests.
    pub max_turns: u32,
    /// Tokens, read and written, over the whole run; no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Seconds of work (model and tools; waiting is free); no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_turns: DEFAULT_MAX_TURNS, max_tokens: None, max_seconds: None }
    }
}

/// Something wrong with a persona: which field, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersonaProblem {
    /// The field.
    pub field: &'static str,
    /// What is wrong and how to mend it.
    pub message: String,
}

impl PersonaTemplate {
    /// Everything wrong with it, as far as it can be told without knowing tools and models.
    pub fn problems(&self) -> Vec<PersonaProblem> {
        let mut problems = Vec::new();
        let mut report = |field, message: String| problems.push(PersonaProblem { field, message });
        if let Err(message) = check_role(&self.role) {
            report("role", message);
        }
        if self.goal.trim().is_empty() {
            report("goal", "is empty; say in one sentence what this agent is for".into());
        }
        for (field, text) in [("goal", &self.goal), ("backstory", &self.backstory)] {
            if text.len() > MAX_TEXT_BYTES {
                let size = text.len();
                report(field, format!("has {size} bytes; at most {MAX_TEXT_BYTES} are allowed"));
            }
            if text.contains('\0') {
                report(field, "contains a NUL character; remove it".into());
            }
        }
        if let Some(t) = self.temperature.filter(|t| !(0.0..=2.0).contains(t)) {
            report("temperature", format!("is {t}; it must lie between 0 and 2"));
        }
        if self.max_reply_tokens == Some(0) {
            report("max_reply_tokens", "is 0, so the model could say nothing; leave it out for the default".into());
        }
        problems
    }
}

/// Most bytes of a persona's goal or backstory.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Whether `role` may name a role, and if not, why.
pub fn check_role(role: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if role.is_empty() {
        return Err("is empty; name the role, for instance \"researcher\"".into());
    }
    if role.len() > 64 {
        return Err(format!("has {} characters; at most 64 are allowed", role.len()));
    }
    match role.chars().find(|c| !legal(*c)) {
        Some(c) => Err(format!(
            "'{role}' contains {c:?}; use lower-case letters, digits, '-' and '_', for instance \"{}\"",
            suggestion(role)
        )),
        None => Ok(()),
    }
}

fn suggestion(role: &str) -> String {
    let mut out: String =
        role.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    while out.contains("--") {
        out = out.replace("--", "-");
    }
    let out = out.trim_matches('-').to_owned();
    if out.is_empty() { "researcher".into() } else { out }
}
