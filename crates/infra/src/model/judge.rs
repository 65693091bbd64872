//! Whether a conversation may be sent: the rules that providers enforce with a 400.

use posse_core::model::{Message, ModelRequest};
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
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}: ", self.at)?;
        match &self.rule {
            Rule::SystemNotFirst => write!(f, "a system message is not first"),
            Rule::Empty => write!(f, "it is empty"),
            Rule::OrphanResult(id) => write!(f, "the result for {id:?} answers no open call"),
            Rule::Unanswered(id) => write!(f, "the call {id:?} has no result before it"),
            Rule::RepeatedId(id) => write!(f, "the call id {id:?} was used before"),
            Rule::BadToolName(name) => write!(f, "the tool name {name:?} may not be sent"),
            Rule::RepeatedTool(name) => write!(f, "the tool {name:?} is offered twice"),
        }
    }
}

/// Everything wrong with a conversation, in its order; empty if it may be sent.
pub fn judge(messages: &[Message]) -> Vec<Violation> {
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
                if at > 0 {
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

/// Everything wrong with a request: its conversation and the tools it offers.
pub fn judge_request(request: &ModelRequest) -> Vec<Violation> {
    let mut found = judge(&request.messages);
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
    use posse_core::model::CallRequest;

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
        assert_eq!(judge(messages), expected, "{messages:?}");
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
        check(&[system(), system()], &[(1, Rule::SystemNotFirst)]);
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
