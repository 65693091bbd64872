//! Whether the next request fits the model's window, and what is to be done when it does not.

use super::compaction::{self, Cut, Decision, Measure, Purpose, Room, ToSummarise};
use super::prompt::told_of_tools;
use super::{Run, finish};
use crate::model::Message;
use crate::model::conversation;
use crate::model::tokens::{self, Tally};
use crate::persona::ContextRules;
use crate::run::journal::Overflow;
use crate::tool::Reader;

/// What is to be counted by the model's tokenizer, as one number.
#[derive(Debug, Clone, PartialEq)]
pub struct ToCount {
    /// The message's position in the conversation at work; absent for what is told of tools.
    pub message: Option<usize>,
    /// Its texts, none of them empty. Each is counted by itself.
    pub texts: Vec<String>,
}

/// A token has at least so many bytes on average, in any language of a view: turns room into bytes.
const BYTES_OF_TOKEN: u64 = 3;

/// Most tokens of the summary of a failed try.
const FAILURE_TOKENS: u64 = 1_500;

/// Most tokens of a request that is certainly below every limit.
fn roughly(room: &Room, rules: &ContextRules) -> u64 {
    let Some(window) = room.window else { return u64::MAX };
    ((f64::from(window) * f64::from(rules.budget_share)) as u64).min(u64::from(window).saturating_sub(room.reply))
}

impl Run {
    /// What must become of the conversation before the model can be asked; why nothing helps, where nothing does.
    pub(super) fn fit(&self) -> Result<Decision, String> {
        let (rules, room, top) = (self.context_rules(), self.room(), self.top());
        let total = self.gauge.tokens(top.history.total()) + room.beside;
        // Exact decisions look at every message; nearly always a look at their sum is enough.
        if !compaction::are_many(&top.history, &rules, room) && total <= roughly(&room, &rules) {
            return Ok(Decision::Send);
        }
        compaction::decide(&top.history, !top.open.is_empty(), &rules, room, &self.gauge).map_err(|error| {
            let named = self.overflow.and_then(|overflow| overflow.window).filter(|named| *named > error.window);
            named.map_or_else(|| error.to_string(), |named| error.as_the_provider_counts(named))
        })
    }

    /// Why the model asked for a new plan, if that is what it waits for.
    pub(super) fn replan_reason(&self) -> Option<String> {
        let call = self.top().open.first().filter(|call| call.request.name == finish::FINISH)?;
        match finish::read(&call.request.arguments).ok()? {
            finish::Finishing::Replan(reason) => Some(reason),
            _ => None,
        }
    }

    /// Messages to be summarised.
    pub(super) fn summary(&self, purpose: Purpose, cut: Cut) -> ToSummarise {
        let messages = self.messages()[cut.from..cut.to].to_vec();
        ToSummarise { purpose, task: self.top().task.clone(), messages, cut }
    }

    /// What the model's tokenizer is to count before it is decided whether the next request fits.
    ///
    /// Nothing where the request fits even if our estimates of it are as wrong as they ever are; so
    /// most requests cost no count, and none is cut because of an estimate.
    pub(super) fn to_count(&self) -> Vec<ToCount> {
        let room = self.reckoned(0);
        let can = self.opening.as_ref().filter(|opening| opening.has_tokenizer && room.window.is_some());
        let Some(opening) = can else { return Vec::new() };
        let top = self.top();
        let countable = [top.history.total(), self.tools_tokens].into_iter().sum();
        let most = self.gauge.at_most(countable).saturating_add(self.calibrated(self.uncountable()));
        if most <= roughly(&room, &self.context_rules()) {
            return Vec::new();
        }
        let tools = || ToCount { message: None, texts: vec![told_of_tools(opening, &self.found)] };
        let message = |at| {
            let texts = tokens::texts(&top.history.messages()[at]).filter(|text| !text.is_empty());
            ToCount { message: Some(at), texts: texts.map(str::to_owned).collect() }
        };
        let tools = (self.tools_tokens.estimated > 0).then(tools);
        tools.into_iter().chain(top.history.uncounted().map(message)).collect()
    }

    /// The model's window in tokens, as far as it is known.
    pub fn window(&self) -> Option<u32> {
        self.reckoned(0).window
    }

    /// Who reads the results of calls that are made now. A quarter of the window for one of them leaves room for the others.
    pub fn reader(&self) -> Reader {
        let bytes = |window| u64::from(window) / 4 * BYTES_OF_TOKEN;
        let room = self.window().map(bytes).and_then(|bytes| usize::try_from(bytes).ok());
        Reader { task: self.top().task.clone(), room, computes: false }
    }

    /// Most tokens of the next reply, so that the window has room for it behind the request.
    pub(super) fn reply_room(&self) -> Option<u32> {
        let left = u64::from(self.window()?).saturating_sub(self.request_tokens());
        let most = if self.overflow.is_some() { self.room().reply.min(left) } else { left };
        Some(u32::try_from(most).unwrap_or(u32::MAX).max(1))
    }

    /// What the next request has, in tokens not corrected, and without what a provider's rules may add.
    pub(super) fn request_tally(&self) -> Tally {
        [self.top().history.total(), self.tools_tokens, Tally::estimated(self.tail_tokens())].into_iter().sum()
    }

    /// Most tokens of the next request, whoever it is sent to: those that decide whether it fits.
    pub fn request_tokens(&self) -> u64 {
        self.gauge.tokens(self.top().history.total()).saturating_add(self.beside())
    }

    /// Tokens of a message for this run's model, by our estimate and what corrects it.
    pub fn count(&self, message: &Message) -> u64 {
        self.gauge.message(message)
    }

    /// The same for later, as far as is known now.
    pub fn counter(&self) -> impl Fn(&Message) -> u64 + use<> {
        let gauge = self.gauge;
        move |message| gauge.message(message)
    }

    fn calibrated(&self, estimate: u64) -> u64 {
        self.gauge.tokens(Tally::estimated(estimate))
    }

    fn context_rules(&self) -> ContextRules {
        self.opening.as_ref().map(|opening| opening.persona.context.clone()).unwrap_or_default()
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
        self.gauge.tokens(self.tools_tokens).saturating_add(self.calibrated(self.uncountable()))
    }

    /// Tokens, estimated, of what no tokenizer is asked about: the view, and what providers' rules may add.
    fn uncountable(&self) -> u64 {
        let history = &self.top().history;
        let tail = match self.tail_tokens() {
            0 => 0,
            tokens => tokens + conversation::added_behind(history.messages().last()),
        };
        tail + history.added() + conversation::added_around()
    }

    /// Most bytes of the view of the working memory: it may take half of what the head leaves.
    pub(super) fn view_bytes(&self) -> Option<usize> {
        let window = match self.overflow {
            Some(Overflow { window, counted }) => window.map_or(counted, u64::from),
            None => self.opening.as_ref()?.context_window?.into(),
        };
        let history = &self.top().history;
        let head: u64 = (0..history.head()).map(|at| self.gauge.at(history, at)).sum();
        let reply = self.plain_room(0).reply;
        let left = window.saturating_sub(head + reply + self.gauge.tokens(self.tools_tokens));
        usize::try_from(left / 2 * BYTES_OF_TOKEN).ok()
    }

    /// The part of the conversation that a new plan replaces, with the room for what is kept of it.
    pub(super) fn failed_try(&self) -> Cut {
        let from = self.top().history.head();
        Cut { from, to: self.messages().len(), most: FAILURE_TOKENS }
    }
}
