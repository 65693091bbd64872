//! Whether a conversation may be sent: the rules that providers enforce with a 400.

use posse_core::model::conversation::{ReasoningBack, Rules, is_call_id};
use posse_core::model::{Author, CallRequest, Message, ModelRequest};
use std::collections::{HashMap, HashSet};

/// What is wrong with one message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message {at}: {rule}")]
pub struct Violation {
    /// The place of the message in the conversation; past its end for what is missing there.
    pub at: usize,
    pub rule: Rule,
}

/// A rule, with what broke it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    #[error("a system message is not first")]
    SystemNotFirst,
    #[error("a second system message is not taken")]
    SecondSystem,
    #[error("it is empty")]
    Empty,
    #[error("the result for {0:?} answers no open call")]
    OrphanResult(String),
    #[error("the call {0:?} has no result before it")]
    Unanswered(String),
    #[error("the call id {0:?} was used before")]
    RepeatedId(String),
    #[error("the tool name {0:?} may not be sent")]
    BadToolName(String),
    #[error("the tool {0:?} is offered twice")]
    RepeatedTool(String),
    #[error("the call id {0:?} is not nine letters or digits")]
    BadCallId(String),
    #[error("the arguments {0:?} are no JSON object")]
    BadArguments(String),
    #[error("the result for {0:?} stands out of order")]
    OutOfOrder(String),
    #[error("the conversation does not begin with the user")]
    NotUserFirst,
    #[error("nothing is asked of the model")]
    NothingAsked,
    #[error("the assistant's text ends in space")]
    TrailingSpace,
    #[error("a user message follows a tool's result")]
    UserAfterTool,
    #[error("its role is that of the message before")]
    SameRoleTwice,
    #[error("reasoning is missing")]
    NoReasoning,
    #[error("reasoning is not taken")]
    Reasoning,
    #[error("it holds what another provider added")]
    ForeignData,
    #[error("its calls are not signed")]
    Unsigned,
}

/// Everything that a provider with these rules, strict in all else too, would refuse in a
/// conversation with `reader`.
pub fn validate_strictly(messages: &[Message], rules: Rules, reader: &Author) -> Vec<Violation> {
    let mut found = validate(messages);
    let mut due: Vec<&str> = Vec::new();
    let mut before: Option<&Message> = None;
    for (at, message) in messages.iter().enumerate() {
        let mut broken = |rule| found.push(Violation { at, rule });
        let role = std::mem::discriminant(message);
        match message {
            Message::System { .. } => {
                if at > 0 && !rules.several_systems {
                    broken(Rule::SecondSystem);
                }
                continue;
            }
            Message::User { .. } => {
                if matches!(before, Some(Message::Tool { .. })) && !rules.user_after_tool {
                    broken(Rule::UserAfterTool);
                }
            }
            Message::Assistant { text, reasoning, calls } => {
                if text != text.trim_end() {
                    broken(Rule::TrailingSpace);
                }
                match (rules.reasoning, reasoning) {
                    (ReasoningBack::Required, None) => broken(Rule::NoReasoning),
                    (ReasoningBack::Forbidden, Some(_)) => broken(Rule::Reasoning),
                    (_, Some(reasoning)) if reasoning.by != *reader => broken(Rule::ForeignData),
                    _ => {}
                }
                if rules.signed_calls && calls.first().is_some_and(|call| call.extra.is_none()) {
                    broken(Rule::Unsigned);
                }
                for call in calls {
                    if !is_call_id(&call.id) {
                        broken(Rule::BadCallId(call.id.clone()));
                    }
                    if serde_json::from_str::<serde_json::Map<_, _>>(&call.arguments).is_err() {
                        broken(Rule::BadArguments(call.arguments.clone()));
                    }
                    if call.extra.as_ref().is_some_and(|extra| extra.provider != reader.provider) {
                        broken(Rule::ForeignData);
                    }
                }
                due = calls.iter().rev().map(|call| call.id.as_str()).collect();
            }
            Message::Tool { call_id, .. } => {
                if due.pop() != Some(call_id) {
                    broken(Rule::OutOfOrder(call_id.clone()));
                }
            }
        }
        match before {
            None if !matches!(message, Message::User { .. }) => broken(Rule::NotUserFirst),
            Some(Message::Tool { .. }) | None => {}
            Some(other) if rules.take_turns && role == std::mem::discriminant(other) => broken(Rule::SameRoleTwice),
            Some(_) => {}
        }
        before = Some(message);
    }
    if matches!(before, None | Some(Message::Assistant { .. })) {
        found.push(Violation { at: messages.len(), rule: Rule::NothingAsked });
    }
    found
}

/// Everything wrong with a conversation, in its order; empty if it may be sent.
pub fn validate(messages: &[Message]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut used: HashSet<&str> = HashSet::new();
    // The calls of the last assistant message that have no result yet, with how many share the id.
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();

    for (at, message) in messages.iter().enumerate() {
        let mut broken = |rule| found.push(Violation { at, rule });
        if let Message::Tool { call_id, name, text } = message {
            match open.get_mut(call_id.as_str()) {
                Some(count) if *count > 0 => *count -= 1,
                _ => broken(Rule::OrphanResult(call_id.clone())),
            }
            if !is_tool_name(name) {
                broken(Rule::BadToolName(name.clone()));
            }
            if text.trim().is_empty() {
                broken(Rule::Empty);
            }
            continue;
        }
        for id in order.drain(..) {
            if open.remove(id).is_some_and(|count| count > 0) {
                broken(Rule::Unanswered(id.to_owned()));
            }
        }
        open.clear();
        let (text, calls): (_, &[CallRequest]) = match message {
            Message::Assistant { text, calls, .. } => (text, calls),
            Message::System { text } | Message::User { text } | Message::Tool { text, .. } => (text, &[]),
        };
        // Several system messages in front are one to a provider; see `normalise`.
        let is_system = |message: &Message| matches!(message, Message::System { .. });
        if is_system(message) && !messages[..at].iter().all(is_system) {
            broken(Rule::SystemNotFirst);
        }
        if calls.is_empty() && text.trim().is_empty() {
            broken(Rule::Empty);
        }
        for call in calls {
            if !used.insert(&call.id) {
                broken(Rule::RepeatedId(call.id.clone()));
            }
            if !is_tool_name(&call.name) {
                broken(Rule::BadToolName(call.name.clone()));
            }
            *open.entry(&call.id).or_default() += 1;
            order.push(&call.id);
        }
    }
    for id in order {
        if open.remove(id).is_some_and(|count| count > 0) {
            found.push(Violation { at: messages.len(), rule: Rule::Unanswered(id.to_owned()) });
        }
    }
    found
}

/// Everything wrong with the tools that a request offers.
pub fn validate_tools(request: &ModelRequest) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut names = HashSet::new();
    for tool in &request.tools {
        let mut broken = |rule| found.push(Violation { at: request.messages.len(), rule });
        if !is_tool_name(&tool.name) {
            broken(Rule::BadToolName(tool.name.clone()));
        }
        if !names.insert(&tool.name) {
            broken(Rule::RepeatedTool(tool.name.clone()));
        }
    }
    found
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
