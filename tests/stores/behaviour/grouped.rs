//! Jobs that wait for whole groups.

use std::sync::Arc;

use super::*;
use posse_core::job::dependency::{After, GroupWait, OnFailed};
use posse_core::job::{IfHeld, Unique};

fn member(group: &str) -> NewJob {
    NewJob { group: Some(group.into()), ..job("m") }
}

fn after(group: &str) -> NewJob {
    NewJob { after_groups: vec![group.into()], ..job("w") }
}

async fn made(store: &dyn Store, new: Vec<NewJob>) -> Vec<JobId> {
    store.enqueue(new, T0).await.expect("works").into_iter().map(|one| one.id).collect()
}

async fn state(store: &dyn Store, id: JobId) -> JobState {
    get(store, id).await.state
}

/// Claims the next member and ends it so.
async fn end_next(store: &dyn Store, event: Event) -> JobId {
    let lease = claim(store, "m", 1, T0).await[0].lease;
    finish(store, lease, event, T0).await;
    lease.job
}

pub async fn a_job_waits_for_every_job_of_a_group(store: Arc<dyn Store>) {
    let store = &*store;
    made(store, vec![member("g"), member("g"), member("h"), member("g")]).await;
    end_next(store, Event::Complete).await;
    let waits = made(store, vec![after("g")]).await[0];
    assert_eq!(get(store, waits).await.reason.as_deref(), Some("waits for jobs 2, 4"), "of those that have not ended");
    let open = |open| vec![GroupWait { group: "g".into(), open, on_failed: OnFailed::Cancel }];
    assert_eq!(store.awaited_groups(waits).await.expect("can be read"), open(true));
    end_next(store, Event::Complete).await;
    // It comes to be in the group before the last of it has ended.
    let late = made(store, vec![member("g")]).await[0];
    for left in [3, 4, late.0] {
        assert_eq!(state(store, waits).await, JobState::Suspended, "{left} has not ended");
        assert_eq!(end_next(store, Event::Complete).await, JobId(left));
    }
    assert_eq!(state(store, waits).await, JobState::Available);
    assert_eq!(store.awaited_groups(waits).await.expect("can be read"), open(false));
    // What joins now is too late to be waited for, and a group that has ended need not be waited for.
    made(store, vec![member("g")]).await;
    assert_eq!(claim(store, "w", 9, T0).await.len(), 1);
    end_next(store, Event::Complete).await;
    let at_once = made(store, vec![after("g")]).await[0];
    assert_eq!(state(store, at_once).await, JobState::Available);
}

pub async fn a_group_that_fails_is_met_by_the_rule(store: Arc<dyn Store>) {
    let store = &*store;
    made(store, vec![member("g"), member("g")]).await;
    let by_rule = |on_failed| NewJob { on_failed, ..after("g") };
    let waiting = made(store, OnFailed::ALL.map(by_rule).into()).await;
    let failed = end_next(store, Event::GiveUp).await;
    let states =
        async || [state(store, waiting[0]).await, state(store, waiting[1]).await, state(store, waiting[2]).await];
    use JobState::{Available, Cancelled, Suspended};
    assert_eq!(states().await, [Cancelled, Suspended, Suspended]);
    // One that joins is waited for by those who still wait, and may have ended as it begins.
    let dead = made(store, vec![NewJob { after: vec![After::Job(failed)], ..member("g") }]).await[0];
    assert_eq!(state(store, dead).await, Cancelled);
    end_next(store, Event::Complete).await;
    assert_eq!(states().await, [Cancelled, Available, Suspended]);
    store.retry(failed, T0).await.expect("runs again");
    end_next(store, Event::Complete).await;
    assert_eq!(states().await, [Cancelled, Available, Suspended], "the other has not completed");
    store.retry(dead, T0).await.expect("runs again");
    end_next(store, Event::Complete).await;
    assert_eq!(states().await, [Cancelled, Available, Available]);
    // Who comes when it has failed meets what those met who waited.
    store.cancel(made(store, vec![member("g")]).await[0], "enough".into(), T0).await.expect("is cancelled");
    let late = made(store, OnFailed::ALL.map(by_rule).into()).await;
    let late = [state(store, late[0]).await, state(store, late[1]).await, state(store, late[2]).await];
    assert_eq!(late, [Cancelled, Available, Suspended]);
}

pub async fn a_job_of_a_group_that_runs_again_is_waited_for_again(store: Arc<dyn Store>) {
    let store = &*store;
    made(store, vec![member("g"), member("g")]).await;
    let waits = made(store, vec![after("g")]).await[0];
    let first = end_next(store, Event::Complete).await;
    store.retry(first, T0).await.expect("runs again");
    // The one that runs again comes after the other, by its time and number alike only if it is later.
    end_next(store, Event::Complete).await;
    assert_eq!(state(store, waits).await, JobState::Suspended);
    end_next(store, Event::Complete).await;
    assert_eq!(state(store, waits).await, JobState::Available);
}

pub async fn an_empty_group_is_refused(store: Arc<dyn Store>) {
    let store = &*store;
    let refused = store.enqueue(vec![job("m"), after("typo")], T0).await.expect_err("nobody is in it");
    assert!(matches!(&refused, RepositoryError::EmptyGroup(group) if group == "typo"), "{refused}");
    assert_eq!(store.job(JobId(1)).await.expect("can be read"), None, "nothing was stored");
    // Those that stand before it in its batch are in it.
    let ids = made(store, vec![member("g"), after("g"), member("g")]).await;
    end_next(store, Event::Complete).await;
    assert_eq!(state(store, ids[1]).await, JobState::Suspended);
    end_next(store, Event::Complete).await;
    assert_eq!(state(store, ids[1]).await, JobState::Available);
}

pub async fn a_group_never_waits_for_itself(store: Arc<dyn Store>) {
    let store = &*store;
    let first = made(store, vec![member("g")]).await[0];
    let waits = made(store, vec![NewJob { group: Some("h".into()), ..after("g") }]).await[0];
    let behind = made(store, vec![NewJob { after: vec![After::Job(waits)], ..job("w") }]).await[0];
    let before = everything(store, waits).await;
    let refused = async |new: NewJob| {
        let error = store.enqueue(vec![new], T0).await.expect_err("neither would end");
        assert!(matches!(&error, RepositoryError::Refused(why) if why.contains("'g'")), "{error}");
    };
    refused(NewJob { after: vec![After::Job(waits)], ..member("g") }).await;
    refused(NewJob { after: vec![After::Job(behind)], ..member("g") }).await;
    refused(NewJob { after_groups: vec!["h".into()], ..member("g") }).await;
    assert_eq!(everything(store, waits).await, before);
    // A job that becomes another one might too.
    let keyed = |new: NewJob| NewJob {
        unique: Some(Unique { key: "k".into(), if_held: IfHeld::Replace, ..Unique::default() }),
        ..new
    };
    let held = made(store, vec![keyed(job("m"))]).await[0];
    made(store, vec![NewJob { after: vec![After::Job(held)], ..member("x") }]).await;
    store.enqueue(vec![keyed(after("x"))], T0).await.expect_err("x waits for it");
    refused(NewJob { after: vec![After::Job(behind)], ..keyed(member("g")) }).await;
    // It may come to be in the group, and is waited for then.
    assert_eq!(made(store, vec![keyed(member("g"))]).await, [held]);
    let on: Vec<_> = store.dependencies(waits).await.expect("can be read").into_iter().map(|on| on.on).collect();
    assert_eq!(on, [first, held]);
}

pub async fn children_in_a_group_are_waited_for(store: Arc<dyn Store>) {
    let store = &*store;
    made(store, vec![member("g")]).await;
    let waits = made(store, vec![after("g")]).await[0];
    let parent = claim(store, "m", 1, T0).await[0].lease;
    let children = vec![NewJob { role: "c".into(), ..member("g") }];
    let suspends = Ending { children, ..ending(Event::Suspend, T0) };
    assert_eq!(store.finish(parent, suspends, T0).await.expect("is stored"), JobState::Suspended);
    let child = claim(store, "c", 1, T0).await[0].lease;
    finish(store, child, Event::Complete, T0).await;
    assert_eq!(state(store, waits).await, JobState::Suspended, "the parent goes on first");
    end_next(store, Event::Complete).await;
    assert_eq!(state(store, waits).await, JobState::Available);
    // One that ended, or was cancelled, waits for no group.
    let waits = made(store, vec![member("h"), after("h")]).await[1];
    store.cancel(waits, "enough".into(), T0).await.expect("is cancelled");
    assert!(store.awaited_groups(waits).await.expect("can be read").iter().all(|wait| !wait.open));
}
