//! Counting requests to models, and knowing which endpoints are out.

use std::sync::Arc;

use super::*;
use posse_core::model::breaker::{FAILURES, FIRST_REST_MS, MAX_CLOSED_MS};
use posse_core::queue::rate::{ModelRates, ModelUse, Pass, RequestOutcome, Whom};

/// One request of so many tokens to a model with these rates.
pub fn about(requests_per_minute: Option<u64>, tokens_per_minute: Option<u64>, tokens: u64) -> ModelUse {
    ModelUse {
        endpoint: "https://host/v1".into(),
        model: "m".into(),
        rates: ModelRates { requests_per_minute, tokens_per_minute },
        requests: 1,
        tokens,
        is_probe: false,
    }
}

async fn go(store: &dyn Store, about: &ModelUse, patience: Millis, now: Millis) -> Pass {
    store.reserve(about.clone(), patience, now).await.expect("works")
}

fn waits(pass: Pass) -> Option<Millis> {
    match pass {
        Pass::Go { .. } | Pass::Probe => None,
        Pass::Wait { ms, .. } | Pass::Out { ms, .. } => Some(ms),
    }
}

/// An endpoint that has just been found out.
pub async fn out(store: &dyn Store, now: Millis) -> ModelUse {
    let about = about(None, None, 10);
    for n in 1..=FAILURES {
        assert_eq!(go(store, &about, 0, now).await, Pass::Go { after_ms: 0 });
        let failed = RequestOutcome::Failed("answered 503".into());
        let rest = store.settle(about.clone(), about.clone(), failed, now).await.expect("works");
        assert_eq!(rest, (n == FAILURES).then_some(FIRST_REST_MS));
    }
    about
}

pub async fn requests_are_counted_for_everybody(store: Arc<dyn Store>) {
    let sixty = about(Some(60), None, 1000);
    for _ in 0..6 {
        assert_eq!(go(&*store, &sixty, 0, T0).await, Pass::Go { after_ms: 0 });
    }
    let Pass::Wait { ms, reason } = go(&*store, &sixty, 999, T0).await else { panic!("is one too many") };
    assert_eq!((ms, reason.as_str()), (1000, "the model m may be sent 60 requests a minute, and as many were"));
    // Whoever is patient is given a time of their own.
    assert_eq!(go(&*store, &sixty, 5000, T0).await, Pass::Go { after_ms: 1000 });
    assert_eq!(go(&*store, &sixty, 5000, T0).await, Pass::Go { after_ms: 2000 });
    // Another model of that endpoint has its own.
    let other = ModelUse { model: "n".into(), ..sixty };
    assert_eq!(go(&*store, &other, 0, T0).await, Pass::Go { after_ms: 0 });
    // A request that needed many tries counts as many.
    let tries = ModelUse { requests: 6, ..other.clone() };
    store.settle(other.clone(), tries, RequestOutcome::Answered, T0).await.expect("works");
    assert_eq!(waits(go(&*store, &other, 0, T0).await), Some(1000));
}

pub async fn what_was_not_used_is_given_back(store: Arc<dyn Store>) {
    let large = about(None, Some(6000), 4000);
    assert_eq!(go(&*store, &large, 0, T0).await, Pass::Go { after_ms: 0 });
    assert_eq!(waits(go(&*store, &large, 0, T0).await), Some(20_000));
    let used = ModelUse { tokens: 1000, ..large.clone() };
    store.settle(large.clone(), used, RequestOutcome::Answered, T0).await.expect("works");
    assert_eq!(go(&*store, &large, 0, T0).await, Pass::Go { after_ms: 0 });
    // What is larger than a minute's worth goes when nothing else has gone.
    let huge = ModelUse { model: "n".into(), ..about(None, Some(6000), 60_000) };
    assert_eq!(go(&*store, &huge, 0, T0).await, Pass::Go { after_ms: 0 });
    assert!(waits(go(&*store, &huge, 0, T0).await).is_some_and(|ms| ms > 500_000));
}

pub async fn an_endpoint_that_is_out_is_left_alone_and_probed_by_one(store: Arc<dyn Store>) {
    let about = out(&*store, T0).await;
    let Pass::Out { ms, reason } = go(&*store, &about, 60_000, T0 + 1).await else { panic!("is out") };
    assert_eq!(ms, FIRST_REST_MS - 1);
    assert!(reason.contains("https://host/v1 is out") && reason.contains("answered 503"), "{reason}");
    let known = store.failing_endpoints().await.expect("can be read").remove(0);
    assert_eq!((known.endpoint.as_str(), known.reason.as_deref()), ("https://host/v1", Some("answered 503")));
    assert!(known.breaker.is_out());
    let now = T0 + FIRST_REST_MS;
    assert_eq!(go(&*store, &about, 0, now).await, Pass::Probe);
    for _ in 0..20 {
        assert!(waits(go(&*store, &about, 0, now).await).is_some(), "one probe at a time");
    }
    let failed = RequestOutcome::Failed("answered 502".into());
    let probe = ModelUse { is_probe: true, ..about.clone() };
    let rest = store.settle(probe.clone(), probe, failed, now).await.expect("works");
    assert_eq!(rest, Some(2 * FIRST_REST_MS));
    assert_eq!(waits(go(&*store, &about, 0, now).await), Some(2 * FIRST_REST_MS));
}

pub async fn an_endpoint_that_answers_is_forgotten(store: Arc<dyn Store>) {
    let about = out(&*store, T0).await;
    let now = T0 + FIRST_REST_MS;
    assert_eq!(go(&*store, &about, 0, now).await, Pass::Probe);
    store.settle(about.clone(), about.clone(), RequestOutcome::Answered, now).await.expect("works");
    assert_eq!(store.failing_endpoints().await.expect("can be read"), []);
    assert_eq!(go(&*store, &about, 0, now).await, Pass::Go { after_ms: 0 });
    // Failures with an answer between them are none in a row.
    for _ in 0..20 {
        let failed = RequestOutcome::Failed("x".into());
        assert_eq!(store.settle(about.clone(), about.clone(), failed, now).await.expect("works"), None);
        store.settle(about.clone(), about.clone(), RequestOutcome::Answered, now).await.expect("works");
    }
}

pub async fn a_stopped_probe_lets_another_go(store: Arc<dyn Store>) {
    let about = out(&*store, T0).await;
    let now = T0 + FIRST_REST_MS;
    assert_eq!(go(&*store, &about, 0, now).await, Pass::Probe);
    store.settle(about.clone(), about.clone(), RequestOutcome::Unknown, now).await.expect("works");
    assert!(waits(go(&*store, &about, 0, now).await).is_some(), "another's end says nothing of the probe");
    let probe = ModelUse { is_probe: true, ..about.clone() };
    store.settle(probe.clone(), probe, RequestOutcome::Unknown, now).await.expect("works");
    assert_eq!(go(&*store, &about, 0, now).await, Pass::Probe);
    assert!(store.failing_endpoints().await.expect("can be read")[0].breaker.is_out(), "it has not answered");
}

pub async fn who_takes_nothing_for_a_while_is_asked_again_by_one(store: Arc<dyn Store>) {
    let about = about(None, None, 10);
    let closed = |whom, ms| RequestOutcome::Closed { reason: "no credit".into(), whom, ms };
    let day = Some(24 * 60 * 60 * 1000);
    for (whom, others_too) in [(Whom::Everybody, true), (Whom::Model, false)] {
        let rest = store.settle(about.clone(), about.clone(), closed(whom, day), T0).await.expect("works");
        assert_eq!(rest, Some(MAX_CLOSED_MS));
        let Pass::Out { reason, .. } = go(&*store, &about, 60_000, T0).await else { panic!("is out") };
        assert!(reason.contains("no credit"), "{reason}");
        let other = ModelUse { model: "n".into(), ..about.clone() };
        assert_eq!(waits(go(&*store, &other, 0, T0).await).is_some(), others_too);
        let now = T0 + MAX_CLOSED_MS;
        assert_eq!(go(&*store, &about, 0, now).await, Pass::Probe);
        assert!(waits(go(&*store, &about, 0, now).await).is_some(), "one at a time");
        let probe = ModelUse { is_probe: true, ..about.clone() };
        store.settle(probe.clone(), probe, RequestOutcome::Answered, now).await.expect("works");
        assert_eq!(store.failing_endpoints().await.expect("can be read"), []);
    }
}
