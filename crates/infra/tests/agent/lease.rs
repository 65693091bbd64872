//! What a worker may do, and may not do any more: leases, shutdown, cancel.

use posse_core::clock::{Clock, ManualClock};
use posse_core::job::JobState;
use posse_core::port::{Cancelled, JobQueries, JobRepository};
use posse_core::tool::EffectClass;
use posse_core::worker::Progress;
use posse_infra::process::SystemClock;
use posse_testing::scripted::ScriptedModel;
use serde_json::json;
use std::sync::Arc;

use super::kit::{Home, Worker, WorkerOptions, gate, lines};
use crate::support::expire::Expire as _;

#[tokio::test]
async fn a_shutdown_costs_nothing() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().hang().say("FINAL-OK"));
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = home.enqueue("wait").await;
    worker.until(|p| matches!(p, Progress::AskingModel { .. })).await;
    worker.shut_down().await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Available, 0, 0), "the attempt was given back");
    let mut next = Worker::start(&home, model.clone()).await;
    next.until_ended(id).await;
    assert_eq!(home.job(id).await.output.expect("an answer").text, "FINAL-OK");
    let attempts = home.store.attempts(id).await.expect("readable");
    let outcomes: Vec<_> = attempts.iter().map(|a| a.outcome.as_deref().unwrap_or("open")).collect();
    assert_eq!(outcomes, ["interrupted", "completed"]);
}

#[tokio::test]
async fn a_cancel_ends_a_running_model_request_and_keeps_its_reason() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().hang());
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = home.enqueue("wait").await;
    worker.until(|p| matches!(p, Progress::AskingModel { .. })).await;
    let cancelled = home.store.cancel(id, "no longer needed".into(), SystemClock.now()).await.expect("asked");
    assert_eq!(cancelled, Cancelled::Requested);
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.reason.as_deref()), (JobState::Cancelled, Some("no longer needed")));
    let again = home.store.cancel(id, "again".into(), SystemClock.now()).await.expect("asked");
    assert_eq!(again, Cancelled::Already);
}

/// A17: whatever moment a cancel comes at, state and effects agree.
#[tokio::test]
async fn a17_cancel_races() {
    use posse_testing::scripted::{Play, calls_reply, text_reply};
    let home = Home::new();
    let call = |line: usize| posse_core::model::CallRequest {
        id: String::new(),
        name: "append_file".into(),
        arguments: json!({"path": "ledger.txt", "text": format!("{line}\n")}).to_string(),
        extra: None,
    };
    let model = Arc::new(ScriptedModel::new().forever(move |request| match request.messages.len() {
        n if n < 10 => Play::Reply(calls_reply(vec![call(n)])),
        _ => Play::Reply(text_reply("done")),
    }));
    let mut worker = Worker::start(&home, model.clone()).await;
    let mut ended = [0, 0];
    for round in 0..200_u64 {
        let _ = std::fs::remove_file(home.workspace().join("ledger.txt"));
        let id = home.enqueue("append lines").await;
        // A different number of yields each round spreads the cancel over the whole run.
        for _ in 0..(round * 7919) % 400 {
            tokio::task::yield_now().await;
        }
        let answer = home.store.cancel(id, "stop".into(), SystemClock.now()).await.expect("asked");
        if matches!(answer, Cancelled::Requested) {
            worker.until_ended(id).await;
        }
        let job = home.job(id).await;
        let effects = lines(&home.workspace().join("ledger.txt")).len();
        let done = home.ledger(id).await.values().filter(|s| s.as_str() == "done").count();
        assert_eq!(effects, done, "round {round}: the ledger tells what happened");
        match (answer, job.state) {
            (Cancelled::TooLate(JobState::Completed), JobState::Completed) => ended[0] += 1,
            // Its worker was past the last boundary when the request came.
            (Cancelled::Requested, JobState::Completed) => ended[0] += 1,
            (Cancelled::Now | Cancelled::Requested, JobState::Cancelled) => ended[1] += 1,
            other => panic!("round {round}: {other:?}"),
        }
        assert!(job.state.is_final() && job.leased_by.is_none());
    }
    assert!(ended[1] > 0, "some were cancelled: {ended:?}");
}

/// A worker that was frozen past its lease finds out by itself, before its next effect.
#[tokio::test]
async fn a_frozen_worker_does_nothing_more() {
    let home = Home::new();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let (tool, mut at) = gate(EffectClass::Once);
    let call = |line: &str| ("gate", json!({"line": line}));
    let model = Arc::new(ScriptedModel::new().call(&[call("one"), call("two")]).say("ok"));
    let options =
        |clock: Arc<dyn Clock>| WorkerOptions { tools: vec![tool.clone()], clock, ..WorkerOptions::default() };
    let mut frozen = Worker::start_with(&home, model.clone(), options(clock.clone())).await;
    let id = home.enqueue("two lines").await;
    assert_eq!(at.begun.recv().await.as_deref(), Some("one"));

    // Its lease runs out for everybody else, and the job is taken back and worked on.
    clock.advance(60_000);
    let rescued = home.store.rescue(Vec::new(), clock.now()).await.expect("rescued");
    let became: Vec<_> = rescued.iter().map(|r| (r.job, r.state)).collect();
    assert_eq!(became, [(id, JobState::Available)]);

    // Then the frozen worker's tool comes back.
    at.let_go.add_permits(1);
    frozen.until(|p| matches!(p, Progress::LeaseLost { job } if *job == id)).await;
    at.let_go.add_permits(10);
    frozen.until_ended(id).await;
    assert_eq!(home.job(id).await.state, JobState::Completed);
    assert_eq!(lines(&home.workspace().join("ledger.txt")), ["one", "two"]);
    assert_eq!(home.job(id).await.crashes, 1);
}

#[tokio::test]
async fn a_step_that_panics_is_a_failed_attempt_and_the_worker_lives() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().respond(|_| panic!("a bug")).say("FINAL-OK").say("FINAL-OK"));
    let mut worker = Worker::start(&home, model.clone()).await;
    let first = home.enqueue("one").await;
    worker.until_ended(first).await;
    let job = home.job(first).await;
    assert_eq!(job.state, JobState::Retryable);
    assert!(job.reason.as_deref().is_some_and(|r| r.contains("a bug")), "{:?}", job.reason);
    for goal in ["two", "three"] {
        let next = home.enqueue(goal).await;
        worker.until_ended(next).await;
        assert_eq!(home.job(next).await.state, JobState::Completed);
    }
    let [counts] = &worker.fleet.tally().roles()[..] else { panic!("one role worked") };
    let ends = [("completed", JobState::Completed, 2), ("failed", JobState::Retryable, 1)];
    assert_eq!((counts.claims, &counts.ends[..]), (3, &ends[..]), "each end is counted by how and where");
}
