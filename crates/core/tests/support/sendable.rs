//! What a strict provider would refuse.

use posse_core::model::Message;
use std::collections::HashSet;

/// Everything wrong with a conversation that a strict provider would refuse.
pub fn unsendable(messages: &[Message]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    let mut in_front = true;
    for (i, message) in messages.iter().enumerate() {
        if !matches!(message, Message::Tool { .. }) && !open.is_empty() {
            wrong.push(format!("{i}: calls {open:?} have no result"));
            open.clear();
        }
        in_front &= matches!(message, Message::System { .. });
        match message {
            Message::System { text } if !in_front || text.trim().is_empty() => wrong.push(format!("{i}: system")),
            Message::User { text } if text.trim().is_empty() => wrong.push(format!("{i}: empty user message")),
            Message::Assistant { text, calls, .. } => {
                if text.trim().is_empty() && calls.is_empty() {
                    wrong.push(format!("{i}: empty assistant message"));
                }
                for call in calls {
                    let nine = call.id.len() == 9 && call.id.bytes().all(|b| b.is_ascii_alphanumeric());
                    if !nine || !seen.insert(call.id.clone()) {
                        wrong.push(format!("{i}: id {}", call.id));
                    }
                    open.push(call.id.clone());
                }
            }
            Message::Tool { call_id, text, .. } => {
                let before = open.len();
                open.retain(|id| id != call_id);
                if open.len() == before || text.trim().is_empty() {
                    wrong.push(format!("{i}: result for {call_id}"));
                }
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        wrong.push(format!("end: calls {open:?} have no result"));
    }
    wrong
}
