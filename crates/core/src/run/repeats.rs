//! Calls that are made again and again and give the same each time.
//!
//! The sign is an equal call with an equal result, whichever the tool. A call whose result changes is at work on
//! something, and so is one that is repeated after something else has changed.
//!
//! Who looks again after a while waits for something, and is let look for longer: what counts is a part of a repetition
//! then, by how long the calls since the last look took. What models took is no wait. A row that has cost much ends all
//! the same.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use super::call::{OpenCall, fingerprint};
use crate::model::CallRequest;
use crate::run::journal::CallOutcome;
use crate::text::plural;
use crate::tool::EffectClass;
use crate::tool::calls::EXECUTE_CODE;

/// How often in a row an equal call may give an equal result, with nothing else changed in between: then the
/// conversation ends as stuck. From the second time on the model is told. After a wait a time counts less, see `repeats`.
pub const MAX_REPEATS: u32 = 12;

/// How often of these, where calling is structured, until its tool is left out of the next step's schema.
pub const HABIT: u32 = 2;

/// How often in a row calls of one tool that only reads may fail, where calling is structured, until it is left out of the
/// next step's schema: a small model asks the same in ever other words.
const IN_VAIN: u32 = 2;

/// With this begins what Posse says of a repetition, behind a tool's own words.
const REMARK: &str = "\n\nYou had made this same call before, and nothing has changed since. ";

/// A repetition without a wait, in parts.
const WHOLE: u32 = 8;

/// Most tokens that replies may take in a row of equal results, from its [`MAX_REPEATS`]th on.
const MOST_TOKENS: u64 = 250_000;

/// How much of a repetition it is that comes after so long a wait. A row has 89 at most: the first counts whole.
fn part(waited_ms: u64) -> u32 {
    match waited_ms / 1000 {
        0..5 => WHOLE,
        5..15 => 4,
        15..30 => 2,
        _ => 1,
    }
}

/// What is known of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    result: u64,
    /// How many replies in a row it gave that to, since something else last changed.
    times: u32,
    /// What these came to, in parts of a repetition.
    parts: u32,
    /// How long all calls had taken when it ended last.
    at_ms: u64,
    /// The tokens that all replies had taken at the first of the row.
    from_tokens: u64,
    /// The reply that made it last.
    reply: u32,
    only_reads: bool,
}

impl Seen {
    fn begin_anew(&mut self) {
        (self.times, self.parts) = (0, 0);
    }
}

/// The calls of a conversation, each with its last result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Repeats {
    seen: BTreeMap<u64, Seen>,
    /// The calls lately asked for, from the last one that was new, each once.
    habit: Vec<CallRequest>,
    /// The tool that only reads whose calls failed last, and how many of them in a row.
    in_vain: Option<(String, u32)>,
    /// The number of the last reply.
    reply: u32,
    /// How long all calls took.
    took_ms: u64,
    /// The tokens of all replies.
    tokens: u64,
    /// The call that was repeated most often, where that was too often, and how often that was.
    stuck: Option<(CallRequest, u32)>,
}

/// A call that gives what it had given before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Again {
    /// How often in a row, with this time.
    times: u32,
    /// Whether there was a wait before.
    waited: bool,
}

impl Repeats {
    /// Takes note of a reply, and of the tokens that it took.
    pub fn replied(&mut self, tokens: u64) {
        self.reply += 1;
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// Takes note of the last call of a reply.
    pub fn asked(&mut self, call: CallRequest) {
        if self.times(&call) == 0 {
            self.habit.clear();
        }
        let same = hash(&fingerprint(&call));
        self.habit.retain(|other| hash(&fingerprint(other)) != same);
        self.habit.push(call);
    }

    /// Takes in how a call ended that ran, and for how long.
    pub fn ended(&mut self, call: &OpenCall, outcome: CallOutcome, text: &str, ms: u64) {
        self.took_ms = self.took_ms.saturating_add(ms);
        let (at_ms, from_tokens) = (self.took_ms, self.tokens);
        // What a program changed, its calls have told.
        let only_reads = call.effect == Some(EffectClass::Pure) || call.request.name == EXECUTE_CODE;
        let name = &call.request.name;
        let so_far = self.in_vain.take().filter(|(tool, _)| tool == name).map_or(0, |(_, times)| times);
        self.in_vain = (only_reads && outcome != CallOutcome::Done).then(|| (name.clone(), so_far + 1));
        let may_have_changed_something = !only_reads
            && match outcome {
                CallOutcome::Failed { category } => !category.says_nothing_was_done(),
                CallOutcome::Refused => false,
                CallOutcome::Done | CallOutcome::Unknown => true,
            };
        let (key, result, reply) = (hash(&fingerprint(&call.request)), result_of(outcome, text), self.reply);
        let same = self.seen.get_mut(&key).filter(|seen| seen.result == result && outcome != CallOutcome::Unknown);
        let Some(seen) = same else {
            if may_have_changed_something {
                self.something_changed();
            }
            self.seen.insert(key, Seen { result, times: 1, parts: WHOLE, at_ms, from_tokens, reply, only_reads });
            return;
        };
        if seen.times == 0 {
            *seen = Seen { times: 1, parts: WHOLE, at_ms, from_tokens, reply, ..*seen };
        } else if seen.reply != reply {
            // However often in one reply: it has not been told yet.
            let parts = seen.parts + part(at_ms - seen.at_ms);
            *seen = Seen { times: seen.times + 1, parts, at_ms, reply, ..*seen };
        }
        let has_cost_much = seen.times >= MAX_REPEATS && from_tokens - seen.from_tokens >= MOST_TOKENS;
        if seen.parts >= MAX_REPEATS * WHOLE || has_cost_much {
            self.stuck = Some((call.request.clone(), seen.times));
        }
        if may_have_changed_something {
            // It did before what it did now; but who looks after it has a reason to.
            self.seen.values_mut().filter(|seen| seen.only_reads).for_each(Seen::begin_anew);
        }
    }

    /// From here on, the same result tells something new.
    pub fn something_changed(&mut self) {
        self.seen.values_mut().for_each(Seen::begin_anew);
        self.stuck = None;
    }

    /// The call that gave the same too often in a row, if one did, and how often.
    pub fn stuck(&self) -> Option<(&CallRequest, u32)> {
        self.stuck.as_ref().map(|(call, times)| (call, *times))
    }

    /// Whether a call that ends like this, after `ms`, gives what it gave last.
    pub fn again(&self, call: &CallRequest, outcome: CallOutcome, text: &str, ms: u64) -> Option<Again> {
        let seen = self.seen.get(&hash(&fingerprint(call)));
        let same = seen.filter(|seen| seen.result == result_of(outcome, text) && seen.times > 0)?;
        let waited = part(self.took_ms.saturating_add(ms) - same.at_ms) < WHOLE;
        let times = same.times + u32::from(same.reply != self.reply);
        (times > 1).then_some(Again { times, waited })
    }

    /// The tool of the last call, if that one only reads and failed.
    pub fn failed(&self) -> Option<&str> {
        self.in_vain.as_ref().map(|(tool, _)| tool.as_str())
    }

    /// The tool that gets nowhere, if the last calls were of one.
    pub fn in_vain(&self) -> Option<&str> {
        self.in_vain.as_ref().filter(|(_, times)| *times >= IN_VAIN).map(|(tool, _)| tool.as_str())
    }

    fn times(&self, call: &CallRequest) -> u32 {
        self.seen.get(&hash(&fingerprint(call))).map_or(0, |seen| seen.times)
    }

    /// The calls lately asked for, last first, that gave the same `often` times in a row, a wait counting less.
    pub fn habits(&self, often: u32) -> impl Iterator<Item = &CallRequest> {
        let parts = |call: &CallRequest| self.seen.get(&hash(&fingerprint(call))).map_or(0, |seen| seen.parts);
        self.habit.iter().rev().filter(move |call| parts(call) >= often * WHOLE)
    }
}

/// A remark on a call that gave the same again. `next` is what to do instead of a repetition.
pub(super) fn remark(Again { times, waited }: Again, next: &str) -> String {
    let mut text = match waited {
        true => format!(
            "{REMARK}If it changes by itself, wait longer before the next look: the longer a wait, the less a look counts. \
             If nothing will change it, do something different."
        ),
        false => format!("{REMARK}{next}"),
    };
    if times > 2 {
        let times = plural(times.into(), "time");
        let most = match waited {
            true => format!("after {MAX_REPEATS} without a wait, or later with waits,"),
            false => format!("after {MAX_REPEATS}"),
        };
        let _ = write!(text, " That makes {times} with the same result; {most} the run ends as stuck.");
    }
    text
}

fn result_of(outcome: CallOutcome, text: &str) -> u64 {
    let own = text.find(REMARK).map_or(text, |at| &text[..at]);
    hash(&(outcome == CallOutcome::Done, without_durations(own)))
}

/// The text without what was measured by a clock (`0.31 s`, `0m0.004s`, `12.5ms`): no two runs take as long.
fn without_durations(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let unit = behind.strip_prefix(' ').unwrap_or(behind);
        let unit_end = unit.find(|c: char| !c.is_alphabetic()).unwrap_or(unit.len());
        let is_fraction = number.trim_end_matches('.').contains('.');
        if !(is_fraction && ["s", "ms", "µs", "us", "ns", "sec", "secs", "seconds"].contains(&&unit[..unit_end])) {
            out.push_str(number);
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
