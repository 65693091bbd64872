//! Clocks under a test's hand: schedules as time goes on (A05), and the host's clock set while jobs run
//! (A04). Both workers see the same clock, as on one host.

use posse_core::clock::{Clock, ManualClock};
use posse_core::job::{JobId, JobState, NewJob};
use posse_core::port::{CareRepository as _, JobQueries as _, JobRepository as _, WorkerRecord};
use posse_core::schedule::{Missed, Overlap, Schedule};
use posse_core::tool::EffectClass;
use posse_infra::process::SystemClock;
use posse_testing::scripted::ScriptedModel;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

use super::kit::{Gate, Home, Worker, WorkerOptions, gate, lines};
use crate::support::wait::wait_async;

const HOUR: i64 = 3_600_000;
const LEASE: i64 = 30_000;

/// A job at work in the first of two workers, in the middle of a tool.
struct Scene {
    home: Home,
    clock: Arc<ManualClock>,
    workers: Vec<Worker>,
    gate: Gate,
    job: JobId,
}

async fn scene() -> Scene {
    let home = Home::new();
    // Ahead of the one by which jobs are enqueued, so that they are due.
    let clock = Arc::new(ManualClock::at(SystemClock.now() + 60_000));
    let (tool, mut gate) = gate(EffectClass::Once);
    let model = Arc::new(ScriptedModel::new().call(&[("gate", json!({"line": "one"}))]).say("FINAL-OK"));
    let options = || WorkerOptions { tools: vec![tool.clone()], clock: clock.clone(), ..WorkerOptions::default() };
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(Worker::start_with(&home, model.clone(), options()).await);
    }
    let job = home.enqueue("one line").await;
    assert_eq!(gate.begun.recv().await.as_deref(), Some("one"));
    Scene { home, clock, workers, gate, job }
}

impl Scene {
    /// Waits until both workers have noticed that the clock was set, each once.
    async fn until_noticed(&self) {
        let noticed = wait_async(Duration::from_secs(20), async || {
            let noticed = self.home.store.clock_jumps().await.expect("readable");
            let workers = noticed.iter().map(|jump| &jump.worker).collect::<std::collections::BTreeSet<_>>().len();
            if workers == 2 { Ok(noticed) } else { Err(noticed) }
        });
        assert_eq!(noticed.await.expect("both notice").len(), 2, "each told of it once");
    }

    /// The lease is the one of the first claim, and stands for no longer and no shorter than it should.
    async fn is_in_the_same_hands(&self) {
        let job = self.home.job(self.job).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Running, 1, 0));
        let stands_for = job.lease_until.expect("a lease") - self.clock.now();
        assert!((1..=LEASE).contains(&stands_for), "the lease stands for {stands_for} ms");
    }

    async fn ends_once(self) {
        let Scene { home, workers, gate, job, .. } = self;
        gate.let_go.add_permits(10);
        let ended = async || home.job(job).await.state.is_final().then_some(()).ok_or(());
        wait_async(Duration::from_secs(20), ended).await.expect("it ends");
        assert_eq!(home.job(job).await.state, JobState::Completed);
        assert_eq!(lines(&home.workspace().join("ledger.txt")), ["one"], "nothing ran twice");
        assert_eq!(home.store.attempts(job).await.expect("readable").len(), 1);
        drop(workers);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_forward_takes_no_job_from_the_living() {
    let scene = scene().await;
    scene.clock.set_by(HOUR);
    scene.until_noticed().await;
    scene.is_in_the_same_hands().await;
    // While it settles nobody is rescued, and after that there is nothing to rescue.
    for worker in &scene.workers {
        worker.fleet.rescue().await;
    }
    scene.is_in_the_same_hands().await;
    scene.clock.advance(LEASE / 2 + 1);
    for worker in &scene.workers {
        let fleet = Arc::clone(&worker.fleet);
        tokio::task::spawn_blocking(move || fleet.beat()).await.expect("beats");
        worker.fleet.rescue().await;
    }
    scene.is_in_the_same_hands().await;
    scene.ends_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_leaves_no_lease_for_hours() {
    let scene = scene().await;
    scene.clock.set_by(-HOUR);
    scene.until_noticed().await;
    scene.is_in_the_same_hands().await;
    scene.ends_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_as_the_clock_is_set_back_holds_its_job_for_a_lease_at_most() {
    let Scene { home, clock, mut workers, job, .. } = scene().await;
    let holder = home.job(job).await.leased_by.expect("is held");
    let at = workers.iter().position(|worker| worker.id == holder).expect("one of both");
    // Nothing of it renews any more, and nobody can tell by the process, which lives on.
    workers.remove(at).stand_still();
    clock.set_by(-HOUR);
    workers[0].fleet.rescue().await;
    let stands_for = home.job(job).await.lease_until.expect("a lease") - clock.now();
    assert!(stands_for <= LEASE, "{stands_for} ms");
    clock.advance(LEASE + 1);
    // Then it is watched for as long as a living one would need.
    let mut watched = 0;
    while home.job(job).await.leased_by.as_ref() == Some(&holder) {
        assert!(watched < LEASE, "it is taken back");
        clock.advance(1000);
        watched += 1000;
        workers[0].fleet.rescue().await;
    }
    assert!(watched >= LEASE / 2 - 1000, "{watched} ms");
    let taken_back = home.job(job).await;
    assert_eq!(taken_back.crashes, 0, "and its worker is not dead, for all that is known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_process_is_noticed_at_once_though_the_clock_was_just_set() {
    for by in [HOUR, -HOUR] {
        let Scene { home, clock, mut workers, job, .. } = scene().await;
        let holder = home.job(job).await.leased_by.expect("is held");
        let at = workers.iter().position(|worker| worker.id == holder).expect("one of both");
        let gone = home.store.workers().await.expect("readable").into_iter().find(|worker| worker.id == holder);
        workers.remove(at).stand_still();
        // As if it had been a process of its own, which ended: another one has its number now.
        let record = gone.expect("is on the list");
        let record = WorkerRecord { pid_started: record.pid_started + 1, ..record };
        home.store.register_worker(record).await.expect("works");
        clock.set_by(by);
        workers[0].fleet.rescue().await;
        let taken_back = home.job(job).await;
        assert_eq!((taken_back.crashes, taken_back.leased_by.as_deref() == Some(&holder)), (1, false), "{by}");
    }
}

fn ms(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().expect("a moment").as_millisecond()
}

/// Adds a schedule as it would have been added at `from`.
async fn add(home: &Home, name: &str, cron: &str, missed: Missed, from: i64) {
    let zone = "America/New_York";
    // Nobody serves the role, so the jobs stay where they are put.
    let job = NewJob { role: "nobody".into(), ..NewJob::default() };
    let schedule = Schedule::new(name, (cron, zone), job, (missed, Overlap::Allow), from).expect("a schedule");
    assert!(home.store.add_schedule(schedule).await.expect("is added"));
}

/// The runs for which a schedule made jobs, oldest first.
async fn made(home: &Home, name: &str) -> Vec<String> {
    let made = home.store.schedule_jobs(name.into(), 1000).await.expect("readable");
    let moment = |(at, _): &(i64, JobId)| jiff::Timestamp::from_millisecond(*at).expect("a moment").to_string();
    made.iter().rev().map(moment).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_make_their_jobs_as_time_goes_on_over_a_change_of_clocks() {
    let home = Home::new();
    let begin = ms("2027-03-13T06:00:00Z");
    let clock = Arc::new(ManualClock::at(begin));
    add(&home, "nightly", "30 2 * * *", Missed::Once, begin).await;
    add(&home, "hourly", "0 * * * *", Missed::Once, begin).await;
    let options = WorkerOptions { clock: clock.clone(), ..WorkerOptions::default() };
    let worker = Worker::start_with(&home, Arc::new(ScriptedModel::new()), options).await;
    while clock.now() < ms("2027-03-15T12:00:00Z") {
        clock.advance(600_000);
        worker.fleet.fire_schedules().await.expect("works");
    }
    assert_eq!(
        made(&home, "nightly").await,
        ["2027-03-13T07:30:00Z", "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"],
        "once a night, also in the one that has no half past two"
    );
    assert_eq!(made(&home, "hourly").await.len(), 54, "one for each hour that passed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hours_without_a_worker_are_made_up_for_once_unless_told_otherwise() {
    let home = Home::new();
    let begin = ms("2027-06-01T00:30:00Z");
    for (name, missed) in [("once", Missed::Once), ("skip", Missed::Skip), ("all", Missed::All)] {
        add(&home, name, "0 * * * *", missed, begin).await;
    }
    let clock = Arc::new(ManualClock::at(begin + 3 * HOUR));
    let options = WorkerOptions { clock: clock.clone(), ..WorkerOptions::default() };
    let worker = Worker::start_with(&home, Arc::new(ScriptedModel::new()), options).await;
    for _ in 0..3 {
        worker.fleet.fire_schedules().await.expect("works");
    }
    let counts = [made(&home, "once").await.len(), made(&home, "skip").await.len(), made(&home, "all").await.len()];
    assert_eq!(counts, [1, 0, 3]);
    clock.advance(HOUR / 2);
    worker.fleet.fire_schedules().await.expect("works");
    let last = made(&home, "skip").await;
    assert_eq!(last, ["2027-06-01T04:00:00Z"], "and the next comes at its time");
}
