//! What a process knows of endpoints that are out. It reports each outage once, and its end once, and spreads the
//! jobs that wait for it, so that they do not all come back at the same moment.

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

/// Each job that waits for an endpoint lengthens the time over which they come back by this much.
const APART_MS: Millis = 200;

/// The same for the first few jobs, up to [`FEW_WITHIN_MS`] in all.
const FEW_APART_MS: Millis = 1_000;

/// The longest time over which a few jobs come back.
const FEW_WITHIN_MS: Millis = 10_000;

/// The shortest time between two log lines about retries at one endpoint.
const QUIET_MS: Millis = 60_000;

/// How often a process checks whether the fleet still counts an endpoint as out.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The endpoints that this process has found to be out.
pub struct Outages {
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, Outage>>,
    watched: Mutex<Watched>,
    retries_said_at: Mutex<HashMap<String, Millis>>,
    places: AtomicU64,
    waiting: AtomicU64,
}

/// Why a model cannot be asked: its endpoint is out, or this worker is unfit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Theirs,
    Ours,
}

/// What is out for the fleet, with the names that the fleet has for it; `None` while no task watches.
type Watched = Option<HashMap<String, [String; 2]>>;

struct Outage {
    since: Millis,
    jobs: HashSet<JobId>,
    /// Requests outside of jobs that were not made.
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

    /// Whether the reason why a job waits or a request failed names an endpoint that is out.
    pub fn concern(&self, words: &str) -> bool {
        locked(&self.known).keys().any(|what| words.contains(what.as_str()))
    }

    /// Notes that a job has to wait because `what` cannot be asked, and reports it if that is new. Returns how much
    /// longer than `ms` this job is to wait.
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

    /// Notes that `what` has answered, and reports it if it was out.
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

    /// Watches until the fleet no longer counts `what` as out, and reports that.
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
                // An endpoint that goes out while the fleet is asked may be missing from its answer.
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

    /// Reports which of these are back. Breaks when nothing is left to watch.
    fn look(&self, asked: &HashSet<String>, out: &HashSet<String>) -> ControlFlow<()> {
        let mut watched = locked(&self.watched);
        let Some(all) = watched.as_mut() else { return ControlFlow::Break(()) };
        let known: HashSet<_> = locked(&self.known).keys().cloned().collect();
        // The others are back, which whoever asked them has reported.
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

    /// Whether a retry at this endpoint may be logged now.
    pub fn may_tell_of_retry(&self, endpoint: &str) -> bool {
        let now = self.clock.elapsed();
        let mut said_at = locked(&self.retries_said_at);
        let due = said_at.get(endpoint).is_none_or(|at| now.saturating_sub(*at) >= QUIET_MS);
        if due {
            said_at.insert(endpoint.to_owned(), now);
        }
        due
    }

    /// Counts a request that waits to be made again until the guard is dropped.
    pub fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// A share from 0 to 1. However many are given out, they are spread evenly; the first is 0.
    pub fn place(&self) -> f64 {
        // Multiples of the golden ratio.
        let n = self.places.fetch_add(1, Ordering::Relaxed);
        (n as f64 * 0.618_033_988_749_895).fract()
    }
}

/// A request that waits to be made again.
pub struct Waiting<'a>(&'a Outages);

impl Waiting<'_> {
    /// How much longer this one is to wait: the more wait, the longer.
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
