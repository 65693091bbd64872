//! What the phased style adds to a run: its working memory, and the counters of its signals.

use serde_json::Value;

use super::call::{EndedCall, OpenCall, fingerprint, is_put_off};
use super::memory::{CallRecord, StepTokens, WorkingMemory};
use super::phase::{self, AGENT_STEP, AgentStep, Content, Phase};
use super::signals::Signals;
use crate::model::Finish;
use crate::run::journal::{CallOutcome, Turn};
use crate::text::plural;

/// How far a run is within its limit of turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Progress {
    /// Replies of the run's own conversation.
    pub steps: u32,
    /// Those of skills, which the limit counts as well.
    pub in_skills: u32,
    /// How many it may have, together.
    pub most: u32,
}

impl Progress {
    fn signals(self, signals: &Signals) -> String {
        let Progress { steps, in_skills, most } = self;
        let rendered = signals.render(steps, most);
        if in_skills == 0 {
            return rendered;
        }
        let (first, rest) =
            rendered.split_once('\n').map_or((&*rendered, ""), |(first, _)| (first, &rendered[first.len()..]));
        format!("{first}, and {} in skills, which count too{rest}", plural(in_skills.into(), "turn"))
    }
}

/// Working memory and signals: a projection of the journal like everything else of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Phased {
    pub memory: WorkingMemory,
    signals: Signals,
    steps: StepTokens,
    /// Replies in the run's own conversation: the number of the step at work. Those of skills are no steps.
    pub replies: u32,
}

impl Phased {
    /// Takes in a reply. An end is a step at once, unless it stands beside other calls or was cut off.
    pub fn take_turn(&mut self, turn: &Turn) {
        self.replies += 1;
        let [call] = &turn.calls[..] else { return };
        if call.request.name != AGENT_STEP || turn.finish == Finish::Length {
            return;
        }
        if let Ok(step) = phase::parse(&call.request.arguments)
            && step.phase() == Phase::End
        {
            self.take_step(&step);
        }
    }

    /// Takes in what people are asked, by the call that asks.
    pub fn take_question(&mut self, message: &str, call: Option<&OpenCall>) {
        let step = call.and_then(|call| phase::parse(&call.asked().arguments).ok());
        let (thinking, summary) = step.map(|step| (step.thinking, step.summary)).unwrap_or_default();
        self.take_step(&AgentStep { thinking, summary, content: Content::Feedback { message: message.to_owned() } });
    }

    /// Takes in a reply, or a step of one, that was sent back for correction.
    pub fn take_faulty(&mut self) {
        self.signals.on_faulty();
    }

    fn take_step(&mut self, step: &AgentStep) {
        self.signals.on_non_act(step.phase());
        self.memory.take_step(self.replies, step);
        self.measure_last();
    }

    fn measure_last(&mut self) {
        if let Some(step) = self.memory.steps().last() {
            self.steps.push(step);
        }
    }

    /// Takes in a call that ended: an act, one that the model made directly, or a step that ran nothing.
    pub fn take_call(&mut self, ended: &EndedCall) {
        let EndedCall { call, text, .. } = ended;
        let Some((outcome, ms)) = ended.outcome else { return };
        if outcome == CallOutcome::Refused && is_put_off(text) {
            return;
        }
        let step = (call.asked().name == AGENT_STEP).then(|| phase::parse(&call.asked().arguments));
        let (thinking, summary) = match step {
            Some(Ok(AgentStep { thinking, summary, content: Content::Act(_) })) => (thinking, summary),
            Some(Ok(step)) if outcome == CallOutcome::Done => return self.take_step(&step),
            Some(_) => return self.take_faulty(),
            None => {
                let name = &call.request.name;
                (format!("Direct tool call: {name}"), format!("Execute {name}"))
            }
        };
        let signature = fingerprint(&call.request);
        let failed = outcome != CallOutcome::Done;
        match outcome {
            CallOutcome::Done => self.signals.on_act(&signature, None),
            CallOutcome::Failed { category } => self.signals.on_failed_act(&signature, category, text),
            CallOutcome::Refused | CallOutcome::Unknown => self.signals.on_act(&signature, Some(text)),
        }
        let input = serde_json::from_str(&call.request.arguments).unwrap_or(Value::Null);
        let record = CallRecord { tool: call.request.name.clone(), input, output: text.clone(), failed, ms: Some(ms) };
        self.memory.take_call(self.replies, &thinking, &summary, record);
        self.measure_last();
    }

    /// What the model is answered to a step that is taken in next.
    pub fn acknowledge(&self, step: &AgentStep) -> String {
        phase::acknowledge(self.replies, step, self.memory.next_plan_version()).unwrap_or_default()
    }

    /// The phase of every step, oldest first.
    pub fn phases(&self) -> &[Phase] {
        self.signals.phase_history()
    }

    /// The phase of the last step.
    pub fn last_phase(&self) -> Option<&'static str> {
        self.phases().last().map(|phase| phase.as_str())
    }

    /// Tokens of [`Phased::view`], estimated from the sizes of steps, and no fewer than written out; 0 without a view.
    pub fn view_tokens(&self, progress: Progress, most: Option<usize>) -> u64 {
        if self.is_blank() {
            return 0;
        }
        let signals = progress.signals(&self.signals);
        self.steps.of_view(&self.memory, &signals, most.unwrap_or(usize::MAX))
    }

    fn is_blank(&self) -> bool {
        self.memory.steps().is_empty() && self.memory.plan().is_none()
    }

    /// What stands at the end of every request, once there is something to see, in at most `most` bytes.
    pub fn view(&self, progress: Progress, most: Option<usize>) -> Option<String> {
        if self.is_blank() {
            return None;
        }
        let signals = progress.signals(&self.signals);
        Some(self.memory.render_view_within(&signals, most.unwrap_or(usize::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CallRequest;
    use crate::model::tokens;
    use crate::run::journal::Call;
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
            phased.take_call(&EndedCall::done(&call, &output));
            let progress = Progress { steps: n, in_skills: n % 2, most: 500 };
            for most in [None, Some(2_000), Some(20_000)] {
                let shown = phased.view(progress, most).expect("there is a step");
                let (estimated, written) = (phased.view_tokens(progress, most), tokens::text(&shown));
                // Each piece is rounded up by itself.
                let close = written..=written + u64::from(n) + 4;
                assert!(close.contains(&estimated), "{n}, {most:?}: {estimated} for {written}");
            }
        }
    }
}
