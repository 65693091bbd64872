//! Unique keys: one job at a time.

use std::sync::Arc;

use super::*;
use posse_core::job::Unique;
use posse_core::port::Enqueued;

/// A job of `r` that holds `key`, for `for_ms` after it completed too.
pub fn keyed(key: &str, for_ms: Option<Millis>) -> NewJob {
    NewJob { unique: Some(Unique { key: key.into(), for_ms }), ..job("r") }
}

async fn one(store: &dyn Store, new: NewJob, now: Millis) -> Enqueued {
    store.enqueue(vec![new], now).await.expect("works")[0]
}

pub async fn a_key_is_held_until_its_job_is_final(store: Arc<dyn Store>) {
    for state in JobState::ALL {
        let key = format!("key of {state}");
        let role = state.as_str();
        let new = || NewJob { role: role.into(), ..keyed(&key, None) };
        let first = one(&*store, new(), T0).await;
        assert!(!first.existed);
        let lease = || async { claim(&*store, role, 1, T0).await[0].lease };
        match state {
            JobState::Available => {}
            JobState::Running => drop(lease().await),
            JobState::Cancelled => drop(store.cancel(first.id, "x".into(), T0).await.expect("is cancelled")),
            _ => {
                let event = match state {
                    JobState::Scheduled => Event::Snooze,
                    JobState::Retryable => Event::Fail,
                    JobState::Suspended => Event::Suspend,
                    JobState::Completed => Event::Complete,
                    _ => Event::GiveUp,
                };
                let lease = lease().await;
                store.finish(lease, ending(event, T0 + 1_000_000), T0).await.expect("finishes");
            }
        }
        assert_eq!(get(&*store, first.id).await.state, state);
        let second = one(&*store, new(), T0 + 1).await;
        assert_eq!(second.existed, !state.is_final(), "{state}");
        assert_eq!(second.id == first.id, second.existed, "{state}");
        if second.existed {
            assert!(claim(&*store, role, 9, T0).await.len() <= 1, "nothing was stored: {state}");
        }
    }
}

pub async fn a_key_may_be_held_after_completion(store: Arc<dyn Store>) {
    let first = one(&*store, keyed("k", Some(1000)), T0).await;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    finish(&*store, lease, Event::Complete, T0 + 500).await;
    assert_eq!(one(&*store, keyed("k", None), T0 + 1499).await, Enqueued { existed: true, ..first });
    let second = one(&*store, keyed("k", Some(1000)), T0 + 1500).await;
    assert!(!second.existed && second.id != first.id);
    // One that did not complete holds nothing.
    let lease = claim(&*store, "r", 1, T0 + 1500).await[0].lease;
    finish(&*store, lease, Event::GiveUp, T0 + 1500).await;
    assert!(!one(&*store, keyed("k", None), T0 + 1500).await.existed);
}

pub async fn a_batch_obeys_the_same_rule(store: Arc<dyn Store>) {
    let before = one(&*store, keyed("5", None), T0).await;
    // A hundred, ten times each of ten keys.
    let batch: Vec<_> = (0..100).map(|n| keyed(&format!("{}", n % 10), None)).collect();
    let got = store.enqueue(batch, T0).await.expect("works");
    assert_eq!(got.iter().filter(|one| !one.existed).count(), 9);
    for (n, one) in got.iter().enumerate() {
        assert_eq!(one.id, got[n % 10].id, "equal keys are one job");
        assert_eq!(get(&*store, one.id).await.unique_key, Some(format!("{}", n % 10)));
    }
    assert_eq!(got[5], Enqueued { existed: true, ..before });
    assert_eq!(claim(&*store, "r", 100, T0).await.len(), 10);
}

pub async fn a_batch_that_fails_holds_no_key(store: Arc<dyn Store>) {
    let impossible = || NewJob { priority: 200, ..job("r") };
    let mut asked = Vec::new();
    for n in 0..5 {
        let store = Arc::clone(&store);
        let batch = if n < 4 { vec![keyed("k", None), impossible()] } else { vec![keyed("k", None)] };
        asked.push(tokio::spawn(async move { store.enqueue(batch, T0).await }));
    }
    let mut ids = Vec::new();
    for ask in asked {
        ids.extend(ask.await.expect("ends").ok());
    }
    let [only] = ids.as_slice() else { panic!("four roll back: {ids:?}") };
    assert!(!only[0].existed, "nobody is told of a job that is not there");
    assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1);
}

pub async fn a_retry_whose_key_is_taken_is_refused(store: Arc<dyn Store>) {
    let first = one(&*store, keyed("k", None), T0).await;
    store.cancel(first.id, "x".into(), T0).await.expect("is cancelled");
    let second = one(&*store, keyed("k", None), T0).await;
    assert!(!second.existed);
    let before = everything(&*store, first.id).await;
    let error = store.retry(first.id, T0).await.expect_err("its key is taken");
    assert!(
        matches!(&error, RepositoryError::KeyHeld { job, key, holder } if (*job, *holder) == (first.id, second.id) && key == "k"),
        "{error:?}"
    );
    assert!(error.to_string().contains(&format!("held by job {}", second.id)), "{error}");
    assert_eq!(everything(&*store, first.id).await, before);
    store.cancel(second.id, "x".into(), T0).await.expect("is cancelled");
    store.retry(first.id, T0).await.expect("its key is free");
    assert_eq!(one(&*store, keyed("k", None), T0).await, Enqueued { existed: true, ..first });
    // Its own hold after completion does not stand in its way.
    let lasting = one(&*store, keyed("l", Some(1000)), T0).await;
    for claimed in claim(&*store, "r", 2, T0).await {
        finish(&*store, claimed.lease, Event::Complete, T0).await;
    }
    store.retry(lasting.id, T0).await.expect("is its own");
}

pub async fn a_taken_key_wedges_nothing(store: Arc<dyn Store>) {
    // One final job for each way to be final, its key held by another; then everything that goes
    // through many jobs at once.
    for event in [Event::Complete, Event::GiveUp, Event::Cancel] {
        let first = one(&*store, keyed("k", None), T0).await;
        let lease = claim(&*store, "r", 1, T0).await[0].lease;
        finish(&*store, lease, event, T0).await;
        let holder = one(&*store, NewJob { run_at: Some(T0 + 10), ..keyed("k", None) }, T0).await;
        store.retry(first.id, T0).await.expect_err("its key is taken");
        // Promotion, claim and rescue of the holder and of others beside it.
        enqueue(&*store, "r", T0).await;
        let claimed = claim(&*store, "r", 9, T0 + 10).await;
        assert_eq!(claimed.len(), 2);
        let rescued = store.rescue(vec![WorkerId("w1".into())], T0 + 11).await.expect("works");
        assert_eq!(rescued.len(), 2);
        assert_eq!(one(&*store, keyed("k", None), T0).await, Enqueued { existed: true, ..holder });
        for claimed in claim(&*store, "r", 9, T0 + 12).await {
            finish(&*store, claimed.lease, Event::Complete, T0 + 12).await;
        }
    }
}
