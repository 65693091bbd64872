//! A conversation that can always be sent.
//!
//! Providers refuse a whole request over one message they do not like, and then refuse it for ever.
//! So every request is made from what a [`Normaliser`] gives for its conversation, whatever the
//! conversation went through: a crash, a row deleted by hand, a change of provider in the middle.
//!
//! What no provider minds is done for all of them: system messages in front alone; a user
//! message behind them, and a user message or a result last; nothing empty; calls whose results follow
//! them, each once and in order; ids, names and arguments of a shape that everybody takes. Where
//! providers want opposite things, [`Rules`] say which.
//!
//! What that makes a request longer by is known beforehand: a run keeps a message as `sendable` makes
//! it, which is how it goes out, and `added` and `added_around` are the most that is put beside it.
//!
//! Everything here is a function of the messages from the first one on. The same conversation gives
//! the same bytes in every request and after every restart, and a longer one begins with them, which
//! is what a provider's prompt cache needs.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::HashSet;

use crate::model::tokens;
use crate::model::{Author, CallRequest, Extra, Message, Reasoning};

mod messages;

pub use messages::Conversation;

/// Where providers differ in the conversations they take. The default is what most of them do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether a user message may stand directly behind a result. Mistral refuses that; words are put between them.
    pub user_after_tool: bool,
    /// Whether user and assistant must take turns. Neighbours of one role are then made one message.
    pub take_turns: bool,
    /// What becomes of a model's reasoning when the conversation goes on.
    pub reasoning: ReasoningBack,
    /// Whether there may be several system messages in front. Most servers render a model's own
    /// template, and many of those refuse a second one; so they are made one unless it is known that
    /// it may stand.
    pub several_systems: bool,
    /// Whether a reply's calls must carry a signature, as Google's must; those of others get Google's stand-in.
    pub signed_calls: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            user_after_tool: true,
            take_turns: false,
            reasoning: ReasoningBack::Forbidden,
            several_systems: false,
            signed_calls: false,
        }
    }
}

/// What becomes of a model's reasoning when the conversation goes on. It only ever goes back to the
/// model that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningBack {
    /// It must go back; an assistant message that has none of this model's gets a stand-in.
    Required,
    /// It goes back where there is some, and need not.
    Optional,
    /// It is not sent.
    Forbidden,
}

/// Every message of a conversation as `reader` takes it.
///
/// A conversation that is legal already comes back as it is; doing it twice changes nothing more.
pub fn normalise<'a>(messages: impl IntoIterator<Item = &'a Message>, rules: Rules, reader: &Author) -> Vec<Message> {
    let mut normaliser = Normaliser::new(rules, reader.clone());
    let mut out = Vec::new();
    messages.into_iter().for_each(|message| normaliser.push(message, &mut out));
    normaliser.rest(None, &mut out);
    out
}

/// A message as everybody takes it: what a request has of it is no longer than this.
pub(crate) fn sendable(mut message: Message) -> Message {
    match &mut message {
        Message::System { .. } | Message::User { .. } => {}
        Message::Assistant { calls, .. } => {
            for call in calls {
                call.name = sendable_name(&call.name);
                call.arguments = sendable_arguments(&call.arguments);
            }
        }
        Message::Tool { name, text, .. } => {
            *name = sendable_name(name);
            if is_blank(text) {
                *text = NO_OUTPUT.into();
            }
        }
    }
    message
}

/// Most tokens, estimated, of what any provider's rules add to a message that stands behind `before`.
pub(crate) fn added(before: Option<&Message>, message: &Message) -> u64 {
    match message {
        Message::System { .. } | Message::User { .. } => added_behind(before),
        Message::Assistant { .. } => tokens::text(NO_REASONING),
        Message::Tool { .. } => 0,
    }
}

/// The same of a user message that is not there yet.
pub(crate) fn added_behind(before: Option<&Message>) -> u64 {
    match before {
        Some(Message::Tool { .. }) => tokens::words(BETWEEN) + tokens::text(NO_REASONING),
        _ => 0,
    }
}

/// Most tokens of what is added before a conversation and behind it.
pub(crate) fn added_around() -> u64 {
    tokens::words(BEGIN) + tokens::words(GO_ON)
}

/// Makes a conversation legal, one message at a time.
///
/// It works in rounds: what the model said, the results of its calls, and what people said then. A
/// round stays open until the next one begins, since a result may come late; what came before it is
/// given out for good. So a conversation that has grown costs what it has grown by.
#[derive(Debug, Clone)]
pub struct Normaliser {
    rules: Rules,
    reader: Author,
    /// Every call id given out.
    ids: HashSet<String>,
    /// Whether the first round is over.
    begun: bool,
    round: Round,
}

#[derive(Debug, Clone, Default)]
struct Round {
    /// Only in the first round.
    system: Vec<String>,
    /// In every round but the first.
    spoken: Option<Spoken>,
    /// What people said, and results that answer none of the calls.
    heard: Vec<String>,
}

#[derive(Debug, Clone)]
struct Spoken {
    text: String,
    reasoning: Option<Reasoning>,
    calls: Vec<Asked>,
}

#[derive(Debug, Clone)]
struct Asked {
    /// The id in the conversation, by which its result is known.
    id: String,
    /// The call as it is sent.
    call: CallRequest,
    result: Option<String>,
}

impl Normaliser {
    /// One for conversations with `reader`.
    pub fn new(rules: Rules, reader: Author) -> Self {
        Normaliser { rules, reader, ids: HashSet::new(), begun: false, round: Round::default() }
    }

    /// Takes the next message of the conversation, and gives to `out` what is settled by it.
    pub fn push(&mut self, message: &Message, out: &mut Vec<Message>) {
        match message {
            Message::System { text } | Message::User { text } if is_blank(text) => {}
            Message::System { text } if !self.begun => self.round.instruct(text, self.rules.several_systems),
            // Providers take system messages only in front.
            Message::System { text } | Message::User { text } => self.round.heard.push(text.clone()),
            Message::Assistant { text, calls, .. } if is_blank(text) && calls.is_empty() => {}
            Message::Assistant { text, reasoning, calls } => self.speak(text, reasoning.as_ref(), calls, out),
            Message::Tool { call_id, name, text } => self.round.answer(call_id, name, text),
        }
    }

    /// Gives to `out` what is still open, as it is sent if nothing more comes but the user's `tail`.
    pub fn rest(&self, tail: Option<&str>, out: &mut Vec<Message>) {
        self.write(tail, out);
        if matches!(out.last(), Some(Message::Assistant { .. })) {
            // A conversation that ends with the model's own words asks it for nothing.
            out.push(Message::User { text: GO_ON.into() });
        }
    }

    fn speak(&mut self, text: &str, reasoning: Option<&Reasoning>, calls: &[CallRequest], out: &mut Vec<Message>) {
        if !self.round.goes_on(self.rules.take_turns) {
            self.write(None, out);
            self.round = Round::default();
            self.begun = true;
        }
        let asked: Vec<_> = calls.iter().map(|call| self.ask(call)).collect();
        let reasoning = reasoning.filter(|reasoning| reasoning.by == self.reader && !is_blank(&reasoning.text));
        let empty = || Spoken { text: String::new(), reasoning: None, calls: Vec::new() };
        let spoken = self.round.spoken.get_or_insert_with(empty);
        // Anthropic refuses an assistant's text that ends in space.
        add(&mut spoken.text, text.trim_end());
        spoken.reasoning = spoken.reasoning.take().or_else(|| reasoning.cloned());
        spoken.calls.extend(asked);
    }

    fn ask(&mut self, call: &CallRequest) -> Asked {
        let extra = call.extra.as_ref().filter(|extra| extra.provider == self.reader.provider);
        let call_as_sent = CallRequest {
            id: self.fresh_id(&call.id),
            name: sendable_name(&call.name),
            arguments: sendable_arguments(&call.arguments),
            extra: extra.cloned(),
        };
        Asked { id: call.id.clone(), call: call_as_sent, result: None }
    }

    /// The call's id if no other call had it, else one made from it: the same in every request.
    fn fresh_id(&mut self, id: &str) -> String {
        if is_call_id(id) && self.ids.insert(id.to_owned()) {
            return id.to_owned();
        }
        let mut n = 0_u64;
        loop {
            let made = made_id(id, n);
            if self.ids.insert(made.clone()) {
                return made;
            }
            n += 1;
        }
    }

    /// Writes the round as it stands, with `more` that is heard.
    fn write(&self, more: Option<&str>, out: &mut Vec<Message>) {
        let Round { system, spoken, heard } = &self.round;
        let more = more.filter(|text| !is_blank(text));
        let heard: Vec<&str> = heard.iter().map(String::as_str).chain(more).collect();
        out.extend(system.iter().map(|text| Message::System { text: text.clone() }));
        match spoken {
            Some(spoken) => self.write_spoken(spoken, out),
            // The model may not be the first to speak.
            None if heard.is_empty() => out.push(Message::User { text: BEGIN.into() }),
            None => {}
        }
        let results = spoken.as_ref().is_some_and(|spoken| !spoken.calls.is_empty());
        if results && !heard.is_empty() && !self.rules.user_after_tool {
            out.push(self.assistant(BETWEEN.into(), None, Vec::new()));
        }
        if self.rules.take_turns && !heard.is_empty() {
            out.push(Message::User { text: heard.join(PARAGRAPH) });
        } else {
            out.extend(heard.into_iter().map(|text| Message::User { text: text.to_owned() }));
        }
    }

    fn write_spoken(&self, spoken: &Spoken, out: &mut Vec<Message>) {
        let mut calls: Vec<_> = spoken.calls.iter().map(|asked| asked.call.clone()).collect();
        // One signature stands for all calls of a reply.
        if let Some(first) = calls.first_mut().filter(|call| self.rules.signed_calls && call.extra.is_none()) {
            let value = json!({"google": {"thought_signature": UNSIGNED}});
            first.extra = Some(Extra { value, provider: self.reader.provider.clone() });
        }
        out.push(self.assistant(spoken.text.clone(), spoken.reasoning.clone(), calls));
        out.extend(spoken.calls.iter().map(|asked| Message::Tool {
            call_id: asked.call.id.clone(),
            name: asked.call.name.clone(),
            text: asked.result.clone().unwrap_or_else(|| NO_RESULT.into()),
        }));
    }

    fn assistant(&self, text: String, reasoning: Option<Reasoning>, calls: Vec<CallRequest>) -> Message {
        let reasoning = match self.rules.reasoning {
            ReasoningBack::Forbidden => None,
            ReasoningBack::Optional => reasoning,
            ReasoningBack::Required => {
                Some(reasoning.unwrap_or_else(|| Reasoning { text: NO_REASONING.into(), by: self.reader.clone() }))
            }
        };
        Message::Assistant { text, reasoning, calls }
    }
}

impl Round {
    /// Whether what the model says next belongs to this round: to calls that wait for their results,
    /// where another message would stand between, or to a text where roles must take turns.
    fn goes_on(&self, take_turns: bool) -> bool {
        let Some(spoken) = &self.spoken else { return false };
        let waits = spoken.calls.iter().all(|asked| asked.result.is_none());
        self.heard.is_empty() && waits && (take_turns || !spoken.calls.is_empty())
    }

    fn instruct(&mut self, text: &str, several: bool) {
        match self.system.last_mut().filter(|_| !several) {
            Some(one) => add(one, text),
            None => self.system.push(text.to_owned()),
        }
    }

    fn answer(&mut self, id: &str, name: &str, text: &str) {
        let text = if is_blank(text) { NO_OUTPUT } else { text };
        let calls = self.spoken.as_mut().map_or(&mut [][..], |spoken| &mut spoken.calls);
        if let Some(asked) = calls.iter_mut().find(|asked| asked.id == id && asked.result.is_none()) {
            asked.result = Some(text.to_owned());
        } else if calls.iter().all(|asked| asked.id != id) {
            // Its call is gone, or has been sent with another result. What it says is kept.
            self.heard.push(told_result(name, text));
        }
    }
}

/// How a tool's result is told to a model that does not know tool messages.
pub fn told_result(tool: &str, text: &str) -> String {
    format!("Result of {tool}:\n{text}")
}

/// Whether an id has the shape that every provider takes: nine letters or digits.
pub fn is_call_id(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The `n`th id made from another: `m` and eight letters or digits.
fn made_id(id: &str, n: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digest = Sha256::digest(format!("{n} {id}"));
    let digits = digest.iter().take(8).map(|byte| char::from(DIGITS[usize::from(*byte) % DIGITS.len()]));
    std::iter::once('m').chain(digits).collect()
}

/// A name the model made up may hold anything; providers check it when it comes back.
fn sendable_name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(allowed).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Servers that render a chat template fail on arguments that are no object; what was wrong is in the result.
fn sendable_arguments(arguments: &str) -> String {
    if is_blank(arguments) {
        return "{}".to_owned();
    }
    let is_object = arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok();
    if is_object { arguments.to_owned() } else { json!({"not_a_json_object": arguments}).to_string() }
}

fn add(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(PARAGRAPH);
    }
    text.push_str(more);
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

const PARAGRAPH: &str = "\n\n";

/// Said where the model would have to begin by itself.
const BEGIN: &str = "Begin.";

/// Said where the conversation ends with the model's own words.
const GO_ON: &str = "Go on.";

/// Stands between a result and a user message.
const BETWEEN: &str = "I have the results.";

const NO_OUTPUT: &str = "(no output)";

/// What is told of a call whose result is missing.
pub(crate) const NO_RESULT: &str = "The result of this call is not known: it may or may not have taken effect. Check before you \
                         repeat it.";

const NO_REASONING: &str = "(not recorded)";

/// What Google takes in place of a signature for a call that its model did not make.
const UNSIGNED: &str = "skip_thought_signature_validator";
