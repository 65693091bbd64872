//! The loop that joins queue and agents: claim, step, save, finish.

use futures::FutureExt;
use futures::future::{Fuse, FusedFuture};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

use crate::job::retry::RetryPolicy;
use crate::job::transition::Event;
use crate::job::{JobId, JobState};
use crate::metrics::RoleTally;
use crate::port::{AttemptEnd, ClaimRequest, Claimed, Ending, RepositoryError};
use crate::stop::{StopReason, stop_pair};
use crate::worker::executor::{AgentExecutor, JobContext, StepOutcome};

mod embedding;
pub mod executor;
mod fleet;
mod halt;
mod heartbeat;
mod in_flight;
mod maintenance;
mod memory;
mod outage_log;
mod overdue;
mod prefetch;
mod tasks;

pub use embedding::{ChosenEmbedder, Embedding, EmbeddingError, Questions, Round, search_memory};
pub use fleet::{Fleet, FleetOptions, Phase, Progress};
use in_flight::{InFlight, Worked};
pub use maintenance::maintain;
use prefetch::LeasedJob;

/// A look at the queue at least so often, as a net under lost wake-ups.
const IDLE_AT_MOST: Duration = Duration::from_secs(30);

/// Claims at most so many jobs in one transaction.
const CLAIM_AT_MOST: usize = 200;

/// Why an attempt is given back when its process ends.
const SHUT_DOWN: &str = "its worker shut down";

/// The same when only its role is worked no more.
const RETIRED: &str = "its worker does not work its role any more";

/// Works the jobs of one role. One service per persona role runs in a worker process.
pub struct WorkerService {
    /// The role whose jobs it claims.
    pub handles_role: String,
    /// Only jobs of these queues; all when empty.
    pub queues: Vec<String>,
    /// Jobs it works at once.
    pub slots: usize,
    /// Who does the work.
    pub executor: Arc<dyn AgentExecutor>,
    /// What all services of a process share.
    pub fleet: Arc<Fleet>,
}

impl WorkerService {
    /// Runs until the fleet drains and the last job in hand is given back or done.
    pub async fn run(self: Arc<Self>) {
        self.run_until(std::future::pending()).await;
    }

    /// The same, or until it is told to claim nothing more; jobs in hand then go on to their end.
    pub async fn run_until(self: Arc<Self>, retired: impl Future<Output = ()>) {
        let mut retired = pin!(retired);
        let mut why = SHUT_DOWN;
        let mut wakes = self.fleet.store.wakes();
        let mut phase = self.fleet.phase();
        let mut in_flight = InFlight::new(Arc::clone(&self));
        // One that is under way is waited for, whatever happens: what it takes is ours.
        let mut claim = pin!(Fuse::terminated());
        let mut asked = 0;
        // Whether there may be something to claim.
        let mut look = true;
        let mut trouble = Duration::ZERO;
        loop {
            // Ends are on their way before the next claim, and can share its commit.
            in_flight.settle().await;
            if *phase.borrow_and_update() != Phase::Working {
                break;
            }
            if look && claim.is_terminated() {
                asked = in_flight.room().min(CLAIM_AT_MOST);
                if asked > 0 {
                    look = false;
                    wakes.borrow_and_update();
                    claim.set(self.claim(asked).fuse());
                }
            }
            let idle = match trouble.is_zero() {
                false => trouble,
                // Only the claim's answer or a slot that comes free changes anything.
                true if look || !claim.is_terminated() || in_flight.is_full() => IDLE_AT_MOST,
                true => self.until_next_deadline().await,
            };
            tokio::select! {
                claimed = &mut claim, if !claim.is_terminated() => match claimed {
                    Ok(claimed) => {
                        trouble = Duration::ZERO;
                        look |= claimed.len() == asked;
                        in_flight.take(claimed);
                    }
                    Err(error) => {
                        self.fleet.warn_unavailable(&error.to_string());
                        trouble = (trouble * 2).clamp(Duration::from_secs(1), Duration::from_secs(60));
                    }
                },
                _ = wakes.changed(), if trouble.is_zero() => look = true,
                _ = phase.changed() => {}
                () = &mut retired => {
                    why = RETIRED;
                    break;
                }
                is_freed = in_flight.moved() => look |= is_freed,
                () = tokio::time::sleep(idle) => look = true,
            }
        }
        if !claim.is_terminated()
            && let Ok(claimed) = claim.await
        {
            in_flight.take(claimed);
        }
        in_flight.empty(why).await;
    }

    async fn claim(&self, limit: usize) -> Result<Vec<LeasedJob>, RepositoryError> {
        // Before the claim is sent: nobody else's idea of when the leases end is later than ours.
        let until = self.fleet.clock.elapsed() + self.fleet.lease_ms;
        let now = self.fleet.clock.now();
        let request = ClaimRequest {
            worker: self.fleet.worker.clone(),
            role: self.handles_role.clone(),
            queues: self.queues.clone(),
            limit: limit as u32,
            now,
            lease_until: now + self.fleet.lease_ms,
        };
        let claimed = self.fleet.store.claim(request).await?;
        let take = |claimed: Claimed| {
            let (stopper, stop) = stop_pair();
            self.fleet.keep(claimed.lease, until, stopper);
            LeasedJob { claimed, stop }
        };
        Ok(claimed.into_iter().map(take).collect())
    }

    /// How long nothing can become due by itself.
    async fn until_next_deadline(&self) -> Duration {
        let now = self.fleet.clock.now();
        match self.fleet.store.next_deadline(now).await {
            Ok(Some(at)) => Duration::from_millis((at - now).max(1) as u64).min(IDLE_AT_MOST),
            _ => IDLE_AT_MOST,
        }
    }

    /// Works one claimed job until its attempt is over.
    async fn work(&self, job: LeasedJob) -> Worked {
        let LeasedJob { claimed: Claimed { job, lease }, stop } = job;
        let (id, attempt) = (job.id, job.attempt);
        let (tally, began) = (self.tally(), self.fleet.clock.elapsed());
        tally.claimed(self.fleet.clock.now() - job.run_at);
        debug!(job.id = id.0, attempt, role = %self.handles_role, "claimed job {id}");
        if self.fleet.is_watched() {
            self.fleet.report(Progress::Claimed { job: Box::new(job.clone()) });
        }
        let mut cx = JobContext::new(job, lease, stop, Arc::clone(&self.fleet));
        let outcome = self.steps(&mut cx).await;
        let took = self.fleet.clock.elapsed() - began;
        tally.worked(took);
        let is_completed = matches!(outcome, StepOutcome::AlreadyCompleted);
        let end = AttemptEnd { lease, ending: self.ending(&cx, outcome) };
        if !is_completed {
            return Worked { took, end: Some(end) };
        }
        // If that is so, the lease is gone and this changes nothing.
        self.store(vec![end], true).await;
        Worked { took, end: None }
    }

    /// The end of an attempt whose work never began.
    fn given_back(&self, job: LeasedJob, why: &str) -> AttemptEnd {
        let LeasedJob { claimed: Claimed { job, lease }, stop } = job;
        let reason = stop.reason();
        let cx = JobContext::new(job, lease, stop, Arc::clone(&self.fleet));
        let mut ending = self.ending(&cx, StepOutcome::Stopped(reason.unwrap_or(StopReason::Shutdown)));
        if reason.is_none() {
            ending.reason = Some(format!("{why}; the attempt was given back"));
        }
        AttemptEnd { lease, ending }
    }

    fn tally(&self) -> Arc<RoleTally> {
        self.fleet.tally.role(&self.handles_role)
    }

    async fn steps(&self, cx: &mut JobContext) -> StepOutcome {
        let phase = self.fleet.phase();
        loop {
            if let Some(reason) = cx.stop.reason() {
                return StepOutcome::Stopped(reason);
            }
            if *phase.borrow() >= Phase::Draining {
                return StepOutcome::Stopped(StopReason::Shutdown);
            }
            let step = AssertUnwindSafe(self.executor.process_job(cx)).catch_unwind().await;
            let outcome = step.unwrap_or_else(|panic| StepOutcome::Failed { reason: panicked(&*panic) });
            if !matches!(outcome, StepOutcome::Continue) {
                return outcome;
            }
        }
    }

    /// What the attempt's end does to the job.
    fn ending(&self, cx: &JobContext, outcome: StepOutcome) -> Ending {
        let now = self.fleet.clock.now();
        let (mut due_at, mut output, mut entries) = (now, None, Vec::new());
        let (mut children, mut waits_for) = (Vec::new(), Vec::new());
        let given_back = |why: &str| Some(format!("{why}; the attempt was given back"));
        let (event, reason) = match outcome {
            StepOutcome::Completed { output: answer, entries: last } => {
                (output, entries) = (Some(answer), last);
                (Event::Complete, None)
            }
            StepOutcome::GaveUp { reason, output: left, entries: last } => {
                (output, entries) = (left, last);
                (Event::GiveUp, Some(reason))
            }
            StepOutcome::Failed { reason } => {
                due_at += cx.job.retry.unwrap_or_default().wait_ms(cx.job.attempt, cx.job.id.0 as u64);
                (Event::Fail, Some(reason))
            }
            StepOutcome::AlreadyCompleted => {
                let reason = "a bug in its executor, which said that the job was completed when it was not".into();
                return self.ending(cx, StepOutcome::Failed { reason });
            }
            StepOutcome::Snoozed { reason, wait } => {
                due_at = now.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX / 2));
                (Event::Snooze, Some(reason))
            }
            StepOutcome::Suspended { reason, children: beneath, waits_for: others, entries: last } => {
                (children, waits_for, entries) = (beneath, others, last);
                (Event::Suspend, Some(reason))
            }
            StepOutcome::Stopped(StopReason::Shutdown) => (Event::Interrupt, given_back(SHUT_DOWN)),
            StepOutcome::Stopped(StopReason::Cancelled) => {
                output = cx.run.as_ref().map(|run| run.output());
                if let (Some(output), Some(said)) = (&mut output, &cx.cut_short) {
                    output.text.clone_from(said);
                }
                // The reason stays the one that was given with the request.
                (Event::Cancel, None)
            }
            // Perhaps only our clock says so. The token decides: if it is still ours the job goes
            // back unharmed, and if not this changes nothing.
            StepOutcome::Stopped(StopReason::LeaseLost) => {
                (Event::Interrupt, given_back("its lease ran out before it could be renewed"))
            }
            StepOutcome::Continue => unreachable!("steps go on until something ends them"),
        };
        let seq = cx.run.as_ref().map_or(0, |run| run.next_seq()) - entries.len() as u64;
        Ending { event, due_at, reason, output, entries, seq, children, waits_for }
    }

    /// Stores the ends of attempts, once the database takes them; of a job that is somebody else's nothing is changed.
    /// With `are_completed` a lease that is gone means that its job is completed.
    async fn store(&self, mut ends: Vec<AttemptEnd>, are_completed: bool) {
        let mut wait = Duration::from_millis(500);
        let mut phase = self.fleet.phase();
        loop {
            let results = match self.fleet.store.finish_all(&ends, self.fleet.clock.now()).await {
                Ok(results) => results,
                Err(error) => vec![Err(error); ends.len()],
            };
            let may_wait = *phase.borrow_and_update() < Phase::Stopping;
            let mut unstored = Vec::new();
            for (end, result) in ends.into_iter().zip(results) {
                match result {
                    Err(RepositoryError::Unavailable(why)) if may_wait => {
                        self.fleet.warn_unavailable(&why);
                        unstored.push(end);
                    }
                    // Children that cannot be, now or later: told here, nobody takes its worker for dead.
                    Err(
                        why @ (RepositoryError::NoSuchJob(_)
                        | RepositoryError::EmptyGroup(_)
                        | RepositoryError::Refused(_)
                        | RepositoryError::Misused(_)),
                    ) if !end.ending.children.is_empty() => unstored.push(self.failed_with_children(end, &why)),
                    result => self.let_go(end, result, are_completed),
                }
            }
            if unstored.is_empty() {
                return;
            }
            ends = unstored;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = phase.changed() => {}
            }
            wait = (wait * 2).min(Duration::from_secs(10));
        }
    }

    /// The end of an attempt whose children cannot be made.
    fn failed_with_children(&self, end: AttemptEnd, why: &RepositoryError) -> AttemptEnd {
        let AttemptEnd { lease, ending } = end;
        let ending = Ending {
            event: Event::Fail,
            due_at: self.fleet.clock.now() + RetryPolicy::default().wait_ms(1, lease.job.0 as u64),
            reason: Some(format!("the jobs that it was to wait for cannot be made: {why}")),
            entries: Vec::new(),
            children: Vec::new(),
            waits_for: Vec::new(),
            ..ending
        };
        AttemptEnd { lease, ending }
    }

    /// Gives the lease up and tells what became of the attempt's end.
    fn let_go(&self, end: AttemptEnd, result: Result<JobState, RepositoryError>, is_completed: bool) {
        let job = end.lease.job;
        self.fleet.heartbeat.release(end.lease);
        match result {
            Ok(state) => {
                self.tally().ended(end.ending.event, state);
                self.report_end(job, state, end.ending);
            }
            Err(RepositoryError::LeaseLost(_)) if is_completed => {
                self.tally().ended(Event::Complete, JobState::Completed);
                self.report_end(job, JobState::Completed, Ending { reason: None, ..end.ending });
            }
            Err(RepositoryError::LeaseLost(_)) => {
                self.tally().lost();
                info!(job.id = job.0, "lost the lease on job {job}; its result is dropped");
                self.fleet.report(Progress::LeaseLost { job });
            }
            Err(error) => warn!(job.id = job.0, "the end of job {job} was not stored: {error}"),
        }
    }

    fn report_end(&self, job: JobId, state: JobState, ending: Ending) {
        debug!(job.id = job.0, %state, "job {job} is {state}");
        if !self.fleet.is_watched() {
            return;
        }
        let now = self.fleet.clock.now();
        for (i, entry) in ending.entries.into_iter().enumerate() {
            let recorded = crate::run::journal::Recorded { seq: ending.seq + i as u64, at: now, entry };
            self.fleet.report(Progress::Recorded { job, recorded: Box::new(recorded) });
        }
        self.fleet.report(Progress::Ended { job, state, reason: ending.reason });
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    format!("a bug in Posse: the step panicked: {}", crate::panic::message(panic))
}
