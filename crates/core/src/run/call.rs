//! A call of a run while it is open and once it has ended.

use serde_json::Value;

use super::compaction::Part;
use super::journal::{Call, CallOutcome};
use crate::model::CallRequest;
use crate::tool::EffectClass;

pub(super) const ASKED_INSTEAD: &str = "Not run: a reply that asks people does nothing else. Once they have answered, make this call \
                             again if it is still right.";

pub(super) const ASKED_TOGETHER: &str =
    "Asked together with the questions before it in the same reply; the answers are in that result.";

pub(super) const TOO_MANY_QUESTIONS: &str = "Not asked: these and the questions before them in the same reply are too many at once. Ask \
                                  again once those are answered.";

/// A call that has been asked for and has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// What runs: our id, the tool, its arguments.
    pub request: CallRequest,
    /// The call that the result answers, where that is another one: a step of phase `act` that
    /// names this action, or a call whose tool failed before.
    pub answers: Option<Box<CallRequest>>,
    /// The tool's effect class; absent where no tool runs: a skill, a question, the final answer.
    pub effect: Option<EffectClass>,
    /// Whether its start has been recorded.
    pub started: bool,
    /// How often in a row its worker could not begin it.
    pub not_run: u32,
}

impl OpenCall {
    pub(super) fn new(call: &Call) -> OpenCall {
        let request = call.runs();
        let answers = (request != call.request).then(|| Box::new(call.request.clone()));
        OpenCall { request, answers, effect: call.effect, started: false, not_run: 0 }
    }

    /// Puts another call in its place, which failed.
    pub(super) fn fall_back(&mut self, to: &Call) {
        let answers = Some(Box::new(self.asked().clone()));
        let not_run = if to.request.name == self.request.name { self.not_run + 1 } else { 0 };
        *self = OpenCall { answers, not_run, ..OpenCall::new(to) };
    }

    /// The call as the model made it.
    pub fn asked(&self) -> &CallRequest {
        self.answers.as_deref().unwrap_or(&self.request)
    }
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EndedCall {
    pub call: OpenCall,
    /// What the model is told.
    pub text: String,
    /// How it ended and after how many milliseconds, where that is on record.
    pub outcome: Option<(CallOutcome, u64)>,
    pub part: Part,
}

#[cfg(test)]
impl EndedCall {
    /// A call that did well, after 3 ms.
    pub fn done(call: &Call, text: &str) -> EndedCall {
        let outcome = Some((CallOutcome::Done, 3));
        EndedCall { call: OpenCall::new(call), text: text.to_owned(), outcome, part: Part::Result }
    }
}

/// The number of a call by its id, if the id is one of ours.
pub(super) fn number_of(id: &str) -> Option<u64> {
    let digits = id.strip_prefix('c').filter(|digits| digits.len() == 8)?;
    let ours = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
    digits.bytes().all(ours).then(|| u64::from_str_radix(digits, 36).ok()).flatten()
}

/// A call's tool and arguments, the same for every order of keys and spacing.
pub(super) fn fingerprint(call: &CallRequest) -> String {
    let arguments = serde_json::from_str(&call.arguments).map(|mut value: Value| {
        value.sort_all_objects();
        value.to_string()
    });
    format!("{} {}", call.name, arguments.unwrap_or_else(|_| call.arguments.clone()))
}

/// Whether a call was neither run nor wrong: something in the same reply went before it.
pub(super) fn is_put_off(told: &str) -> bool {
    [ASKED_INSTEAD, ASKED_TOGETHER, TOO_MANY_QUESTIONS].iter().any(|why| told.contains(why))
}
