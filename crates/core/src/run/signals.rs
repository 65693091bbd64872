//! What a run that goes by phases has done so far, in numbers, and the remarks about it that its
//! agent reads before each step.

use std::collections::BTreeMap;

use super::phase::Phase;
use crate::text::{count, plural};
use crate::tool::ToolErrorCategory;

/// Failures of one action in a row from which the agent is told to reflect.
const REPEATED_FAILURES: u32 = 2;
/// Steps in a row without an act from which the agent is told to do something.
const IDLE_STEPS: u32 = 3;
/// Permission errors, over the whole run, from which the agent is told to try another way.
const PERMISSION_ERRORS: u32 = 2;

/// Counters over the steps of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signals {
    tool_calls_made: u32,
    failed_tool_calls: u32,
    consecutive_non_act_steps: u32,
    /// How often in a row the last action was taken and failed; 0 if it did not fail.
    consecutive_repeated_actions: u32,
    last_action_signature: Option<String>,
    errors_by_category: BTreeMap<&'static str, u32>,
    phase_history: Vec<Phase>,
}

impl Signals {
    /// Counts an act: a call of this `signature` and, if it failed, why, in words alone.
    pub fn on_act(&mut self, signature: &str, failed: Option<&str>) {
        self.act(signature, failed.map(categorize_error));
    }

    /// Counts an act that failed in a way that its tool named.
    pub fn on_failed_act(&mut self, signature: &str, category: ToolErrorCategory, message: &str) {
        self.act(signature, Some(category_of(category, message)));
    }

    fn act(&mut self, signature: &str, failed: Option<&'static str>) {
        self.count(Phase::Act);
        self.tool_calls_made += 1;
        self.consecutive_non_act_steps = 0;
        if self.last_action_signature.as_deref() != Some(signature) {
            self.last_action_signature = Some(signature.to_owned());
            self.consecutive_repeated_actions = 0;
        }
        let Some(category) = failed else {
            self.consecutive_repeated_actions = 0;
            return;
        };
        self.failed_tool_calls += 1;
        self.consecutive_repeated_actions += 1;
        *self.errors_by_category.entry(category).or_default() += 1;
    }

    /// Counts a step of any other phase.
    pub fn on_non_act(&mut self, phase: Phase) {
        self.count(phase);
        self.consecutive_non_act_steps += 1;
    }

    /// Counts a step that was sent back for correction: nothing was done, and it is of no phase.
    pub fn on_faulty(&mut self) {
        self.consecutive_non_act_steps += 1;
    }

    fn count(&mut self, phase: Phase) {
        self.phase_history.push(phase);
    }

    /// Calls made.
    pub fn tool_calls_made(&self) -> u32 {
        self.tool_calls_made
    }

    /// Calls that failed.
    pub fn failed_tool_calls(&self) -> u32 {
        self.failed_tool_calls
    }

    /// How many calls failed in which way, by [`categorize_error`].
    pub fn errors_by_category(&self) -> &BTreeMap<&'static str, u32> {
        &self.errors_by_category
    }

    /// The phase of every step, oldest first.
    pub fn phase_history(&self) -> &[Phase] {
        &self.phase_history
    }

    /// The remarks, one a line, for a run that has taken `steps` of `max_steps`.
    pub fn render(&self, steps: u32, max_steps: u32) -> String {
        let mut signals = vec![format!("ℹ {} of {} used", count(steps.into()), plural(max_steps.into(), "step"))];
        if self.failed_tool_calls >= REPEATED_FAILURES && self.consecutive_repeated_actions >= REPEATED_FAILURES {
            signals.push("⚠ Same action failed twice. Reflect before acting again.".into());
        }
        if self.consecutive_non_act_steps >= IDLE_STEPS {
            signals.push("⚠ 3 steps without action. Act, reflect, or ask.".into());
        }
        if self.errors_by_category.get(PERMISSION).is_some_and(|count| *count >= PERMISSION_ERRORS) {
            signals.push("⚠ Multiple permission errors. Try a different approach.".into());
        }
        signals.join("\n")
    }
}

const PERMISSION: &str = "permission";

/// What kind of failure it is that a tool put into this category. What the category leaves open, its words tell.
fn category_of(category: ToolErrorCategory, message: &str) -> &'static str {
    use ToolErrorCategory::*;
    match category {
        InvalidArguments => "invalid_input",
        NotFound => "not_found",
        PermissionDenied => PERMISSION,
        Conflict | Stopped | Interrupted | WorkerUnfit => "runtime",
        LimitExceeded | Failed => categorize_error(message),
    }
}

/// What kind of failure a tool's message tells of: `not_found`, `permission`, `timeout`,
/// `invalid_input` or `runtime`. Told by its words, so that tools of any origin can be counted; the
/// first that fits.
pub fn categorize_error(message: &str) -> &'static str {
    let message = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["not found", "no such"]) {
        "not_found"
    } else if says(&["permission", "denied"]) {
        PERMISSION
    } else if says(&["timeout", "timed out"]) {
        "timeout"
    } else if says(&["invalid", "validation"]) {
        "invalid_input"
    } else {
        "runtime"
    }
}
