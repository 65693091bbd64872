//! Keeps the leases of a process alive, from a thread that a busy runtime cannot starve.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::warn;

use super::outage_log::OutageLog;
use crate::clock::{Clock, Millis};
use crate::job::JobId;
use crate::job::lease::{Lease, WorkerId};
use crate::port::{JobRepository, RepositoryError};
use crate::stop::{StopReason, Stopper};

/// The longest pause after a beat that failed: whoever waits for the database is to be there when it comes free.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The leases a process holds, and what its thread needs to renew them.
pub(super) struct Heartbeat {
    jobs: Arc<dyn JobRepository>,
    clock: Arc<dyn Clock>,
    worker: WorkerId,
    lease_ms: Millis,
    outage_log: Arc<OutageLog>,
    held: Mutex<Held>,
    /// It is to beat now, or to end.
    called: Condvar,
    /// Changes with every beat.
    beats: watch::Sender<u64>,
}

#[derive(Default)]
struct Held {
    leases: HashMap<JobId, HeldLease>,
    is_called: bool,
    ended: bool,
}

struct HeldLease {
    lease: Lease,
    /// By [`Clock::elapsed`]: setting the time neither ends a lease nor makes it last.
    until: Millis,
    stopper: Stopper,
}

impl Heartbeat {
    /// Begins to beat, in a thread of its own, until [`Heartbeat::end`].
    pub(super) fn start(
        jobs: Arc<dyn JobRepository>,
        clock: Arc<dyn Clock>,
        worker: WorkerId,
        lease_ms: Millis,
        outage_log: Arc<OutageLog>,
    ) -> Arc<Heartbeat> {
        let held = Mutex::default();
        let (called, beats) = (Condvar::new(), watch::Sender::new(0));
        let heartbeat = Arc::new(Heartbeat { jobs, clock, worker, lease_ms, outage_log, held, called, beats });
        let thread = Arc::clone(&heartbeat);
        let every = Duration::from_millis((lease_ms / 3).max(10) as u64);
        let spawned = std::thread::Builder::new().name("heartbeat".into()).spawn(move || thread.beat_until_end(every));
        if let Err(error) = spawned {
            warn!("no heartbeat thread could be started, leases will run out: {error}");
        }
        heartbeat
    }

    pub(super) fn keep(&self, lease: Lease, until: Millis, stopper: Stopper) {
        let replaced = self.lock().leases.insert(lease.job, HeldLease { lease, until, stopper });
        // Claimed again while an earlier claim's step is still at work here: that one must end.
        if let Some(earlier) = replaced {
            earlier.stopper.stop(StopReason::LeaseLost);
        }
    }

    pub(super) fn release(&self, lease: Lease) {
        let mut held = self.lock();
        // A later claim of the same job by this process has its own entry.
        if held.leases.get(&lease.job).is_some_and(|h| h.lease == lease) {
            held.leases.remove(&lease.job);
        }
    }

    pub(super) fn holds(&self, lease: Lease) -> bool {
        let elapsed = self.clock.elapsed();
        self.lock().leases.get(&lease.job).is_some_and(|h| h.lease == lease && elapsed < h.until)
    }

    /// Whether a lease has run out, as after the machine slept.
    pub(super) fn has_overdue(&self) -> bool {
        let elapsed = self.clock.elapsed();
        self.lock().leases.values().any(|held| elapsed >= held.until)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lock().leases.is_empty()
    }

    pub(super) fn stop(&self, job: JobId, reason: StopReason) {
        if let Some(held) = self.lock().leases.get(&job) {
            held.stopper.stop(reason);
        }
    }

    pub(super) fn stop_all(&self, reason: StopReason) {
        self.lock().leases.values().for_each(|held| held.stopper.stop(reason));
    }

    /// Has the thread beat now instead of at its time, and waits until it did so.
    pub(super) async fn beaten(&self) {
        let mut beats = self.beats.subscribe();
        self.lock().is_called = true;
        self.called.notify_all();
        // The sender lives as long as this.
        let _ = beats.changed().await;
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.called.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // Nothing under this lock can leave it half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat_until_end(&self, every: Duration) {
        let mut held = self.lock();
        while !held.ended {
            held.is_called = false;
            drop(held);
            let began = self.clock.elapsed();
            let is_renewed = self.beat();
            let took = self.clock.elapsed() - began;
            // What waited that long for others is renewed again before it is half over.
            let pause = match is_renewed {
                true => every.saturating_sub(Duration::from_millis(took.unsigned_abs())),
                false => every.min(AFTER_FAILURE),
            };
            held = self.lock();
            if !held.ended && !held.is_called {
                held = self.called.wait_timeout(held, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Renews every lease; stops the work of those that are lost. Whether it could.
    pub(super) fn beat(&self) -> bool {
        let now = self.clock.now();
        // Before it is sent: nobody else's idea of when the leases end is later than ours.
        let until = self.clock.elapsed() + self.lease_ms;
        let leases: Vec<_> = self.lock().leases.values().map(|held| held.lease).collect();
        let beat = self.jobs.heartbeat(self.worker.clone(), leases.clone(), now + self.lease_ms, now);
        let learned = futures::executor::block_on(beat);
        let is_renewed = learned.is_ok();
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
            // Whoever would take our jobs has to write as we do, and waits as we do: what has begun goes on, nothing
            // more begins until we know.
            Err(RepositoryError::Unavailable(why)) => self.outage_log.say(&why),
            Err(error) => {
                let elapsed = self.clock.elapsed();
                self.outage_log.say(&error.to_string());
                let expired = held.leases.values().filter(|h| elapsed >= h.until);
                expired.for_each(|h| h.stopper.stop(StopReason::LeaseLost));
            }
        }
        drop(held);
        self.beats.send_modify(|beats| *beats = beats.wrapping_add(1));
        is_renewed
    }
}
