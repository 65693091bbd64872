//! What becomes of jobs, as a stream.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use posse_core::events::states::{Followed, StateChange, StateChanges};
use posse_core::port::JobSearch;

async fn follow(store: &Arc<dyn Store>, followed: Followed) -> StateChanges {
    let search: Arc<dyn JobSearch> = Arc::clone(store) as _;
    StateChanges::follow(search, followed).await.expect("can be read")
}

async fn next(events: &mut StateChanges) -> StateChange {
    let next = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("is told within 20 s");
    next.expect("goes on").expect("can be read")
}

/// Until the job is told to be in `state`.
async fn until(events: &mut StateChanges, job: JobId, state: JobState) {
    loop {
        let event = next(events).await;
        if event.job == job && event.to == Some(state) {
            return;
        }
        assert!(!event.to.is_some_and(JobState::is_final) || event.job != job, "{event:?}");
    }
}

pub async fn named_jobs_are_followed_to_their_ends(store: Arc<dyn Store>) {
    let done = in_state(&*store, JobState::Discarded, "d").await;
    let id = enqueue(&*store, "r", T0).await;
    let mut events = follow(&store, Followed::Jobs(vec![id, done, JobId(999)])).await;
    let mut first = Vec::new();
    for _ in 0..3 {
        let StateChange { job, from, to, .. } = next(&mut events).await;
        first.push((job, from, to));
    }
    let want = [(done, Some(JobState::Discarded)), (id, Some(JobState::Available)), (JobId(999), None)];
    assert_eq!(first, want.map(|(job, to)| (job, None, to)));
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    until(&mut events, id, JobState::Running).await;
    finish(&*store, lease, Event::Complete, T0).await;
    let event = next(&mut events).await;
    assert_eq!((event.from, event.to, event.attempt), (Some(JobState::Running), Some(JobState::Completed), 1));
    assert!(events.next().await.is_none(), "and that was the last of them");
}

pub async fn all_jobs_are_followed_from_now_on(store: Arc<dyn Store>) {
    let before = enqueue(&*store, "r", T0).await;
    in_state(&*store, JobState::Completed, "d").await;
    let mut events = follow(&store, Followed::All).await;
    let id = enqueue(&*store, "r", T0).await;
    assert_eq!(next(&mut events).await, StateChange { job: id, from: None, to: Some(JobState::Available), attempt: 0 });
    store.cancel(before, "enough".into(), T0).await.expect("works");
    until(&mut events, before, JobState::Cancelled).await;
    // One that is run again is among the living again.
    store.retry(before, T0).await.expect("runs again");
    until(&mut events, before, JobState::Available).await;
}

pub async fn a_group_is_followed_with_those_that_join_it(store: Arc<dyn Store>) {
    let member = || NewJob { group: Some("g".into()), ..job("r") };
    let first = enqueue_all(&*store, vec![member()], T0).await[0];
    let mut events = follow(&store, Followed::Group("g".into())).await;
    let ids = enqueue_all(&*store, vec![job("other"), member()], T0).await;
    assert_eq!(next(&mut events).await.job, ids[1]);
    store.cancel(first, "enough".into(), T0).await.expect("works");
    until(&mut events, first, JobState::Cancelled).await;
}

pub async fn no_end_is_lost_on_a_slow_reader(store: Arc<dyn Store>) {
    let mut events = follow(&store, Followed::All).await;
    const JOBS: usize = 500;
    let ids = enqueue_all(&*store, vec![job("r"); JOBS], T0).await;
    // The reader looks once while everything happens many times over.
    assert_eq!(next(&mut events).await.job, ids[0]);
    for round in 0..3 {
        for claimed in claim(&*store, "r", JOBS as u32, T0 + round).await {
            let event = if round == 2 { Event::Complete } else { Event::Interrupt };
            finish(&*store, claimed.lease, event, T0 + round).await;
        }
    }
    let mut ended = 0;
    while ended < JOBS {
        ended += usize::from(next(&mut events).await.to == Some(JobState::Completed));
    }
}
