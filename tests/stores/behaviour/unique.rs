//! Unique keys: one job at a time.

use std::sync::Arc;

use super::*;
use posse_core::job::dependency::{After, OnFailed};
use posse_core::job::unique::Became;
use posse_core::job::{IfHeld, Unique};
use posse_core::port::Enqueued;
use posse_core::port::JobFilter;

/// A job of `r` that holds `key`, for `for_ms` after it completed too.
pub fn keyed(key: &str, for_ms: Option<Millis>) -> NewJob {
    NewJob { unique: Some(Unique { key: key.into(), for_ms, ..Unique::default() }), ..job("r") }
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
        assert!(!first.existed());
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
        assert_eq!(second.existed(), !state.is_final(), "{state}");
        assert_eq!(second.id == first.id, second.existed(), "{state}");
        if second.existed() {
            assert!(claim(&*store, role, 9, T0).await.len() <= 1, "nothing was stored: {state}");
        }
    }
}

pub async fn a_key_may_be_held_after_completion(store: Arc<dyn Store>) {
    let first = one(&*store, keyed("k", Some(1000)), T0).await;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    finish(&*store, lease, Event::Complete, T0 + 500).await;
    assert_eq!(one(&*store, keyed("k", None), T0 + 1499).await, Enqueued { became: Became::Begun, ..first });
    let second = one(&*store, keyed("k", Some(1000)), T0 + 1500).await;
    assert!(!second.existed() && second.id != first.id);
    // One that did not complete holds nothing.
    let lease = claim(&*store, "r", 1, T0 + 1500).await[0].lease;
    finish(&*store, lease, Event::GiveUp, T0 + 1500).await;
    assert!(!one(&*store, keyed("k", None), T0 + 1500).await.existed());
}

pub async fn a_batch_obeys_the_same_rule(store: Arc<dyn Store>) {
    let before = one(&*store, keyed("5", None), T0).await;
    // A hundred, ten times each of ten keys.
    let batch: Vec<_> = (0..100).map(|n| keyed(&format!("{}", n % 10), None)).collect();
    let got = store.enqueue(batch, T0).await.expect("works");
    assert_eq!(got.iter().filter(|one| !one.existed()).count(), 9);
    for (n, one) in got.iter().enumerate() {
        assert_eq!(one.id, got[n % 10].id, "equal keys are one job");
        assert_eq!(get(&*store, one.id).await.unique_key, Some(format!("{}", n % 10)));
    }
    assert_eq!(got[5], Enqueued { became: Became::Kept, ..before });
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
    assert!(!only[0].existed(), "nobody is told of a job that is not there");
    assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1);
}

pub async fn a_retry_whose_key_is_taken_is_refused(store: Arc<dyn Store>) {
    let first = one(&*store, keyed("k", None), T0).await;
    store.cancel(first.id, "x".into(), T0).await.expect("is cancelled");
    let second = one(&*store, keyed("k", None), T0).await;
    assert!(!second.existed());
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
    assert_eq!(one(&*store, keyed("k", None), T0).await, Enqueued { became: Became::Kept, ..first });
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
        assert_eq!(one(&*store, keyed("k", None), T0).await, Enqueued { became: Became::Begun, ..holder });
        for claimed in claim(&*store, "r", 9, T0 + 12).await {
            finish(&*store, claimed.lease, Event::Complete, T0 + 12).await;
        }
    }
}

fn asked(if_held: IfHeld, goal: &str) -> NewJob {
    let payload = Payload { goal: goal.into(), ..Payload::default() };
    NewJob { unique: Some(Unique { key: "k".into(), if_held, ..Unique::default() }), payload, ..job("r") }
}

pub async fn a_job_that_has_not_begun_can_be_replaced(store: Arc<dyn Store>) {
    let first = NewJob { tags: vec!["old".into()], group: Some("g".into()), ..asked(IfHeld::Keep, "one") };
    let first = one(&*store, first, T0).await;
    let waits = NewJob { after: vec![After::Job(first.id)], ..job("s") };
    let waiting = one(&*store, waits, T0).await.id;
    assert_eq!(one(&*store, asked(IfHeld::Keep, "two"), T0 + 1).await, Enqueued { became: Became::Kept, ..first });
    let second = NewJob {
        role: "t".into(),
        queue: "q".into(),
        priority: 2,
        max_attempts: 7,
        run_at: Some(T0 + 100),
        concurrency_key: Some("c".into()),
        tags: vec!["new".into()],
        group: Some("h".into()),
        meta: Meta::from_iter([("m".to_owned(), 1.into())]),
        ..asked(IfHeld::Replace, "two")
    };
    let got = one(&*store, second.clone(), T0 + 2).await;
    assert_eq!(got, Enqueued { became: Became::Replaced, ..first });
    let is = get(&*store, first.id).await;
    assert_eq!((is.state, is.run_at, is.created_at), (JobState::Scheduled, T0 + 100, T0));
    assert_eq!((is.role.as_str(), is.queue.as_str(), is.priority, is.max_attempts), ("t", "q", 2, 7));
    assert_eq!((is.payload.goal.as_str(), is.concurrency_key.as_deref()), ("two", Some("c")));
    assert_eq!((is.tags.clone(), is.group.as_deref(), &is.meta), (vec!["new".into()], Some("h"), &second.meta));
    let tagged = async |tag: &str| {
        let filter = JobFilter { tag: Some(tag.into()), limit: 9, ..JobFilter::default() };
        store.ids(filter).await.expect("can be read")
    };
    assert_eq!((tagged("old").await, tagged("new").await), (vec![], vec![first.id]));
    let groups: Vec<_> = store.groups().await.expect("can be read").into_iter().map(|group| group.group).collect();
    assert_eq!(groups, ["h"]);
    // Its old role has nothing to do, and those that wait for it wait until it has run as what it is now.
    assert!(claim(&*store, "r", 9, T0 + 100).await.is_empty());
    assert_eq!(get(&*store, waiting).await.state, JobState::Suspended);
    let lease = claim(&*store, "t", 9, T0 + 100).await[0].lease;
    let before = everything(&*store, first.id).await;
    for if_held in [IfHeld::Keep, IfHeld::Replace, IfHeld::Debounce { at_most_ms: None }] {
        let again = NewJob { run_at: Some(T0 + 999), ..asked(if_held, "three") };
        assert_eq!(one(&*store, again, T0 + 101).await, Enqueued { became: Became::Begun, ..first });
    }
    assert_eq!(everything(&*store, first.id).await, before, "a job that has begun is never changed");
    // Not even when it waits again.
    finish(&*store, lease, Event::Interrupt, T0 + 102).await;
    assert_eq!(one(&*store, asked(IfHeld::Replace, "four"), T0 + 103).await.became, Became::Begun);
    let lease = claim(&*store, "t", 9, T0 + 104).await[0].lease;
    finish(&*store, lease, Event::Complete, T0 + 105).await;
    assert_eq!(get(&*store, waiting).await.state, JobState::Available);
    assert_eq!(one(&*store, asked(IfHeld::Replace, "five"), T0 + 106).await.became, Became::Stored);
}

pub async fn a_replaced_job_keeps_its_place(store: Arc<dyn Store>) {
    let first = one(&*store, asked(IfHeld::Replace, "one"), T0).await.id;
    let other = enqueue(&*store, "r", T0 + 1).await;
    for n in 2..50 {
        assert_eq!(one(&*store, asked(IfHeld::Replace, "again"), T0 + n).await.became, Became::Replaced);
    }
    let order: Vec<_> = claim(&*store, "r", 9, T0 + 60).await.into_iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(order, [first, other], "being asked for again does not send it to the end");
}

pub async fn a_debounced_job_runs_once_and_not_too_late(store: Arc<dyn Store>) {
    let said = |n: Millis, at_most_ms| NewJob {
        run_at: Some(T0 + n * 10 + 15),
        ..asked(IfHeld::Debounce { at_most_ms }, &format!("{n}"))
    };
    // Every 10 ms, each to be done 15 ms later: never while they come.
    let first = one(&*store, said(0, None), T0).await;
    for n in 1..20 {
        let got = one(&*store, said(n, None), T0 + n * 10).await;
        assert_eq!(got, Enqueued { became: Became::Debounced, ..first });
        assert!(claim(&*store, "r", 9, T0 + n * 10 + 9).await.is_empty());
    }
    let got = claim(&*store, "r", 9, T0 + 205).await;
    assert_eq!((got.len(), got[0].job.payload.goal.as_str()), (1, "19"), "once, with what was asked for last");
    finish(&*store, got[0].lease, Event::Complete, T0 + 205).await;

    // With a latest moment, counted from the first one, it is due by then, however many come.
    let mut ran = Vec::new();
    for n in 30..42 {
        let now = T0 + n * 10;
        one(&*store, said(n, Some(40)), now).await;
        for claimed in claim(&*store, "r", 9, now + 1).await {
            ran.push((now - T0, claimed.job.payload.goal));
            finish(&*store, claimed.lease, Event::Complete, now + 1).await;
        }
    }
    assert_eq!(ran, [(340, "34".into()), (390, "39".into())], "the first of each was enqueued 40 ms before");
}

pub async fn a_job_made_a_waiting_one_waits_and_never_for_itself(store: Arc<dyn Store>) {
    let first = one(&*store, asked(IfHeld::Keep, "one"), T0).await.id;
    let after = |ids: &[JobId]| NewJob {
        after: ids.iter().copied().map(After::Job).collect(),
        ..asked(IfHeld::Replace, "two")
    };
    let behind = store.enqueue(vec![NewJob { unique: None, ..after(&[first]) }], T0).await.expect("works")[0].id;
    let last = store.enqueue(vec![NewJob { unique: None, ..after(&[behind]) }], T0).await.expect("works")[0].id;
    let before = everything(&*store, first).await;
    for on in [first, behind, last] {
        let refused = store.enqueue(vec![job("r"), after(&[on])], T0).await.expect_err("it would wait for itself");
        assert!(matches!(&refused, RepositoryError::Refused(why) if why.contains(&format!("job {on}"))), "{refused}");
    }
    assert_eq!(everything(&*store, first).await, before);

    // It waits for what it is told to now, and no more for what it was.
    let (a, b) = (enqueue(&*store, "s", T0).await, enqueue(&*store, "s", T0).await);
    assert_eq!(one(&*store, after(&[a]), T0).await.became, Became::Replaced);
    assert_eq!(get(&*store, first).await.state, JobState::Suspended);
    assert_eq!(one(&*store, after(&[b]), T0).await.became, Became::Replaced);
    assert_eq!(store.dependencies(first).await.expect("can be read").len(), 1);
    let end = async |id: JobId, event| {
        let claimed = claim(&*store, "s", 9, T0).await;
        for claimed in claimed {
            let event = if claimed.job.id == id { event } else { Event::Interrupt };
            finish(&*store, claimed.lease, event, T0).await;
        }
    };
    end(a, Event::Complete).await;
    assert_eq!(get(&*store, first).await.state, JobState::Suspended);
    end(b, Event::GiveUp).await;
    assert_eq!(get(&*store, first).await.state, JobState::Cancelled, "by its own rule");
    assert_eq!(get(&*store, last).await.state, JobState::Cancelled, "and those behind it by theirs");

    // One that ends as it begins anew frees its key and tells those that wait for it.
    let held = one(&*store, asked(IfHeld::Keep, "one"), T0).await.id;
    let waits = NewJob { after: vec![After::Job(held)], on_failed: OnFailed::Run, ..job("s") };
    let waits = one(&*store, waits, T0).await.id;
    let got = store.enqueue(vec![after(&[b]), asked(IfHeld::Keep, "three")], T0).await.expect("works");
    assert_eq!((got[0], got[1].became), (Enqueued { id: held, became: Became::Replaced }, Became::Stored));
    assert_eq!(get(&*store, held).await.state, JobState::Cancelled);
    assert_eq!(get(&*store, waits).await.state, JobState::Available);
}

pub async fn many_that_replace_at_once_are_one_job(store: Arc<dyn Store>) {
    let start = Arc::new(tokio::sync::Barrier::new(50));
    let tasks = (0..50).map(|n| {
        let (store, start) = (Arc::clone(&store), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            // In pairs, so that a batch changes its own too.
            let new = [IfHeld::Replace, IfHeld::Replace].map(|if_held| asked(if_held, &format!("{n}")));
            store.enqueue(new.into(), T0 + n).await.expect("works")
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut told = Vec::new();
    for task in tasks {
        told.extend(task.await.expect("no panic"));
    }
    assert!(told.iter().all(|one| one.id == told[0].id));
    assert_eq!(told.iter().filter(|one| one.became == Became::Stored).count(), 1);
    assert_eq!(told.iter().filter(|one| one.became == Became::Replaced).count(), 99);
    let claimed = claim(&*store, "r", 9, T0 + 100).await;
    assert_eq!(claimed.len(), 1);
    assert!((0..50).any(|n| claimed[0].job.payload.goal == n.to_string()));
}
