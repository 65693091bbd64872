//! Whether the next request fits the model's window, and what is to be done when it does not.

use super::Run;
use super::compaction::{self, Cut, Decision, Room, Settings, Shortening};
use crate::journal::Overflow;
use crate::model::Message;
use crate::tokens;

/// What must happen before the model can be asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fit {
    /// Nothing.
    Fits,
    /// These messages are to be replaced by a summary.
    Cut(Cut),
    /// These messages are to be shortened.
    Shorten(Vec<Shortening>),
    /// Nothing helps, for the reason given.
    TooLarge(String),
}

/// A token of text has at least so many bytes on average, in any language the view may hold; used
/// to turn room into bytes.
const BYTES_OF_TOKEN: u64 = 3;

/// Most tokens of the summary of a failed try.
const FAILURE_TOKENS: u64 = 1_500;

/// Most tokens of a request that is certainly below every limit.
fn roughly(room: &Room, share: f64) -> u64 {
    let Some(window) = room.window else { return u64::MAX };
    ((f64::from(window) * share) as u64).min(u64::from(window).saturating_sub(room.reply))
}

impl Run {
    /// What must happen before the model can be asked.
    pub(super) fn fit(&self) -> Fit {
        let (settings, room) = (self.settings(), self.room());
        let top = self.top();
        let many = top.history.messages().len() - top.history.head() > settings.max_messages;
        // Exact decisions look at every message; nearly always a look at their sum is enough.
        if !many && self.calibrated(top.tokens) + room.beside <= roughly(&room, settings.budget_share) {
            return Fit::Fits;
        }
        let count = |message: &Message| self.count(message);
        match compaction::decide(&top.history, !top.open.is_empty(), &settings, room, &count) {
            Ok(Decision::Send) => Fit::Fits,
            Ok(Decision::Summarise(cut)) => Fit::Cut(cut),
            Ok(Decision::Shorten(shortenings)) => Fit::Shorten(shortenings),
            Err(error) => Fit::TooLarge(error.to_string()),
        }
    }

    /// The model's window in tokens, as far as it is known.
    pub fn window(&self) -> Option<u32> {
        self.reckoned(0).window
    }

    /// Most tokens of the next reply, where the window leaves less than would be asked for.
    pub(super) fn reply_room(&self) -> Option<u32> {
        self.overflow.is_some().then(|| u32::try_from(self.room().reply).unwrap_or(u32::MAX).max(1))
    }

    /// What the next request is estimated to have, in tokens, before calibration.
    pub(super) fn request_estimate(&self) -> u64 {
        self.top().tokens + self.tools_tokens + self.tail_tokens()
    }

    /// What the next request is counted to have, in tokens.
    pub(super) fn request_tokens(&self) -> u64 {
        self.calibrated(self.top().tokens) + self.beside()
    }

    /// Tokens of a message for this run's model.
    pub fn count(&self, message: &Message) -> u64 {
        self.calibrated(tokens::message(message))
    }

    fn calibrated(&self, estimate: u64) -> u64 {
        self.calibration.correct(estimate)
    }

    fn settings(&self) -> Settings {
        let rules = self.opening.as_ref().map(|opening| opening.persona.context.clone()).unwrap_or_default();
        let max_messages = match rules.max_messages {
            Some(0) => usize::MAX,
            Some(max) => max as usize,
            // A known window is a better measure than a number of messages.
            None if self.window().is_some() => usize::MAX,
            None => Settings::default().max_messages,
        };
        let share = f64::from(rules.budget_share);
        Settings { max_messages, chunk: rules.chunk as usize, budget_share: share, keep_last: rules.keep_last as usize }
    }

    fn room(&self) -> Room {
        // Without a window there is nothing to measure for.
        let beside = if self.window().is_some() { self.beside() } else { 0 };
        self.reckoned(beside)
    }

    fn reckoned(&self, beside: u64) -> Room {
        let room = self.plain_room(beside);
        match self.overflow {
            Some(overflow) => room.after_overflow(overflow.window, overflow.counted),
            None => room,
        }
    }

    fn plain_room(&self, beside: u64) -> Room {
        let opening = self.opening.as_deref();
        let window = opening.and_then(|opening| opening.context_window);
        Room::new(window, opening.and_then(|opening| opening.persona.max_reply_tokens), beside)
    }

    /// Tokens of what a request has beside its conversation.
    fn beside(&self) -> u64 {
        self.calibrated(self.tools_tokens + self.tail_tokens())
    }

    /// Most bytes of the view of the working memory: it may take half of what the head leaves.
    pub(super) fn view_bytes(&self) -> Option<usize> {
        let window = match self.overflow {
            Some(Overflow { window, counted }) => window.map_or(counted, u64::from),
            None => self.opening.as_ref()?.context_window?.into(),
        };
        let head = &self.top().history.messages()[..self.top().history.head()];
        let head: u64 = head.iter().map(|message| self.count(message)).sum();
        let reply = self.plain_room(0).reply;
        let left = window.saturating_sub(head + reply + self.calibrated(self.tools_tokens));
        usize::try_from(left / 2 * BYTES_OF_TOKEN).ok()
    }

    /// The part of the conversation that a new plan replaces, with the room for what is kept of it.
    pub(super) fn failed_try(&self) -> Cut {
        let from = self.top().history.head();
        Cut { from, to: self.messages().len(), most: FAILURE_TOKENS }
    }
}
