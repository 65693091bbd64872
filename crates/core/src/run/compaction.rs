//! Keeping a conversation within its model's window. Pure.
//!
//! Two limits ask for a summary: a number of messages, and a share of the window. Only the window
//! itself asks for more: results and summaries are shortened, turns that were to be kept are
//! summarised after all, and when nothing is left to give, [`DoesNotFit`] says what takes the room.
//!
//! What holds here:
//!
//! - **A cut never parts a call from its results.** It begins and ends between whole turns; a turn
//!   with a call that is still open stays where it is.
//! - **Head and pinned messages stay word for word.** A cut lies between them, always begins at the
//!   first message after one, and so takes in the summary that stood there: one summary at most in
//!   each place.
//! - **Every decision shrinks.** What [`decide`] asks for, done as it asks, takes fewer tokens or
//!   fewer messages and never more tokens; so doing what it asks until it says
//!   [`Decision::Send`] ends.
//! - **Seldom and much.** Every change costs the provider's prompt cache; a cut for the budget goes
//!   down to half of it, and one that would free little is not made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Message;
use crate::model::tokens::{self, Gauge, Tally};
use crate::persona::ContextRules;
use crate::text::{count, plural};

mod history;
mod plan;
mod summary;

pub(crate) use history::shorter;
pub use history::{History, Part, Shortening, summary_message};
pub use summary::{Purpose, SUMMARY_TOKENS, Summariser, SummaryRoom, accept, transcript};

/// Counts the tokens of a message in a request.
pub type Counter<'a> = dyn Fn(&Message) -> u64 + 'a;

/// Tells the tokens of messages that are in a conversation, and of forms that they may take.
pub trait Measure {
    /// Tokens of a message.
    fn message(&self, message: &Message) -> u64;

    /// Tokens of the message at this position.
    fn at(&self, history: &History, at: usize) -> u64 {
        history.messages().get(at).map_or(0, |message| self.message(message))
    }
}

impl<F: Fn(&Message) -> u64> Measure for F {
    fn message(&self, message: &Message) -> u64 {
        self(message)
    }
}

impl Measure for Gauge {
    fn message(&self, message: &Message) -> u64 {
        self.tokens(Tally::estimated(tokens::message(message)))
    }

    fn at(&self, history: &History, at: usize) -> u64 {
        self.tokens(history.tokens(at))
    }
}

/// What is to be summarised.
#[derive(Debug, Clone, PartialEq)]
pub struct ToSummarise {
    /// What the summary is for.
    pub purpose: Purpose,
    /// The task that the messages are about.
    pub task: String,
    /// The messages it is of.
    pub messages: Vec<Message>,
    /// Where they stand.
    pub cut: Cut,
}

/// The room that a request has. Counts are of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The model's window, where it is known; without it only the number of messages counts.
    pub window: Option<u32>,
    /// Set aside for the reply.
    pub reply: u64,
    /// What the request holds beside the conversation: tools or a schema, and what is added at its
    /// end, such as the view of the working memory.
    pub beside: u64,
}

impl Room {
    /// Room with what the reply may take set aside: `max_reply` where the persona names it, else a
    /// quarter of the window, 4,096 at most.
    pub fn new(window: Option<u32>, max_reply: Option<u32>, beside: u64) -> Room {
        let usual = window.map_or(MAX_USUAL_REPLY, |w| (w / 4).min(MAX_USUAL_REPLY));
        Room { window, reply: max_reply.unwrap_or(usual).into(), beside }
    }

    /// The room to reckon with after a provider has said that a request was too long: less than was
    /// `counted` for its messages and what stood beside them, and no more than the window that the
    /// provider `named`. The part set aside for the reply shrinks with it; ask for no longer a reply.
    pub fn after_overflow(self, named: Option<u32>, counted: u64) -> Room {
        let holds = counted.saturating_mul(3) / 4;
        let reply = self.reply.min(counted / 4);
        let window = u32::try_from(holds.saturating_add(reply)).unwrap_or(u32::MAX).max(1);
        match named.filter(|named| *named < window) {
            Some(named) => Room { window: Some(named), reply: reply.min(u64::from(named) / 4), ..self },
            None => Room { window: Some(window), reply, ..self },
        }
    }

    /// Most tokens of messages that can be sent at all.
    fn hard(&self) -> u64 {
        self.window.map_or(u64::MAX, |w| u64::from(w).saturating_sub(self.reply + self.beside))
    }

    /// Most tokens of messages before the oldest are summarised.
    fn soft(&self, share: f64) -> u64 {
        let Some(window) = self.window else { return u64::MAX };
        ((f64::from(window) * share) as u64).saturating_sub(self.beside).min(self.hard())
    }
}

const MAX_USUAL_REPLY: u32 = 4_096;

/// Messages that one summary is to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cut {
    /// The first of them.
    pub from: usize,
    /// The first after them.
    pub to: usize,
    /// Most tokens that the message with the summary may take, by the counter that the cut was
    /// chosen with. Less than the messages take.
    pub most: u64,
}

/// What to do with a conversation before the model is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Send it as it is.
    Send,
    /// Have these messages summarised ([`Summariser`]), put what [`accept`] makes of the summary in
    /// their place ([`History::summarise`]), and decide again.
    Summarise(Cut),
    /// Shorten these messages ([`History::shorten`]), and decide again.
    Shorten(Vec<Shortening>),
}

/// The conversation can be made no smaller, and its model's window has no room for it. Counts are
/// of tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the conversation does not fit the model's window of {}, and nothing in it is left to shorten: \
     {} for the system text, examples and task, {} for loaded skills, answers and failure summaries, {} for the \
     rest, {} for tools and working memory, {} set aside for the reply. Use a model with a larger window, state the \
     task in fewer words, or lower max_reply_tokens",
    plural((*.window).into(), "token"), count(*.head), count(*.pinned), count(*.rest), count(*.beside), count(*.reply)
)]
pub struct DoesNotFit {
    /// What the model takes at most.
    pub window: u32,
    /// System text, examples and task.
    pub head: u64,
    /// Pinned messages.
    pub pinned: u64,
    /// Open calls, and what is left of everything else.
    pub rest: u64,
    /// What the request holds beside the conversation.
    pub beside: u64,
    /// Set aside for the reply.
    pub reply: u64,
}

impl DoesNotFit {
    /// The same where the provider has named a window of `named` tokens and refused a request that was
    /// smaller by our estimates: the window that they were corrected to is nobody's number.
    pub fn as_the_provider_counts(&self, named: u32) -> String {
        let DoesNotFit { window, head, pinned, rest, beside, reply } = *self;
        let n = count;
        format!(
            "the conversation does not fit the model's window of {}: its provider says that the request is larger, \
             and nothing in it is left to shorten. By Posse's estimates, which count too few of this provider's tokens \
             (about {} of them fill the window), it has {} for the system text, examples and task, {} for loaded skills, \
             answers and failure summaries, {} for the rest, {} for tools and working memory, and {} are set aside for \
             the reply. Use a model with a larger window, state the task in fewer words, or lower max_reply_tokens",
            plural(named.into(), "token"),
            n(window.into()),
            n(head),
            n(pinned),
            n(rest),
            n(beside),
            n(reply)
        )
    }
}

/// Decides what must become of a conversation before it is sent.
///
/// `calls_open`: whether the last turn has calls whose results are not all there yet; the turn then
/// stays as it is. (With native calling that can be seen from the messages; with structured calling
/// it cannot.) `measure` is asked once about each message, and about each form that a shortened one
/// may take.
pub fn decide(
    history: &History,
    calls_open: bool,
    rules: &ContextRules,
    room: Room,
    measure: &dyn Measure,
) -> Result<Decision, DoesNotFit> {
    let plan = plan::Plan::new(history, calls_open, room, rules, measure);
    if plan.total > plan.soft
        && let Some(cut) = plan.for_budget(plan.keep_last, plan.worth_it())
    {
        return Ok(Decision::Summarise(cut));
    }
    if plan.total > plan.hard {
        return plan.emergency();
    }
    let cut = are_many(history, rules, room).then(|| plan.for_count(rules.chunk)).flatten();
    Ok(cut.map_or(Decision::Send, Decision::Summarise))
}

/// Messages after the head beyond which the oldest are summarised, where the rules and the window say nothing.
pub const USUAL_MESSAGES: u32 = 20;

/// Whether there are more messages than the rules allow. A known window is a better measure than their number.
pub(super) fn are_many(history: &History, rules: &ContextRules, room: Room) -> bool {
    let usual = room.window.is_none().then_some(USUAL_MESSAGES);
    let most = rules.max_messages.or(usual).filter(|most| *most > 0);
    most.is_some_and(|most| history.messages().len() - history.head() > most as usize)
}
