//! Calls that are made again and again and give the same each time.
//!
//! The sign is an equal call with an equal result, whichever the tool. A call whose result changes is at work on
//! something, and so is one that is repeated after something else has changed.

use crate::text::plural;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::cycle::{OpenCall, fingerprint};
use super::machine::MAX_REPEATS;
use crate::journal::CallOutcome;
use crate::model::CallRequest;
use crate::tool::EffectClass;

/// With this begins what Posse says of a repetition, behind a tool's own words.
const REMARK: &str = "\n\nYou had made this same call before, and nothing has changed since. ";

/// What is known of one call.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    result: u64,
    /// How many replies in a row it gave that to, since something else last changed.
    times: u32,
    /// The reply that made it last.
    reply: u32,
    only_reads: bool,
}

/// The calls of a conversation, each with its last result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Repeats {
    seen: BTreeMap<u64, Seen>,
    /// The calls lately asked for, from the last one that was new, each once.
    habit: Vec<CallRequest>,
    /// The number of the last reply.
    reply: u32,
    /// The call that was repeated most often, where that was too often.
    stuck: Option<CallRequest>,
}

impl Repeats {
    /// Takes note of a reply.
    pub fn replied(&mut self) {
        self.reply += 1;
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

    /// Takes in how a call ended that ran.
    pub fn ended(&mut self, call: &OpenCall, outcome: CallOutcome, text: &str) {
        let only_reads = call.effect == Some(EffectClass::Pure);
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
            self.seen.insert(key, Seen { result, times: 1, reply, only_reads });
            return;
        };
        // However often in one reply: it has not been told yet.
        if seen.reply != reply || seen.times == 0 {
            seen.times += 1;
            seen.reply = reply;
        }
        if seen.times >= MAX_REPEATS {
            self.stuck = Some(call.request.clone());
        }
        if may_have_changed_something {
            // It did before what it did now; but who looks after it has a reason to.
            self.seen.values_mut().filter(|seen| seen.only_reads).for_each(|seen| seen.times = 0);
        }
    }

    /// From here on, the same result tells something new.
    pub fn something_changed(&mut self) {
        self.seen.values_mut().for_each(|seen| seen.times = 0);
        self.stuck = None;
    }

    /// The call that gave the same [`MAX_REPEATS`] times in a row, if one did.
    pub fn stuck(&self) -> Option<&CallRequest> {
        self.stuck.as_ref()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Repeats::default();
    }

    /// How often in a row a call gave the same, counting this result.
    pub fn times_with(&self, call: &CallRequest, outcome: CallOutcome, text: &str) -> u32 {
        let seen = self.seen.get(&hash(&fingerprint(call)));
        let same = seen.filter(|seen| seen.result == result_of(outcome, text));
        same.map_or(1, |seen| seen.times + u32::from(seen.reply != self.reply || seen.times == 0))
    }

    fn times(&self, call: &CallRequest) -> u32 {
        self.seen.get(&hash(&fingerprint(call))).map_or(0, |seen| seen.times)
    }

    /// The calls lately asked for, last first, that gave the same at least `often` times in a row.
    pub fn habits(&self, often: u32) -> impl Iterator<Item = &CallRequest> {
        self.habit.iter().rev().filter(move |call| self.times(call) >= often)
    }
}

/// A remark on a call that gave the same `times` times in a row.
pub(super) fn remark(times: u32, next: &str) -> String {
    let mut text = format!("{REMARK}{next}");
    if times > 2 {
        let warning = format!(
            " That makes {} with the same result; after {MAX_REPEATS} the run ends as stuck.",
            plural(times.into(), "time")
        );
        text.push_str(&warning);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_makes_no_difference_and_everything_else_does() {
        let same = |a: &str, b: &str| result_of(CallOutcome::Done, a) == result_of(CallOutcome::Done, b);
        assert!(same("exit code 2, after 0.1 s\nno rule", "exit code 2, after 10.3 s\nno rule"));
        assert!(same("finished in 0.03s\nreal 0m0.012s", "finished in 1.25s\nreal 0m1.212s"));
        assert!(same("a", &format!("a{}", remark(4, "Do something else."))));
        for (a, b) in [("3 lines", "4 lines"), ("v1.2", "v1.3"), ("1.5 GB", "1.6 GB"), ("5 s", "10 s"), ("1.2", "1.3")]
        {
            assert!(!same(a, b), "{a} and {b}");
        }
        assert_ne!(result_of(CallOutcome::Done, "a"), result_of(CallOutcome::Unknown, "a"));
    }
}
