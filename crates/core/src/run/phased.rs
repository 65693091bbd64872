//! What the phased style adds to a run: its working memory, and the counters of its signals.

use serde_json::Value;

use super::cycle::{EndedCall, fingerprint};
use super::memory::{CallRecord, StepTokens, WorkingMemory};
use super::phase::{self, AGENT_STEP, AgentStep, Content, Phase};
use super::signals::Signals;
use crate::journal::{CallOutcome, Turn};
use crate::model::{CallRequest, Finish};

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
    steps: StepTokens,
}

impl Phased {
    /// Takes in a question or an end, which are steps as soon as they are said. `number` is the reply's.
    pub fn take_turn(&mut self, number: u32, turn: &Turn) {
        // Beside other calls these two are refused, and so is what a limit cut off.
        let [call] = &turn.calls[..] else { return };
        if call.request.name != AGENT_STEP || turn.finish == Finish::Length {
            return;
        }
        if let Ok(step) = phase::parse(&call.request.arguments)
            && matches!(step.phase(), Phase::Feedback | Phase::End)
        {
            self.take_step(number, &step);
        }
    }

    fn take_step(&mut self, number: u32, step: &AgentStep) {
        self.signals.on_non_act(step.phase());
        self.memory.take_step(number, step);
        self.measure_last();
    }

    fn measure_last(&mut self) {
        if let Some(step) = self.memory.steps().last() {
            self.steps.push(step);
        }
    }

    /// Takes in a call that ended: an act, one that the model made directly, or a step that ran nothing.
    pub fn take_call(&mut self, number: u32, ended: &EndedCall) {
        let EndedCall { call, text, .. } = ended;
        let Some((outcome, ms)) = ended.outcome else { return };
        let step = (call.asked().name == AGENT_STEP).then(|| phase::parse(&call.asked().arguments));
        let (thinking, summary) = match step {
            Some(Ok(AgentStep { thinking, summary, content: Content::Act(_) })) => (thinking, summary),
            Some(Ok(step)) if outcome == CallOutcome::Done => return self.take_step(number, &step),
            Some(_) => return,
            None => {
                let name = &call.request.name;
                (format!("Direct tool call: {name}"), format!("Execute {name}"))
            }
        };
        let failed = outcome != CallOutcome::Done;
        self.signals.on_act(&fingerprint(&call.request), failed.then_some(text.as_str()));
        let input = serde_json::from_str(&call.request.arguments).unwrap_or(Value::Null);
        let record = CallRecord { tool: call.request.name.clone(), input, output: text.clone(), failed, ms: Some(ms) };
        self.memory.take_call(number, &thinking, &summary, record);
        self.measure_last();
    }

    /// What the model is answered to a step that is taken in next.
    pub fn acknowledge(&self, number: u32, step: &AgentStep) -> String {
        phase::acknowledge(number, step, self.memory.next_plan_version()).unwrap_or_default()
    }

    /// The phase of every step, oldest first.
    pub fn phases(&self) -> &[Phase] {
        self.signals.phase_history()
    }

    /// The phase of the last step.
    pub fn last_phase(&self) -> Option<&'static str> {
        self.phases().last().map(|phase| phase.as_str())
    }

    /// What [`Phased::view`] is estimated to have, in tokens, and never less than the estimate of it
    /// written out; 0 where there is no view. Reads plan, facts and errors, and of the steps only their
    /// sizes.
    pub fn view_tokens(&self, steps: u32, max_steps: u32, most: Option<usize>) -> u64 {
        if self.is_blank() {
            return 0;
        }
        let signals = self.signals.render(steps, max_steps);
        self.steps.of_view(&self.memory, &signals, most.unwrap_or(usize::MAX))
    }

    fn is_blank(&self) -> bool {
        self.memory.steps().is_empty() && self.memory.plan().is_none()
    }

    /// What stands at the end of every request once there is something to see: at most `most` bytes
    /// of it, where that is a limit.
    pub fn view(&self, steps: u32, max_steps: u32, most: Option<usize>) -> Option<String> {
        if self.is_blank() {
            return None;
        }
        let signals = self.signals.render(steps, max_steps);
        Some(match most {
            Some(most) => self.memory.render_view_within(&signals, most),
            None => self.memory.render_view(&signals),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Call;
    use crate::tokens;
    use crate::tool::EffectClass;

    #[test]
    fn a_view_is_measured_closely_without_being_written_out() {
        let mut phased = Phased::default();
        for n in 0..200_u32 {
            let (name, arguments) = ("look".to_owned(), format!("{{\"n\":{n}}}"));
            let request = CallRequest { id: String::new(), name, arguments, extra: None };
            let call = Call { request, effect: Some(EffectClass::Pure) };
            let output = match n % 3 {
                0 => "the ship sails on to the next port\n".repeat(20),
                1 => "{\"ship\": \"Clio\", \"length_m\": 14.25}".repeat(9),
                _ => String::new(),
            };
            phased.take_call(n, &EndedCall::done(&call, &output));
            for most in [None, Some(2_000), Some(20_000)] {
                let shown = phased.view(n, 500, most).expect("there is a step");
                let (estimated, written) = (phased.view_tokens(n, 500, most), tokens::text(&shown));
                // Each piece is rounded up by itself.
                let close = written..=written + u64::from(n) + 4;
                assert!(close.contains(&estimated), "{n}, {most:?}: {estimated} for {written}");
            }
        }
    }
}
