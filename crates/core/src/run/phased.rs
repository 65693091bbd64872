//! What the phased style adds to a run: its working memory, and the counters of its signals.

use serde_json::Value;

use super::cycle::{OpenCall, fingerprint};
use super::memory::{CallRecord, WorkingMemory};
use super::phase::{self, AGENT_STEP, AgentStep, Content, Phase};
use super::signals::Signals;
use crate::journal::{CallOutcome, Turn};
use crate::model::CallRequest;

/// The call inside a step of phase `act`, under the id of the step.
pub(crate) fn action(request: &CallRequest) -> Option<CallRequest> {
    if request.name != AGENT_STEP {
        return None;
    }
    let Content::Act(action) = phase::parse(&request.arguments).ok()?.content else { return None };
    let (name, arguments) = (action.tool_name, action.tool_input.to_string());
    Some(CallRequest { name, arguments, ..request.clone() })
}

/// Working memory and signals: a projection of the journal like everything else of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Phased {
    pub memory: WorkingMemory,
    signals: Signals,
}

impl Phased {
    /// Takes in the steps of a reply that run nothing. `number` is the reply's.
    pub fn take_turn(&mut self, number: u32, turn: &Turn) {
        for call in turn.calls.iter().filter(|call| call.request.name == AGENT_STEP) {
            let Ok(step) = phase::parse(&call.request.arguments) else { continue };
            let alone = turn.calls.len() == 1;
            match step.phase() {
                Phase::Act => continue,
                // Of several calls these two are refused.
                Phase::Feedback | Phase::End if !alone => continue,
                phase => self.signals.on_non_act(phase),
            }
            self.memory.take_step(number, &step);
        }
    }

    /// Takes in a call that ended: an act, or one that the model made directly.
    pub fn take_call(&mut self, number: u32, call: &OpenCall, outcome: CallOutcome, text: &str, ms: u64) {
        let step = (call.asked().name == AGENT_STEP).then(|| phase::parse(&call.asked().arguments));
        let (thinking, summary) = match step {
            Some(Ok(AgentStep { thinking, summary, content: Content::Act(_) })) => (thinking, summary),
            Some(_) => return,
            None => {
                let name = &call.request.name;
                (format!("Direct tool call: {name}"), format!("Execute {name}"))
            }
        };
        let failed = outcome != CallOutcome::Done;
        self.signals.on_act(&fingerprint(&call.request), failed.then_some(text));
        let input = serde_json::from_str(&call.request.arguments).unwrap_or(Value::Null);
        let record =
            CallRecord { tool: call.request.name.clone(), input, output: text.to_owned(), failed, ms: Some(ms) };
        self.memory.take_call(number, &thinking, &summary, record);
    }

    /// What the model is answered to a step that has been taken in.
    pub fn acknowledge(&self, number: u32, step: &AgentStep) -> String {
        phase::acknowledge(number, step, &self.memory).unwrap_or_default()
    }

    /// The phase of the last step.
    pub fn last_phase(&self) -> Option<&'static str> {
        self.signals.phase_history().last().map(|phase| phase.as_str())
    }

    /// What stands at the end of every request once there is something to see: at most `most` bytes
    /// of it, where that is a limit.
    pub fn view(&self, steps: u32, max_steps: u32, most: Option<usize>) -> Option<String> {
        if self.memory.steps().is_empty() && self.memory.plan().is_none() {
            return None;
        }
        let signals = self.signals.render(steps, max_steps);
        Some(match most {
            Some(most) => self.memory.render_view_within(&signals, most),
            None => self.memory.render_view(&signals),
        })
    }
}
