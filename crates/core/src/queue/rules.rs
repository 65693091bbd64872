//! Whether a job may start now: what is paused, and how many may run or start at once.
//!
//! Rules are rows that every process reads at each claim, so a change holds for all of them at once.
//! How many jobs run follows from the leases there are; nothing is counted up or down, so nothing
//! can stay counted when its worker dies.
//!
//! Where a scope is **fair**, its concurrency keys are served in rotation: each gives one job, its first by
//! [`rank`](crate::job::rank), and its next when every other key that has jobs which may start
//! has given one. So somebody with ten thousand jobs keeps nobody waiting who has three, however old or
//! urgent those ten thousand are: priority is a matter among the jobs of one key.

use std::collections::HashMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::job::name::{check_key, check_queue, check_role};
use crate::queue::Queue;
use crate::queue::rate::Bucket;

/// Which jobs a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "scope", content = "name", rename_all = "snake_case")]
pub enum Scope {
    /// All.
    All,
    /// Those of a queue.
    Queue(String),
    /// Those of a role.
    Role(String),
    /// Those with a concurrency key.
    Key(String),
}

impl Scope {
    /// The kind's name, as databases keep it.
    pub fn kind(&self) -> &'static str {
        match self {
            Scope::All => "all",
            Scope::Queue(_) => "queue",
            Scope::Role(_) => "role",
            Scope::Key(_) => "key",
        }
    }

    /// The name of the queue, role or key; empty for all.
    pub fn name(&self) -> &str {
        match self {
            Scope::All => "",
            Scope::Queue(name) | Scope::Role(name) | Scope::Key(name) => name,
        }
    }

    /// The scope of that kind and name, if there is such a kind.
    pub fn of(kind: &str, name: &str) -> Option<Scope> {
        match kind {
            "all" => Some(Scope::All),
            "queue" => Some(Scope::Queue(name.into())),
            "role" => Some(Scope::Role(name.into())),
            "key" => Some(Scope::Key(name.into())),
            _ => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::All => f.write_str("everything"),
            named => write!(f, "{} {}", named.kind(), named.name()),
        }
    }
}

/// How many jobs of a scope may run or start. No limit where absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// At once, over all processes. 0 lets none start.
    pub running: Option<u32>,
    /// At once with the same concurrency key. Jobs without one are not counted.
    pub running_per_key: Option<u32>,
    /// In a minute: a tenth of it (at least one) at once, the rest evenly. At least 1.
    pub per_minute: Option<u32>,
    /// Whether concurrency keys are served in rotation. Jobs without one count as one key in each queue, and the
    /// jobs of a key in two queues as two. A fair queue competes with the other queues of a role by the
    /// rank of the job that is next in it; in a fair role, and where all is fair, one rotation goes over the
    /// keys of all queues, whatever their queues' own rules say.
    pub fair: bool,
}

/// What is to be different about the limits of a scope. What is absent stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// See [`Limits::running`]; absent within takes the limit off.
    pub running: Option<Option<u32>>,
    /// See [`Limits::running_per_key`].
    pub running_per_key: Option<Option<u32>>,
    /// See [`Limits::per_minute`].
    pub per_minute: Option<Option<u32>>,
    /// See [`Limits::fair`].
    pub fair: Option<bool>,
}

impl LimitsChange {
    /// The limits after it.
    pub fn apply(self, limits: Limits) -> Limits {
        Limits {
            running: self.running.unwrap_or(limits.running),
            running_per_key: self.running_per_key.unwrap_or(limits.running_per_key),
            per_minute: self.per_minute.unwrap_or(limits.per_minute),
            fair: self.fair.unwrap_or(limits.fair),
        }
    }
}

/// What holds for a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// Which jobs.
    #[serde(flatten)]
    pub scope: Scope,
    /// Since when no job starts, if it is paused. Running ones go on.
    pub paused_at: Option<Millis>,
    /// How many may run or start.
    #[serde(flatten)]
    pub limits: Limits,
    /// When the bucket behind `per_minute` is full again, in microseconds.
    #[serde(skip)]
    pub full_at_us: i64,
}

impl Rule {
    /// Whether nothing is paused or limited by it.
    pub fn is_empty(&self) -> bool {
        self.paused_at.is_none() && self.limits == Limits::default()
    }

    fn bucket(&self) -> Option<Bucket> {
        self.limits.per_minute.map(|n| Bucket::paced(n.into(), self.full_at_us))
    }

    /// When its rate lets the next job start, if that is after `now`.
    pub fn next_start(&self, now: Millis) -> Option<Millis> {
        let wait = self.bucket().map_or(0, |bucket| bucket.wait_ms(1, now));
        (wait > 0).then(|| now.saturating_add(wait))
    }
}

/// What a job that runs counts towards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its role.
    pub role: String,
    /// Its queue.
    pub queue: String,
    /// Its concurrency key; empty without one.
    pub key: String,
}

/// Why a job may not start now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// Its scope is paused.
    #[error("{scope} is paused")]
    Paused {
        /// Which.
        scope: Scope,
    },
    /// As many run as may.
    #[error("{scope} has a limit of {limit} at once, and as many run")]
    Full {
        /// Which.
        scope: Scope,
        /// How many may run.
        limit: u32,
    },
    /// As many run with its key as may.
    #[error("{scope} has a limit of {limit} at once for each key, and as many run with the key '{key}'")]
    FullKey {
        /// Which.
        scope: Scope,
        /// How many may run.
        limit: u32,
        /// The key.
        key: String,
    },
    /// As many started as may for now.
    #[error("{scope} has a limit of {per_minute} a minute; the next may start in {} s", .wait_ms.div_euclid(1000) + 1)]
    TooFast {
        /// Which.
        scope: Scope,
        /// How many may start in a minute.
        per_minute: u32,
        /// Until the next may start, in milliseconds.
        wait_ms: Millis,
    },
}

/// Lets the jobs of one role start, or not, during one claim.
#[derive(Debug)]
pub struct Gate {
    now: Millis,
    all: Option<Seats>,
    role: Option<Seats>,
    queues: HashMap<String, Seats>,
    keys: HashMap<String, Seats>,
}

/// What is left of a rule.
#[derive(Debug)]
struct Seats {
    rule: Rule,
    bucket: Option<Bucket>,
    taken: u32,
    taken_by_key: HashMap<String, u32>,
}

impl Gate {
    /// The gate for `role`, with the rules there are and the jobs that run.
    pub fn new(role: &str, rules: Vec<Rule>, running: impl IntoIterator<Item = Running>, now: Millis) -> Gate {
        let mut gate = Gate { now, all: None, role: None, queues: HashMap::new(), keys: HashMap::new() };
        for rule in rules {
            let seats = |rule: Rule| Seats { bucket: rule.bucket(), rule, taken: 0, taken_by_key: HashMap::new() };
            match rule.scope.clone() {
                Scope::All => gate.all = Some(seats(rule)),
                Scope::Role(name) if name == role => gate.role = Some(seats(rule)),
                Scope::Role(_) => {}
                Scope::Queue(name) => drop(gate.queues.insert(name, seats(rule))),
                Scope::Key(name) => drop(gate.keys.insert(name, seats(rule))),
            }
        }
        for Running { role: its_role, queue, key } in running {
            gate.seats_of(&queue, &key, its_role == role).for_each(|seats| seats.count(&key));
        }
        gate
    }

    /// Why no job at all may start, if that is so.
    pub fn shut(&self) -> Option<Held> {
        [&self.all, &self.role].into_iter().flatten().find_map(|seats| seats.held("", self.now))
    }

    /// Why a job of this queue and key (empty without one) may not start, if it may not.
    pub fn held(&self, queue: &str, key: &str) -> Option<Held> {
        let named = [self.queues.get(queue), self.keys.get(key)];
        [self.all.as_ref(), self.role.as_ref()]
            .into_iter()
            .chain(named)
            .flatten()
            .find_map(|seats| seats.held(key, self.now))
    }

    /// Whether the keys of all queues are served in one rotation.
    pub fn is_fair(&self) -> bool {
        [&self.all, &self.role].into_iter().flatten().any(|seats| seats.rule.limits.fair)
    }

    /// Whether the keys of this queue are served in a rotation of their own.
    pub fn is_fair_in(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|seats| seats.rule.limits.fair)
    }

    /// Counts a job of this queue and key that starts.
    pub fn start(&mut self, queue: &str, key: &str) {
        let now = self.now;
        for seats in self.seats_of(queue, key, true) {
            seats.count(key);
            if let Some(bucket) = &mut seats.bucket {
                bucket.take(1, now);
            }
        }
    }

    /// The rules from whose buckets jobs were taken, with when those are full again.
    pub fn spent(self) -> impl Iterator<Item = Rule> {
        let all = self.all.into_iter().chain(self.role).chain(self.queues.into_values()).chain(self.keys.into_values());
        all.filter_map(|Seats { rule, bucket, .. }| {
            let full_at_us = bucket?.full_at_us;
            (full_at_us != rule.full_at_us).then_some(Rule { full_at_us, ..rule })
        })
    }

    fn seats_of(&mut self, queue: &str, key: &str, is_ours: bool) -> impl Iterator<Item = &mut Seats> {
        let role = self.role.as_mut().filter(|_| is_ours);
        // The empty key is no key, and no rule can be about it.
        [self.all.as_mut(), role, self.queues.get_mut(queue), self.keys.get_mut(key)].into_iter().flatten()
    }
}

impl Seats {
    fn count(&mut self, key: &str) {
        self.taken += 1;
        if self.rule.limits.running_per_key.is_some() && !key.is_empty() {
            *self.taken_by_key.entry(key.to_owned()).or_default() += 1;
        }
    }

    fn held(&self, key: &str, now: Millis) -> Option<Held> {
        let scope = || self.rule.scope.clone();
        let Limits { running, running_per_key, per_minute, fair: _ } = self.rule.limits;
        if self.rule.paused_at.is_some() {
            return Some(Held::Paused { scope: scope() });
        }
        if let Some(limit) = running.filter(|limit| self.taken >= *limit) {
            return Some(Held::Full { scope: scope(), limit });
        }
        let with_key = self.taken_by_key.get(key).copied().unwrap_or(0);
        if let Some(limit) = running_per_key.filter(|limit| !key.is_empty() && with_key >= *limit) {
            return Some(Held::FullKey { scope: scope(), limit, key: key.to_owned() });
        }
        let wait_ms = self.bucket.map_or(0, |bucket| bucket.wait_ms(1, now));
        let per_minute = per_minute.filter(|_| wait_ms > 0)?;
        Some(Held::TooFast { scope: scope(), per_minute, wait_ms })
    }
}

/// What is wrong with a rule that somebody wants to set, if anything, and what would be right.
pub fn problem(scope: &Scope, limits: &Limits) -> Option<String> {
    match scope {
        Scope::All => {}
        Scope::Queue(name) => {
            if let Err(message) = check_queue(name) {
                return Some(format!("the queue {message}"));
            }
        }
        Scope::Role(name) => {
            if let Err(message) = check_role(name) {
                return Some(format!("the role {message}"));
            }
        }
        Scope::Key(name) => {
            if let Err(message) = check_key(name) {
                return Some(format!("the key {message}"));
            }
            if limits.running_per_key.is_some() {
                return Some("a key's own limit is --running; --running-per-key is for a queue, a role or all".into());
            }
            if limits.fair {
                return Some("one key has nobody to take turns with; --fair is for a queue, a role or all".into());
            }
        }
    }
    if limits.per_minute == Some(0) {
        return Some("--per-minute is 0; it must be at least 1. To let nothing start: posse pause".into());
    }
    None
}

/// How many jobs of a queue are where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueState {
    /// The queue, with what is said of it.
    pub queue: Queue,
    /// Jobs that may be claimed, as far as the rules let them start.
    pub available: u64,
    /// Jobs that are due later, after a failure too.
    pub scheduled: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait for a person, a child job or an event.
    pub suspended: u64,
}
