//! Jobs that wait for others, and jobs beneath others.

use std::sync::Arc;

use super::*;
use posse_core::job::Unique;
use posse_core::job::dependency::{After, OnFailed};
use posse_core::port::{AttemptEnd, Cancelled, Reach};

/// A job that waits for `others` by the rule `on_failed`.
pub fn after(others: &[JobId], on_failed: OnFailed) -> NewJob {
    NewJob { after: others.iter().copied().map(After::Job).collect(), on_failed, ..job("r") }
}

pub async fn one(store: &dyn Store, new: NewJob) -> JobId {
    enqueue_all(store, vec![new], T0).await[0]
}

/// Claims the job, which must be the only one to be had.
async fn take(store: &dyn Store, id: JobId, now: Millis) -> Lease {
    let mut claimed = claim(store, "r", 9, now).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id]);
    claimed.remove(0).lease
}

async fn state_of(store: &dyn Store, id: JobId) -> (JobState, String) {
    let job = get(store, id).await;
    (job.state, job.reason.unwrap_or_default())
}

pub async fn a_job_runs_after_all_it_waits_for(store: Arc<dyn Store>) {
    let first = one(&*store, job("r")).await;
    let second = one(&*store, NewJob { priority: 6, ..job("r") }).await;
    // Twice the same is once.
    let last = one(&*store, after(&[first, second, first], OnFailed::Cancel)).await;
    assert_eq!(state_of(&*store, last).await, (JobState::Suspended, format!("waits for jobs {first}, {second}")));
    let claimed = claim(&*store, "r", 9, T0).await;
    assert_eq!(claimed.len(), 2, "and the third is not to be had");
    finish(&*store, claimed[0].lease, Event::Complete, T0).await;
    assert_eq!(get(&*store, last).await.state, JobState::Suspended);
    let open: Vec<_> = store.dependencies(last).await.expect("can be read").iter().map(|d| (d.on, d.open)).collect();
    assert_eq!(open, [(first, false), (second, true)]);
    let mut wakes = store.wakes();
    wakes.mark_unchanged();
    finish(&*store, claimed[1].lease, Event::Complete, T0 + 5).await;
    assert!(wakes.has_changed().expect("the store is open"), "its workers are told");
    assert_eq!(state_of(&*store, last).await, (JobState::Available, String::new()));
    take(&*store, last, T0 + 5).await;
}

pub async fn a_job_that_waits_for_what_is_done_is_available(store: Arc<dyn Store>) {
    let done = in_state(&*store, JobState::Completed, "done").await;
    assert_eq!(get(&*store, one(&*store, after(&[done], OnFailed::Cancel)).await).await.state, JobState::Available);
    let lost = in_state(&*store, JobState::Discarded, "lost").await;
    let with = |rule| {
        let store = Arc::clone(&store);
        async move { state_of(&*store, one(&*store, after(&[done, lost], rule)).await).await }
    };
    let was = format!("job {lost}, which it waited for, was discarded");
    assert_eq!(with(OnFailed::Cancel).await, (JobState::Cancelled, was));
    assert_eq!(with(OnFailed::Run).await.0, JobState::Available);
    assert_eq!(with(OnFailed::Wait).await.0, JobState::Suspended);
}

pub async fn a_job_waits_for_its_time_too(store: Arc<dyn Store>) {
    let first = one(&*store, job("r")).await;
    let later = NewJob { run_at: Some(T0 + 1000), ..after(&[first], OnFailed::Cancel) };
    let later = one(&*store, later).await;
    let lease = take(&*store, first, T0).await;
    finish(&*store, lease, Event::Complete, T0).await;
    assert_eq!(get(&*store, later).await.state, JobState::Scheduled);
    assert!(claim(&*store, "r", 1, T0 + 999).await.is_empty());
    take(&*store, later, T0 + 1000).await;
}

pub async fn what_is_unknown_cannot_be_waited_for(store: Arc<dyn Store>) {
    let first = one(&*store, job("r")).await;
    let unknown = store.enqueue(vec![job("r"), after(&[first, JobId(77)], OnFailed::Run)], T0).await;
    assert!(matches!(unknown, Err(RepositoryError::NoSuchJob(JobId(77)))), "{unknown:?}");
    // A job cannot wait for itself or a later one: no cycle can be made.
    for place in [1, 2] {
        let new = NewJob { after: vec![After::Earlier(place)], ..job("r") };
        let refused = store.enqueue(vec![job("r"), new, job("r")], T0).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1, "nothing else was stored");
    let chain = vec![
        job("c"),
        NewJob { after: vec![After::Earlier(0)], ..job("c") },
        NewJob { after: vec![After::Earlier(1)], ..job("c") },
    ];
    let ids = enqueue_all(&*store, chain, T0).await;
    for id in ids {
        let claimed = claim(&*store, "c", 9, T0).await;
        assert_eq!((claimed.len(), claimed[0].job.id), (1, id));
        finish(&*store, claimed[0].lease, Event::Complete, T0).await;
    }
}

pub async fn a_failure_is_passed_on_by_the_rule(store: Arc<dyn Store>) {
    let first = one(&*store, job("r")).await;
    let cancelled = one(&*store, after(&[first], OnFailed::Cancel)).await;
    let further = one(&*store, after(&[cancelled], OnFailed::Cancel)).await;
    let runs = one(&*store, after(&[first, cancelled], OnFailed::Run)).await;
    let waits = one(&*store, after(&[first], OnFailed::Wait)).await;
    let lease = take(&*store, first, T0).await;
    finish(&*store, lease, Event::GiveUp, T0).await;
    let was = |id, state| format!("job {id}, which it waited for, was {state}");
    assert_eq!(state_of(&*store, cancelled).await, (JobState::Cancelled, was(first, "discarded")));
    assert_eq!(state_of(&*store, further).await, (JobState::Cancelled, was(cancelled, "cancelled")));
    assert_eq!(state_of(&*store, runs).await.0, JobState::Available);
    let (state, reason) = state_of(&*store, waits).await;
    assert_eq!(state, JobState::Suspended);
    assert!(reason.contains(&format!("posse job retry {first}")), "{reason}");
    // The way out that the reason names.
    take(&*store, runs, T0).await;
    store.retry(first, T0).await.expect("runs again");
    let lease = take(&*store, first, T0).await;
    finish(&*store, lease, Event::Complete, T0).await;
    take(&*store, waits, T0).await;
    assert_eq!(get(&*store, cancelled).await.state, JobState::Cancelled, "what ended stays ended");
}

pub async fn every_way_to_end_is_told(store: Arc<dyn Store>) {
    for way in 0..4 {
        let first = one(&*store, NewJob { max_attempts: 1, ..job("r") }).await;
        let second = one(&*store, after(&[first], OnFailed::Run)).await;
        match way {
            0 => drop(store.cancel(first, "enough".into(), T0).await.expect("works")),
            1 => {
                take(&*store, first, T0).await;
                store.rescue(vec![WorkerId("w1".into())], T0).await.expect("works");
            }
            2 => {
                let lease = take(&*store, first, T0).await;
                store.cancel(first, "enough".into(), T0).await.expect("works");
                assert_eq!(get(&*store, second).await.state, JobState::Suspended, "its worker has it still");
                finish(&*store, lease, Event::Interrupt, T0).await;
            }
            _ => {
                let lease = take(&*store, first, T0).await;
                finish(&*store, lease, Event::Fail, T0).await;
            }
        }
        let lease = take(&*store, second, T0).await;
        finish(&*store, lease, Event::Complete, T0).await;
    }
}

pub async fn a_long_chain_is_cancelled_in_one_go(store: Arc<dyn Store>) {
    let link = |n: usize| match n {
        0 => job("r"),
        _ => NewJob { after: vec![After::Earlier(n - 1)], ..job("r") },
    };
    let ids = enqueue_all(&*store, (0..5000).map(link).collect(), T0).await;
    store.cancel(ids[0], "enough".into(), T0).await.expect("works");
    assert_eq!(get(&*store, ids[4999]).await.state, JobState::Cancelled);
}

pub async fn a_cancelled_job_waits_for_nothing(store: Arc<dyn Store>) {
    let first = one(&*store, job("r")).await;
    let second = one(&*store, after(&[first], OnFailed::Cancel)).await;
    store.cancel(second, "enough".into(), T0).await.expect("works");
    store.retry(second, T0).await.expect("runs again");
    // By hand is by hand: it runs although what it waited for has not ended, and is not moved by that.
    let claimed = claim(&*store, "r", 9, T0).await;
    assert_eq!(claimed.len(), 2);
    let lease = |id| claimed.iter().find(|claimed| claimed.job.id == id).expect("is claimed").lease;
    finish(&*store, lease(second), Event::Suspend, T0).await;
    finish(&*store, lease(first), Event::GiveUp, T0).await;
    assert_eq!(get(&*store, second).await.state, JobState::Suspended);
}

/// An ending that suspends and brings children.
fn with_children(children: Vec<NewJob>) -> Ending {
    Ending { children, entries: vec![note("asks others")], ..ending(Event::Suspend, T0) }
}

pub async fn a_parent_goes_on_when_its_last_child_ends(store: Arc<dyn Store>) {
    let lease = running(&*store, "p", T0).await;
    let children = vec![job("r"), job("r"), NewJob { after: vec![After::Earlier(0)], ..job("r") }];
    let became = store.finish(lease, with_children(children), T0).await.expect("finishes");
    assert_eq!(became, JobState::Suspended);
    let parent = get(&*store, lease.job).await;
    let ids: Vec<_> = store.children(lease.job).await.expect("can be read").iter().map(|child| child.id).collect();
    assert_eq!(parent.reason, Some(format!("waits for jobs {}, {}, {}", ids[0], ids[1], ids[2])));
    assert_eq!((parent.attempt, store.journal(lease.job, 0).await.expect("can be read").len()), (0, 1));

    // A grandchild has the same root.
    let claimed = claim(&*store, "r", 9, T0).await;
    assert_eq!(claimed.len(), 2);
    store.finish(claimed[0].lease, with_children(vec![job("g")]), T0).await.expect("finishes");
    let grandchild = store.children(ids[0]).await.expect("can be read").remove(0);
    assert_eq!((grandchild.parent, grandchild.root), (Some(ids[0]), Some(lease.job)));

    // However they end, and the parent is told with the last.
    finish(&*store, claimed[1].lease, Event::GiveUp, T0).await;
    let deep = claim(&*store, "g", 1, T0).await.remove(0).lease;
    let done = Ending { output: Some(output("found it")), ..ending(Event::Complete, T0) };
    store.finish(deep, done.clone(), T0).await.expect("finishes");
    for id in [ids[0], ids[2]] {
        assert_eq!(get(&*store, lease.job).await.state, JobState::Suspended);
        let lease = take(&*store, id, T0).await;
        store.finish(lease, done.clone(), T0).await.expect("finishes");
    }
    let again = claim(&*store, "p", 1, T0).await.remove(0);
    assert_eq!((again.job.id, again.job.attempt, again.job.reason), (lease.job, 1, None));
    let told: Vec<_> = store.children(lease.job).await.expect("can be read");
    let texts: Vec<_> = told.iter().map(|child| child.output.as_ref().map(|output| output.text.as_str())).collect();
    assert_eq!(texts, [Some("found it"), None, Some("found it")]);
}

pub async fn children_are_made_with_the_suspension_or_not_at_all(store: Arc<dyn Store>) {
    let lease = running(&*store, "p", T0).await;
    let stale = Lease { token: lease.token - 1, ..lease };
    assert!(is_lost(store.finish(stale, with_children(vec![job("r")]), T0).await, lease.job));
    let other = Ending { event: Event::Complete, ..with_children(vec![job("r")]) };
    store.finish(lease, other, T0).await.expect_err("only a job that waits has children");
    let impossible = with_children(vec![job("r"), NewJob { priority: 99, ..job("r") }]);
    store.finish(lease, impossible, T0).await.expect_err("no such priority");
    assert_eq!(get(&*store, lease.job).await.state, JobState::Running, "nothing was changed");
    store.cancel(lease.job, "enough".into(), T0).await.expect("is asked for");
    let became = store.finish(lease, with_children(vec![job("r")]), T0).await.expect("finishes");
    assert_eq!(became, JobState::Cancelled);
    assert!(store.children(lease.job).await.expect("can be read").is_empty(), "nobody would read their answers");

    // Children that have ended before they began are nothing to wait for.
    let lost = in_state(&*store, JobState::Discarded, "lost").await;
    let lease = running(&*store, "p", T0).await;
    let became = store.finish(lease, with_children(vec![after(&[lost], OnFailed::Cancel)]), T0).await;
    assert_eq!(became.expect("finishes"), JobState::Available);
}

pub async fn ends_stored_together_know_of_each_other(store: Arc<dyn Store>) {
    let shared = || NewJob { unique: Some(Unique { key: "k".into(), for_ms: None, ..Unique::default() }), ..job("r") };
    for is_parent_first in [true, false] {
        // The child is a job that is there already, and it ends with its parent's suspension.
        let child = one(&*store, shared()).await;
        let child = take(&*store, child, T0).await;
        let parent = running(&*store, "p", T0).await;
        let mut ends = vec![
            AttemptEnd { lease: parent, ending: with_children(vec![shared()]) },
            AttemptEnd { lease: child, ending: ending(Event::Complete, T0) },
        ];
        if !is_parent_first {
            ends.reverse();
        }
        for end in store.finish_all(&ends, T0).await.expect("can be asked") {
            end.expect("is stored");
        }
        // The parent waits for nothing that is over.
        for claimed in claim(&*store, "r", 9, T0).await {
            finish(&*store, claimed.lease, Event::Complete, T0).await;
        }
        let again = claim(&*store, "p", 9, T0).await;
        assert_eq!(again.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [parent.job]);
        finish(&*store, again[0].lease, Event::Complete, T0).await;
    }
    let both = [running(&*store, "r", T0).await, running(&*store, "r", T0).await];
    let last = one(&*store, after(&both.map(|lease| lease.job), OnFailed::Cancel)).await;
    let ends = both.map(|lease| AttemptEnd { lease, ending: ending(Event::Complete, T0) });
    store.finish_all(&ends, T0).await.expect("can be asked");
    assert_eq!(state_of(&*store, last).await, (JobState::Available, String::new()));
}

pub async fn a_job_that_ends_as_it_begins_holds_no_key(store: Arc<dyn Store>) {
    let lost = in_state(&*store, JobState::Discarded, "lost").await;
    let unique = Some(Unique { key: "k".into(), for_ms: None, ..Unique::default() });
    let hopeless = NewJob { unique: unique.clone(), ..after(&[lost], OnFailed::Cancel) };
    let made = enqueue_all(&*store, vec![hopeless.clone(), NewJob { unique, ..job("r") }], T0).await;
    assert_eq!(get(&*store, made[0]).await.state, JobState::Cancelled);
    take(&*store, made[1], T0).await;
    let again = store.enqueue(vec![hopeless], T0).await.expect("is stored");
    assert_eq!((again[0].id, again[0].existed()), (made[1], true));
}

/// A parent with a child that has a child and one that runs; all of them, top down.
async fn family(store: &dyn Store) -> [JobId; 4] {
    let top = running(store, "p", T0).await;
    store.finish(top, with_children(vec![job("c"), job("c")]), T0).await.expect("finishes");
    let claimed = claim(store, "c", 2, T0).await;
    store.finish(claimed[0].lease, with_children(vec![job("g")]), T0).await.expect("finishes");
    let grandchild = store.children(claimed[0].job.id).await.expect("can be read")[0].id;
    [top.job, claimed[0].job.id, claimed[1].job.id, grandchild]
}

pub async fn a_cancel_reaches_as_far_as_it_is_told(store: Arc<dyn Store>) {
    let all = |ids: [JobId; 4]| {
        let store = Arc::clone(&store);
        async move {
            let mut states = Vec::new();
            for id in ids {
                let job = get(&*store, id).await;
                states.push(if job.cancel_requested { "asked" } else { job.state.as_str() });
            }
            states
        }
    };
    let within = |id, reach| store.cancel_within(id, reach, "enough".into(), T0);

    // By default with everything beneath: their work has no reader.
    let ids = family(&*store).await;
    store.cancel(ids[0], "enough".into(), T0).await.expect("works");
    assert_eq!(all(ids).await, ["cancelled", "cancelled", "asked", "cancelled"]);
    let reason = get(&*store, ids[3]).await.reason;
    assert_eq!(reason, Some(format!("cancelled with job {}: enough", ids[0])));

    let ids = family(&*store).await;
    assert_eq!(within(ids[0], Reach::Alone).await.expect("works"), [(ids[0], Cancelled::Now)]);
    assert_eq!(all(ids).await, ["cancelled", "suspended", "running", "available"]);

    let ids = family(&*store).await;
    let told = within(ids[1], Reach::Beneath).await.expect("works");
    assert_eq!(told, [(ids[1], Cancelled::Now), (ids[3], Cancelled::Now)]);
    assert_eq!(all(ids).await, ["suspended", "cancelled", "running", "cancelled"]);

    let ids = family(&*store).await;
    let told = within(ids[3], Reach::Tree).await.expect("works");
    assert_eq!((told[0], told.len()), ((ids[3], Cancelled::Now), 4));
    assert_eq!(all(ids).await, ["cancelled", "cancelled", "asked", "cancelled"]);
}

pub async fn a_parent_that_would_wait_for_itself_is_cancelled(store: Arc<dyn Store>) {
    let keyed = |key: &str| Some(Unique { key: key.into(), for_ms: None, ..Unique::default() });
    let suspend = |lease, children| {
        let end = Ending { children, ..ending(Event::Suspend, T0) };
        let store = Arc::clone(&store);
        async move { store.finish(lease, end, T0).await.expect("is stored") }
    };
    // A child with the key of its parent.
    let itself = one(&*store, NewJob { unique: keyed("a"), ..job("r") }).await;
    let lease = take(&*store, itself, T0).await;
    let children = vec![NewJob { unique: keyed("a"), ..job("s") }, job("s")];
    assert_eq!(suspend(lease, children).await, JobState::Cancelled);
    assert!(state_of(&*store, itself).await.1.contains("the unique key that it holds itself"));
    assert_eq!(claim(&*store, "s", 9, T0).await.len(), 0, "what it made has no reader");

    // One that is there already and waits for it, through another.
    let parent = one(&*store, job("r")).await;
    let middle = one(&*store, after(&[parent], OnFailed::Run)).await;
    let last = one(&*store, NewJob { unique: keyed("b"), ..after(&[middle], OnFailed::Run) }).await;
    let lease = take(&*store, parent, T0).await;
    assert_eq!(suspend(lease, vec![NewJob { unique: keyed("b"), ..job("s") }]).await, JobState::Cancelled);
    let why = format!("it was to wait for job {last}, which waits for it; neither would ever end");
    assert_eq!(state_of(&*store, parent).await, (JobState::Cancelled, why));
    // Those go on by their own rule.
    let lease = take(&*store, middle, T0).await;
    finish(&*store, lease, Event::Complete, T0).await;
    let lease = take(&*store, last, T0).await;
    finish(&*store, lease, Event::Complete, T0).await;

    // A child that was told to wait for its parent.
    let parent = one(&*store, job("r")).await;
    let lease = take(&*store, parent, T0).await;
    assert_eq!(suspend(lease, vec![after(&[parent], OnFailed::Run)]).await, JobState::Cancelled);
}

pub async fn a_parent_may_wait_for_the_same_job_twice(store: Arc<dyn Store>) {
    let keyed =
        || NewJob { unique: Some(Unique { key: "k".into(), for_ms: Some(1000), ..Unique::default() }), ..job("s") };
    let parent = one(&*store, job("r")).await;
    let mut made = None;
    for _ in 0..2 {
        let lease = take(&*store, parent, T0).await;
        let end = Ending { children: vec![keyed()], ..ending(Event::Suspend, T0) };
        let state = store.finish(lease, end, T0).await.expect("is stored");
        match made {
            None => {
                assert_eq!(state, JobState::Suspended);
                let claimed = claim(&*store, "s", 1, T0).await.remove(0);
                finish(&*store, claimed.lease, Event::Complete, T0).await;
                made = Some(claimed.job.id);
            }
            // It is done, and still holds the key.
            Some(_) => assert_eq!(state, JobState::Available),
        }
    }
    let on: Vec<_> = store.dependencies(parent).await.expect("can be read").iter().map(|d| (d.on, d.open)).collect();
    assert_eq!(on, [(made.expect("was made"), false)]);
}
