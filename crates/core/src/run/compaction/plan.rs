//! Which messages go: the arithmetic behind [`super::decide`].

use std::ops::Range;

use super::history::{History, Part, Shortening};
use super::{Cut, Decision, DoesNotFit, Measure, Room, summary};
use crate::model::Message;
use crate::persona::ContextRules;

/// Most tokens of one summary.
const MAX_SUMMARY: u64 = 2_000;

/// No message is shortened to less than this by intent, in tokens.
const MIN_SHORTENED: u64 = 48;

/// A piece of the conversation that stays whole: a turn with its results, or one other message.
struct Unit {
    messages: Range<usize>,
    tokens: u64,
    turn: bool,
    /// Nothing in it is pinned, and no call in it waits for its result.
    movable: bool,
    /// Messages that are not summaries.
    fresh: usize,
}

/// A conversation measured.
pub(super) struct Plan<'a> {
    history: &'a History,
    measure: &'a dyn Measure,
    tokens: Vec<u64>,
    units: Vec<Unit>,
    room: Room,
    /// How many of the last closed turns stay, while there is room for them.
    pub keep_last: usize,
    pub total: u64,
    pub soft: u64,
    pub hard: u64,
    /// What the shortest summary takes.
    floor: u64,
}

impl<'a> Plan<'a> {
    pub fn new(
        history: &'a History,
        calls_open: bool,
        room: Room,
        rules: &ContextRules,
        measure: &'a dyn Measure,
    ) -> Plan<'a> {
        let tokens: Vec<u64> = (0..history.messages().len()).map(|at| measure.at(history, at)).collect();
        let total = tokens.iter().sum();
        let units = units(history, &tokens, calls_open);
        let floor = measure.message(&summary::shortest());
        let (soft, keep_last) = (room.soft(rules.budget_share.into()), rules.keep_last as usize);
        Plan { history, measure, tokens, units, room, keep_last, total, soft, hard: room.hard(), floor }
    }

    /// What a cut for the budget has to free. Less is not worth a summary and a cold prompt cache.
    pub fn worth_it(&self) -> u64 {
        (self.soft / 16).max(1)
    }

    /// Most tokens of a summary of so many.
    fn most(&self, replaced: u64) -> u64 {
        (replaced / 3).min(MAX_SUMMARY).min(self.hard / 8).max(self.floor)
    }

    /// Units that may go, in pieces that lie between those that may not, oldest first. The last
    /// `keep` closed turns and what comes after them may not.
    fn gaps(&self, keep: usize) -> impl Iterator<Item = &[Unit]> {
        let turns = self.units.iter().filter(|unit| unit.turn);
        let end = match keep {
            0 => usize::MAX,
            _ => turns.rev().nth(keep - 1).map_or(0, |unit| unit.messages.start),
        };
        let goes = move |unit: &Unit| unit.movable && unit.messages.end <= end;
        self.units.chunk_by(move |a, b| goes(a) && goes(b)).filter(move |gap| goes(&gap[0]))
    }

    /// The cut that begins at a gap's beginning, where the summary stands if there is one, and ends
    /// where `enough` says so of the messages and tokens that it takes in.
    fn cut(&self, gap: &[Unit], enough: impl Fn(usize, u64) -> bool) -> Option<Cut> {
        let (mut fresh, mut tokens, mut to) = (0, 0, gap[0].messages.start);
        for unit in gap {
            if fresh > 0 && enough(fresh, tokens) {
                break;
            }
            fresh += unit.fresh;
            tokens += unit.tokens;
            to = unit.messages.end;
        }
        let cut = Cut { from: gap[0].messages.start, to, most: self.most(tokens) };
        (fresh > 0 && cut.most < tokens).then_some(cut)
    }

    /// The cut for too many messages: the oldest place that has a whole chunk of them.
    pub fn for_count(&self, chunk: u32) -> Option<Cut> {
        let chunk = chunk.max(2) as usize;
        self.gaps(self.keep_last).find_map(|gap| {
            let there: usize = gap.iter().map(|unit| unit.fresh).sum();
            let cut = self.cut(gap, |fresh, tokens| fresh >= chunk && self.most(tokens) < tokens);
            cut.filter(|_| there >= chunk)
        })
    }

    /// The cut for too many tokens: from the oldest place where it frees at least `least`, as much
    /// as brings the whole down to half the budget.
    pub fn for_budget(&self, keep: usize, least: u64) -> Option<Cut> {
        self.gaps(keep).find_map(|gap| {
            let left = |tokens: u64| self.total - tokens + self.most(tokens);
            let cut = self.cut(gap, |_, tokens| left(tokens) <= self.soft / 2)?;
            let tokens: u64 = self.tokens[cut.from..cut.to].iter().sum();
            (tokens >= cut.most + least).then_some(cut)
        })
    }

    /// What to do when the window itself is too small and nothing old is left to summarise.
    pub fn emergency(&self) -> Result<Decision, DoesNotFit> {
        let fair = (self.hard / 8).max(MIN_SHORTENED);
        let shortened = |list: Vec<_>| (!list.is_empty()).then_some(Decision::Shorten(list));
        let fairly = || (self.with_results_of(fair) <= self.hard).then(|| self.shortenings(fair)).and_then(shortened);
        let kept = || (0..self.keep_last).rev().find_map(|keep| self.for_budget(keep, self.worth_it()));
        let hardly = || self.for_budget(0, 1).map(Decision::Summarise);
        fairly()
            .or_else(|| kept().map(Decision::Summarise))
            .or_else(hardly)
            .or_else(|| shortened(self.shortenings(MIN_SHORTENED)))
            .ok_or_else(|| self.does_not_fit())
    }

    /// Positions of messages that may be shortened.
    fn shortenable(&self) -> impl Iterator<Item = usize> {
        let may = |at: &usize| matches!(self.history.part(*at), Some(Part::Result | Part::Summary));
        (self.history.head()..self.tokens.len()).filter(may)
    }

    /// Tokens of the whole if no result and no summary had more than `cap`.
    fn with_results_of(&self, cap: u64) -> u64 {
        self.total - self.shortenable().map(|at| self.tokens[at].saturating_sub(cap)).sum::<u64>()
    }

    /// Shortens the largest results and summaries to one size, the largest with which the whole is
    /// within the budget; `least`, if it is not within it even then.
    fn shortenings(&self, least: u64) -> Vec<Shortening> {
        let goal = self.soft.max(self.with_results_of(least).min(self.hard));
        let (mut cap, mut above) = (least, self.shortenable().map(|at| self.tokens[at]).max().unwrap_or(0));
        while cap + 1 < above {
            let middle = cap + (above - cap) / 2;
            if self.with_results_of(middle) <= goal { cap = middle } else { above = middle }
        }
        self.shortenable().filter(|at| self.tokens[*at] > cap).filter_map(|at| self.shortening(at, cap)).collect()
    }

    /// How the message becomes at most `cap` tokens; as few as it can, if the mark alone has more;
    /// none if it cannot become less.
    fn shortening(&self, at: usize, cap: u64) -> Option<Shortening> {
        let now = self.tokens[at];
        let (begin, end) = self.history.pieces(at);
        let bytes = begin + end;
        let mut keep = usize::try_from(bytes as u64 * cap / now.max(1)).unwrap_or(bytes).min(bytes);
        loop {
            let by = Shortening { at, begin: keep - keep / 3, end: keep / 3 };
            let tokens = self.history.shortened(by).map_or(now, |(message, _)| self.measure.message(&message));
            if tokens <= cap || keep == 0 {
                return (tokens < now).then_some(by);
            }
            keep = keep * 3 / 4;
        }
    }

    fn does_not_fit(&self) -> DoesNotFit {
        let of = |part| {
            let positions = (0..self.tokens.len()).filter(|at| self.history.part(*at) == Some(part));
            positions.map(|at| self.tokens[at]).sum::<u64>()
        };
        let (head, pinned) = (of(Part::Head), of(Part::Pinned));
        let Room { window, reply, beside } = self.room;
        DoesNotFit { window: window.unwrap_or(u32::MAX), head, pinned, rest: self.total - head - pinned, beside, reply }
    }
}

/// Cuts the conversation after its head into units.
///
/// A turn with calls ends with their results. A turn without any is either a last word, or a step of
/// structured calling, whose results are user messages that nothing else marks: it takes in all that
/// follows, up to the next turn.
fn units(history: &History, tokens: &[u64], calls_open: bool) -> Vec<Unit> {
    let messages = history.messages();
    let is_turn = |at: usize| matches!(messages[at], Message::Assistant { .. });
    let is_summary = |at: usize| history.part(at) == Some(Part::Summary);
    let open_from = if calls_open { (0..messages.len()).rev().find(|at| is_turn(*at)) } else { None };
    let mut units = Vec::new();
    let mut from = history.head();
    while from < messages.len() {
        let mut to = from + 1;
        let mut closed = true;
        if let Message::Assistant { calls, .. } = &messages[from] {
            let goes_on = |at: usize| match calls.is_empty() {
                true => !is_turn(at) && !is_summary(at),
                false => matches!(messages[at], Message::Tool { .. }),
            };
            while to < messages.len() && goes_on(to) {
                to += 1;
            }
            let answered = |id: &str| {
                let of = |m: &&Message| matches!(m, Message::Tool { call_id, .. } if call_id == id);
                messages[from + 1..to].iter().any(|m| of(&m))
            };
            closed = match calls.is_empty() {
                true => to > from + 1 || to < messages.len(),
                false => calls.iter().all(|call| answered(&call.id)),
            };
        }
        let open = !closed || open_from.is_some_and(|open| from >= open);
        let pinned = (from..to).any(|at| history.part(at) == Some(Part::Pinned));
        units.push(Unit {
            tokens: tokens[from..to].iter().sum(),
            turn: is_turn(from) && !open,
            movable: !open && !pinned,
            fresh: (from..to).filter(|at| !is_summary(*at)).count(),
            messages: from..to,
        });
        from = to;
    }
    units
}
