//! Unique keys that will not come free by themselves: the job that holds one cannot end.
//!
//! A key is stuck when its holder is held by a pause or by a limit of 0, or waits for a job that will not
//! complete, or for nothing at all, or, longer than an hour, for a person. A job that is at work, due
//! later, or merely behind others in its queue is not: it will end one way or the other.

use std::collections::{BTreeMap, HashMap};

use super::{Facts, Finding};
use crate::clock::Millis;
use crate::job::dependency::OnFailed;
use crate::job::{JobId, JobState};
use crate::port::{Awaited, Waiting};
use crate::queue::rules::{Gate, Held, Scope};
use crate::text::rough_duration;

/// A key is stuck when that has been so for longer.
pub const STUCK_MS: Millis = 3_600_000;

/// Keys named for each reason.
const NAMED: usize = 3;

/// Jobs that wait for each other are followed so far.
const DEEP: usize = 100;

/// Why a job cannot end.
struct Stuck {
    why: String,
    way_out: String,
    since: Millis,
    /// Nobody meant it to be so.
    is_fault: bool,
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let ward = Ward::new(facts);
    // Holders that are stuck for one reason are told of together.
    let mut reasons: BTreeMap<String, (Stuck, Vec<&Waiting>)> = BTreeMap::new();
    let mut looked_at = 0;
    for waiting in facts.waiting.iter().filter(|waiting| waiting.key.is_some()) {
        looked_at += 1;
        if let Some(stuck) = ward.stuck(waiting, 0).filter(|stuck| facts.now - stuck.since >= STUCK_MS) {
            let since = stuck.since;
            let (told, holders) = reasons.entry(stuck.why.clone()).or_insert_with(|| (stuck, Vec::new()));
            told.since = told.since.min(since);
            holders.push(waiting);
        }
    }
    if reasons.is_empty() {
        let message = match looked_at {
            0 => "none is held by a job that waits".into(),
            n => format!("{n} held by jobs that wait, all of which can end"),
        };
        return vec![Finding::ok("unique keys", message)];
    }
    let told = |(why, (stuck, holders)): (String, (Stuck, Vec<&Waiting>))| {
        let named = holders.iter().take(NAMED).map(|waiting| {
            let key = waiting.key.as_deref().unwrap_or_default();
            format!("'{key}' by job {}", waiting.job)
        });
        let named: Vec<_> = named.collect();
        let more = match holders.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let long = rough_duration(facts.now - stuck.since);
        let message = format!("held for {long} by what cannot end: {}{more}; it {why}", named.join(", "));
        match stuck.is_fault {
            true => Finding::wrong("unique keys", message, stuck.way_out),
            false => Finding::warning("unique keys", message, stuck.way_out),
        }
    };
    reasons.into_iter().map(told).collect()
}

/// The jobs that wait, and the rules as they are with nothing at work.
struct Ward<'a> {
    facts: &'a Facts,
    jobs: HashMap<JobId, &'a Waiting>,
    gates: HashMap<&'a str, Gate>,
}

impl<'a> Ward<'a> {
    fn new(facts: &'a Facts) -> Ward<'a> {
        let jobs = facts.waiting.iter().map(|waiting| (waiting.job, waiting)).collect();
        let mut gates = HashMap::new();
        for Waiting { role, .. } in &facts.waiting {
            // What a gate still holds when nothing runs, no end of a job will let through.
            let gate = || Gate::new(role, facts.rules.clone(), [], facts.now);
            gates.entry(role.as_str()).or_insert_with(gate);
        }
        Ward { facts, jobs, gates }
    }

    fn stuck(&self, waiting: &Waiting, depth: usize) -> Option<Stuck> {
        match waiting.state {
            JobState::Suspended => self.suspended(waiting, depth),
            JobState::Available | JobState::Scheduled | JobState::Retryable if waiting.due_at <= self.facts.now => {
                self.held(waiting)
            }
            _ => None,
        }
    }

    fn held(&self, waiting: &Waiting) -> Option<Stuck> {
        let held = self.gates.get(waiting.role.as_str())?.held(&waiting.queue, &waiting.concurrency_key)?;
        let paused_at = |scope: &Scope| self.facts.rules.iter().find(|rule| rule.scope == *scope)?.paused_at;
        let (since, way_out) = match &held {
            Held::Paused { scope } => (paused_at(scope), format!("posse resume {}", flag(scope))),
            Held::Full { scope, limit: 0 } | Held::FullKey { scope, limit: 0, .. } => {
                (None, format!("posse limit remove {}", flag(scope)))
            }
            _ => return None,
        };
        let why = format!("cannot start: {held}");
        let way_out = format!("{way_out}, or posse job cancel {}", waiting.job);
        Some(Stuck { why, way_out, since: since.unwrap_or(0).max(waiting.due_at), is_fault: false })
    }

    fn suspended(&self, waiting: &Waiting, depth: usize) -> Option<Stuck> {
        let cancel = format!("posse job cancel {}", waiting.job);
        if waiting.waits_for.is_empty() {
            let Some(since) = waiting.asked_at else {
                let why = "is suspended, and no job and no question is left that would let it go on".into();
                return Some(Stuck { why, way_out: cancel, since: waiting.due_at, is_fault: true });
            };
            let why = "waits for a person's answer".into();
            return Some(Stuck { why, way_out: "posse question list".into(), since, is_fault: false });
        }
        waiting.waits_for.iter().find_map(|on| self.hopeless(waiting, on, depth))
    }

    fn hopeless(&self, waiting: &Waiting, on: &Awaited, depth: usize) -> Option<Stuck> {
        let (other, cancel) = (on.job, format!("posse job cancel {}", waiting.job));
        let Some(state) = on.state else {
            let why = format!("waits for job {other}, which was deleted");
            return Some(Stuck { why, way_out: cancel, since: waiting.due_at, is_fault: true });
        };
        if state.is_final() {
            let is_meant = on.on_failed == OnFailed::Wait && state != JobState::Completed;
            let why = format!("waits for job {other}, which is {state}");
            let way_out = format!("posse job retry {other}, or {cancel}");
            let since = on.ended_at.unwrap_or(waiting.due_at).max(waiting.due_at);
            return Some(Stuck { why, way_out, since, is_fault: !is_meant });
        }
        if depth == DEEP {
            return None;
        }
        let stuck = self.stuck(self.jobs.get(&other)?, depth + 1)?;
        Some(Stuck { why: format!("waits for job {other}, which {}", stuck.why), ..stuck })
    }
}

/// A scope as the command line takes it.
fn flag(scope: &Scope) -> String {
    match scope {
        Scope::All => "--all".into(),
        named => format!("--{} '{}'", named.kind(), named.name()),
    }
}
