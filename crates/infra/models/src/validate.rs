//! Whether a conversation may be sent: the rules that providers enforce with a 400.

use posse_core::model::conversation::{ReasoningBack, Rules, is_call_id};
use posse_core::model::{Author, Message, ModelRequest};
use std::collections::{HashMap, HashSet};
use std::fmt;

/// What is wrong with one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The place of the message in the conversation; past its end for what is missing there.
    pub at: usize,
    /// The rule that is broken.
    pub rule: Rule,
}

/// A rule, with what broke it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A system message stands behind another message.
    SystemNotFirst,
    /// There is a system message already.
    SecondSystem,
    /// A message says nothing, or an assistant neither speaks nor calls.
    Empty,
    /// A result answers no call that is open.
    OrphanResult(String),
    /// A call has no result before the next other message, or at the end.
    Unanswered(String),
    /// Two calls of the conversation have one id.
    RepeatedId(String),
    /// A tool has a name outside `^[a-zA-Z0-9_-]{1,64}$`.
    BadToolName(String),
    /// Two tools offered have one name.
    RepeatedTool(String),
    /// A call has an id that some provider would not take.
    BadCallId(String),
    /// A call's arguments are no JSON object.
    BadArguments(String),
    /// Results come in another order than their calls.
    OutOfOrder(String),
    /// The first message behind the system message is not the user's.
    NotUserFirst,
    /// The conversation ends with the model's own words, or has none at all.
    NothingAsked,
    /// An assistant's text ends in space.
    TrailingSpace,
    /// A user message stands directly behind a result.
    UserAfterTool,
    /// Two messages of one role stand together.
    SameRoleTwice,
    /// An assistant message has no reasoning.
    NoReasoning,
    /// An assistant message has reasoning.
    Reasoning,
    /// What another model or provider added privately is sent along.
    ForeignData,
    /// The first call of a reply has no signature.
    Unsigned,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}: ", self.at)?;
        match &self.rule {
            Rule::SystemNotFirst => write!(f, "a system message is not first"),
            Rule::SecondSystem => write!(f, "a second system message is not taken"),
            Rule::Empty => write!(f, "it is empty"),
            Rule::OrphanResult(id) => write!(f, "the result for {id:?} answers no open call"),
            Rule::Unanswered(id) => write!(f, "the call {id:?} has no result before it"),
            Rule::RepeatedId(id) => write!(f, "the call id {id:?} was used before"),
            Rule::BadToolName(name) => write!(f, "the tool name {name:?} may not be sent"),
            Rule::RepeatedTool(name) => write!(f, "the tool {name:?} is offered twice"),
            Rule::BadCallId(id) => write!(f, "the call id {id:?} is not nine letters or digits"),
            Rule::BadArguments(text) => write!(f, "the arguments {text:?} are no JSON object"),
            Rule::OutOfOrder(id) => write!(f, "the result for {id:?} stands out of order"),
            Rule::NotUserFirst => write!(f, "the conversation does not begin with the user"),
            Rule::NothingAsked => write!(f, "nothing is asked of the model"),
            Rule::TrailingSpace => write!(f, "the assistant's text ends in space"),
            Rule::UserAfterTool => write!(f, "a user message follows a tool's result"),
            Rule::SameRoleTwice => write!(f, "its role is that of the message before"),
            Rule::NoReasoning => write!(f, "reasoning is missing"),
            Rule::Reasoning => write!(f, "reasoning is not taken"),
            Rule::ForeignData => write!(f, "it holds what another provider added"),
            Rule::Unsigned => write!(f, "its calls are not signed"),
        }
    }
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
            if is_blank(text) {
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
        match message {
            Message::System { text } => {
                // Several in front are one to a provider; see `normalise`.
                if messages[..at].iter().any(|before| !matches!(before, Message::System { .. })) {
                    broken(Rule::SystemNotFirst);
                }
                if is_blank(text) {
                    broken(Rule::Empty);
                }
            }
            Message::User { text } => {
                if is_blank(text) {
                    broken(Rule::Empty);
                }
            }
            Message::Assistant { text, calls, .. } => {
                if is_blank(text) && calls.is_empty() {
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
            Message::Tool { .. } => {}
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

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use posse_core::model::{CallRequest, Reasoning};

    fn system() -> Message {
        Message::System { text: "s".to_owned() }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    fn calls(ids: &[&str]) -> Message {
        let call = |id: &&str| CallRequest {
            id: (*id).to_owned(),
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
            extra: None,
        };
        Message::Assistant { text: String::new(), reasoning: None, calls: ids.iter().map(call).collect() }
    }

    fn result(id: &str) -> Message {
        Message::Tool { call_id: id.to_owned(), name: "f".to_owned(), text: "r".to_owned() }
    }

    fn check(messages: &[Message], expected: &[(usize, Rule)]) {
        let expected: Vec<_> = expected.iter().map(|(at, rule)| Violation { at: *at, rule: rule.clone() }).collect();
        assert_eq!(validate(messages), expected, "{messages:?}");
    }

    #[test]
    fn what_may_be_sent() {
        check(&[], &[]);
        check(&[system(), user("u")], &[]);
        check(&[system(), user("u"), calls(&["a", "b"]), result("b"), result("a"), user("more")], &[]);
        check(&[user("u"), calls(&["a"]), result("a"), calls(&["b"]), result("b")], &[]);
    }

    #[test]
    fn what_may_not() {
        let id = |id: &str| id.to_owned();
        check(&[user("u"), system()], &[(1, Rule::SystemNotFirst)]);
        check(&[system(), user("u"), system()], &[(2, Rule::SystemNotFirst)]);
        check(&[user(" \n")], &[(0, Rule::Empty)]);
        check(&[calls(&[])], &[(0, Rule::Empty)]);
        check(&[user("u"), result("a")], &[(1, Rule::OrphanResult(id("a")))]);
        check(&[calls(&["a"]), result("a"), result("a")], &[(2, Rule::OrphanResult(id("a")))]);
        check(&[calls(&["a"]), user("u")], &[(1, Rule::Unanswered(id("a")))]);
        check(&[calls(&["a", "b"]), result("b")], &[(2, Rule::Unanswered(id("a")))]);
        check(
            &[calls(&["a"]), user("u"), result("a")],
            &[(1, Rule::Unanswered(id("a"))), (2, Rule::OrphanResult(id("a")))],
        );
        check(&[calls(&["a"]), result("a"), calls(&["a"]), result("a")], &[(2, Rule::RepeatedId(id("a")))]);
        check(&[calls(&["a", "a"]), result("a"), result("a")], &[(0, Rule::RepeatedId(id("a")))]);
    }

    #[test]
    fn what_a_strict_provider_minds() {
        let reader = Author { provider: "p".to_owned(), model: "m".to_owned() };
        let strict = |rules: Rules, messages: &[Message]| -> Vec<_> {
            validate_strictly(messages, rules, &reader).into_iter().map(|v| (v.at, v.rule)).collect()
        };
        let open = Rules { reasoning: ReasoningBack::Optional, ..Rules::default() };
        let says = |text: &str, by: Option<&Author>| Message::Assistant {
            text: text.to_owned(),
            reasoning: by.map(|by| Reasoning { text: "r".to_owned(), by: by.clone() }),
            calls: Vec::new(),
        };
        let nine = ["aaaaaaaa1", "aaaaaaaa2"];
        let good = [system(), user("u"), calls(&nine), result(nine[0]), result(nine[1]), user("v")];
        assert_eq!(strict(open, &good), []);

        let lone = |rule| vec![(1, rule)];
        assert_eq!(strict(open, &[system()]), lone(Rule::NothingAsked));
        assert_eq!(strict(open, &[user("u"), says("a ", None), user("v")]), lone(Rule::TrailingSpace));
        assert_eq!(strict(open, &[user("u"), says("a", None)]), [(2, Rule::NothingAsked)]);
        assert_eq!(strict(open, &[says("a", None), user("v")]), [(0, Rule::NotUserFirst)]);
        let swapped = [user("u"), calls(&nine), result(nine[1]), result(nine[0])];
        let out_of_order = |at: usize, id: &str| (at, Rule::OutOfOrder(id.to_owned()));
        assert_eq!(strict(open, &swapped), [out_of_order(2, nine[1]), out_of_order(3, nine[0])]);
        let long = [user("u"), calls(&["call_long"]), result("call_long")];
        assert_eq!(strict(open, &long), lone(Rule::BadCallId("call_long".to_owned())));
        let other = Author { model: "other".to_owned(), ..reader.clone() };
        assert_eq!(strict(open, &[user("u"), says("a", Some(&other)), user("v")]), lone(Rule::ForeignData));

        let two = [system(), system(), user("u")];
        assert_eq!(strict(open, &two), lone(Rule::SecondSystem));
        let several = Rules { several_systems: true, ..open };
        assert_eq!(strict(several, &two), []);
        assert_eq!(strict(several, &[system(), user("u"), system(), user("v")]), [(2, Rule::SystemNotFirst)]);

        let mistral = Rules { user_after_tool: false, ..open };
        assert_eq!(strict(mistral, &good), [(5, Rule::UserAfterTool)]);
        let turns = Rules { take_turns: true, ..open };
        assert_eq!(strict(turns, &[user("u"), user("v")]), lone(Rule::SameRoleTwice));
        let wants = Rules { reasoning: ReasoningBack::Required, ..open };
        assert_eq!(strict(wants, &[user("u"), says("a", None), user("v")]), lone(Rule::NoReasoning));
        let refuses = Rules::default();
        assert_eq!(strict(refuses, &[user("u"), says("a", Some(&reader)), user("v")]), lone(Rule::Reasoning));
        let signed = Rules { signed_calls: true, ..open };
        assert_eq!(strict(signed, &good), [(2, Rule::Unsigned)]);
    }

    #[test]
    fn names_of_tools() {
        for (name, good) in [
            ("files_read", true),
            ("a-B_9", true),
            ("", false),
            ("docs.create", false),
            ("größe", false),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(is_tool_name(name), good, "{name}");
        }
    }
}
