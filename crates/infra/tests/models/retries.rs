//! Requests that are made again: how often, after what wait, and until the work is stopped.

use super::*;
use posse_core::model::{Delta, ModelErrorKind};
use posse_core::stop::{StopReason, stop_pair};
use std::time::Instant;

#[tokio::test]
async fn retries_wait_as_long_as_asked() {
    let limited = refused(429, "slow down").header("retry-after", "0.2");
    let server = ModelServer::play(vec![limited.clone(), limited, Answer::file("B00-final.sse")]).await;
    let started = Instant::now();
    let reply = ask(&model(config(&server)), &request()).await.expect("a reply");
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
    assert_eq!(reply.failed_tries.len(), 2);
    let chats = server.chats();
    assert!(chats.len() == 3 && chats[0] == chats[2], "the same request each time");
}

#[tokio::test]
async fn a_long_wait_is_handed_up() {
    let server = ModelServer::play(vec![refused(429, "slow down").header("retry-after", "3600")]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
    assert_eq!(error.retry_after, Some(Duration::from_secs(3600)));
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn retries_come_to_an_end() {
    let server = ModelServer::play(vec![Answer::new(502, "text/html", "<h1>Bad Gateway</h1>")]).await;
    let error = ask(&model(config(&server)), &request()).await.expect_err("an error");
    assert_eq!(error.kind, ModelErrorKind::Transient);
    assert_eq!((server.chats().len(), error.failed_tries.len()), (5, 5));
    assert!(error.message.contains("answered 502: Bad Gateway"), "{}", error.message);
    assert!(error.message.contains(&server.base_url()), "{}", error.message);
}

#[tokio::test]
async fn a_stop_closes_the_connection() {
    let server = ModelServer::play(vec![Answer::file("B07-eof-no-finish.sse").holding()]).await;
    let model = model(config(&server));
    let (stopper, stop) = stop_pair();
    let sink = |delta| {
        // The reply has begun, so the stop comes in the middle of it.
        if matches!(delta, Delta::Text(_)) {
            stopper.stop(StopReason::Cancelled);
        }
    };
    let error = model.complete(&request(), &sink, &stop).await.expect_err("stopped");
    assert_eq!(error.kind, ModelErrorKind::Stopped);
    assert!(error.failed_tries[0].usage.input > 0, "what was read is billed all the same");
    server.connection_dropped().await;
    assert_eq!(server.chats().len(), 1);
}

#[tokio::test]
async fn a_stop_ends_a_wait() {
    let server = ModelServer::play(vec![refused(429, "slow down").header("retry-after", "30")]).await;
    let (stopper, stop) = stop_pair();
    let sink = |_| stopper.stop(StopReason::Shutdown);
    let started = Instant::now();
    let error = model(config(&server)).complete(&request(), &sink, &stop).await.expect_err("stopped");
    assert_eq!(error.kind, ModelErrorKind::Stopped);
    assert!(started.elapsed() < Duration::from_secs(5));
}
