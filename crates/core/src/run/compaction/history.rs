//! A conversation as a model is sent it, and the two ways in which it becomes smaller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

use super::Cut;
use crate::model::Message;
use crate::model::conversation::{self, Conversation};
use crate::model::tokens::{self, Tally};
use crate::text::{count, plural};

/// What may become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It stands at the front and never changes: system text, examples, task.
    Head,
    /// Anything that was said; a summary may take its place.
    Plain,
    /// What a tool gave, in a tool message or, with structured calling, in a user message. A
    /// summary may take its place, and it may be shortened.
    Result,
    /// It stays word for word: a loaded skill, a person's answer, why an earlier try failed.
    Pinned,
    /// It stands for messages that are gone. It may be folded into the next one, and shortened.
    Summary,
}

/// A conversation, and of each message what may become of it.
///
/// It changes in three ways: [`push`](History::push), [`summarise`](History::summarise) and [`shorten`](History::shorten).
/// Each gives the same messages for the same arguments, so a journal that keeps the arguments keeps the conversation.
/// The same holds of what is [`count`](History::count)ed of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    messages: Conversation,
    standings: Vec<Standing>,
    head: usize,
    total: Tally,
    added: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Standing {
    part: Part,
    gap: Option<Gap>,
    /// Tokens of the message: counted, where the model's tokenizer has, else estimated.
    tokens: Tally,
}

impl Standing {
    fn new(part: Part, message: &Message) -> Standing {
        Standing { part, gap: None, tokens: Tally::estimated(tokens::message(message)) }
    }
}

/// Where in a text something was left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gap {
    /// Bytes of the original before the mark, and after it.
    begin: usize,
    end: usize,
    /// Bytes of the original that are not there.
    left_out: usize,
}

/// How a message's text becomes shorter: what lies between two pieces is replaced by a mark that
/// says how much it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shortening {
    /// The message's position in the conversation.
    pub at: usize,
    /// Bytes that stay at the beginning, at most; the cut moves back to a whole character.
    pub begin: usize,
    /// Bytes that stay at the end, at most; the cut moves on to a whole character.
    pub end: usize,
}

impl History {
    /// A conversation that has only its head.
    pub fn begin(head: Vec<Message>) -> History {
        let standings = head.iter().map(|message| Standing::new(Part::Head, message)).collect();
        let mut history = History { head: head.len(), messages: head.into(), standings, ..History::default() };
        history.add_up();
        history
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: Message, part: Part) {
        debug_assert!(part != Part::Head, "the head is given at the beginning");
        let standing = Standing::new(part, &message);
        self.total = self.total + standing.tokens;
        self.added += conversation::added(self.messages.last(), &message);
        self.messages.push(message);
        self.standings.push(standing);
    }

    /// Adds up anew what messages have and what is added to them.
    fn add_up(&mut self) {
        self.total = self.standings.iter().map(|standing| standing.tokens).sum();
        let before = [None].into_iter().chain(self.messages.iter().map(Some));
        self.added = before.zip(&self.messages).map(|(before, message)| conversation::added(before, message)).sum();
    }

    /// Puts one summary in the place of the messages of `cut`. A range that is empty, that reaches
    /// into the head or past the end changes nothing; one that would part a call from its results,
    /// as only that of a damaged journal does, begins and ends behind them.
    pub fn summarise(&mut self, cut: &Cut, summary: &str) {
        let behind_results = |at: usize| {
            let results = self.messages.iter().skip(at);
            at + results.take_while(|message| matches!(message, Message::Tool { .. })).count()
        };
        let (from, to) = (behind_results(cut.from), behind_results(cut.to));
        if self.head <= from && from < to && to <= self.messages.len() {
            let mut messages = self.messages.to_vec();
            let summary = summary_message(summary);
            self.standings.splice(from..to, [Standing::new(Part::Summary, &summary)]);
            messages.splice(from..to, [summary]);
            self.messages = messages.into();
            self.add_up();
        }
    }

    /// Shortens the text of results and summaries. Any other message, and a piece that is longer
    /// than what there is, stays as it is.
    pub fn shorten(&mut self, shortenings: &[Shortening]) {
        for shortening in shortenings {
            if let Some((message, gap)) = self.shortened(*shortening) {
                let standing = &mut self.standings[shortening.at];
                *standing = Standing { gap: Some(gap), ..Standing::new(standing.part, &message) };
                let mut messages = self.messages.to_vec();
                messages[shortening.at] = message;
                self.messages = messages.into();
            }
        }
        self.add_up();
    }

    /// The messages, in sending order.
    pub fn messages(&self) -> &Conversation {
        &self.messages
    }

    /// How many messages the head has.
    pub fn head(&self) -> usize {
        self.head
    }

    /// What may become of a message; none if there is no such message.
    pub fn part(&self, at: usize) -> Option<Part> {
        self.standings.get(at).map(|s| s.part)
    }

    /// Keeps what the model's tokenizer counted of a message, until the message changes.
    pub fn count(&mut self, at: usize, tokens: u64) {
        if let Some(standing) = self.standings.get_mut(at) {
            self.total.counted = self.total.counted.saturating_sub(standing.tokens.counted);
            self.total.estimated = self.total.estimated.saturating_sub(standing.tokens.estimated);
            standing.tokens = Tally::counted(tokens);
            self.total = self.total + standing.tokens;
        }
    }

    /// Tokens of a message: counted, where it was, else estimated. None of one that is not there.
    pub fn tokens(&self, at: usize) -> Tally {
        self.standings.get(at).map(|standing| standing.tokens).unwrap_or_default()
    }

    /// Tokens of all messages together.
    pub fn total(&self) -> Tally {
        self.total
    }

    /// Most tokens, by our estimate, of what providers' rules add to the messages.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    /// Positions of the messages that have not been counted.
    pub fn uncounted(&self) -> impl Iterator<Item = usize> {
        (0..).zip(&self.standings).filter(|(_, standing)| standing.tokens.counted == 0).map(|(at, _)| at)
    }

    /// Bytes of the original before and after what is left out; all of them before, if nothing is.
    pub(super) fn pieces(&self, at: usize) -> (usize, usize) {
        match self.standings[at].gap {
            Some(gap) => (gap.begin, gap.end),
            None => (text(&self.messages[at]).len(), 0),
        }
    }

    /// The message as [`History::shorten`] would make it; none if it would stay as it is.
    pub(super) fn shortened(&self, by: Shortening) -> Option<(Message, Gap)> {
        let standing = self.standings.get(by.at)?;
        if !matches!(standing.part, Part::Result | Part::Summary) {
            return None;
        }
        let mut message = self.messages[by.at].clone();
        let old = text(&message);
        let (head, tail, left_out) = match standing.gap {
            Some(gap) => (&old[..gap.begin], &old[old.len() - gap.end..], gap.left_out),
            None => (old, old, 0),
        };
        let begin = head.floor_char_boundary(by.begin);
        let end = tail.len() - tail.ceil_char_boundary(tail.len().saturating_sub(by.end));
        let there = if standing.gap.is_some() { head.len() + tail.len() } else { old.len() };
        if begin + end >= there {
            return None;
        }
        let gap = Gap { begin, end, left_out: left_out + there - begin - end };
        let new = marked(&head[..begin], gap.left_out, &tail[tail.len() - end..]);
        *text_mut(&mut message)? = new;
        Some((message, gap))
    }
}

/// The message that stands for a summary.
pub fn summary_message(summary: &str) -> Message {
    Message::User { text: format!("{SUMMARY}\n{summary}") }
}

/// How it is marked.
pub(super) const SUMMARY: &str = "[Summary of earlier work on this task. It stands for messages that are no longer \
                                  shown; what it calls done is done.]";

/// The words of a message.
pub(super) fn text(message: &Message) -> &str {
    match message {
        Message::System { text } | Message::User { text } => text,
        Message::Assistant { text, .. } | Message::Tool { text, .. } => text,
    }
}

fn text_mut(message: &mut Message) -> Option<&mut String> {
    match message {
        Message::User { text } | Message::Tool { text, .. } => Some(text),
        Message::System { .. } | Message::Assistant { .. } => None,
    }
}

/// Two pieces of a text with a mark for the `left_out` bytes between them.
fn marked(begin: &str, left_out: usize, end: &str) -> String {
    let whole = plural((begin.len() + left_out + end.len()) as u64, "byte");
    let left_out = count(left_out as u64);
    let mut out = String::with_capacity(begin.len() + end.len() + 120);
    out.push_str(begin);
    if !begin.is_empty() {
        out.push('\n');
    }
    let _ =
        write!(out, "[… {left_out} of {whole} left out to fit the model's window; the whole is in the run's journal]");
    if !end.is_empty() {
        out.push('\n');
    }
    out.push_str(end);
    out
}

/// A text of at most `most` bytes and a mark: two thirds of them from its beginning, the rest from
/// its end.
pub(crate) fn shorter(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let begin = text.floor_char_boundary(most - most / 3);
    let end = text.ceil_char_boundary(text.len() - most / 3);
    marked(&text[..begin], end - begin, &text[end..])
}
