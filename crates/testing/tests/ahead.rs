//! Where jobs are short, a worker claims more than it has slots for; where they turn out to be long, it
//! gives them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use posse_core::job::{JobId, Output, Payload};
use posse_core::port::{JobQueries, JobRepository};
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_testing::{JobState, NewJob, ScriptedModel, TestFleet};
use tokio::sync::watch;

use crate::wait::wait_async;

const SLOTS: usize = 2;

/// Ends at once; a job whose goal is "long" ends when the gate opens. Counts those at work at a time.
struct Worker {
    gate: watch::Receiver<bool>,
    working: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl AgentExecutor for Worker {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        let working = self.working.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(working, Ordering::SeqCst);
        if cx.job.payload.goal == "long" {
            let mut gate = self.gate.clone();
            gate.wait_for(|open| *open).await.expect("the test is there");
        }
        self.working.fetch_sub(1, Ordering::SeqCst);
        StepOutcome::Completed { output: Output::default(), entries: Vec::new() }
    }
}

async fn enqueue(fleet: &TestFleet, jobs: usize, goal: &str) -> Vec<JobId> {
    let payload = Payload { goal: goal.into(), ..Payload::default() };
    let job = NewJob { role: "worker".into(), payload, ..NewJob::default() };
    let enqueued = fleet.store().enqueue(vec![job; jobs], fleet.now()).await.expect("is stored");
    enqueued.into_iter().map(|enqueued| enqueued.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_claimed_ahead_while_they_are_short_and_given_back_when_they_are_long() {
    let (open, gate) = watch::channel(false);
    let worker = Arc::new(Worker { gate, working: AtomicUsize::new(0), most: AtomicUsize::new(0) });
    let builder = TestFleet::builder().executor("worker", Arc::clone(&worker) as _).slots(SLOTS);
    let fleet = builder.start(ScriptedModel::new()).await;

    // Before any job was seen to be short, none is claimed ahead.
    let first = enqueue(&fleet, 20, "long").await;
    let claimed = until(&fleet, |running, _| running == SLOTS).await;
    assert_eq!(claimed, (SLOTS, 20 - SLOTS));
    open.send_replace(true);
    fleet.drain().await;
    assert_eq!(given_back(&fleet, &first).await, 0);

    enqueue(&fleet, 300, "short").await;
    fleet.drain().await;
    open.send_replace(false);
    let long = enqueue(&fleet, 50, "long").await;
    let enough = async || {
        let jobs = given_back(&fleet, &long).await;
        if jobs >= 50 - SLOTS { Ok(()) } else { Err(jobs) }
    };
    wait_async(Duration::from_secs(20), enough).await.expect("so many are given back");
    until(&fleet, |running, available| (running, available) == (SLOTS, 50 - SLOTS)).await;
    open.send_replace(true);
    fleet.drain().await;
    for id in long {
        let job = fleet.job(id).await;
        assert_eq!((job.state, job.attempt), (JobState::Completed, 1), "what was given back cost no attempt");
    }
    assert_eq!(worker.most.load(Ordering::SeqCst), SLOTS, "no more were at work than there are slots");
}

/// Waits for numbers of running and available jobs, and gives them.
async fn until(fleet: &TestFleet, is_so: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let counted = wait_async(Duration::from_secs(20), async || {
        let counts = fleet.store().counts().await.expect("can be counted");
        let many = |of| counts.iter().filter(|(_, state, _)| *state == of).map(|(.., jobs)| *jobs as usize).sum();
        let (running, available) = (many(JobState::Running), many(JobState::Available));
        if is_so(running, available) { Ok((running, available)) } else { Err((running, available)) }
    });
    counted.await.expect("so many run and so many are available")
}

/// How many were claimed once and given back, with the reason that says so.
async fn given_back(fleet: &TestFleet, ids: &[JobId]) -> usize {
    let mut jobs = 0;
    for id in ids {
        let attempts = fleet.store().attempts(*id).await.expect("can be read");
        let said = attempts.first().and_then(|attempt| attempt.reason.as_deref()).unwrap_or_default();
        jobs += usize::from(said == "its worker has no slot for it after all; the attempt was given back");
    }
    jobs
}
