//! Concurrency keys that are served in rotation.

use std::collections::HashSet;
use std::sync::Arc;

use super::ruling::{per_key, queued};
use super::*;
use posse_core::queue::rules::{Limits, Scope};

/// Has the keys of a scope served in rotation.
pub async fn fair(store: &dyn Store, scope: Scope) {
    store.set_limits(scope, Limits { fair: true, ..Limits::default() }, T0).await.expect("is set");
}

fn role() -> Scope {
    Scope::Role("r".into())
}

/// The keys of the jobs that a claim takes, in their order; empty for a job without one.
async fn keys(store: &dyn Store, limit: u32) -> Vec<String> {
    let claimed = claim(store, "r", limit, T0).await;
    claimed.into_iter().map(|claimed| claimed.job.concurrency_key.unwrap_or_default()).collect()
}

pub async fn ten_thousand_jobs_keep_nobody_waiting(store: Arc<dyn Store>) {
    fair(&*store, role()).await;
    let old = NewJob { run_at: Some(T0 - 86_400_000), ..queued("q", "many") };
    let ids = enqueue_all(&*store, vec![old; 10_000], T0 - 86_400_000).await;
    assert_eq!(keys(&*store, 4).await, ["many"; 4], "alone it is always next");
    enqueue_all(&*store, vec![queued("q", "few"); 3], T0).await;
    enqueue_all(&*store, vec![queued("q", ""); 2], T0).await;
    // One at a time and several at once are the same rotation.
    let mut got = keys(&*store, 1).await;
    got.extend(keys(&*store, 1).await);
    got.extend(keys(&*store, 6).await);
    assert_eq!(got, ["", "few", "many", "", "few", "many", "few", "many"]);
    // And what is left of the long lane goes on in its order.
    let claimed = claim(&*store, "r", 40, T0).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), ids[7..47]);
}

pub async fn a_new_key_waits_for_one_round_at_most(store: Arc<dyn Store>) {
    fair(&*store, Scope::All).await;
    // More lanes than are merged at once, in two queues.
    let new = |n: usize| queued(if n < 1500 { "a" } else { "b" }, &format!("k{n:05}"));
    let round = 3000;
    enqueue_all(&*store, (0..2 * round).map(|n| new(n % round)).collect(), T0).await;
    assert_eq!(keys(&*store, 100).await.len(), 100);
    // One that the rotation has passed already, and one that it comes to.
    enqueue_all(&*store, vec![queued("a", "k00000x"), queued("b", "k02000x")], T0).await;
    let mut served = Vec::new();
    while served.len() < round + 2 {
        served.extend(keys(&*store, 113).await);
    }
    let different: HashSet<_> = served[..round + 2].iter().collect();
    assert_eq!(different.len(), round + 2, "each is served once, the new ones too");
    assert_eq!(served[round + 2], "k00100");
}

pub async fn priority_is_a_matter_within_a_key(store: Arc<dyn Store>) {
    fair(&*store, Scope::Queue("q".into())).await;
    let with = |key: &str, priority| NewJob { priority, ..queued("q", key) };
    let jobs = vec![with("a", 1), with("a", 1), with("b", 9), with("b", 3), with("b", 9)];
    let ids = enqueue_all(&*store, jobs, T0).await;
    let claimed = claim(&*store, "r", 9, T0).await;
    let got: Vec<_> = claimed.iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(got, [ids[0], ids[3], ids[1], ids[2], ids[4]]);
}

pub async fn a_key_that_is_held_is_passed_by(store: Arc<dyn Store>) {
    store.set_limits(role(), Limits { fair: true, ..per_key(1) }, T0).await.expect("is set");
    let jobs = ["a", "b", "c", "a", "b", "c", "", ""].map(|key| queued("q", key)).to_vec();
    enqueue_all(&*store, jobs, T0).await;
    store.pause(Scope::Key("b".into()), T0).await.expect("is paused");
    let first = claim(&*store, "r", 9, T0).await;
    let of = |key: &str| first.iter().find(|claimed| claimed.job.concurrency_key.as_deref() == Some(key));
    assert_eq!(first.len(), 4, "a and c once, and both without a key, which no limit per key counts");
    assert!(of("b").is_none());
    assert_eq!(keys(&*store, 9).await, [""; 0]);
    store.resume(Scope::Key("b".into())).await.expect("goes on");
    finish(&*store, of("a").expect("runs").lease, Event::Complete, T0).await;
    assert_eq!(keys(&*store, 9).await, ["a", "b"]);
}

pub async fn a_fair_queue_stands_among_others_by_rank(store: Arc<dyn Store>) {
    fair(&*store, Scope::Queue("fair".into())).await;
    let at = |queue: &str, key: &str, run_at| NewJob { run_at: Some(run_at), ..queued(queue, key) };
    let jobs = vec![
        at("fair", "a", T0 - 9),
        at("fair", "a", T0 - 8),
        at("fair", "b", T0 - 4),
        at("other", "c", T0 - 5),
        at("other", "c", T0 - 3),
        at("late", "d", T0 - 1),
    ];
    let ids = enqueue_all(&*store, jobs, T0).await;
    // When b is next, the fair queue stands where the job of b stands.
    let want = [0, 3, 2, 1, 4, 5].map(|n| ids[n]);
    let mut got: Vec<_> = claim(&*store, "r", 2, T0).await.iter().map(|claimed| claimed.job.id).collect();
    got.extend(claim(&*store, "r", 9, T0).await.iter().map(|claimed| claimed.job.id));
    assert_eq!(got, want);
}

pub async fn workers_of_different_queues_have_rotations_of_their_own(store: Arc<dyn Store>) {
    fair(&*store, role()).await;
    let lanes = [("p", "a"), ("p", "b"), ("q", "c"), ("q", "d")];
    enqueue_all(&*store, lanes.iter().flat_map(|(queue, key)| vec![queued(queue, key); 3]).collect(), T0).await;
    let mut got = Vec::new();
    for queue in ["p", "q", "p", "q", "p", "q"] {
        let ask = ClaimRequest { queues: vec![queue.into()], ..request("r", 1, T0) };
        got.extend(store.claim(ask).await.expect("works").into_iter().filter_map(|one| one.job.concurrency_key));
    }
    assert_eq!(got, ["a", "c", "b", "d", "a", "c"]);
    // Nor does it matter in which order they are named.
    for (queues, want) in [(["q", "p"], "a"), (["p", "q"], "b")] {
        let ask = ClaimRequest { queues: queues.map(Into::into).into(), ..request("r", 1, T0) };
        assert_eq!(store.claim(ask).await.expect("works")[0].job.concurrency_key.as_deref(), Some(want));
    }
}

pub async fn what_is_fair_no_more_goes_by_rank(store: Arc<dyn Store>) {
    enqueue_all(&*store, ["b", "b", "b", "a", "a"].map(|key| queued("q", key)).to_vec(), T0).await;
    assert_eq!(keys(&*store, 1).await, ["b"], "by rank, where nobody asked for a rotation");
    fair(&*store, Scope::Queue("q".into())).await;
    assert_eq!(keys(&*store, 1).await, ["a"]);
    store.set_limits(Scope::Queue("q".into()), Limits::default(), T0).await.expect("is set");
    assert_eq!(store.rules().await.expect("can be read"), []);
    assert_eq!(keys(&*store, 2).await, ["b", "b"]);
}
