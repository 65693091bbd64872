//! Tasks: jobs that a run gives to others, as many as there is room for.

use std::sync::Arc;

use super::*;
use posse_core::job::question::Above;
use posse_core::job::task::{Given, NoRoom, TaskBounds, TaskOf};
use posse_core::port::{Cancelled, QuestionFilter};

const ROOMY: TaskBounds = TaskBounds { open: 8, all: 50, depth: 3 };

/// A task of role `t`, given by the call with this effect key.
fn task(key: &str, depth: u32, bounds: TaskBounds) -> NewJob {
    let mut new = job("t");
    let key = key.into();
    new.payload.task = Some(TaskOf { key, depth, bounds, max_tokens: Some(5), max_seconds: None, heard: false });
    new
}

async fn give(store: &dyn Store, lease: Lease, new: NewJob) -> Given {
    store.give_task(lease, new, T0).await.expect("works")
}

async fn given(store: &dyn Store, lease: Lease, new: NewJob) -> JobId {
    match give(store, lease, new).await {
        Given::Task(id) => id,
        other => panic!("not given: {other:?}"),
    }
}

/// Claims a task, which must be the next one to be had.
async fn take(store: &dyn Store, id: JobId) -> Lease {
    let claimed = claim(store, "t", 1, T0).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id]);
    claimed[0].lease
}

async fn suspend(store: &dyn Store, lease: Lease, waits_for: &[JobId]) -> JobState {
    let ending = Ending { waits_for: waits_for.to_vec(), ..ending(Event::Suspend, T0) };
    store.finish(lease, ending, T0).await.expect("finishes")
}

pub async fn a_task_is_made_once_for_each_effect_key(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let first = given(&*store, lease, task("k1", 1, ROOMY)).await;
    assert_eq!(given(&*store, lease, task("k1", 1, ROOMY)).await, first, "the same call again");
    let second = given(&*store, lease, task("k2", 1, ROOMY)).await;
    assert_ne!(first, second);
    let made = get(&*store, first).await;
    assert_eq!((made.parent, made.root, made.state), (Some(lease.job), Some(lease.job), JobState::Available));
    assert_eq!(made.payload.task, task("k1", 1, ROOMY).payload.task);
    // Also when the worker died, the task has ended, and another worker makes the call again.
    finish(&*store, take(&*store, first).await, Event::Complete, T0).await;
    store.rescue_from(vec![WorkerId("w1".into())], T0).await.expect("works");
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    assert_eq!(given(&*store, lease, task("k1", 1, ROOMY)).await, first);
    assert_eq!(store.children(lease.job).await.expect("readable").len(), 2);
}

pub async fn a_fan_out_of_five_with_room_for_three_gives_three(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let narrow = TaskBounds { open: 3, ..ROOMY };
    let mut tasks = Vec::new();
    for n in 1..=5 {
        match give(&*store, lease, task(&format!("k{n}"), 1, narrow)).await {
            Given::Task(id) => tasks.push(id),
            Given::Refused(why) => {
                assert!(n > 3, "there is room for three");
                assert_eq!(why, NoRoom::Open { tasks: tasks.clone(), most: 3 });
                let named = format!("tasks {}, {}, {} have not ended", tasks[0], tasks[1], tasks[2]);
                assert!(why.told().contains(&named) && why.told().contains("task_wait"), "{}", why.told());
            }
            Given::Stopped => panic!("nobody asked for its end"),
        }
    }
    assert_eq!(tasks.len(), 3);
    assert_eq!(store.children(lease.job).await.expect("readable").len(), 3, "and nothing is left half done");
}

pub async fn an_ended_task_gives_its_place_back_however_it_ended(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let one = TaskBounds { open: 1, ..ROOMY };
    for (n, event) in [Event::Complete, Event::GiveUp, Event::Cancel].into_iter().enumerate() {
        let id = given(&*store, lease, task(&format!("k{n}"), 1, one)).await;
        let refused = give(&*store, lease, task("next", 1, one)).await;
        assert_eq!(refused, Given::Refused(NoRoom::Open { tasks: vec![id], most: 1 }));
        match event {
            Event::Cancel => {
                let cancelled = store.cancel_task(lease, id, "not needed".into(), T0).await.expect("works");
                assert_eq!(cancelled, Cancelled::Now);
            }
            event => {
                finish(&*store, take(&*store, id).await, event, T0).await;
            }
        }
    }
    given(&*store, lease, task("last", 1, one)).await;
}

pub async fn depth_and_number_are_counted_from_the_root(store: Arc<dyn Store>) {
    let few = TaskBounds { open: 8, all: 3, depth: 2 };
    let root = running(&*store, "r", T0).await;
    let child = given(&*store, root, task("a", 1, few)).await;
    let child = take(&*store, child).await;
    let grandchild = given(&*store, child, task("b", 2, few)).await;
    assert_eq!(get(&*store, grandchild).await.root, Some(root.job));
    let held = take(&*store, grandchild).await;
    let too_deep = give(&*store, held, task("c", 3, few)).await;
    assert_eq!(too_deep, Given::Refused(NoRoom::Depth { depth: 3, most: 2 }));
    // Those that have ended count as well: the number bounds all work that one job can cause.
    finish(&*store, held, Event::Complete, T0).await;
    given(&*store, child, task("d", 2, few)).await;
    for giver in [root, child] {
        let depth = if giver == root { 1 } else { 2 };
        let refused = give(&*store, giver, task("e", depth, few)).await;
        assert_eq!(refused, Given::Refused(NoRoom::All { root: root.job, most: 3 }));
    }
}

pub async fn a_stale_worker_gives_and_ends_no_task(store: Arc<dyn Store>) {
    let stale = running(&*store, "r", T0).await;
    let made = given(&*store, stale, task("k", 1, ROOMY)).await;
    store.rescue_from(vec![WorkerId("w1".into())], T0).await.expect("works");
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let before = everything(&*store, made).await;
    assert!(is_lost(store.give_task(stale, task("other", 1, ROOMY), T0).await, stale.job));
    assert!(is_lost(store.cancel_task(stale, made, "late".into(), T0).await, stale.job));
    assert_eq!(everything(&*store, made).await, before);
    // Nor does anybody end what is no task of theirs.
    let other = enqueue(&*store, "t", T0).await;
    let refused = store.cancel_task(lease, other, "mine".into(), T0).await;
    assert!(matches!(refused, Err(RepositoryError::NoSuchJob(job)) if job == other), "{refused:?}");
    // Nor gives a job that was no task.
    store.give_task(lease, job("t"), T0).await.expect_err("there is nothing to know it by");
}

pub async fn who_is_to_be_cancelled_gives_no_task(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let made = given(&*store, lease, task("k", 1, ROOMY)).await;
    assert_eq!(store.cancel(lease.job, "enough".into(), T0).await.expect("works"), Cancelled::Requested);
    assert_eq!(get(&*store, made).await.state, JobState::Cancelled, "a cancel goes down the tree");
    assert_eq!(give(&*store, lease, task("other", 1, ROOMY)).await, Given::Stopped);
}

pub async fn a_job_waits_for_its_tasks_without_a_slot(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let first = given(&*store, lease, task("a", 1, ROOMY)).await;
    let second = given(&*store, lease, task("b", 1, ROOMY)).await;
    finish(&*store, take(&*store, first).await, Event::Complete, T0).await;
    assert_eq!(suspend(&*store, lease, &[first, second, JobId(9999)]).await, JobState::Suspended);
    let waiting = get(&*store, lease.job).await;
    assert_eq!((waiting.lease_until, waiting.attempt), (None, 0));
    assert_eq!(waiting.reason, Some(format!("waits for job {second}")));
    let held = take(&*store, second).await;
    assert_eq!(get(&*store, lease.job).await.state, JobState::Suspended);
    finish(&*store, held, Event::GiveUp, T0).await;
    assert_eq!(get(&*store, lease.job).await.state, JobState::Available, "however the last one ends");
    // One that waits for what has ended goes on at once, and so does one that waits for what is not there.
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    assert_eq!(suspend(&*store, lease, &[first, second]).await, JobState::Available);
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    assert_eq!(suspend(&*store, lease, &[JobId(9999)]).await, JobState::Available);
    // Only a job that waits waits for others.
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let wrong = Ending { waits_for: vec![first], ..ending(Event::Complete, T0) };
    store.finish(lease, wrong, T0).await.expect_err("it has ended");
}

pub async fn nobody_works_tasks_for_a_job_that_came_to_nothing(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let below = given(&*store, lease, task("a", 1, ROOMY)).await;
    let child = take(&*store, below).await;
    let lowest = given(&*store, child, task("b", 2, ROOMY)).await;
    finish(&*store, lease, Event::GiveUp, T0).await;
    let why = format!("job {}, for which it was to be done, was discarded", lease.job);
    let lowest = get(&*store, lowest).await;
    assert_eq!(lowest.state, JobState::Cancelled);
    assert!(lowest.reason.as_deref().is_some_and(|reason| reason.contains(&why)), "{:?}", lowest.reason);
    assert!(get(&*store, below).await.cancel_requested, "its worker is asked to end it");
    // The same where its workers died once too often.
    let lease = running(&*store, "q", T0).await;
    let task = given(&*store, lease, task("c", 1, ROOMY)).await;
    for _ in 0..9 {
        store.rescue_from(vec![WorkerId("w1".into())], T0).await.expect("works");
        claim(&*store, "q", 1, T0).await;
    }
    assert_eq!(get(&*store, lease.job).await.state, JobState::Discarded);
    assert_eq!(get(&*store, task).await.state, JobState::Cancelled);
}

pub async fn a_question_of_a_task_comes_with_its_path(store: Arc<dyn Store>) {
    let root = running(&*store, "r", T0).await;
    let child = given(&*store, root, task("a", 1, ROOMY)).await;
    let child = take(&*store, child).await;
    let grandchild = given(&*store, child, task("b", 2, ROOMY)).await;
    let held = take(&*store, grandchild).await;
    let asked = Entry::Asked { call_id: "c1".into(), questions: vec!["Blue?".into()], open_ms: None };
    store.finish(held, Ending { entries: vec![asked], ..ending(Event::Suspend, T0) }, T0).await.expect("finishes");
    let filter = QuestionFilter { limit: 10, ..QuestionFilter::default() };
    let question = store.questions(filter).await.expect("readable").remove(0);
    let above = |job, role: &str| Above { job, role: role.into() };
    assert_eq!((question.job, question.path), (grandchild, vec![above(root.job, "r"), above(child.job, "t")]));
}
