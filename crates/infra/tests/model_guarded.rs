//! A model that is asked only as often as it may be, and not while its endpoint is out.

use posse_core::breaker::{FAILURES, FIRST_REST_MS};
use posse_core::clock::{Clock as _, ManualClock};
use posse_core::model::*;
use posse_core::rate::{ModelRates, RateLimiter};
use posse_core::run::machine::Again;
use posse_core::stop::{Stop, StopReason, stop_pair};
use posse_infra::model::guarded::{GuardedModel, LimiterSlot};
use posse_infra::model::scripted::{Play, ScriptedModel, text_reply};
use posse_infra::sqlite::{Options, SqliteStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A database, a clock, and what a model was asked.
struct Home {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    asked: Arc<AtomicU32>,
}

impl Home {
    fn new() -> Home {
        let folder = tempfile::tempdir().expect("a folder");
        Home { folder, clock: Arc::new(ManualClock::at(1_800_000_000_000)), asked: Arc::default() }
    }

    /// The model as a process of its own asks it. `answer` is what it says.
    fn model(&self, rates: ModelRates, answer: fn(u32) -> Play) -> GuardedModel {
        let store = SqliteStore::open(&self.folder.path().join("jobs.db"), Options::default()).expect("opens");
        let limiter = LimiterSlot::default();
        assert!(limiter.set(Arc::new(store) as Arc<dyn RateLimiter>).is_ok());
        let asked = Arc::clone(&self.asked);
        let inner = ScriptedModel::new().forever(move |_| answer(asked.fetch_add(1, Ordering::SeqCst)));
        let place = ("https://host/v1".to_owned(), "m".to_owned());
        GuardedModel::new(Arc::new(inner), place, rates, limiter, self.clock.clone())
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn ask(model: &dyn Model) -> Result<ModelReply, ModelError> {
    let messages = vec![Message::User { text: "hi".to_owned() }];
    let request = ModelRequest { messages: messages.into(), max_tokens: Some(100), ..ModelRequest::default() };
    model.complete(&request, &|_| {}, &Stop::never()).await
}

fn says(_: u32) -> Play {
    Play::Reply(ModelReply { usage: Usage { input: 40, output: 10, ..Usage::default() }, ..text_reply("yes") })
}

fn fails(_: u32) -> Play {
    let failed_tries = vec![FailedTry { model: "m".into(), reason: "503".into(), usage: Usage::default() }];
    let message = "model m at https://host/v1 answered 503".to_owned();
    Play::Fail(ModelError {
        kind: ModelErrorKind::Transient,
        message,
        retry_after: None,
        context_window: None,
        failed_tries,
    })
}

#[tokio::test]
async fn an_outage_is_found_once_and_costs_no_attempts() {
    let home = Home::new();
    let (here, there) = (home.model(ModelRates::default(), fails), home.model(ModelRates::default(), says));
    for n in 1..=FAILURES {
        let error = ask(&here).await.expect_err("fails");
        let again = Again::after(error.kind, error.retry_after);
        match n {
            FAILURES => assert!(matches!(again, Again::After(_)), "the one that made it known is not the job's fault"),
            _ => assert_eq!(again, Again::Later),
        }
    }
    // Everybody knows, and nobody asks.
    for model in [&here, &there] {
        for _ in 0..10 {
            let error = ask(model).await.expect_err("is out");
            assert_eq!((error.kind, error.failed_tries.len()), (ModelErrorKind::Unavailable, 0));
            let wait = error.retry_after.expect("says when").as_millis() as i64;
            assert!((FIRST_REST_MS..=FIRST_REST_MS * 6 / 5).contains(&wait), "{wait}");
            assert!(error.message.contains("https://host/v1 was not asked: the endpoint"), "{}", error.message);
            let profile = model.profile().await.expect_err("is out").kind;
            assert_eq!(profile, ModelErrorKind::Unavailable);
        }
    }
    assert_eq!(home.asked(), FAILURES);
    // It is back, and the first who asks finds out for all.
    home.clock.advance(FIRST_REST_MS);
    ask(&there).await.expect("answers");
    there.profile().await.expect("is known");
    assert_eq!(ask(&here).await.expect_err("its own script fails").kind, ModelErrorKind::Transient);
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_is_waited_and_a_long_one_is_for_later() {
    let home = Home::new();
    let rates = ModelRates { requests_per_minute: Some(30), tokens_per_minute: None };
    let (here, there) = (home.model(rates, says), home.model(rates, says));
    for model in [&here, &there, &here] {
        ask(model).await.expect("a tenth goes at once");
    }
    // Two seconds and four are booked; six are too many to sit through.
    let begun = tokio::time::Instant::now();
    ask(&there).await.expect("waits for it");
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    ask(&here).await.expect("waits for it");
    assert_eq!(begun.elapsed(), Duration::from_secs(2 + 4), "the clock of the database stands still");
    let error = ask(&there).await.expect_err("is too many");
    assert_eq!((error.kind, home.asked()), (ModelErrorKind::Unavailable, 5));
    assert!(error.retry_after.expect("says when") >= Duration::from_secs(6));
    assert!(error.message.contains("30 requests a minute"), "{}", error.message);
    home.clock.advance(6000);
    ask(&there).await.expect("its time has come");
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_while_waiting_gives_the_place_back() {
    let home = Home::new();
    let model = home.model(ModelRates { requests_per_minute: Some(20), tokens_per_minute: None }, says);
    ask(&model).await.expect("goes");
    ask(&model).await.expect("goes");
    let (stopper, stop) = stop_pair();
    stopper.stop(StopReason::Cancelled);
    let request = ModelRequest::default();
    let error = model.complete(&request, &|_| {}, &stop).await.expect_err("is stopped");
    assert_eq!(error.kind, ModelErrorKind::Stopped);
    let begun = tokio::time::Instant::now();
    ask(&model).await.expect("waits for the same place");
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    assert_eq!(home.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_reserved_by_estimate_and_settled_by_use() {
    let home = Home::new();
    // One request and its reply are taken for a little over 100 tokens, and use 50.
    let model = home.model(ModelRates { requests_per_minute: None, tokens_per_minute: Some(1000) }, says);
    let begun = tokio::time::Instant::now();
    for _ in 0..18 {
        ask(&model).await.expect("by estimates alone nine would have gone");
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // Two more for whom an estimate is soon free, and then none.
    ask(&model).await.expect("after a moment");
    ask(&model).await.expect("after a moment");
    let error = ask(&model).await.expect_err("a minute's worth is used");
    assert!(error.message.contains("1000 tokens a minute"), "{}", error.message);
    assert_eq!((home.asked(), home.clock.now()), (20, 1_800_000_000_000));
}
