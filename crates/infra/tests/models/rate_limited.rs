//! A model that is asked only as often as it may be, and not while its endpoint is out.

use posse_core::clock::{Clock as _, ManualClock};
use posse_core::model::breaker::{FAILURES, FIRST_CLOSED_MS, FIRST_REST_MS, MAX_CLOSED_MS};
use posse_core::model::*;
use posse_core::port::RateLimiter;
use posse_core::queue::rate::ModelRates;
use posse_core::run::machine::Again;
use posse_core::stop::{Stop, StopReason, stop_pair};
use posse_infra::model::rate_limited::{LimiterSlot, RateLimitedModel};
use posse_infra::sqlite::{Options, SqliteStore};
use posse_testing::scripted::{Play, ScriptedModel, text_reply};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
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
    fn model(&self, rates: ModelRates, answer: fn(u32) -> Play) -> RateLimitedModel {
        let store = SqliteStore::open(&self.folder.path().join("jobs.db"), Options::default()).expect("opens");
        let limiter = LimiterSlot::default();
        assert!(limiter.set(Arc::new(store) as Arc<dyn RateLimiter>).is_ok());
        let asked = Arc::clone(&self.asked);
        let inner = ScriptedModel::new().forever(move |_| answer(asked.fetch_add(1, Ordering::SeqCst)));
        let place = ("https://host/v1".to_owned(), "m".to_owned());
        RateLimitedModel::new(Arc::new(inner), place, rates, limiter, self.clock.clone())
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

/// A failure of this kind, of one request.
fn failure(kind: ModelErrorKind, retry_after: Option<Duration>) -> Play {
    let failed_tries = vec![FailedTry { model: "m".into(), reason: "no".into(), usage: Usage::default() }];
    Play::Fail(ModelError {
        kind,
        message: "the provider said no".into(),
        retry_after,
        context_window: None,
        failed_tries,
    })
}

/// The paused clock runs on while the database's thread works, so of fifty who ask together a few may ask again before it
/// is known to all. Without a word to each other they would ask 250 times.
const ABOUT_ONCE_EACH: u32 = 65;

#[tokio::test(start_paused = true)]
async fn fifty_who_meet_an_outage_together_do_not_ask_again_and_again() {
    let home = Home::new();
    let model = home.model(ModelRates::default(), fails).with_retries(4, Duration::from_millis(500));
    let all = futures::future::join_all((0..50).map(|_| ask(&model))).await;
    assert!(all.into_iter().all(|answer| answer.is_err_and(|error| error.kind == ModelErrorKind::Unavailable)));
    let at_first = home.asked();
    assert!(at_first <= ABOUT_ONCE_EACH, "hardly anybody twice: {at_first}");
    for rest in [1, 2, 4] {
        home.clock.advance(rest * FIRST_REST_MS);
        for answer in futures::future::join_all((0..50).map(|_| ask(&model))).await {
            assert_eq!(answer.expect_err("is out").kind, ModelErrorKind::Unavailable);
        }
    }
    assert_eq!(home.asked(), at_first + 3, "one at a time, and it is not made again");
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_no_wait_is_no_leave_to_ask_without_a_pause() {
    let home = Home::new();
    let at_once = |_| failure(ModelErrorKind::RateLimited, Some(Duration::ZERO));
    let model = home.model(ModelRates::default(), at_once).with_retries(4, Duration::from_millis(500));
    let mut waited = Duration::ZERO;
    for before in 0..4 {
        let error = ask(&model).await.expect_err("is limited");
        let Again::After(wait) = Again::after_some(error.kind, error.retry_after, before) else {
            panic!("no attempt is spent yet: {before}");
        };
        assert!(wait >= Duration::from_secs(10 << before), "{before}: {wait:?}");
        waited += wait;
        home.clock.advance(wait.as_millis() as i64);
    }
    assert!(waited >= Duration::from_secs(150), "{waited:?}");
    let error = ask(&model).await.expect_err("is limited");
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    let again = Again::after_some(error.kind, error.retry_after, 4);
    assert_eq!(again, Again::Later, "in the end it is a failure like any other");
    assert_eq!(home.asked(), 4 * 5 + 1, "and by then it is known to all that nobody is served");
}

#[tokio::test(start_paused = true)]
async fn fifty_who_are_limited_together_leave_the_provider_alone() {
    let home = Home::new();
    let limited = |_| failure(ModelErrorKind::RateLimited, Some(Duration::ZERO));
    let model = home.model(ModelRates::default(), limited).with_retries(4, Duration::from_millis(500));
    let all = futures::future::join_all((0..50).map(|_| ask(&model))).await;
    for error in all.into_iter().map(|answer| answer.expect_err("is limited")) {
        let again = Again::after(error.kind, error.retry_after);
        assert!(matches!(again, Again::After(_)), "{:?}: {again:?}", error.kind);
    }
    let at_first = home.asked();
    assert!(at_first <= ABOUT_ONCE_EACH, "hardly anybody twice: {at_first}");
    for rest in [2_000, 4_000, 8_000] {
        home.clock.advance(rest);
        for answer in futures::future::join_all((0..50).map(|_| ask(&model))).await {
            answer.expect_err("is limited");
        }
    }
    assert_eq!(home.asked(), at_first + 3, "one at a time");
}

#[tokio::test]
async fn doors_that_are_closed_are_known_to_all_and_tried_by_one() {
    for (kind, asked) in
        [(ModelErrorKind::OutOfCredit, None), (ModelErrorKind::RateLimited, Some(Duration::from_secs(86_400)))]
    {
        let home = Home::new();
        let answer: fn(u32) -> Play = match kind {
            ModelErrorKind::OutOfCredit => |_| failure(ModelErrorKind::OutOfCredit, None),
            _ => |_| failure(ModelErrorKind::RateLimited, Some(Duration::from_secs(86_400))),
        };
        let (here, there) = (home.model(ModelRates::default(), answer), home.model(ModelRates::default(), answer));
        let first = ask(&here).await.expect_err("is closed");
        assert!(matches!(Again::after(first.kind, first.retry_after), Again::After(_)), "no attempt is spent");
        for model in [&here, &there] {
            for _ in 0..5 {
                let error = ask(model).await.expect_err("is closed");
                assert_eq!(error.kind, ModelErrorKind::Unavailable);
                assert!(error.message.contains("the provider said no"), "{}", error.message);
            }
        }
        assert_eq!(home.asked(), 1, "{kind:?}");
        let rest = if asked.is_some() { MAX_CLOSED_MS } else { FIRST_CLOSED_MS };
        home.clock.advance(rest);
        let _ = futures::future::join_all((0..5).map(|_| ask(&there))).await;
        assert_eq!(home.asked(), 2, "one asks again");
        // A person who waits is not sent away.
        let insists = Arc::new(true.into());
        let person = home.model(ModelRates::default(), says).insisting(insists);
        ask(&person).await.expect("answers");
        ask(&home.model(ModelRates::default(), says)).await.expect("and now everybody knows");
    }
}

#[tokio::test]
async fn the_worker_s_own_trouble_is_nobody_else_s() {
    for kind in [ModelErrorKind::WorkerUnfit, ModelErrorKind::Unauthorized] {
        let home = Home::new();
        let answer: fn(u32) -> Play = match kind {
            ModelErrorKind::WorkerUnfit => |_| failure(ModelErrorKind::WorkerUnfit, None),
            _ => |_| failure(ModelErrorKind::Unauthorized, None),
        };
        let here = home.model(ModelRates::default(), answer);
        for _ in 0..3 * FAILURES {
            let error = ask(&here).await.expect_err("cannot");
            assert_eq!(error.kind, kind);
            assert!(matches!(Again::after(error.kind, error.retry_after), Again::After(_)), "no attempt is spent");
        }
        assert_eq!(home.asked(), 1, "and it is not tried by each job");
        ask(&home.model(ModelRates::default(), says)).await.expect("another worker can");
        home.clock.advance(60_000);
        let _ = futures::future::join_all((0..5).map(|_| ask(&here))).await;
        assert_eq!(home.asked(), 3, "one tries again");
    }
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

/// The waits before each further try of a request that always fails, by a model that asks nobody's leave.
async fn waits(retries: u32, backoff: Duration, asked: Option<Duration>) -> Vec<Duration> {
    let tries = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&tries);
    let inner = ScriptedModel::new().forever(move |_| {
        times.lock().expect("not poisoned").push(tokio::time::Instant::now());
        failure(ModelErrorKind::Transient, asked)
    });
    let (place, clock) = (("https://host/v1".to_owned(), "m".to_owned()), Arc::new(ManualClock::at(1_800_000_000_000)));
    let model = RateLimitedModel::new(Arc::new(inner), place, ModelRates::default(), LimiterSlot::default(), clock);
    ask(&model.with_retries(retries, backoff)).await.expect_err("fails");
    let tries = tries.lock().expect("not poisoned");
    tries.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Timers run by milliseconds.
const TICK: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn our_own_waits_grow_to_a_cap() {
    let (base, cap) = (Duration::from_millis(500), Duration::from_secs(20));
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        for (n, wait) in waits(40, base, None).await.into_iter().enumerate() {
            let most = base.saturating_mul(1 << n.min(16)).min(cap);
            assert!(wait <= most + TICK, "{n}: {wait:?}");
            longest = longest.max(wait);
        }
    }
    assert!(longest > cap / 2, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_no_wait_has_a_floor_that_grows() {
    let base = Duration::from_millis(500);
    for (n, wait) in waits(12, base, Some(Duration::ZERO)).await.into_iter().enumerate() {
        let most = base.saturating_mul(1 << n).min(Duration::from_secs(20));
        assert!((most / 2..=most + TICK).contains(&wait), "{n}: {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_never_shorter_than_asked_and_hardly_longer() {
    for (asked, more) in [(2.0, 1.0), (0.1, 0.1), (60.0, 1.0)] {
        let asked = Duration::from_secs_f64(asked);
        for wait in waits(5, Duration::ZERO, Some(asked)).await {
            assert!((asked..=asked + Duration::from_secs_f64(more) + TICK).contains(&wait), "{asked:?}: {wait:?}");
        }
    }
    assert_eq!(waits(5, Duration::ZERO, Some(Duration::from_secs(61))).await, [], "the job waits, and not the worker");
}
