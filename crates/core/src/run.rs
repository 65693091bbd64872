//! A run: an agent's work on a job, across attempts, as a pure machine over its journal.
//!
//! [`Run`] is a projection: it changes only by [`Run::apply`], one journal entry at a time, so
//! applying a stored journal gives the state that the live run had. What to do next follows from
//! the state alone ([`machine::step`]), which is why a run can be picked up cold at any entry.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::Millis;
use crate::job::Output;
use crate::journal::{CallOutcome, EndStatus, Entry, Opening, Recorded, Turn};
use crate::model::{CallRequest, Message, ModelRequest, ToolCalling, Usage};
use crate::tool::EffectClass;

pub mod compaction;
pub mod finish;
pub mod machine;
pub mod memory;
pub mod phase;
pub mod prompt;
pub mod signals;
pub mod structured;

/// A call that has been asked for and has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// Our id, name, arguments, the provider's private data.
    pub request: CallRequest,
    /// The tool's effect class; absent for the final answer, which no tool runs.
    pub effect: Option<EffectClass>,
    /// Whether its start has been recorded.
    pub started: bool,
}

/// The state of a run: everything its journal says, added up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    next_seq: u64,
    goal: String,
    opening: Option<Arc<Opening>>,
    messages: Vec<Message>,
    open: Vec<OpenCall>,
    calls_made: u64,
    corrections: u32,
    /// Whether the last reply has been counted in `corrections`.
    corrected_turn: bool,
    turns: u32,
    usage: Usage,
    cost_microusd: Option<u64>,
    worked_ms: u64,
    tools_used: BTreeSet<String>,
    last_text: String,
    ended: Option<Ended>,
    /// Reading calls since something last changed, by [`fingerprint`], with how often each was made.
    reads: BTreeMap<String, u32>,
    /// The call that was last asked for.
    last_call: Option<CallRequest>,
    /// What had been used when the run was last reopened; limits count from there.
    spent_before: Spent,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// How.
    pub status: EndStatus,
    /// The answer, or the last words there were.
    pub text: String,
    /// Why, when it is not plainly the answer.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Spent {
    turns: u32,
    tokens: u64,
    ms: u64,
}

impl Run {
    /// The run that a journal tells of.
    pub fn replay<'a>(journal: impl IntoIterator<Item = &'a Recorded>) -> Run {
        let mut run = Run::default();
        for recorded in journal {
            run.apply(&recorded.entry);
        }
        run
    }

    /// Takes in the next entry. The only way a run changes.
    pub fn apply(&mut self, entry: &Entry) {
        self.next_seq += 1;
        match entry {
            Entry::Began { goal, opening } => {
                self.goal = goal.clone();
                self.messages = vec![Message::System { text: opening.system.clone() }];
                self.messages.extend_from_slice(&opening.examples);
                self.messages.push(Message::User { text: prompt::task(goal) });
                self.opening = Some(Arc::clone(opening));
            }
            Entry::Turn(turn) => self.apply_turn(turn),
            Entry::TurnFailed { failed_tries, ms, .. } => {
                failed_tries.iter().for_each(|failed| self.usage.add(&failed.usage));
                self.worked_ms += ms;
            }
            Entry::CallStarted { call_id } => {
                if let Some(call) = self.open.iter_mut().find(|c| c.request.id == *call_id) {
                    call.started = true;
                    match call.effect {
                        Some(EffectClass::Pure) => *self.reads.entry(fingerprint(&call.request)).or_default() += 1,
                        _ => self.reads.clear(),
                    }
                    self.tools_used.insert(call.request.name.clone());
                }
            }
            Entry::CallEnded { call_id, outcome, text, ms, .. } => {
                self.worked_ms += ms;
                if *outcome != CallOutcome::Refused {
                    self.corrections = 0;
                } else if !std::mem::replace(&mut self.corrected_turn, true) {
                    // Once for each reply, however many of its calls were wrong: it has not been told yet.
                    self.corrections += 1;
                }
                if let Some(at) = self.open.iter().position(|c| c.request.id == *call_id) {
                    let call = self.open.remove(at);
                    self.push_result(&call.request, text);
                }
            }
            Entry::Note { text } => {
                self.corrections += 1;
                self.messages.push(Message::User { text: text.clone() });
            }
            Entry::Ended { status, text, reason } => {
                for call in std::mem::take(&mut self.open) {
                    self.push_result(&call.request, finish::RUN_ENDED);
                }
                self.ended = Some(Ended { status: *status, text: text.clone(), reason: reason.clone() });
            }
            Entry::Reopened => {
                self.ended = None;
                self.corrections = 0;
                self.reads.clear();
                self.spent_before = Spent { turns: self.turns, tokens: self.usage.total(), ms: self.worked_ms };
                self.messages.push(Message::User { text: prompt::GO_ON.into() });
            }
        }
    }

    fn apply_turn(&mut self, turn: &Turn) {
        self.turns += 1;
        self.corrected_turn = false;
        self.worked_ms += turn.ms;
        self.usage.add(&turn.usage);
        turn.failed_tries.iter().for_each(|failed| self.usage.add(&failed.usage));
        if let Some(cost) = turn.cost_microusd {
            *self.cost_microusd.get_or_insert(0) += cost;
        }
        self.calls_made += turn.calls.len() as u64;
        self.last_call = turn.calls.last().map(|call| call.request.clone());
        self.open.extend(turn.calls.iter().map(|call| OpenCall {
            request: call.request.clone(),
            effect: call.effect,
            started: false,
        }));
        let calls: Vec<_> = match self.calling() {
            ToolCalling::Native => turn.calls.iter().map(|c| c.request.clone()).collect(),
            ToolCalling::Structured => Vec::new(),
        };
        if turn.text.trim().is_empty() && calls.is_empty() {
            return;
        }
        if turn.calls.is_empty() {
            self.last_text = turn.text.clone();
        }
        self.messages.push(Message::Assistant { text: turn.text.clone(), reasoning: turn.reasoning.clone(), calls });
    }

    fn push_result(&mut self, call: &CallRequest, text: &str) {
        let text = if text.is_empty() { "(no output)" } else { text };
        self.messages.push(match self.calling() {
            ToolCalling::Native => {
                Message::Tool { call_id: call.id.clone(), name: call.name.clone(), text: text.into() }
            }
            ToolCalling::Structured => Message::User { text: structured::result(&call.name, text) },
        });
    }

    fn calling(&self) -> ToolCalling {
        self.opening.as_ref().map_or(ToolCalling::Native, |o| o.calling)
    }

    /// The place of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// What it works with, once it has begun.
    pub fn opening(&self) -> Option<&Arc<Opening>> {
        self.opening.as_ref()
    }

    /// The conversation so far, in sending order.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Calls that have not ended, in the order asked for.
    pub fn open_calls(&self) -> &[OpenCall] {
        &self.open
    }

    /// How often this reading call has been made since something last changed.
    fn repeats(&self, call: &CallRequest) -> u32 {
        self.reads.get(&fingerprint(call)).copied().unwrap_or(0)
    }

    /// The call asked for last, if it is one that was made too often.
    fn last_repeated(&self) -> Option<&CallRequest> {
        self.last_call.as_ref().filter(|call| self.repeats(call) >= machine::MAX_REPEATS)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Model replies so far.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Tokens so far, failed tries included.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The next model request, as the state stands.
    pub fn request(&self) -> ModelRequest {
        let Some(opening) = &self.opening else { return ModelRequest::default() };
        let mut request = ModelRequest {
            messages: self.messages.clone(),
            max_tokens: opening.persona.max_reply_tokens,
            temperature: opening.persona.temperature,
            ..ModelRequest::default()
        };
        if let Some(max) = opening.persona.limits.max_tokens {
            let used = self.usage.total().saturating_sub(self.spent_before.tokens);
            let left = u32::try_from(max.saturating_sub(used)).unwrap_or(u32::MAX).max(1);
            request.max_tokens = Some(request.max_tokens.map_or(left, |asked| asked.min(left)));
        }
        match opening.calling {
            ToolCalling::Native => {
                request.tools = opening.tools.iter().map(|t| t.spec.clone()).collect();
                request.tools.push(finish::spec());
                request.tools.sort_by(|a, b| a.name.cmp(&b.name));
            }
            ToolCalling::Structured => {
                // A small model that falls into a loop inside a string would never stop by itself.
                request.max_tokens.get_or_insert(structured::MAX_STEP_TOKENS);
                let habit = self.last_repeated().map(|call| call.name.as_str());
                request.schema = Some(structured::schema(&opening.tools, habit));
            }
        }
        request
    }

    /// What the job leaves behind as the state stands.
    pub fn output(&self) -> Output {
        let (status, text) = match &self.ended {
            Some(ended) => (ended.status.as_str().to_owned(), ended.text.clone()),
            None => ("unfinished".to_owned(), self.last_text.clone()),
        };
        Output {
            text,
            status,
            tools_used: self.tools_used.iter().cloned().collect(),
            turns: self.turns,
            usage: self.usage,
            cost_microusd: self.cost_microusd,
        }
    }

    /// Which limit is reached, in words, if one is.
    pub fn limit_reached(&self) -> Option<String> {
        let limits = &self.opening.as_ref()?.persona.limits;
        let turns = self.turns - self.spent_before.turns;
        let tokens = self.usage.total().saturating_sub(self.spent_before.tokens);
        let ms = self.worked_ms - self.spent_before.ms;
        if turns >= limits.max_turns {
            return Some(format!("the limit of {} model turns is reached (limits.max_turns)", limits.max_turns));
        }
        if let Some(max) = limits.max_tokens.filter(|max| tokens >= *max) {
            return Some(format!("the limit of {max} tokens is reached: {tokens} used (limits.max_tokens)"));
        }
        let max = limits.max_seconds.filter(|max| ms >= max.saturating_mul(1000))?;
        Some(format!("the limit of {max} s of work is reached: {} s used (limits.max_seconds)", ms / 1000))
    }

    /// Milliseconds of work left before the time limit, if there is one.
    pub fn time_left(&self) -> Option<Millis> {
        let max = self.opening.as_ref()?.persona.limits.max_seconds?;
        let used = self.worked_ms - self.spent_before.ms;
        Some(i64::try_from(max.saturating_mul(1000).saturating_sub(used)).unwrap_or(Millis::MAX))
    }
}

/// A call's tool and arguments, the same for every order of keys and spacing.
fn fingerprint(call: &CallRequest) -> String {
    fn sorted(value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields: BTreeMap<_, _> = fields.into_iter().map(|(k, v)| (k, sorted(v))).collect();
                fields.into_iter().collect()
            }
            Value::Array(items) => items.into_iter().map(sorted).collect(),
            other => other,
        }
    }
    let arguments = serde_json::from_str(&call.arguments).map(sorted);
    format!("{} {}", call.name, arguments.map_or_else(|_| call.arguments.clone(), |value| value.to_string()))
}
