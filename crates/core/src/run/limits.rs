//! The limits that end a run, and how much of them is left.

use super::Run;
use crate::clock::Millis;
use crate::job::task::TaskBounds;
use crate::run::journal::EndStatus;
use crate::text::{count, plural};

/// A limit that ends the run.
pub(super) struct Reached {
    pub(super) status: EndStatus,
    /// What the answer says of it.
    pub(super) warning: String,
    pub(super) reason: String,
}

impl Reached {
    pub(super) fn new(status: EndStatus, limit: String, reason: String) -> Reached {
        Reached { status, warning: format!("[Warning: {limit} reached before there was an answer. Stopped.]"), reason }
    }

    /// What there is in place of an answer: what was said until then, and why there is no more.
    pub(super) fn text(&self, said: &str) -> String {
        if said.is_empty() { self.warning.clone() } else { format!("{said}\n\n{}", self.warning) }
    }
}

impl Run {
    /// Which limit is reached, in words, if one is.
    pub fn limit_reached(&self) -> Option<String> {
        self.limit().map(|limit| limit.reason)
    }

    /// Which limit is reached, if one is.
    pub(super) fn limit(&self) -> Option<Reached> {
        let limits = &self.opening.as_ref()?.persona.limits;
        let turns = self.turns - self.spent_before.turns;
        let tokens = self.usage.total().saturating_sub(self.spent_before.tokens);
        let ms = self.worked_ms - self.spent_before.ms;
        if turns >= limits.max_turns {
            let max = limits.max_turns;
            let reason = format!("the limit of {} is reached (limits.max_turns)", plural(max.into(), "model turn"));
            return Some(Reached::new(EndStatus::MaxTurns, format!("max turns ({max})"), reason));
        }
        if let Some(max) = limits.max_tokens.filter(|max| tokens >= *max) {
            let reason =
                format!("the limit of {} is reached: {} used (limits.max_tokens)", plural(max, "token"), count(tokens));
            return Some(Reached::new(EndStatus::MaxTokens, format!("max tokens ({max})"), reason));
        }
        let max = limits.max_seconds.filter(|max| ms >= max.saturating_mul(1000))?;
        let reason = format!("the limit of {max} s of work is reached: {} s used (limits.max_seconds)", ms / 1000);
        Some(Reached::new(EndStatus::MaxSeconds, format!("max seconds ({max})"), reason))
    }

    /// The limit that ends a run which asks for one round of tools too many.
    pub(super) fn tool_rounds_spent(&self) -> Option<Reached> {
        let max = self.opening.as_ref()?.persona.limits.max_tool_rounds?;
        let rounds = self.tool_rounds - self.spent_before.tool_rounds;
        let warning = format!("Warning: max tool rounds ({max}) reached. Stopping tool execution.");
        (rounds > max).then(|| Reached {
            status: EndStatus::MaxToolRounds,
            warning: format!("[{warning}]"),
            reason: warning,
        })
    }

    /// How long questions to people stay open, in milliseconds; for ever when absent.
    pub(super) fn question_ms(&self) -> Option<u64> {
        Some(self.opening.as_ref()?.persona.limits.max_wait_seconds?.saturating_mul(1000))
    }

    /// Milliseconds of work left before the time limit, if there is one.
    pub fn time_left(&self) -> Option<Millis> {
        let max = self.opening.as_ref()?.persona.limits.max_seconds?;
        let used = self.worked_ms - self.spent_before.ms;
        Some(i64::try_from(max.saturating_mul(1000).saturating_sub(used)).unwrap_or(Millis::MAX))
    }

    /// Tokens left before the limit, if there is one.
    pub fn tokens_left(&self) -> Option<u64> {
        let max = self.opening.as_ref()?.persona.limits.max_tokens?;
        Some(max.saturating_sub(self.usage.total().saturating_sub(self.spent_before.tokens)))
    }

    /// How many tasks it may give, by its persona and by those above it.
    pub fn task_bounds(&self, above: Option<TaskBounds>) -> TaskBounds {
        let own = self.opening.as_ref().map(|opening| opening.persona.limits.tasks()).unwrap_or_default();
        above.map_or(own, |above| own.within(above))
    }
}
