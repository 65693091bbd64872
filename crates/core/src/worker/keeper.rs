//! Keeps the leases of a process alive, from a thread that a busy runtime cannot starve.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{debug, warn};

use super::trouble::Trouble;
use crate::clock::{Clock, Millis};
use crate::job::JobId;
use crate::lease::{Lease, WorkerId};
use crate::port::JobRepository;
use crate::stop::{StopReason, Stopper};

/// The leases a process holds, and the thread that renews them.
pub(super) struct Keeper {
    shared: Arc<Shared>,
}

struct Shared {
    jobs: Arc<dyn JobRepository>,
    clock: Arc<dyn Clock>,
    worker: WorkerId,
    lease_ms: Millis,
    trouble: Arc<Trouble>,
    held: Mutex<Held>,
    ended: Condvar,
}

#[derive(Default)]
struct Held {
    leases: HashMap<JobId, HeldLease>,
    ended: bool,
}

struct HeldLease {
    lease: Lease,
    /// By [`Clock::elapsed`]: setting the time neither ends a lease nor makes it last.
    until: Millis,
    stopper: Stopper,
}

impl Keeper {
    pub(super) fn start(
        jobs: Arc<dyn JobRepository>,
        clock: Arc<dyn Clock>,
        worker: WorkerId,
        lease_ms: Millis,
        trouble: Arc<Trouble>,
    ) -> Keeper {
        let held = Mutex::default();
        let shared = Arc::new(Shared { jobs, clock, worker, lease_ms, trouble, held, ended: Condvar::new() });
        let thread = Arc::clone(&shared);
        let every = Duration::from_millis((lease_ms / 3).max(10) as u64);
        let spawned = std::thread::Builder::new().name("heartbeat".into()).spawn(move || thread.beat_until_end(every));
        if let Err(error) = spawned {
            warn!("no heartbeat thread could be started, leases will run out: {error}");
        }
        Keeper { shared }
    }

    pub(super) fn keep(&self, lease: Lease, until: Millis, stopper: Stopper) {
        let replaced = self.shared.lock().leases.insert(lease.job, HeldLease { lease, until, stopper });
        // Claimed again while an earlier claim's step is still at work here: that one must end.
        if let Some(earlier) = replaced {
            earlier.stopper.stop(StopReason::LeaseLost);
        }
    }

    pub(super) fn release(&self, lease: Lease) {
        let mut held = self.shared.lock();
        // A later claim of the same job by this process has its own entry.
        if held.leases.get(&lease.job).is_some_and(|h| h.lease == lease) {
            held.leases.remove(&lease.job);
        }
    }

    pub(super) fn holds(&self, lease: Lease) -> bool {
        let elapsed = self.shared.clock.elapsed();
        self.shared.lock().leases.get(&lease.job).is_some_and(|h| h.lease == lease && elapsed < h.until)
    }

    /// Whether a lease has run out, as after the machine slept.
    pub(super) fn has_overdue(&self) -> bool {
        let elapsed = self.shared.clock.elapsed();
        self.shared.lock().leases.values().any(|held| elapsed >= held.until)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().leases.is_empty()
    }

    pub(super) fn stop(&self, job: JobId, reason: StopReason) {
        if let Some(held) = self.shared.lock().leases.get(&job) {
            held.stopper.stop(reason);
        }
    }

    pub(super) fn stop_all(&self, reason: StopReason) {
        self.shared.lock().leases.values().for_each(|held| held.stopper.stop(reason));
    }

    pub(super) fn beat(&self) {
        self.shared.beat();
    }

    pub(super) fn end(&self) {
        self.shared.lock().ended = true;
        self.shared.ended.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing under this lock can leave it half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat_until_end(&self, every: Duration) {
        let mut held = self.lock();
        while !held.ended {
            drop(held);
            self.beat();
            held = self.lock();
            if !held.ended {
                held = self.ended.wait_timeout(held, every).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Renews every lease; stops the work of those that are lost or have run out.
    fn beat(&self) {
        let now = self.clock.now();
        // Before it is sent: nobody else's idea of when the leases end is later than ours.
        let until = self.clock.elapsed() + self.lease_ms;
        let leases: Vec<_> = self.lock().leases.values().map(|held| held.lease).collect();
        let beat = self.jobs.heartbeat(self.worker.clone(), leases.clone(), now + self.lease_ms, now);
        let learned = futures::executor::block_on(beat);
        let mut held = self.lock();
        match learned {
            Ok(learned) => {
                for lease in leases {
                    let Some(kept) = held.leases.get_mut(&lease.job).filter(|h| h.lease == lease) else { continue };
                    if learned.lost.contains(&lease.job) {
                        kept.until = Millis::MIN;
                        kept.stopper.stop(StopReason::LeaseLost);
                        continue;
                    }
                    kept.until = until;
                    if learned.cancelled.contains(&lease.job) {
                        kept.stopper.stop(StopReason::Cancelled);
                    }
                }
            }
            Err(error) => {
                let elapsed = self.clock.elapsed();
                debug!("leases could not be renewed: {error}");
                self.trouble.say(&error.to_string());
                let expired = held.leases.values().filter(|h| elapsed >= h.until);
                expired.for_each(|h| h.stopper.stop(StopReason::LeaseLost));
            }
        }
    }
}
