//! What is paused, and how many jobs may run or start.

use std::sync::Arc;

use super::*;
use posse_core::queue::retention::Kept;
use posse_core::queue::rules::{Held, Limits, QueueState, Rule, Scope};
use posse_core::queue::{Queue, QueueChange, QueueDefaults};

/// A limit on how many run at once.
pub fn at_once(running: u32) -> Limits {
    Limits { running: Some(running), ..Limits::default() }
}

/// A limit on how many run at once with the same key.
pub fn per_key(running: u32) -> Limits {
    Limits { running_per_key: Some(running), ..Limits::default() }
}

/// A job of `r` in `queue` with a concurrency key, if it is not empty.
pub fn queued(queue: &str, key: &str) -> NewJob {
    let concurrency_key = Some(key.to_owned()).filter(|key| !key.is_empty());
    NewJob { queue: queue.into(), concurrency_key, ..job("r") }
}

async fn set(store: &dyn Store, scope: Scope, limits: Limits) {
    store.set_limits(scope, limits, T0).await.expect("is set");
}

fn queue(name: &str) -> Scope {
    Scope::Queue(name.into())
}

fn role(name: &str) -> Scope {
    Scope::Role(name.into())
}

pub async fn a_limit_holds_for_its_scope(store: Arc<dyn Store>) {
    let jobs = ["a", "b"].iter().flat_map(|name| vec![queued(name, ""); 5]).chain(vec![job("other"); 5]).collect();
    enqueue_all(&*store, jobs, T0).await;
    set(&*store, queue("a"), at_once(2)).await;
    set(&*store, role("r"), at_once(4)).await;
    set(&*store, Scope::All, at_once(6)).await;
    let first = claim(&*store, "r", 9, T0).await;
    let of = |queue: &str| first.iter().filter(|claimed| claimed.job.queue == queue).count();
    assert_eq!((of("a"), of("b")), (2, 2));
    assert_eq!(claim(&*store, "other", 9, T0).await.len(), 2, "six in all");
    assert!(claim(&*store, "r", 9, T0).await.is_empty());

    // A place comes free with whatever ends an attempt, and only then.
    let a = first.iter().find(|claimed| claimed.job.queue == "a").expect("is there").lease;
    finish(&*store, a, Event::Suspend, T0).await;
    assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1);
    assert!(claim(&*store, "other", 9, T0).await.is_empty());
    set(&*store, Scope::All, Limits::default()).await;
    assert_eq!(claim(&*store, "other", 9, T0).await.len(), 3, "a limit that is taken back holds no more");
    set(&*store, role("r"), at_once(0)).await;
    assert!(claim(&*store, "r", 9, T0).await.is_empty());
}

pub async fn a_limit_per_key_lets_other_keys_pass(store: Arc<dyn Store>) {
    let keys = ["a", "a", "a", "b", "", "a", "", "c"];
    let ids = enqueue_all(&*store, keys.iter().map(|key| queued("q", key)).collect(), T0).await;
    set(&*store, queue("q"), per_key(1)).await;
    let first = claim(&*store, "r", 9, T0).await;
    let got: Vec<_> = first.iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(got, [ids[0], ids[3], ids[4], ids[6], ids[7]], "in order, without those behind a full key");
    assert!(claim(&*store, "r", 9, T0).await.is_empty());
    finish(&*store, first[0].lease, Event::Complete, T0).await;
    assert_eq!(claim(&*store, "r", 9, T0).await[0].job.id, ids[1]);
    // A key may have a limit of its own, over all queues.
    set(&*store, queue("q"), Limits::default()).await;
    set(&*store, Scope::Key("a".into()), at_once(2)).await;
    enqueue_all(&*store, vec![queued("p", "a")], T0).await;
    assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1);
}

pub async fn a_full_key_in_front_costs_nothing_behind(store: Arc<dyn Store>) {
    // Twenty thousand jobs that may not start stand in front of one that may. Looking through them
    // would take longer than all of this may.
    enqueue_all(&*store, vec![queued("q", "full"); 20_000], T0).await;
    set(&*store, queue("q"), per_key(1)).await;
    assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1);
    let begun = std::time::Instant::now();
    for n in 0..50 {
        let id = enqueue_all(&*store, vec![queued("q", &format!("free {n}"))], T0 + 1).await[0];
        assert_eq!(claim(&*store, "r", 9, T0 + 1).await[0].job.id, id);
    }
    let each = begun.elapsed() / 50;
    assert!(each.as_millis() < 50, "{each:?} for each");
}

pub async fn thousands_of_lines_that_may_not_move_hide_none_that_may(store: Arc<dyn Store>) {
    // Lanes of a paused queue, lanes that are full, and last of all one that may move.
    let paused = (0..1500).map(|n| queued("a", &format!("k{n}")));
    let full = (0..1200).flat_map(|n| vec![queued("b", &format!("k{n}")); 2]);
    enqueue_all(&*store, paused.chain(full).collect(), T0).await;
    store.pause(queue("a"), T0).await.expect("is paused");
    set(&*store, queue("b"), per_key(1)).await;
    let mut started = 0;
    while let claimed @ [_, ..] = &*claim(&*store, "r", 200, T0).await {
        started += claimed.len();
    }
    assert_eq!(started, 1200);
    for free in [queued("b", "z"), queued("c", ""), queued("0", "k")] {
        let id = enqueue_all(&*store, vec![free], T0).await[0];
        assert_eq!(claim(&*store, "r", 9, T0).await[0].job.id, id);
    }
}

pub async fn the_end_of_a_job_wakes_those_a_limit_held(store: Arc<dyn Store>) {
    let mut wakes = store.wakes();
    let lease = running(&*store, "r", T0).await;
    wakes.mark_unchanged();
    finish(&*store, lease, Event::Complete, T0).await;
    assert!(!wakes.has_changed().expect("is open"), "without a limit nobody waits for it");
    set(&*store, queue("default"), at_once(1)).await;
    let lease = running(&*store, "r", T0).await;
    wakes.mark_unchanged();
    finish(&*store, lease, Event::Complete, T0).await;
    assert!(wakes.has_changed().expect("is open"));
}

pub async fn a_vanished_worker_holds_no_place(store: Arc<dyn Store>) {
    set(&*store, role("r"), at_once(1)).await;
    running(&*store, "r", T0).await;
    let waiting = enqueue(&*store, "r", T0).await;
    assert!(claim(&*store, "r", 9, T0).await.is_empty());
    // Its lease ran out; it is taken back, and both may start, one after the other.
    store.rescue(vec![], T0 + LEASE).await.expect("works");
    let next = claim(&*store, "r", 9, T0 + LEASE).await;
    assert_eq!(next.len(), 1);
    finish(&*store, next[0].lease, Event::Complete, T0 + LEASE).await;
    assert_eq!(claim(&*store, "r", 9, T0 + LEASE).await[0].job.id, waiting);
}

pub async fn a_rate_lets_jobs_start_evenly(store: Arc<dyn Store>) {
    enqueue_all(&*store, vec![queued("q", ""); 200], T0).await;
    let sixty = Limits { per_minute: Some(60), ..Limits::default() };
    set(&*store, queue("q"), sixty).await;
    assert_eq!(claim(&*store, "r", 50, T0).await.len(), 6, "a tenth at once");
    assert!(claim(&*store, "r", 50, T0 + 999).await.is_empty());
    assert_eq!(store.next_deadline(T0).await.expect("can be read"), Some(T0 + 1000));
    assert_eq!(claim(&*store, "r", 50, T0 + 1000).await.len(), 1);
    assert_eq!(claim(&*store, "r", 50, T0 + 5000).await.len(), 4);
    let mut started = 11;
    for second in 6..=60 {
        started += claim(&*store, "r", 50, T0 + second * 1000).await.len();
    }
    assert_eq!(started, 66);
    // Nobody has to wake for a time that is over.
    let now = T0 + 600_000;
    assert!(store.next_deadline(now).await.expect("can be read").is_none_or(|at| at <= now));
    // Its rate goes on where it was when another limit is set beside it.
    assert_eq!(claim(&*store, "r", 50, now).await.len(), 6);
    set(&*store, queue("q"), Limits { running: Some(500), ..sixty }).await;
    assert!(claim(&*store, "r", 50, now).await.is_empty());
}

pub async fn what_is_paused_starts_nothing_and_what_runs_goes_on(store: Arc<dyn Store>) {
    let keyed = queued("q", "k");
    for scope in [Scope::All, queue("q"), role("r"), Scope::Key("k".into())] {
        let ids = enqueue_all(&*store, vec![keyed.clone(), keyed.clone(), job("other")], T0).await;
        let lease = claim(&*store, "r", 1, T0).await[0].lease;
        assert!(store.pause(scope.clone(), T0).await.expect("is paused"));
        assert!(!store.pause(scope.clone(), T0 + 1).await.expect("is paused"), "a second time is nothing new");
        assert!(claim(&*store, "r", 9, T0).await.is_empty(), "{scope}");
        store.append(lease, 0, vec![note("n")], T0).await.expect("what runs goes on");
        assert_eq!(finish(&*store, lease, Event::Complete, T0).await, JobState::Completed);
        let others = claim(&*store, "other", 9, T0).await.len();
        assert_eq!(others, usize::from(scope != Scope::All), "{scope}");
        let mut wakes = store.wakes();
        wakes.mark_unchanged();
        assert!(store.resume(scope.clone()).await.expect("is resumed"));
        assert!(!store.resume(scope.clone()).await.expect("is resumed"));
        assert!(wakes.has_changed().expect("is open"));
        assert_eq!(claim(&*store, "r", 9, T0).await[0].job.id, ids[1], "{scope}");
        claim(&*store, "other", 9, T0).await;
    }
}

pub async fn rules_are_listed_until_nothing_is_left_of_them(store: Arc<dyn Store>) {
    assert_eq!(store.rules().await.expect("can be read"), []);
    set(&*store, queue("q"), at_once(2)).await;
    store.pause(queue("q"), T0).await.expect("is paused");
    store.pause(Scope::All, T0 + 1).await.expect("is paused");
    set(&*store, Scope::Key("ключ 🔑".into()), at_once(1)).await;
    let rule = |scope, paused_at, limits| Rule { scope, paused_at, limits, full_at_us: 0 };
    let want = [
        rule(Scope::All, Some(T0 + 1), Limits::default()),
        rule(Scope::Key("ключ 🔑".into()), None, at_once(1)),
        rule(queue("q"), Some(T0), at_once(2)),
    ];
    assert_eq!(store.rules().await.expect("can be read"), want);
    set(&*store, queue("q"), Limits::default()).await;
    set(&*store, Scope::Key("ключ 🔑".into()), Limits::default()).await;
    store.resume(queue("q")).await.expect("is resumed");
    store.resume(Scope::All).await.expect("is resumed");
    assert_eq!(store.rules().await.expect("can be read"), []);
}

pub async fn queues_are_counted(store: Arc<dyn Store>) {
    for state in JobState::ALL {
        in_state(&*store, state, state.as_str()).await;
    }
    enqueue_all(&*store, vec![queued("q", ""), queued("q", "k")], T0).await;
    store.pause(queue("empty"), T0).await.expect("is paused");
    let counts = |queue: &str, [available, scheduled, running, suspended]: [u64; 4]| QueueState {
        queue: Queue { paused_at: Some(T0).filter(|_| queue == "empty"), ..Queue::named(queue) },
        available,
        scheduled,
        running,
        suspended,
    };
    let want = [counts("default", [1, 2, 1, 1]), counts("empty", [0; 4]), counts("q", [2, 0, 0, 0])];
    let mut states = store.queue_states().await.expect("can be read");
    states.iter_mut().for_each(|state| state.queue.created_at = None);
    assert_eq!(states, want);
}

pub async fn what_is_said_of_a_queue_stays_until_it_is_taken_back(store: Arc<dyn Store>) {
    let find = || async { store.queue("q".into()).await.expect("can be read") };
    assert_eq!((find().await, store.queues().await.expect("can be read")), (Queue::named("q"), vec![]));
    let first = QueueChange {
        priority: Some(Some(2)),
        max_attempts: Some(Some(9)),
        keep: vec![(Kept::Discarded, Some(None)), (Kept::Completed, Some(Some(7)))],
        ..QueueChange::default()
    };
    let queue_q = store.change_queue("q".into(), first, T0).await.expect("is changed");
    assert_eq!(queue_q.keep, [(Kept::Completed, Some(7)), (Kept::Discarded, None)]);
    assert_eq!((queue_q.defaults.priority, queue_q.defaults.max_attempts), (Some(2), Some(9)));
    assert_eq!(store.rules().await.expect("can be read"), [], "no claim is held by any of this");
    // A rule beside it comes and goes.
    set(&*store, queue("q"), at_once(2)).await;
    assert!(store.pause(queue("q"), T0 + 1).await.expect("is paused"));
    let ruled = Queue { paused_at: Some(T0 + 1), limits: at_once(2), ..queue_q.clone() };
    assert_eq!(find().await, ruled);
    let second = QueueChange { priority_step_ms: Some(Some(0)), max_attempts: Some(None), ..QueueChange::default() };
    store.change_queue("q".into(), second, T0 + 2).await.expect("is changed");
    store.resume(queue("q")).await.expect("is resumed");
    set(&*store, queue("q"), Limits::default()).await;
    let defaults = QueueDefaults { priority: Some(2), priority_step_ms: Some(0), max_attempts: None };
    assert_eq!(find().await, Queue { defaults, ..queue_q });
    assert_eq!(store.queues().await.expect("can be read"), [find().await]);
    let all = QueueChange {
        priority: Some(None),
        priority_step_ms: Some(None),
        keep: vec![(Kept::Completed, None), (Kept::Discarded, None)],
        ..QueueChange::default()
    };
    assert_eq!(store.change_queue("q".into(), all, T0 + 3).await.expect("is changed"), Queue::named("q"));
    assert_eq!(store.queues().await.expect("can be read"), []);
}

pub async fn a_job_that_is_held_says_why(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![queued("q", "k")], T0).await[0];
    let held = || async { store.held(id, T0).await.expect("can be read") };
    assert_eq!(held().await, None);
    set(&*store, role("r"), per_key(0)).await;
    assert_eq!(held().await, Some(Held::FullKey { scope: role("r"), limit: 0, key: "k".into() }));
    store.pause(Scope::All, T0).await.expect("is paused");
    assert_eq!(held().await, Some(Held::Paused { scope: Scope::All }));
    store.cancel(id, "x".into(), T0).await.expect("is cancelled");
    assert_eq!(held().await, None, "it would not start anyway");
    let missing = store.held(JobId(99), T0).await.expect_err("is not there");
    assert!(matches!(missing, RepositoryError::NoSuchJob(JobId(99))));
}
