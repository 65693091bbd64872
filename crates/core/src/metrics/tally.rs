//! What a process counts as it works.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;

use super::histogram::{Histogram, Observed};
use crate::clock::Millis;
use crate::job::JobState;
use crate::job::transition::Event;
use crate::model::{ModelError, ModelReply, Usage};

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Counts kept under names that are known after the start: as many as there are roles, or models.
#[derive(Debug)]
struct Named<K, T>(RwLock<BTreeMap<K, Arc<T>>>);

impl<K, T> Default for Named<K, T> {
    fn default() -> Self {
        Named(RwLock::default())
    }
}

impl<K: Ord + Clone, T: Default> Named<K, T> {
    fn get<Q: Ord + ToOwned<Owned = K> + ?Sized>(&self, name: &Q) -> Arc<T>
    where
        K: std::borrow::Borrow<Q>,
    {
        if let Some(found) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(found);
        }
        Arc::clone(self.0.write().unwrap_or_else(PoisonError::into_inner).entry(name.to_owned()).or_default())
    }

    fn all(&self) -> Vec<(K, Arc<T>)> {
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|(name, one)| (name.clone(), Arc::clone(one))).collect()
    }
}

/// What the services of one process did.
#[derive(Debug, Default)]
pub struct WorkTally {
    roles: Named<String, RoleTally>,
    rescued: AtomicU64,
}

impl WorkTally {
    /// The counts of one role.
    pub fn role(&self, role: &str) -> Arc<RoleTally> {
        self.roles.get(role)
    }

    /// What each role did, by its name.
    pub fn roles(&self) -> Vec<RoleCounts> {
        self.roles.all().into_iter().map(|(role, tally)| tally.read(role)).collect()
    }

    /// Jobs taken back from vanished workers.
    pub fn rescued(&self) -> u64 {
        read(&self.rescued)
    }

    pub(crate) fn rescue(&self, jobs: usize) {
        add(&self.rescued, jobs as u64);
    }
}

/// What one role did.
#[derive(Debug, Default)]
pub struct RoleTally {
    claims: AtomicU64,
    waited: Histogram,
    worked: Histogram,
    lost: AtomicU64,
    /// Ends of attempts, by event and the state they led to.
    ends: [[AtomicU64; JobState::ALL.len()]; Event::ALL.len()],
}

/// What one role did, as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoleCounts {
    /// The role.
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

impl RoleTally {
    /// A job was claimed that had been due for so long.
    pub(crate) fn claimed(&self, waited: Millis) {
        add(&self.claims, 1);
        self.waited.observe(waited);
    }

    /// An attempt took so long.
    pub(crate) fn worked(&self, duration: Millis) {
        self.worked.observe(duration);
    }

    /// An attempt's end was stored.
    pub(crate) fn ended(&self, event: Event, state: JobState) {
        add(&self.ends[event as usize][state as usize], 1);
    }

    /// An attempt's end came too late.
    pub(crate) fn lost(&self) {
        add(&self.lost, 1);
    }

    fn read(&self, role: String) -> RoleCounts {
        let of_event = |event: Event| {
            let count = move |state| (event.name(), state, read(&self.ends[event as usize][state as usize]));
            JobState::ALL.into_iter().map(count)
        };
        let ends = Event::ALL.into_iter().flat_map(of_event).filter(|(_, _, attempts)| *attempts > 0).collect();
        let (claims, lost) = (read(&self.claims), read(&self.lost));
        RoleCounts { role, claims, waited: self.waited.read(), worked: self.worked.read(), lost, ends }
    }
}

/// What the models of one process were asked.
#[derive(Debug, Default)]
pub struct ModelTallies(Named<(String, String), ModelTally>);

impl ModelTallies {
    /// The counts of the model that a provider calls `model`, at `endpoint`.
    pub fn model(&self, endpoint: &str, model: &str) -> Arc<ModelTally> {
        self.0.get(&(endpoint.to_owned(), model.to_owned()))
    }

    /// What each was asked, by endpoint and model.
    pub fn read(&self) -> Vec<ModelCounts> {
        self.0.all().into_iter().map(|((endpoint, model), tally)| tally.read(endpoint, model)).collect()
    }
}

/// What one model was asked.
#[derive(Debug, Default)]
pub struct ModelTally {
    answered: AtomicU64,
    tries: AtomicU64,
    input: AtomicU64,
    cached: AtomicU64,
    output: AtomicU64,
    cost_microusd: AtomicU64,
    took: Histogram,
    errors: Named<String, AtomicU64>,
}

/// What one model was asked, as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

impl ModelTally {
    /// A request came to this after so many milliseconds.
    pub fn count(&self, took: Millis, answer: &Result<ModelReply, ModelError>) {
        self.took.observe(took);
        let mut usage = Usage::default();
        let tries = match answer {
            Ok(reply) => {
                add(&self.answered, 1);
                add(&self.cost_microusd, reply.cost_microusd.unwrap_or(0));
                usage.add(&reply.usage);
                &reply.failed_tries
            }
            Err(error) => {
                add(&self.errors.get(error.kind.as_str()), 1);
                &error.failed_tries
            }
        };
        tries.iter().for_each(|one| usage.add(&one.usage));
        add(&self.tries, tries.len() as u64);
        add(&self.input, usage.input);
        add(&self.cached, usage.cached);
        add(&self.output, usage.output);
    }

    fn read(&self, endpoint: String, model: String) -> ModelCounts {
        ModelCounts {
            endpoint,
            model,
            answered: read(&self.answered),
            failed_tries: read(&self.tries),
            errors: self.errors.all().into_iter().map(|(kind, count)| (kind, read(&count))).collect(),
            input_tokens: read(&self.input),
            cached_tokens: read(&self.cached),
            output_tokens: read(&self.output),
            cost_microusd: read(&self.cost_microusd),
            took: self.took.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_counted_by_how_and_where() {
        let work = WorkTally::default();
        let tally = work.role("r");
        tally.claimed(-5);
        tally.ended(Event::Fail, JobState::Retryable);
        tally.ended(Event::Fail, JobState::Retryable);
        tally.ended(Event::Fail, JobState::Discarded);
        tally.ended(Event::Postpone, JobState::Discarded);
        let [counts] = &work.roles()[..] else { panic!("one role worked") };
        assert_eq!(
            counts.ends,
            [
                ("failed", JobState::Retryable, 2),
                ("failed", JobState::Discarded, 1),
                ("postponed", JobState::Discarded, 1)
            ]
        );
        assert_eq!((counts.claims, counts.waited.sum_ms), (1, 0), "a clock that was set counts as no wait");
    }
}
