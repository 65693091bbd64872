//! What the services of one worker process share.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::{broadcast, watch};
use tracing::{info, warn};

use super::embedding::{ChosenEmbedder, Questions};
use super::heartbeat::Heartbeat;
use super::outage_log::OutageLog;
use super::overdue::{Look, Watched};
use crate::clock::{Clock, JumpWatch, Millis, Reading};
use crate::job::lease::{Lease, WorkerId};
use crate::job::{Job, JobId, JobState};
use crate::metrics::WorkTally;
use crate::model::Delta;
use crate::port::{ClockJump, Forfeit, Overdue, ProcessProbe, RepositoryError, Rescued, Store, WorkerRecord};
use crate::run::journal::Recorded;
use crate::stop::{StopReason, Stopper};

/// What a worker tells of its own work, as it happens: job events before anybody could read them, and what a model says
/// before its reply is whole. Never durable: the journal is.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A job was claimed.
    Claimed {
        /// The job as it is now.
        job: Box<Job>,
    },
    /// Entries of its journal were committed.
    Recorded {
        /// Whose journal.
        job: JobId,
        /// The entry with its position and time.
        recorded: Box<Recorded>,
    },
    /// The model is being asked.
    AskingModel {
        /// For which job.
        job: JobId,
    },
    /// The model said something.
    Delta {
        /// At work on which job.
        job: JobId,
        /// What.
        delta: Delta,
    },
    /// The attempt ended.
    Ended {
        /// Whose attempt.
        job: JobId,
        /// Where it is now.
        state: JobState,
        /// Why.
        reason: Option<String>,
    },
    /// The job is another worker's now.
    LeaseLost {
        /// Which job.
        job: JobId,
    },
}

/// How far a worker process is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Claims and works.
    Working,
    /// Claims nothing more; jobs in hand go on to their end.
    Finishing,
    /// Claims nothing more; steps in progress may end.
    Draining,
    /// Steps in progress are stopped.
    Stopping,
    /// Everything is given back.
    Gone,
}

/// What a fleet is made of.
pub struct FleetOptions {
    /// Where its jobs are.
    pub store: Arc<dyn Store>,
    /// The time by which leases stand.
    pub clock: Arc<dyn Clock>,
    /// Tells which worker processes are gone.
    pub processes: Arc<dyn ProcessProbe>,
    /// This worker process; its leases stand for as long as it says.
    pub worker: WorkerRecord,
    /// What turns texts into vectors, so that what is remembered is found by its meaning; words alone find it without.
    pub embedder: Option<ChosenEmbedder>,
}

/// One worker process's part of the fleet.
pub struct Fleet {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) worker: WorkerId,
    pub(crate) lease_ms: Millis,
    processes: Arc<dyn ProcessProbe>,
    record: WorkerRecord,
    pub(super) heartbeat: Arc<Heartbeat>,
    progress: broadcast::Sender<Progress>,
    phase: watch::Sender<Phase>,
    pub(crate) tally: Arc<WorkTally>,
    pub(super) embedder: Option<ChosenEmbedder>,
    /// Asks the same one what searches mean.
    pub(super) questions: Option<Questions>,
    outage_log: Arc<OutageLog>,
    jumps: Mutex<JumpWatch>,
    /// Until when, by [`Clock::elapsed`], no lease counts as expired, because the time was set.
    rescue_held_until: AtomicI64,
    overdue: Mutex<Watched>,
    /// Why the database is lost to this process, once it is.
    lost: OnceLock<RepositoryError>,
}

/// At least so long no lease counts as expired after the time was set: every process notices within a
/// second or two. Half a lease is longer than one beat, which renews also what was claimed meanwhile.
const SETTLE_MS: Millis = 5_000;

impl Fleet {
    /// Announces this worker process and starts to renew its leases.
    pub async fn start(options: FleetOptions) -> Result<Arc<Fleet>, RepositoryError> {
        let FleetOptions { store, clock, processes, worker, embedder } = options;
        let ask = |chosen: &ChosenEmbedder| Questions::new(Arc::clone(&chosen.embedder), Arc::clone(&clock));
        let questions = embedder.as_ref().map(ask);
        store.register_worker(worker.clone()).await?;
        let (id, lease_ms) = (WorkerId(worker.id.clone()), worker.lease_ms);
        let jumps = JumpWatch::new(Reading::of(&*clock));
        let outage_log = Arc::new(OutageLog::new(Arc::clone(&clock)));
        let heartbeat =
            Heartbeat::start(store.clone(), Arc::clone(&clock), id.clone(), lease_ms, Arc::clone(&outage_log));
        Ok(Arc::new(Fleet {
            store,
            clock,
            worker: id,
            lease_ms,
            processes,
            record: worker,
            heartbeat,
            progress: broadcast::channel(4096).0,
            phase: watch::channel(Phase::Working).0,
            tally: Arc::default(),
            embedder,
            questions,
            outage_log,
            jumps: Mutex::new(jumps),
            rescue_held_until: AtomicI64::new(Millis::MIN),
            overdue: Mutex::default(),
            lost: OnceLock::new(),
        }))
    }

    /// Tells others that this process works these roles from now on.
    pub async fn serve(&self, roles: Vec<String>) -> Result<(), RepositoryError> {
        let on_list = self.store.workers().await?.into_iter().find(|worker| worker.id == self.record.id);
        let record = WorkerRecord { roles, ..on_list.unwrap_or_else(|| self.record.clone()) };
        self.store.register_worker(record).await
    }

    /// When this process began.
    pub(super) fn began_at(&self) -> Millis {
        self.record.started_at
    }

    /// What happens from now on. A receiver that falls behind misses the oldest.
    pub fn watch(&self) -> broadcast::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// How far this process is from its end.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// What this process did so far.
    pub fn tally(&self) -> Arc<WorkTally> {
        Arc::clone(&self.tally)
    }

    /// Claims nothing more. Jobs in hand go on to their end.
    pub fn finish(&self) {
        self.enter(Phase::Finishing);
    }

    /// Claims nothing more. Steps in progress may end; their jobs are then handed back.
    pub fn drain(&self) {
        self.enter(Phase::Draining);
    }

    /// Stops steps in progress too. Their jobs are handed back at the last saved entry.
    pub fn stop(&self) {
        self.enter(Phase::Stopping);
        self.heartbeat.stop_all(StopReason::Shutdown);
    }

    /// Why this process stopped by itself, if it did: its database is not the one that others find.
    pub fn lost(&self) -> Option<&RepositoryError> {
        self.lost.get()
    }

    /// Stops everything if the database is lost: nothing of what is done here would be found by anybody.
    pub(crate) fn stop_if_lost(&self) {
        let Err(lost) = self.store.still_there() else { return };
        if self.lost.set(lost).is_ok() {
            self.enter(Phase::Stopping);
            self.heartbeat.stop_all(StopReason::LeaseLost);
        }
    }

    /// After the last service ended: takes this process off the list. One that still holds leases, or cannot write any
    /// more, stays on it, since from there others see that it is gone and take its jobs back at once. It leaves word that
    /// this was no death.
    pub async fn leave(&self) {
        self.enter(Phase::Gone);
        self.heartbeat.end();
        if self.heartbeat.is_idle() && self.lost.get().is_none() {
            match self.store.unregister_worker(self.worker.clone(), self.clock.now()).await {
                Ok(()) => return,
                Err(error) => warn!("this worker could not be taken off the list: {error}"),
            }
        }
        self.leave_word();
    }

    /// Before this process ends with jobs in hand because somebody wants it to: they met no death.
    pub fn leave_word(&self) {
        self.store.leave_word(&self.worker);
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            if later {
                *now = phase;
            }
            later
        });
    }

    /// Renews all leases now instead of at the next beat, and tells whether it could. Blocks; not for async code.
    pub fn beat(&self) -> bool {
        self.heartbeat.beat()
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.progress.receiver_count() > 0
    }

    pub(crate) fn report(&self, progress: Progress) {
        // Nobody watching is the normal case.
        let _ = self.progress.send(progress);
    }

    pub(crate) fn keep(&self, lease: Lease, until: Millis, stopper: Stopper) {
        self.heartbeat.keep(lease, until, stopper.clone());
        // After it is kept, so that a stop in between is not missed.
        if *self.phase.borrow() >= Phase::Stopping {
            stopper.stop(StopReason::Shutdown);
        }
    }

    /// Says once a minute that the database cannot be used now, however often that is found.
    pub(crate) fn warn_unavailable(&self, why: &str) {
        self.outage_log.say(why);
    }

    /// [`Fleet::beat`], for async code.
    pub(crate) async fn beat_now(self: &Arc<Self>) -> bool {
        let fleet = Arc::clone(self);
        // It only fails with the runtime.
        tokio::task::spawn_blocking(move || fleet.beat()).await.unwrap_or(false)
    }

    /// The host's clock was set. Our leases stand for as long as they did, and are renewed by the new
    /// time at once; so that others can do the same, nobody's lease counts as expired meanwhile.
    async fn clock_jumped(self: &Arc<Self>, by_ms: Millis, noticed: Reading) {
        self.rescue_held_until.store(noticed.elapsed + SETTLE_MS.max(self.lease_ms / 2), Ordering::Relaxed);
        let (direction, seconds) = (if by_ms > 0 { "forward" } else { "back" }, by_ms.abs() / 1000);
        warn!("the clock of this host was set {direction} by {seconds} s; leases are renewed by the new time");
        self.beat_now().await;
        let jump = ClockJump { worker: self.worker.0.clone(), noticed_at: noticed.now, by_ms };
        self.or_say(self.store.clock_jumped(jump).await);
    }

    pub(crate) async fn hear_cancellations(&self) {
        if self.heartbeat.is_idle() {
            return;
        }
        let cancelled = self.or_say(self.store.cancel_requested().await).unwrap_or_default();
        cancelled.into_iter().for_each(|job| self.heartbeat.stop(job, StopReason::Cancelled));
    }

    /// Settles questions that nobody answered in time.
    pub(crate) async fn expire_questions(&self) {
        let now = self.clock.now();
        if self.or_say(self.store.next_expiry().await).flatten().is_some_and(|at| at <= now) {
            self.or_say(self.store.expire_questions(now).await);
        }
    }

    /// Takes back the jobs of dead processes, and those whose leases a living worker would have renewed.
    pub async fn rescue(self: &Arc<Self>) {
        // After the machine slept, our own leases look expired to us first: renew before rescuing.
        if self.heartbeat.has_overdue() {
            self.beat_now().await;
        }
        // The very reading by which leases will be judged: a clock that is set a moment later does no harm.
        let reading = Reading::of(&*self.clock);
        let jump = self.jumps.lock().unwrap_or_else(PoisonError::into_inner).look(reading);
        if let Some(by_ms) = jump {
            self.clock_jumped(by_ms, reading).await;
        }
        let rescued = self.or_say(self.rescue_at(reading).await).unwrap_or_default();
        self.tally.rescue(rescued.len());
        for Rescued { job, state, worker } in rescued {
            info!(job.id = job.0, "job {job} is {state} again: worker {worker} no longer holds it");
        }
    }

    async fn rescue_at(self: &Arc<Self>, reading: Reading) -> Result<Vec<Rescued>, RepositoryError> {
        let workers: Vec<_> =
            self.store.workers().await?.into_iter().filter(|worker| worker.id != self.record.id).collect();
        // A process that is gone is gone, whatever the time.
        let dead = self.processes.dead(&workers);
        let mut rescued = match dead.is_empty() {
            true => Vec::new(),
            false => self.store.rescue_from(dead, reading.now).await?,
        };
        let is_settled = reading.elapsed >= self.rescue_held_until.load(Ordering::Relaxed);
        let overdue = if is_settled { self.store.overdue(reading.now).await? } else { Vec::new() };
        if overdue.is_empty() {
            *self.watched() = Watched::default();
            return Ok(rescued);
        }
        let began = self.clock.elapsed();
        let wrote = self.beat_now().await.then(|| self.clock.elapsed());
        let lease_ms = |id: &WorkerId| {
            workers.iter().find(|worker| worker.id == id.0).map_or(self.lease_ms, |worker| worker.lease_ms)
        };
        let over = self.watched().look(overdue, Look { began, wrote }, lease_ms);
        if !over.is_empty() {
            let forfeits = self.forfeits(over, &workers, reading.now);
            rescued.extend(self.store.take_back(forfeits, reading.now).await?);
        }
        Ok(rescued)
    }

    /// Which of the workers live that did not renew their leases.
    fn forfeits(&self, over: Vec<Overdue>, workers: &[WorkerRecord], now: Millis) -> Vec<Forfeit> {
        let seen = self.processes.alive(workers);
        let is_alive = |id: &WorkerId| {
            let beats = |worker: &WorkerRecord| {
                worker.id == id.0 && worker.host != self.record.host && now - worker.heartbeat_at < worker.lease_ms
            };
            *id == self.worker || seen.contains(id) || workers.iter().any(beats)
        };
        over.into_iter().map(|overdue| Forfeit { is_alive: is_alive(&overdue.worker), overdue }).collect()
    }

    /// What the store gave; where it gave nothing, that is said.
    pub(super) fn or_say<T>(&self, result: Result<T, RepositoryError>) -> Option<T> {
        result.map_err(|error| self.warn_unavailable(&error.to_string())).ok()
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.overdue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.heartbeat.end();
    }
}
