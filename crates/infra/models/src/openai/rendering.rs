//! A conversation as the bytes of a request, kept from one request to the next.

use posse_core::model::conversation::{Normaliser, Rules};
use posse_core::model::{Author, Message, ModelRequest};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;

use crate::wire::{Messages, WireMessage};

/// What has been sent of a conversation and will be sent again: the same bytes each time, since a
/// provider's prompt cache compares them and making them anew would cost more with every step.
pub(super) struct Rendering {
    rules: Rules,
    reader: Author,
    normaliser: Normaliser,
    /// How many messages of the conversation the normaliser has taken.
    taken: usize,
    settled: Arc<Vec<Box<RawValue>>>,
}

impl Rendering {
    fn new(rules: Rules, reader: &Author) -> Self {
        let normaliser = Normaliser::new(rules, reader.clone());
        Rendering { rules, reader: reader.clone(), normaliser, taken: 0, settled: Arc::default() }
    }

    fn take(&mut self, messages: &[Message]) -> serde_json::Result<()> {
        let mut settled = Vec::new();
        for message in &messages[self.taken..] {
            self.normaliser.push(message, &mut settled);
        }
        self.taken = messages.len();
        // Held by nobody else once the last request is over, so nothing is copied.
        let bytes = Arc::make_mut(&mut self.settled);
        for message in &settled {
            bytes.push(raw(message)?);
        }
        Ok(())
    }
}

fn raw(message: &Message) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&WireMessage::of(message))
}

/// The messages of `request` as they are sent to `reader`, which takes conversations by `rules`.
pub(super) fn render(request: &ModelRequest, rules: Rules, reader: &Author) -> serde_json::Result<Messages> {
    request.messages.keep(|kept: &mut Option<Rendering>| {
        let mut rendering = kept
            .take()
            .filter(|kept| kept.rules == rules && kept.reader == *reader)
            .unwrap_or_else(|| Rendering::new(rules, reader));
        rendering.take(&request.messages)?;
        let mut rest = Vec::new();
        rendering.normaliser.rest(request.tail.as_deref(), &mut rest);
        let rest = rest.iter().map(raw).collect::<Result<_, _>>()?;
        let settled = Arc::clone(&rendering.settled);
        *kept = Some(rendering);
        Ok(Messages { settled, rest })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use posse_core::model::conversation::Conversation;

    fn reader() -> Author {
        Author { provider: "host".to_owned(), model: "m".to_owned() }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    fn says(text: &str) -> Message {
        Message::Assistant { text: text.to_owned(), reasoning: None, calls: Vec::new() }
    }

    /// The messages of a request as text, and the places in memory of those that were kept.
    fn sent(conversation: &Conversation, tail: Option<&str>, rules: Rules) -> (Vec<String>, Vec<*const u8>) {
        let tail = tail.map(str::to_owned);
        let request = ModelRequest { messages: conversation.clone(), tail, ..ModelRequest::default() };
        let Messages { settled, rest } = render(&request, rules, &reader()).expect("messages are JSON");
        settled.iter().chain(&rest).map(|raw| (raw.get().to_owned(), raw.get().as_ptr())).unzip()
    }

    #[test]
    fn what_is_settled_is_made_once_and_never_changes() {
        let mut conversation = Conversation::from(vec![user("u"), says("a")]);
        let (first, places) = sent(&conversation, Some("view 1"), Rules::default());
        assert_eq!(first.len(), 3);
        for message in [user("v"), says("b"), user("w")] {
            conversation.push(message);
        }
        let (second, later) = sent(&conversation, Some("view 2"), Rules::default());
        assert_eq!(second[..2], first[..2]);
        assert_eq!(later[0], places[0], "the very bytes of before");
        assert!(first[2].contains("view 1") && second.last().is_some_and(|last| last.contains("view 2")));
        // A worker that has only just loaded the conversation sends the same.
        let cold = Conversation::from(conversation.to_vec());
        assert_eq!(sent(&cold, Some("view 2"), Rules::default()).0, second);
    }

    #[test]
    fn other_rules_are_another_rendering() {
        let conversation = Conversation::from(vec![user("u"), user("v")]);
        assert_eq!(sent(&conversation, None, Rules::default()).0.len(), 2);
        let turns = Rules { take_turns: true, ..Rules::default() };
        assert_eq!(sent(&conversation, None, turns).0.len(), 1);
        assert_eq!(sent(&conversation, None, Rules::default()).0.len(), 2);
    }
}
