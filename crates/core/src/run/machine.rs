//! The run machine: from a state and an input to entries and one effect. Pure.
//!
//! The caller commits the entries, then performs the effect, then comes back with its result. If
//! the process dies in between, the journal says which: an effect whose start is recorded may have
//! happened, any other has not.

use std::sync::Arc;

use super::compaction::{self, Cut, Decision, Purpose};
use super::{OpenCall, Program, Run, Seen, finish, phase, repeats};
use crate::clock::Millis;
use crate::model::tokens;
use crate::model::{CallRequest, ModelError, ModelReply};
use crate::run::journal::{Call, CallOutcome, Count, EndStatus, Entry, Opening};
use crate::text::{head, plural};
use crate::tool::{EffectClass, ToolError, ToolErrorCategory, ToolOutput};

mod again;
mod answer;
mod called;
mod reply;

pub use super::compaction::ToSummarise;
pub use super::cycle::MAX_DEPTH;
pub use super::fit::ToCount;
pub use super::repeats::{HABIT, MAX_REPEATS};
pub use again::Again;

/// Corrections in a row (bad steps, refused calls, empty replies) before a run is given up.
pub const MAX_CORRECTIONS: u32 = 6;

/// Calls of one reply that may run; those after them are refused.
pub const MAX_CALLS: usize = 64;

/// New plans of one conversation; after that it has to finish with what it has.
pub const MAX_REPLANS: u32 = 3;

/// Reading calls that run at once.
const MAX_TOGETHER: usize = 16;

/// Whether a call may run: its tool's effect class, or why not, as the model is told.
pub type Verdict = Result<EffectClass, String>;

/// Something that happened to a run.
pub enum Input<'a> {
    /// It begins.
    Begun {
        /// What is asked for.
        goal: &'a str,
        /// What it works with.
        opening: Arc<Opening>,
    },
    /// A worker goes on with a run that has begun: between two steps, or cold from its journal.
    PickedUp,
    /// The model replied.
    Replied {
        /// What it said.
        reply: ModelReply,
        /// How long it took, in milliseconds.
        ms: u64,
        /// Decides about each call that is not the final answer.
        check: &'a dyn Fn(&CallRequest) -> Verdict,
        /// Which of the files of [`Run::files_of`] are there.
        seen: &'a Seen,
    },
    /// A program begins, or is run again.
    ProgramBegins {
        /// The call that runs it.
        call_id: String,
        /// The time.
        at: Millis,
    },
    /// The program at work called tools.
    Called {
        /// Which of its calls the first of these is, from 0, as whoever runs it counts them this time.
        from: usize,
        /// The calls; what stands for their ids is not read.
        calls: Vec<CallRequest>,
        /// Decides about each that was not made before.
        check: &'a dyn Fn(&CallRequest) -> Verdict,
    },
    /// The program at work has ended. It is told when the calls that run have ended, too.
    ProgramStopped,
    /// The model could not be brought to reply, or, before the run has begun, to say what it can do.
    ModelFailed {
        /// What went wrong.
        error: ModelError,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// The model's tokenizer has counted, or cannot now.
    Counted {
        /// Tokens of each that was to be counted, in order; absent where they are not known.
        tokens: Option<Vec<u64>>,
    },
    /// The summary asked for is there, or will not be. What it cost is in the journal already, reply by reply.
    Summarised {
        /// The text, if there is one.
        text: Option<String>,
    },
    /// A running call ended.
    CallEnded {
        /// The call's id.
        call_id: String,
        /// What it gave.
        result: Result<ToolOutput, ToolError>,
        /// How long it ran, in milliseconds.
        ms: u64,
        /// Decides about the call of another tool that takes the place of one that failed.
        check: &'a dyn Fn(&CallRequest) -> Verdict,
    },
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask the model with [`Run::request`].
    AskModel,
    /// Run these calls, all at once, those that do not run already; report each as it ends.
    RunCalls(Vec<OpenCall>),
    /// Wait: calls are still running.
    Wait,
    /// Have the program at work end: it goes another way than before, for the reason given.
    StopProgram(String),
    /// Have the model's tokenizer count these. Without an answer, estimates have to do.
    Count(Vec<ToCount>),
    /// Have this summarised by a model.
    Summarise(ToSummarise),
    /// The run waits for people; see [`Run::asked`].
    Suspend,
    /// The run has ended; see [`Run::ended`].
    End,
    /// This attempt cannot go on. Nothing is lost: another attempt goes on from here.
    FailAttempt {
        /// Why, in words.
        reason: String,
        /// Whether another attempt may succeed.
        again: Again,
    },
}

/// What a step gives: entries to commit, then one effect to perform.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// To be committed before the effect is performed.
    pub entries: Vec<Entry>,
    /// What to do next.
    pub effect: Effect,
}

/// Takes the run one step on. `run` has taken in the returned entries already.
pub fn step(run: &mut Run, input: Input<'_>) -> Step {
    let mut recorder = Recorder { run, entries: Vec::new(), tokenizer_silent: false };
    let effect = match input {
        Input::Begun { goal, opening } => {
            recorder.record(Entry::Began { goal: goal.into(), opening });
            None
        }
        Input::PickedUp => recorder.picked_up(),
        Input::ProgramBegins { call_id, at } => Some(recorder.program_begins(call_id, at)),
        Input::Called { from, calls, check } => Some(recorder.called(from, calls, check)),
        Input::ProgramStopped => Some(recorder.program_stopped()),
        Input::Replied { reply, ms, check, seen } => {
            recorder.replied(reply, ms, check, seen);
            None
        }
        Input::ModelFailed { error, ms } => recorder.model_failed(error, ms),
        Input::Counted { tokens } => {
            recorder.counted(tokens);
            None
        }
        Input::Summarised { text } => {
            recorder.summarised(text);
            None
        }
        Input::CallEnded { call_id, result: Err(error), ms, .. }
            if error.category == ToolErrorCategory::Interrupted =>
        {
            recorder.interrupted(call_id, &error.message, ms);
            // The job must end or go elsewhere: nothing more is begun.
            Some(Effect::Wait)
        }
        Input::CallEnded { call_id, result: Err(error), .. } if error.category == ToolErrorCategory::WorkerUnfit => {
            Some(recorder.not_run(call_id, error.message))
        }
        Input::CallEnded { call_id, result, ms, check } => {
            recorder.call_ended(call_id, result, ms, check);
            None
        }
    };
    let effect = effect.unwrap_or_else(|| recorder.advance());
    Step { entries: recorder.entries, effect }
}

struct Recorder<'r> {
    run: &'r mut Run,
    entries: Vec<Entry>,
    /// Whether the tokenizer was asked just now, and said nothing that helps.
    tokenizer_silent: bool,
}

impl Recorder<'_> {
    fn record(&mut self, entry: Entry) {
        self.run.apply(&entry);
        self.entries.push(entry);
    }

    fn picked_up(&mut self) -> Option<Effect> {
        // Whatever was started and has not ended was in flight when the last worker stopped.
        let of_program: Vec<_> = self.run.program().into_iter().flat_map(Program::open).cloned().collect();
        for call in of_program {
            // The others run again when the program, which is run again, comes to them.
            if call.started && !call.effect.is_some_and(EffectClass::repeatable) {
                self.answer(call.request.id, CallOutcome::Unknown, UNKNOWN.into());
            }
        }
        let in_flight = self.run.open_calls().iter().filter(|c| c.started).cloned();
        let (again, unknown): (Vec<_>, Vec<_>) = in_flight.partition(|c| c.effect.is_some_and(EffectClass::repeatable));
        for call in unknown {
            self.answer(call.request.id, CallOutcome::Unknown, UNKNOWN.into());
        }
        (!again.is_empty()).then_some(Effect::RunCalls(again))
    }

    fn call_ended(
        &mut self,
        call_id: String,
        result: Result<ToolOutput, ToolError>,
        ms: u64,
        check: &dyn Fn(&CallRequest) -> Verdict,
    ) {
        if self.run.program().is_some_and(|program| program.call_id == call_id) {
            self.leave_program();
        }
        if let Err(error) = &result
            && let Some(to) = self.fallback(&call_id, error, check)
        {
            let ToolError { category, message: text } = error.clone();
            return self.record(Entry::FellBack { call_id, category, text, to });
        }
        let (outcome, mut text, annotations) = match result {
            Ok(output) => (CallOutcome::Done, output.text, output.annotations),
            Err(error) => (CallOutcome::Failed { category: error.category }, error.message, Vec::new()),
        };
        let call = self.run.open_calls().iter().find(|call| call.request.id == call_id);
        // A program needs no advice.
        if let Some(again) = call.and_then(|call| self.run.top().repeats.again(&call.request, outcome, &text, ms)) {
            text.push_str(&repeats::remark(again, self.run.next_after_repeat()));
        }
        self.record(Entry::CallEnded { call_id, outcome, text, annotations, ms });
    }

    /// A call that was stopped in the middle counts as one whose worker died in the middle of it.
    fn interrupted(&mut self, call_id: String, said: &str, ms: u64) {
        if self.run.open_call(&call_id).is_some_and(|call| call.effect.is_some_and(EffectClass::repeatable)) {
            // It simply runs again.
            return;
        }
        let text = format!("{UNKNOWN}\n{said}");
        self.record(Entry::CallEnded { call_id, outcome: CallOutcome::Unknown, text, annotations: Vec::new(), ms });
    }

    /// A call that its worker could not begin is made again, by the next attempt. One whose start must not be taken for
    /// an effect becomes a call of its own for that.
    fn not_run(&mut self, call_id: String, why: String) -> Effect {
        let open = self.run.open_call(&call_id).cloned();
        let mut before = 0;
        if let Some(OpenCall { request, effect: effect @ Some(class), not_run, .. }) = open
            && !class.repeatable()
        {
            before = not_run;
            let request = CallRequest { id: reply::call_id(self.run.calls_made), ..request };
            let (category, to) = (ToolErrorCategory::Failed, Call { request, effect });
            self.record(Entry::FellBack { call_id, category, text: why.clone(), to });
        }
        Effect::FailAttempt { reason: why, again: Again::after_lack(before) }
    }

    /// The call of the persona's other tool in place of one that failed, if the arguments fit that too.
    fn fallback(&self, call_id: &str, error: &ToolError, check: &dyn Fn(&CallRequest) -> Verdict) -> Option<Call> {
        let open = self.run.open_call(call_id)?;
        if error.category == ToolErrorCategory::Stopped {
            return None;
        }
        let fallbacks = &self.run.opening()?.persona.fallback_tools;
        // Each tool once, so that two that are named for each other do not take turns for ever.
        let first = phase::action(open.asked()).map_or_else(|| open.asked().name.clone(), |action| action.name);
        let mut tried = vec![&first];
        while tried[tried.len() - 1] != &open.request.name {
            tried.push(fallbacks.get(tried[tried.len() - 1]).filter(|next| !tried.contains(next))?);
        }
        let name = fallbacks.get(&open.request.name).filter(|next| !tried.contains(next))?.clone();
        self.run.tools().find(|tool| tool.spec.name == name)?;
        let request = CallRequest { id: reply::call_id(self.run.calls_made), name, ..open.request.clone() };
        let effect = Some(check(&request).ok()?);
        Some(Call { request, effect })
    }

    fn counted(&mut self, tokens: Option<Vec<u64>>) {
        let (mut tools, mut messages) = (None, Vec::new());
        for (ToCount { message, texts }, tokens) in self.run.to_count().into_iter().zip(tokens.unwrap_or_default()) {
            let bytes = texts.iter().map(String::len).sum();
            match message {
                _ if !tokens::may_have(bytes, tokens) => {}
                None => tools = Some(tokens),
                Some(at) => messages.push(Count { at, bytes, tokens }),
            }
        }
        self.tokenizer_silent = tools.is_none() && messages.is_empty();
        if !self.tokenizer_silent {
            self.record(Entry::Counted { tools, messages });
        }
    }

    /// Puts a summary where it belongs. Without one, what can be told without a model.
    fn summarised(&mut self, text: Option<String>) {
        let accept = |run: &Run, cut: &Cut| {
            let replaced = &run.messages()[cut.from..cut.to];
            compaction::accept(text.as_deref().unwrap_or_default(), replaced, cut.most, &|message| run.count(message))
        };
        if let Some(reason) = self.run.replan_reason() {
            let summary = accept(self.run, &self.run.failed_try());
            return self.record(Entry::Replanned { reason, summary });
        }
        if let Ok(Decision::Summarise(cut)) = self.run.fit() {
            let summary = accept(self.run, &cut);
            self.record(Entry::Compacted { cut, summary });
        }
    }

    /// What follows from the state: calls before the next request, limits before either.
    fn advance(&mut self) -> Effect {
        loop {
            if self.run.ended().is_some() {
                return Effect::End;
            }
            if self.run.program().is_some() {
                return self.next_of_program();
            }
            if self.run.open_calls().iter().any(|call| call.started) {
                return Effect::Wait;
            }
            if self.run.asked().is_some() {
                return Effect::Suspend;
            }
            if self.take_step() {
                continue;
            }
            if self.run.top().corrections > MAX_CORRECTIONS {
                let tries = plural(self.run.top().corrections.into(), "try");
                let reason = format!("the model made no valid step in {tries} in a row");
                self.end_without(EndStatus::Failed, self.run.left(), reason);
                continue;
            }
            if let Some(call) = self.run.open_calls().first().cloned() {
                match self.take_up(call) {
                    Some(effect) => return effect,
                    None => continue,
                }
            }
            if let Some(reason) = self.stuck() {
                self.end_without(EndStatus::Stuck, self.run.left(), reason);
                continue;
            }
            if let Some(limit) = self.run.limit() {
                self.end_at(limit);
                continue;
            }
            if !self.tokenizer_silent {
                let to_count = self.run.to_count();
                if !to_count.is_empty() {
                    return Effect::Count(to_count);
                }
            }
            match self.run.fit() {
                Ok(Decision::Send) => return Effect::AskModel,
                Ok(Decision::Summarise(cut)) => return Effect::Summarise(self.run.summary(Purpose::Compaction, cut)),
                Ok(Decision::Shorten(shortenings)) => self.record(Entry::Shortened { shortenings }),
                Err(reason) => self.end_run_without(EndStatus::Failed, self.run.said(), reason),
            }
        }
    }

    /// Takes the step that is next, if it is one that runs nothing; tells whether it was.
    fn take_step(&mut self) -> bool {
        let next = self.run.open_calls().first();
        let Some((call, step)) = next.and_then(|call| Some((call, self.run.told_step(call)?))) else { return false };
        let call_id = call.request.id.clone();
        let text = self.run.phased.acknowledge(&step);
        self.answer(call_id, CallOutcome::Done, text);
        true
    }

    /// Takes up the first open call, together with those beside it that only read.
    fn take_up(&mut self, first: OpenCall) -> Option<Effect> {
        let id = first.request.id.clone();
        if first.effect.is_some() {
            let pure = |call: &&OpenCall| call.effect == Some(EffectClass::Pure);
            let open = self.run.open_calls();
            let mut batch: Vec<_> = open.iter().take_while(pure).take(MAX_TOGETHER).cloned().collect();
            if batch.is_empty() {
                batch.push(first);
            }
            self.begin_calls(&mut batch);
            return Some(Effect::RunCalls(batch));
        }
        if self.run.begins_skill(&first.request) {
            self.record(Entry::SkillBegan { call_id: id });
            return None;
        }
        if let Some(reason) = self.run.replan_reason() {
            let cut = self.run.failed_try();
            return Some(Effect::Summarise(self.run.summary(Purpose::FailedAttempt { reason }, cut)));
        }
        // Only a damaged journal leaves a call that nothing can be done about.
        self.refuse(id, LEFT_OPEN.into());
        None
    }

    /// The one place where calls begin, the model's and a program's: whatever has one wait first belongs here. One that has
    /// not begun stays as it is while its run is suspended, a program's too, which is run again up to it.
    fn begin_calls(&mut self, calls: &mut [OpenCall]) {
        for call in calls {
            self.record(Entry::CallStarted { call_id: call.request.id.clone() });
            call.started = true;
        }
    }

    /// Why the conversation at work goes in circles, if it does.
    fn stuck(&self) -> Option<String> {
        let (call, times) = self.run.top().repeats.stuck()?;
        let (name, arguments) = (&call.name, shown(&call.arguments));
        Some(format!(
            "stuck: the call {name} {arguments} was made {} with the same result, and nothing new came in between",
            plural(times.into(), "time")
        ))
    }

    /// Ends a call that ran nothing just now.
    fn answer(&mut self, call_id: String, outcome: CallOutcome, text: String) {
        self.record(Entry::CallEnded { call_id, outcome, text, annotations: Vec::new(), ms: 0 });
    }

    fn refuse(&mut self, call_id: String, text: String) {
        self.answer(call_id, CallOutcome::Refused, text);
    }

    /// Ends the conversation at work: the run, or the skill whose result its caller waits for.
    fn end(&mut self, status: EndStatus, text: String, reason: Option<String>) {
        let Some(call_id) = self.run.top().call_id.clone() else { return self.end_run(status, text, reason) };
        self.leave_calls();
        let (outcome, text) = match status {
            EndStatus::Completed | EndStatus::Partial => (CallOutcome::Done, text),
            _ => {
                let why = reason.unwrap_or_else(|| status.as_str().into());
                let said = if text.is_empty() { String::new() } else { format!(" Its last words: {text}") };
                let category = ToolErrorCategory::Failed;
                (CallOutcome::Failed { category }, format!("The skill did not finish: {why}.{said}"))
            }
        };
        self.answer(call_id, outcome, text);
    }

    /// Ends the run, whatever skills are at work.
    fn end_run(&mut self, status: EndStatus, text: String, reason: Option<String>) {
        self.leave_calls();
        while let Some(call_id) = self.run.top().call_id.clone() {
            let outcome = CallOutcome::Failed { category: ToolErrorCategory::Stopped };
            self.answer(call_id, outcome, finish::RUN_ENDED.into());
            self.leave_calls();
        }
        self.record(Entry::Ended { status, text, reason });
    }

    /// Tells of calls that were going to run that the end came first.
    fn leave_calls(&mut self) {
        let waits = |call: &&OpenCall| call.effect.is_some() && !call.started;
        while let Some(call_id) = self.run.open_calls().iter().find(waits).map(|call| call.request.id.clone()) {
            self.refuse(call_id, finish::RUN_ENDED.into());
        }
    }
}

/// Arguments as a reason quotes them: their beginning.
fn shown(arguments: &str) -> String {
    const MOST: usize = 200;
    match arguments.len() > MOST {
        true => format!("{}…", head(arguments, MOST)),
        false => arguments.to_owned(),
    }
}

const UNKNOWN: &str = "This call was in progress when its worker stopped. It may or may not have taken effect. \
                       Check before you repeat it.";

const LEFT_OPEN: &str = "This call was not run: what it asked for is no longer known.";
