//! What a process counts as it works.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::clock::Millis;
use crate::job::JobState;
use crate::job::transition::Event;
use crate::model::{ModelError, ModelReply, Usage};

fn lock<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The upper ends of the ranges, in milliseconds: from a tool's call to an hour's run.
const BOUNDS_MS: [u64; 14] =
    [5, 10, 25, 100, 250, 1_000, 2_500, 5_000, 15_000, 60_000, 150_000, 600_000, 1_800_000, 3_600_000];

/// Durations that were observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// The upper end of each range in milliseconds, and how many durations were not longer.
    pub up_to_ms: Vec<(u64, u64)>,
    /// How many there were.
    pub count: u64,
    /// All of them together, in milliseconds.
    pub sum_ms: u64,
}

impl Default for Observed {
    fn default() -> Self {
        Observed { up_to_ms: BOUNDS_MS.map(|bound| (bound, 0)).into(), count: 0, sum_ms: 0 }
    }
}

impl Observed {
    /// Counts one. A negative one, as of a clock that was set, counts as none.
    pub fn observe(&mut self, duration: Millis) {
        let ms = duration.max(0).unsigned_abs();
        self.up_to_ms.iter_mut().filter(|(bound, _)| ms <= *bound).for_each(|(_, count)| *count += 1);
        self.count += 1;
        self.sum_ms += ms;
    }
}

/// What the services of one process did.
#[derive(Debug, Default)]
pub struct WorkTally {
    roles: Mutex<BTreeMap<String, Arc<RoleTally>>>,
    rescued: AtomicU64,
}

impl WorkTally {
    /// Where one role is counted.
    pub fn role(&self, role: &str) -> Arc<RoleTally> {
        let new = || Arc::new(RoleTally(Mutex::new(RoleCounts { role: role.to_owned(), ..RoleCounts::default() })));
        Arc::clone(lock(&self.roles).entry(role.to_owned()).or_insert_with(new))
    }

    /// What each role did, by its name.
    pub fn roles(&self) -> Vec<RoleCounts> {
        lock(&self.roles).values().map(|tally| tally.read()).collect()
    }

    /// Jobs taken back from vanished workers.
    pub fn rescued(&self) -> u64 {
        self.rescued.load(Ordering::Relaxed)
    }

    pub(crate) fn rescue(&self, jobs: usize) {
        self.rescued.fetch_add(jobs as u64, Ordering::Relaxed);
    }
}

/// What one role did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RoleCounts {
    /// Whose jobs these were.
    pub role: String,
    /// Jobs claimed.
    pub claims: u64,
    /// How long claimed jobs had been due.
    pub waited: Observed,
    /// How long attempts took, from the claim to their end.
    pub worked: Observed,
    /// Attempts whose lease was lost before their end was stored.
    pub lost: u64,
    /// Attempts that ended: how, where that left the job, how many. A failure that left it `retryable`
    /// is tried again.
    pub ends: Vec<(&'static str, JobState, u64)>,
}

/// Counts what one role does.
#[derive(Debug)]
pub struct RoleTally(Mutex<RoleCounts>);

impl RoleTally {
    /// A job was claimed that had been due for so long.
    pub(crate) fn claimed(&self, waited: Millis) {
        let mut counts = lock(&self.0);
        counts.claims += 1;
        counts.waited.observe(waited);
    }

    pub(crate) fn worked(&self, duration: Millis) {
        lock(&self.0).worked.observe(duration);
    }

    /// The end of an attempt was stored.
    pub(crate) fn ended(&self, event: Event, state: JobState) {
        let mut counts = lock(&self.0);
        match counts.ends.iter_mut().find(|(name, to, _)| (*name, *to) == (event.as_str(), state)) {
            Some((_, _, attempts)) => *attempts += 1,
            None => counts.ends.push((event.as_str(), state, 1)),
        }
    }

    pub(crate) fn lost(&self) {
        lock(&self.0).lost += 1;
    }

    fn read(&self) -> RoleCounts {
        let mut counts = lock(&self.0).clone();
        let position = |name: &str| Event::ALL.iter().position(|event| event.as_str() == name);
        counts.ends.sort_by_key(|(name, state, _)| (position(name), *state as usize));
        counts
    }
}

/// What the models of one process were asked.
#[derive(Debug, Default)]
pub struct ModelTallies(Mutex<BTreeMap<(String, String), Arc<ModelTally>>>);

impl ModelTallies {
    /// Where the model that a provider calls `model`, at `endpoint`, is counted.
    pub fn model(&self, endpoint: &str, model: &str) -> Arc<ModelTally> {
        let key = (endpoint.to_owned(), model.to_owned());
        let (endpoint, model) = key.clone();
        let new = || Arc::new(ModelTally(Mutex::new(ModelCounts { endpoint, model, ..ModelCounts::default() })));
        Arc::clone(lock(&self.0).entry(key).or_insert_with(new))
    }

    /// What each was asked, by endpoint and model.
    pub fn read(&self) -> Vec<ModelCounts> {
        lock(&self.0).values().map(|tally| lock(&tally.0).clone()).collect()
    }
}

/// What one model was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ModelCounts {
    /// Where it is, without user, password and query.
    pub endpoint: String,
    /// Its name there.
    pub model: String,
    /// Requests that were answered.
    pub answered: u64,
    /// Tries of requests that came to nothing and were made again, or were the last.
    pub failed_tries: u64,
    /// Requests that got no usable reply after all tries, by the kind of the failure.
    pub errors: BTreeMap<String, u64>,
    /// Tokens read, cached ones included, failed tries too.
    pub input_tokens: u64,
    /// Of those, how many the provider had cached.
    pub cached_tokens: u64,
    /// Tokens written, failed tries too.
    pub output_tokens: u64,
    /// What replies cost in millionths of a US dollar, as far as prices are configured.
    pub cost_microusd: u64,
    /// How long requests took, with all their tries.
    pub took: Observed,
}

/// Counts what one model is asked.
#[derive(Debug)]
pub struct ModelTally(Mutex<ModelCounts>);

impl ModelTally {
    /// A request came to this after so many milliseconds.
    pub fn count(&self, took: Millis, answer: &Result<ModelReply, ModelError>) {
        let mut counts = lock(&self.0);
        counts.took.observe(took);
        let mut usage = Usage::default();
        let tries = match answer {
            Ok(reply) => {
                counts.answered += 1;
                counts.cost_microusd += reply.cost_microusd.unwrap_or(0);
                usage.add(&reply.usage);
                &reply.failed_tries
            }
            Err(error) => {
                *counts.errors.entry(error.kind.to_string()).or_default() += 1;
                &error.failed_tries
            }
        };
        tries.iter().for_each(|one| usage.add(&one.usage));
        counts.failed_tries += tries.len() as u64;
        counts.input_tokens += usage.input;
        counts.cached_tokens += usage.cached;
        counts.output_tokens += usage.output;
    }
}
