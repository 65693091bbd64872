//! What a process knows of endpoints that are out: so that it says so once when one goes and once when
//! it is back, and so that the jobs that wait for it do not come back together.

use posse_core::clock::{Clock, Millis};
use posse_core::id::JobId;
use posse_core::model::asked_for;
use posse_core::port::RateLimiter;
use posse_core::queue::rate::ModelUse;
use posse_core::text::{duration, plural};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::locked;

/// Jobs that wait for an endpoint come back over so long a time for each of them.
const APART_MS: Millis = 200;

/// The same where they are few, up to [`FEW_WITHIN_MS`] for all.
const FEW_APART_MS: Millis = 1_000;

/// How long few jobs take to come back.
const FEW_WITHIN_MS: Millis = 10_000;

/// At most one line about retries at an endpoint in so many milliseconds.
const QUIET_MS: Millis = 60_000;

/// How often a process looks whether what is out for the fleet is back, when it does not ask itself.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The endpoints that are out, as far as this process has met them.
pub struct Outages {
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, Outage>>,
    watched: Mutex<Watched>,
    retries_said_at: Mutex<HashMap<String, Millis>>,
    places: AtomicU64,
    waiting: AtomicU64,
}

/// Whose trouble keeps a model from being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Theirs,
    Ours,
}

/// What is out for the fleet, each with the names under which the fleet knows it; none while nobody looks.
type Watched = Option<HashMap<String, [String; 2]>>;

struct Outage {
    since: Millis,
    jobs: HashSet<JobId>,
    /// Requests that were not made for no job.
    others: u64,
}

impl Outages {
    pub fn new(clock: Arc<dyn Clock>) -> Outages {
        Outages {
            clock,
            known: Mutex::default(),
            watched: Mutex::default(),
            retries_said_at: Mutex::default(),
            places: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }

    pub fn any(&self) -> bool {
        !locked(&self.known).is_empty()
    }

    /// Whether these words, of a job that waits or a request that failed, are about one that is out.
    pub fn concern(&self, words: &str) -> bool {
        locked(&self.known).keys().any(|what| words.contains(what.as_str()))
    }

    /// A job has to wait because `what` cannot be asked, for the reason given. Says so when it is news. Tells how much
    /// later than others it is to come back, who all wait for `ms`.
    pub fn waits(&self, what: &str, trouble: Trouble, reason: &str, ms: Millis) -> Duration {
        let now = self.clock.elapsed();
        let mut known = locked(&self.known);
        let outage = known.entry(what.to_owned()).or_insert_with(|| {
            let (is, whose) = match trouble {
                Trouble::Theirs => ("is out", "the fleet's jobs"),
                Trouble::Ours => ("cannot be asked by this worker", "its jobs"),
            };
            tracing::warn!(
                "{what} {is}: {whose} that need it wait and spend no attempts, and one request at a time asks again \
                 ({reason})"
            );
            Outage { since: now, jobs: HashSet::new(), others: 0 }
        });
        match asked_for() {
            Some(job) => {
                outage.jobs.insert(job);
            }
            None => outage.others += 1,
        }
        let waiting = outage.jobs.len() as Millis;
        drop(known);
        let few = waiting.saturating_mul(FEW_APART_MS).min(FEW_WITHIN_MS);
        let within = few.max(waiting.saturating_mul(APART_MS)).max(ms / 5);
        millis((within as f64 * self.place()) as Millis)
    }

    /// `what` has answered. Says so if it was out.
    pub fn is_back(&self, what: &str) {
        let outage = locked(&self.known).remove(what);
        if let Some(Outage { since, jobs, others }) = outage {
            let lasted = duration(self.clock.elapsed() - since);
            let waited = match (jobs.len() as u64, others) {
                (0, 1) => "1 request was not made meanwhile".to_owned(),
                (0, others) => plural(others, "request") + " were not made meanwhile",
                (jobs, _) => plural(jobs, "job") + " of this worker waited",
            };
            tracing::warn!("{what} answers again, after {lasted}; {waited}");
        }
    }

    /// Looks from now on whether `what` is still known to be out to the fleet, and says so when it is not.
    pub fn watch(self: &Arc<Self>, fleet: &Arc<dyn RateLimiter>, what: String, about: ModelUse) {
        let mut watched = locked(&self.watched);
        let is_watching = watched.is_some();
        watched.get_or_insert_default().insert(what, about.names());
        drop(watched);
        if is_watching {
            return;
        }
        let (outages, fleet) = (Arc::downgrade(self), Arc::downgrade(fleet));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let (Some(outages), Some(fleet)) = (outages.upgrade(), fleet.upgrade()) else { return };
                // What comes to be out while the fleet is asked may be missing in what it says.
                let asked: HashSet<_> =
                    locked(&outages.watched).iter().flatten().map(|(what, _)| what.clone()).collect();
                let Ok(failing) = fleet.failing_endpoints().await else { continue };
                let out: HashSet<_> =
                    failing.into_iter().filter(|state| state.breaker.is_out()).map(|state| state.endpoint).collect();
                if outages.look(&asked, &out).is_break() {
                    return;
                }
            }
        });
    }

    /// Says which of these are out no more. Breaks when there is nothing left to watch.
    fn look(&self, asked: &HashSet<String>, out: &HashSet<String>) -> ControlFlow<()> {
        let mut watched = locked(&self.watched);
        let Some(all) = watched.as_mut() else { return ControlFlow::Break(()) };
        let known: HashSet<_> = locked(&self.known).keys().cloned().collect();
        // What is known no more was said by whoever asked.
        all.retain(|what, _| known.contains(what));
        let is_back =
            |what: &str, names: &[String]| asked.contains(what) && !names.iter().any(|name| out.contains(name));
        let back: Vec<_> = all.extract_if(|what, names| is_back(what, names)).collect();
        let is_over = all.is_empty();
        if is_over {
            *watched = None;
        }
        drop(watched);
        back.iter().for_each(|(what, _)| self.is_back(what));
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Whether a retry at this endpoint is to be told of now.
    pub fn may_tell_of_retry(&self, endpoint: &str) -> bool {
        let now = self.clock.elapsed();
        let mut said_at = locked(&self.retries_said_at);
        let due = said_at.get(endpoint).is_none_or(|at| now.saturating_sub(*at) >= QUIET_MS);
        if due {
            said_at.insert(endpoint.to_owned(), now);
        }
        due
    }

    /// Somebody waits to make a request again, until this is dropped.
    pub fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// A share, 0 to 1, for whoever is next: however many ask, their shares lie evenly, the first at 0.
    pub fn place(&self) -> f64 {
        // Multiples of the golden ratio.
        let n = self.places.fetch_add(1, Ordering::Relaxed);
        (n as f64 * 0.618_033_988_749_895).fract()
    }
}

/// Somebody who waits to make a request again.
pub struct Waiting<'a>(&'a Outages);

impl Waiting<'_> {
    /// How much longer they are to wait, the more of them there are.
    pub fn later(&self) -> Duration {
        let others = self.0.waiting.load(Ordering::Relaxed).saturating_sub(1) as Millis;
        millis((others.saturating_mul(APART_MS) as f64 * self.0.place()) as Millis)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn millis(ms: Millis) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}
