//! The messages of a conversation, shared between a run and the requests made for it.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::Message;

/// Messages in sending order. Reads as a slice; a clone is the same messages, not a copy of them.
///
/// It only grows: nothing that has been said changes. So whoever made something of its first
/// messages can keep that beside it ([`Conversation::keep`]) and go on from there. Where a
/// conversation must change after all, it is made anew from its messages (`From<Vec<Message>>`).
#[derive(Clone, Default)]
pub struct Conversation(Arc<Inner>);

#[derive(Default)]
struct Inner {
    messages: Vec<Message>,
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Conversation {
    /// Adds a message at the end; whoever else holds this conversation goes on seeing it as it was.
    pub fn push(&mut self, message: Message) {
        match Arc::get_mut(&mut self.0) {
            Some(inner) => inner.messages.push(message),
            None => {
                let mut messages = self.0.messages.clone();
                messages.push(message);
                *self = messages.into();
            }
        }
    }

    /// Lets `with` see and change what was kept beside the conversation: a thing of type `T` that was
    /// made of its first messages, or nothing. Another type's thing is lost. Nothing may wait in
    /// `with`: whoever holds the conversation may want to look too.
    pub fn keep<T: Any + Send, R>(&self, with: impl FnOnce(&mut Option<T>) -> R) -> R {
        let mut slot = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = slot.take().and_then(|thing| thing.downcast().ok()).map(|thing: Box<T>| *thing);
        let result = with(&mut kept);
        *slot = kept.map(|thing| Box::new(thing) as Box<dyn Any + Send>);
        result
    }
}

impl From<Vec<Message>> for Conversation {
    fn from(messages: Vec<Message>) -> Self {
        Conversation(Arc::new(Inner { messages, kept: Mutex::default() }))
    }
}

impl serde::Serialize for Conversation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.messages.serialize(serializer)
    }
}

impl Deref for Conversation {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.0.messages
    }
}

impl<'a> IntoIterator for &'a Conversation {
    type Item = &'a Message;
    type IntoIter = std::slice::Iter<'a, Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Conversation {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
