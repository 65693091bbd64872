//! The run machine: from a state and an input to entries and one effect. Pure.
//!
//! The caller commits the entries, then performs the effect, then comes back with its result. If
//! the process dies in between, the journal says which: an effect whose start is recorded may have
//! happened, any other has not.

use std::sync::Arc;
use std::time::Duration;

use super::{OpenCall, Run, finish, structured};
use crate::journal::{Call, CallOutcome, EndStatus, Entry, Opening, Turn};
use crate::model::{CallRequest, Finish, ModelError, ModelErrorKind, ModelReply, ToolCalling};
use crate::tool::{EffectClass, ToolError, ToolOutput};

/// Corrections in a row (bad steps, refused calls, empty replies) before a run is given up.
pub const MAX_CORRECTIONS: u32 = 6;

/// Identical reading calls, with nothing changed in between, of which the last still runs. The
/// next one is refused; the one after the last refusal that [`MAX_CORRECTIONS`] allows ends the run.
pub const MAX_REPEATS: u32 = 2;

/// Calls of one reply that may run; those after them are refused.
pub const MAX_CALLS: usize = 64;

/// Reading calls that run at once.
const MAX_TOGETHER: usize = 16;

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It may; this is the tool's effect class.
    Run(EffectClass),
    /// It may not, for the reason the model is told.
    Refuse(String),
}

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
    },
    /// The model could not be brought to reply.
    ModelFailed {
        /// What went wrong.
        error: ModelError,
        /// How long it took, in milliseconds.
        ms: u64,
    },
    /// A running call ended.
    CallEnded {
        /// The call's id.
        call_id: String,
        /// What it gave.
        result: Result<ToolOutput, ToolError>,
        /// How long it ran, in milliseconds.
        ms: u64,
    },
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Ask the model with [`Run::request`].
    AskModel,
    /// Run these calls, all at once; report each as it ends.
    RunCalls(Vec<OpenCall>),
    /// Wait: calls are still running.
    Wait,
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

/// Whether another attempt at a failed piece of work may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Not by itself.
    Never,
    /// After the usual wait; it counts as a failed attempt.
    Later,
    /// Not before this time has passed. Nothing is wrong with the job, so no attempt is spent.
    After(Duration),
}

impl Again {
    /// What a model's failure means for the work that needed it.
    pub fn after(kind: ModelErrorKind, retry_after: Option<Duration>) -> Again {
        match kind {
            ModelErrorKind::RateLimited => retry_after.map_or(Again::Later, Again::After),
            // A person has to mend a key or an account; the job tries again by itself meanwhile.
            ModelErrorKind::Unauthorized => Again::After(WAIT_FOR_CREDENTIALS),
            ModelErrorKind::Transient | ModelErrorKind::Stopped | ModelErrorKind::InvalidToolCall => Again::Later,
            ModelErrorKind::ContextOverflow | ModelErrorKind::Rejected => Again::Never,
        }
    }
}

const WAIT_FOR_CREDENTIALS: Duration = Duration::from_secs(15 * 60);

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
    let mut recorder = Recorder { run, entries: Vec::new() };
    let effect = match input {
        Input::Begun { goal, opening } => {
            recorder.record(Entry::Began { goal: goal.into(), opening });
            None
        }
        Input::PickedUp => recorder.picked_up(),
        Input::Replied { reply, ms, check } => {
            recorder.replied(reply, ms, check);
            None
        }
        Input::ModelFailed { error, ms } => recorder.model_failed(error, ms),
        Input::CallEnded { call_id, result, ms } => {
            recorder.call_ended(call_id, result, ms);
            None
        }
    };
    let effect = effect.unwrap_or_else(|| recorder.advance());
    Step { entries: recorder.entries, effect }
}

struct Recorder<'r> {
    run: &'r mut Run,
    entries: Vec<Entry>,
}

impl Recorder<'_> {
    fn record(&mut self, entry: Entry) {
        self.run.apply(&entry);
        self.entries.push(entry);
    }

    fn picked_up(&mut self) -> Option<Effect> {
        // Whatever was started and has not ended was in flight when the last worker stopped.
        let in_flight = self.run.open_calls().iter().filter(|c| c.started).cloned();
        let (again, unknown): (Vec<_>, Vec<_>) = in_flight.partition(|c| c.effect.is_some_and(EffectClass::repeatable));
        for call in unknown {
            self.record(Entry::CallEnded {
                call_id: call.request.id,
                outcome: CallOutcome::Unknown,
                text: UNKNOWN.into(),
                annotations: Vec::new(),
                ms: 0,
            });
        }
        (!again.is_empty()).then_some(Effect::RunCalls(again))
    }

    fn replied(&mut self, reply: ModelReply, ms: u64, check: &dyn Fn(&CallRequest) -> Verdict) {
        let structured = self.run.calling() == ToolCalling::Structured;
        let finish = reply.finish.clone();
        let mut turn = Turn {
            text: reply.text,
            reasoning: reply.reasoning,
            calls: Vec::new(),
            cut_calls: Vec::new(),
            finish: reply.finish,
            usage: reply.usage,
            model: reply.model,
            cost_microusd: reply.cost_microusd,
            failed_tries: reply.failed_tries,
            ms,
        };
        if let Some(refusal) = reply.refusal {
            turn.text = refusal.clone();
            self.record(Entry::Turn(turn));
            return self.end(EndStatus::Refused, refusal.clone(), Some(format!("the model refused: {refusal}")));
        }
        match finish {
            Finish::ContentFilter => {
                let text = turn.text.clone();
                self.record(Entry::Turn(turn));
                let reason = "the provider's content filter stopped the reply; reword the goal or use another model";
                return self.end(EndStatus::Refused, text, Some(reason.into()));
            }
            Finish::Length => {
                let note = cut_note(&turn, &reply.calls);
                turn.cut_calls = reply.calls;
                self.record(Entry::Turn(turn));
                return self.record(Entry::Note { text: note });
            }
            _ => {}
        }
        let calls = if structured {
            match structured::parse(&turn.text) {
                Ok(step) => vec![structured::call(&step)],
                Err(note) => {
                    self.record(Entry::Turn(turn));
                    return self.record(Entry::Note { text: note });
                }
            }
        } else {
            reply.calls
        };
        if calls.is_empty() {
            let text = turn.text.trim().to_owned();
            self.record(Entry::Turn(turn));
            return match text.is_empty() {
                true => self.record(Entry::Note { text: EMPTY_REPLY.into() }),
                false => self.end(EndStatus::Completed, text, None),
            };
        }
        self.take_calls(turn, calls, check);
    }

    /// Gives every call an id of our own, whatever the provider sent, and decides about each.
    fn take_calls(&mut self, mut turn: Turn, calls: Vec<CallRequest>, check: &dyn Fn(&CallRequest) -> Verdict) {
        let alone = calls.len() == 1;
        let mut answer = None;
        let mut refusals = Vec::new();
        for (i, mut request) in calls.into_iter().enumerate() {
            request.id = call_id(self.run.calls_made + i as u64);
            let verdict = match request.name.as_str() {
                _ if i >= MAX_CALLS => Err(format!("Not run: one reply may make at most {MAX_CALLS} calls.")),
                finish::FINISH if !alone => Err(FINISH_NOT_ALONE.into()),
                finish::FINISH => match finish::answer(&request.arguments) {
                    Ok(text) => {
                        answer = Some(text);
                        Ok(None)
                    }
                    Err(error) => Err(error.message),
                },
                _ => match check(&request) {
                    Verdict::Run(EffectClass::Pure) if self.run.repeats(&request) >= MAX_REPEATS => Err(format!(
                        "Not run: you have made this same call {MAX_REPEATS} times and nothing has changed since. {NEXT}"
                    )),
                    Verdict::Run(effect) => Ok(Some(effect)),
                    Verdict::Refuse(why) => Err(why),
                },
            };
            let effect = match verdict {
                Ok(effect) => effect,
                Err(why) => {
                    refusals.push((request.id.clone(), why));
                    None
                }
            };
            turn.calls.push(Call { request, effect });
        }
        self.record(Entry::Turn(turn));
        if let Some(text) = answer {
            return self.end(EndStatus::Completed, text, None);
        }
        for (call_id, text) in refusals {
            let outcome = CallOutcome::Refused;
            self.record(Entry::CallEnded { call_id, outcome, text, annotations: Vec::new(), ms: 0 });
        }
    }

    fn model_failed(&mut self, error: ModelError, ms: u64) -> Option<Effect> {
        let ModelError { kind, message, failed_tries, retry_after, .. } = error;
        if kind == ModelErrorKind::Stopped && failed_tries.is_empty() {
            return Some(Effect::FailAttempt { reason: message, again: Again::Later });
        }
        self.record(Entry::TurnFailed { reason: message.clone(), failed_tries, ms });
        if self.run.limit_reached().is_some() {
            return None;
        }
        let again = match kind {
            ModelErrorKind::InvalidToolCall => {
                self.record(Entry::Note { text: format!("{BAD_CALL}\n{message}") });
                return None;
            }
            _ => Again::after(kind, retry_after),
        };
        Some(Effect::FailAttempt { reason: message, again })
    }

    fn call_ended(&mut self, call_id: String, result: Result<ToolOutput, ToolError>, ms: u64) {
        let (outcome, mut text, annotations) = match result {
            Ok(output) => (CallOutcome::Done, output.text, output.annotations),
            Err(error) => (CallOutcome::Failed { category: error.category }, error.message, Vec::new()),
        };
        // The first two words of a habit: said while the call still runs, so that a reader who
        // really has to look again can.
        let call = self.run.open_calls().iter().find(|call| call.request.id == call_id);
        if let Some(call) = call.filter(|call| call.effect == Some(EffectClass::Pure))
            && self.run.repeats(&call.request) > 1
        {
            text.push_str("\n\nYou had made this same call before, and nothing has changed since. ");
            text.push_str(NEXT);
        }
        self.record(Entry::CallEnded { call_id, outcome, text, annotations, ms });
    }

    /// What follows from the state: calls before the next request, limits before either.
    fn advance(&mut self) -> Effect {
        if self.run.ended().is_some() {
            return Effect::End;
        }
        let open = self.run.open_calls();
        if open.iter().any(|call| call.started) {
            return Effect::Wait;
        }
        if self.run.corrections > MAX_CORRECTIONS {
            let last = self.run.last_text.clone();
            let tries = self.run.corrections;
            let reason = match self.run.last_repeated() {
                Some(call) => {
                    format!("stuck: repeated call {} {}, refused {tries} times in a row", call.name, call.arguments)
                }
                None => format!("the model made no valid step in {tries} tries in a row"),
            };
            self.end(EndStatus::Failed, last, Some(reason));
            return Effect::End;
        }
        let pure = |call: &&OpenCall| call.effect == Some(EffectClass::Pure);
        let mut batch: Vec<_> = open.iter().take_while(pure).take(MAX_TOGETHER).cloned().collect();
        if batch.is_empty() {
            batch.extend(open.first().cloned());
        }
        if batch.is_empty() {
            let Some(reason) = self.run.limit_reached() else { return Effect::AskModel };
            let last = self.run.last_text.clone();
            self.end(EndStatus::LimitReached, last, Some(reason));
            return Effect::End;
        }
        for call in &mut batch {
            self.record(Entry::CallStarted { call_id: call.request.id.clone() });
            call.started = true;
        }
        Effect::RunCalls(batch)
    }

    fn end(&mut self, status: EndStatus, text: String, reason: Option<String>) {
        self.record(Entry::Ended { status, text, reason });
    }
}

/// The id of the `n`th call of a run: `c` and eight letters or digits. Nine of `[a-z0-9]` is the
/// one shape that every provider takes, those that check it included.
fn call_id(mut n: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut id = *b"c00000000";
    for place in id[1..].iter_mut().rev() {
        *place = DIGITS[(n % 36) as usize];
        n /= 36;
    }
    String::from_utf8_lossy(&id).into_owned()
}

fn cut_note(turn: &Turn, cut: &[CallRequest]) -> String {
    let limit = turn.usage.output;
    let what = match cut.first() {
        Some(call) => format!("your call of {} was cut off and has not been run", call.name),
        None => "your reply was cut off".to_owned(),
    };
    format!(
        "The token limit was reached after {limit} tokens: {what}. Make it shorter, or do it in several smaller steps."
    )
}

const UNKNOWN: &str = "This call was in progress when its worker stopped. It may or may not have taken effect. \
                       Check before you repeat it.";

const NEXT: &str =
    "Do not make it again: its result is above. If you know the answer, call `finish`; if not, do something different.";

const EMPTY_REPLY: &str = "Your reply was empty. Call a tool, or call `finish` with the complete answer.";

const FINISH_NOT_ALONE: &str =
    "finish was not accepted: call it alone, after you have seen the results of the other calls.";

const BAD_CALL: &str = "Your last reply could not be read as a tool call. Try again with valid JSON arguments. \
                        The provider said:";
