//! A conversation as the bytes of a request, kept from one request to the next.

use posse_core::model::conversation::{Normaliser, Rules};
use posse_core::model::{Author, Message, ModelRequest};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;

use crate::wire::{Messages, wire_message};

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
        // The last request is over and holds it no more, so nothing is copied.
        let bytes = Arc::make_mut(&mut self.settled);
        for message in &settled {
            bytes.push(raw(message)?);
        }
        Ok(())
    }
}

fn raw(message: &Message) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&wire_message(message))
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
