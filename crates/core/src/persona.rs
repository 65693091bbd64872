//! Personas: the roles that agents play, as people write them down.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::job::deaths::MOST_CRASHES;
use crate::job::name::check_role;
use crate::job::retry::RetryPolicy;
use crate::job::task::{TaskBounds, TaskOf};
use crate::text::{has_too_many, is_default, named};
use crate::tool::web::WebRules;

mod file;

pub use file::{PersonaFile, PersonaFileProblem, Personas, Severity};

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
    /// A name of the file's own. It is read and means nothing: jobs are addressed to the role.
    #[serde(default, skip_serializing)]
    pub id: Option<String>,
    /// The name jobs are addressed to: lower-case letters, digits, `-` and `_`, at most 64.
    pub role: String,
    /// What this agent is for, in one sentence; it is told so.
    pub goal: String,
    /// Who it is and how it works; it is told so.
    #[serde(default)]
    pub backstory: String,
    /// Tools it may use: names of tools (`read_file`) or of packs (`filesystem`). `toolNames` is read as well.
    #[serde(default, alias = "toolNames")]
    pub tools: Vec<String>,
    /// Skills it may call, by name (`posse skill list`); `"*"` alone is all there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Roles of other personas that it may give tasks to, with the pack `tasks`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_delegate_to: Vec<String>,
    /// Hooks that run before each of its runs begins: `project_rules` tells it the workspace's `AGENTS.md`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// What its tool `http_fetch` may reach of the web; nothing when absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub web: WebRules,
    /// How it works: `direct` or `phased`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub style: Style,
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
    pub limits: RunLimits,
    /// When old conversation is replaced by a summary.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context: ContextRules,
    /// For a tool, another that is tried with the same arguments when the first one fails.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fallback_tools: BTreeMap<String, String>,
    /// When its failed jobs are tried again, and how often; jobs take it when they are enqueued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
}

/// How an agent works on its task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// It calls tools until it gives its final answer.
    #[default]
    Direct,
    /// It moves through the phases plan, reason, act, verify, reflect, feedback and end, and sees a
    /// view of its working memory before every step.
    Phased,
}

named!(Style: Direct = "direct", Phased = "phased");

/// When old conversation is replaced by a summary. The whole stays in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContextRules {
    /// Messages after the task beyond which the oldest are summarised; 0 for never by count. When
    /// absent: 20 where the model's window is not known, and never by count where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// How many of the oldest messages one summary by count replaces.
    pub chunk: u32,
    /// The share of the model's window, 0.1 to 0.95, beyond which the oldest messages are
    /// summarised.
    pub budget_share: f32,
    /// How many of the latest turns, each with its results, are never summarised: 0 to 100.
    pub keep_last: u32,
    /// The model that writes the summaries, by its name in `config/posse.toml`; the run's own when
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_model: Option<String>,
}

impl Default for ContextRules {
    fn default() -> Self {
        ContextRules { max_messages: None, chunk: 10, budget_share: 0.8, keep_last: 2, summary_model: None }
    }
}

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunLimits {
    /// Model requests, at least 1.
    #[schemars(range(min = 1))]
    pub max_turns: u32,
    /// Tokens, read and written, over the whole run; no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Seconds of work (model and tools; waiting is free); no limit when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_seconds: Option<u64>,
    /// Replies that may run tools; no limit of their own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_rounds: Option<u32>,
    /// Deaths of workers in a row that a job may meet without getting any further before it is discarded, 1 to 100; 3
    /// when absent, or as `config/posse.toml` says. Jobs take it when they are enqueued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_crashes: Option<u32>,
    /// Seconds that a question to people stays open; for ever when absent. After that the run goes
    /// on without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_seconds: Option<u64>,
    /// Tasks of one job that may be open at once; 8 when absent. Those who work its tasks have no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_open_tasks: Option<u32>,
    /// Tasks that there may be beneath a job in all, those of its tasks too; 50 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    /// How deep tasks of tasks may lie beneath a job; 3 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_task_depth: Option<u32>,
}

impl RunLimits {
    /// How many tasks it allows.
    pub fn tasks(&self) -> TaskBounds {
        let usual = TaskBounds::default();
        TaskBounds {
            open: self.max_open_tasks.unwrap_or(usual.open),
            all: self.max_tasks.unwrap_or(usual.all),
            depth: self.max_task_depth.unwrap_or(usual.depth),
        }
    }

    /// The same for a run that works `task`: no more than was left to whoever gave it.
    pub fn of_task(self, task: &TaskOf) -> RunLimits {
        let least = |own: Option<u64>, above: Option<u64>| [own, above].into_iter().flatten().min();
        RunLimits {
            max_tokens: least(self.max_tokens, task.max_tokens),
            max_seconds: least(self.max_seconds, task.max_seconds),
            ..self
        }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits {
            max_turns: DEFAULT_MAX_TURNS,
            max_tokens: None,
            max_seconds: None,
            max_tool_rounds: None,
            max_crashes: None,
            max_wait_seconds: None,
            max_open_tasks: None,
            max_tasks: None,
            max_task_depth: None,
        }
    }
}

/// Something wrong with a persona: which field, what is wrong, what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersonaProblem {
    /// Where in the file.
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
        if is_placeholder(&self.goal) {
            report("goal", "is still what posse persona new wrote; say in one sentence what this agent is for".into());
        }
        for (field, limit) in [
            ("limits.max_turns", Some(u64::from(self.limits.max_turns))),
            ("limits.max_tokens", self.limits.max_tokens),
            ("limits.max_seconds", self.limits.max_seconds),
        ] {
            if limit == Some(0) {
                report(field, "is 0, so nothing could run; it must be a number from 1".into());
            }
        }
        for (field, text) in [("goal", &self.goal), ("backstory", &self.backstory)] {
            if text.len() > MAX_TEXT_BYTES {
                report(field, has_too_many(text.len(), "byte", MAX_TEXT_BYTES));
            }
            if text.contains('\0') {
                report(field, "contains a NUL character; remove it".into());
            }
        }
        if self.skills.len() > 1 && self.skills.iter().any(|name| name == ALL_SKILLS) {
            report("skills", format!("has '{ALL_SKILLS}', which is all skills, beside names; keep one or the other"));
        }
        for (field, names) in
            [("skills", &self.skills), ("hooks", &self.hooks), ("may_delegate_to", &self.may_delegate_to)]
        {
            if let Some(twice) = names.iter().enumerate().find(|(n, name)| names[..*n].contains(name)) {
                report(field, format!("names '{}' twice; remove one", twice.1));
            }
        }
        if let Some(problem) = self.web.problem() {
            report("web", problem);
        }
        if let Some(tool) = self.tools.iter().find(|tool| matches!(tool.as_str(), "http_fetch" | "web"))
            && self.web.hosts.is_empty()
        {
            let message =
                format!("names no host, so '{tool}' could reach nothing: \"web\": {{\"hosts\": [\"example.com\"]}}");
            report("web", message);
        }
        if let Some(t) = self.temperature.filter(|t| !(0.0..=2.0).contains(t)) {
            report("temperature", format!("is {t}; it must lie between 0 and 2"));
        }
        if self.context.keep_last > 100 {
            report("context.keep_last", format!("is {}; it must be a number from 0 to 100", self.context.keep_last));
        }
        let share = self.context.budget_share;
        if !(0.1..=0.95).contains(&share) {
            report("context.budget_share", format!("is {share}; it must be a number from 0.1 to 0.95"));
        }
        if self.context.chunk < 2 {
            let chunk = self.context.chunk;
            report("context.chunk", format!("is {chunk}, which would summarise nothing; it must be a number from 2"));
        }
        if let Some((tool, _)) = self.fallback_tools.iter().find(|(tool, other)| tool == other) {
            report("fallback_tools", format!("names '{tool}' as the fallback of itself; name another tool"));
        }
        if self.max_reply_tokens == Some(0) {
            report("max_reply_tokens", "is 0, so the model could say nothing; leave it out for the default".into());
        }
        if let Some(n) = self.limits.max_crashes.filter(|n| !(1..=MOST_CRASHES).contains(n)) {
            report("limits", format!("has max_crashes {n}; it must lie between 1 and {MOST_CRASHES}"));
        }
        if let Some(problem) = self.retry.and_then(|retry| retry.problem()) {
            report("retry", problem);
        }
        problems
    }
}

/// The goal of a persona that nobody has given one yet.
pub fn placeholder_goal(role: &str) -> String {
    format!("{PLACEHOLDER} {role} is for.")
}

const PLACEHOLDER: &str = "Say here in one sentence what a";

/// Whether a goal is one of [`placeholder_goal`].
pub fn is_placeholder(goal: &str) -> bool {
    goal.trim_start().starts_with(PLACEHOLDER)
}

/// In place of a list of skills: all there are.
pub const ALL_SKILLS: &str = "*";

/// Most bytes of a persona's goal or backstory.
const MAX_TEXT_BYTES: usize = 64 * 1024;
