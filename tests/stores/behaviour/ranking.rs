//! The order in which jobs are claimed.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use posse_core::job::DEFAULT_PRIORITY_STEP_MS as STEP;

async fn order(store: &dyn Store, limit: u32, now: Millis) -> Vec<JobId> {
    claim(store, "r", limit, now).await.into_iter().map(|claimed| claimed.job.id).collect()
}

pub async fn waiting_outweighs_priority_in_the_end(store: Arc<dyn Store>) {
    let with = |priority, run_at| NewJob { priority, run_at: Some(run_at), ..job("r") };
    // The last in priority became due eight steps before the first ones, give or take a moment.
    let jobs = vec![with(1, T0), with(9, T0 - 8 * STEP + 1), with(9, T0 - 8 * STEP - 1), with(1, T0 - 1)];
    let ids = enqueue_all(&*store, jobs, T0).await;
    assert_eq!(order(&*store, 9, T0).await, [ids[2], ids[3], ids[0], ids[1]]);

    // However many urgent ones keep coming, one of the last priority starts.
    let last = enqueue_all(&*store, vec![with(9, T0)], T0).await[0];
    let mut now = T0;
    let mut urgent_ones = 0;
    loop {
        enqueue_all(&*store, vec![with(1, now)], now).await;
        let started = order(&*store, 1, now).await;
        if started == [last] {
            break;
        }
        urgent_ones += 1;
        now += STEP / 10;
        assert!(urgent_ones <= 81, "it starves");
    }
    assert!(urgent_ones >= 79, "it was not urgent: {urgent_ones}");

    // A step of nothing is no priority at all.
    let flat = |priority, run_at| NewJob { priority_step_ms: 0, ..with(priority, run_at) };
    let ids = enqueue_all(&*store, vec![flat(1, T0 - 100), flat(9, T0 - 101)], now).await;
    assert_eq!(order(&*store, 2, now).await, [ids[1], ids[0]]);
}

pub async fn urgent_jobs_pass_five_thousand_that_are_due_at_once(store: Arc<dyn Store>) {
    let due = T0 + 30_000;
    let burst: HashSet<_> =
        enqueue_all(&*store, vec![NewJob { run_at: Some(due), ..job("r") }; 5000], T0).await.into_iter().collect();
    let mut started = Vec::new();
    // The burst has begun when they come.
    started.extend(order(&*store, 24, due).await);
    let urgent: HashSet<_> =
        enqueue_all(&*store, vec![NewJob { priority: 1, ..job("r") }; 500], due + 1).await.into_iter().collect();
    loop {
        let claimed = claim(&*store, "r", 200, due + 1).await;
        if claimed.is_empty() {
            break;
        }
        started.extend(claimed.iter().map(|claimed| claimed.job.id));
        for claimed in claimed {
            finish(&*store, claimed.lease, Event::Complete, due + 2).await;
        }
    }
    assert!(started[..24].iter().all(|id| burst.contains(id)));
    assert!(started[24..524].iter().all(|id| urgent.contains(id)), "nobody urgent is stuck behind the burst");
    assert_eq!(started.iter().collect::<HashSet<_>>().len(), 5500, "each started once");
}

pub async fn lines_are_merged_by_rank(store: Arc<dyn Store>) {
    // Sixty jobs in lanes of their own and in long ones, due in an order of their own.
    let new = |n: i64| NewJob {
        queue: format!("q{}", n % 4),
        concurrency_key: (n % 3 != 0).then(|| format!("k{}", n % 7)),
        run_at: Some(T0 - n * 37 % 60),
        ..job("r")
    };
    let jobs: Vec<_> = (0..60).map(new).collect();
    let ids = enqueue_all(&*store, jobs.clone(), T0).await;
    let mut want: Vec<_> = jobs.iter().zip(&ids).map(|(job, id)| (job.run_at, *id)).collect();
    want.sort();
    let want: Vec<_> = want.into_iter().map(|(_, id)| id).collect();
    let mut got = order(&*store, 7, T0).await;
    got.extend(order(&*store, 53, T0).await);
    assert_eq!(got, want);
    assert_eq!(order(&*store, 1, T0).await, []);
}

pub async fn more_lines_than_are_looked_at_at_once_are_all_served(store: Arc<dyn Store>) {
    let new = |n: usize| NewJob {
        queue: if n < 1500 { "a".into() } else { "b".into() },
        concurrency_key: Some(format!("k{n:05}")),
        ..job("r")
    };
    let all: HashSet<_> = enqueue_all(&*store, (0..3000).map(new).collect(), T0).await.into_iter().collect();
    let mut started = HashSet::new();
    while let claimed @ [_, ..] = &*claim(&*store, "r", 200, T0).await {
        started.extend(claimed.iter().map(|claimed| claimed.job.id));
        // New ones come all the time, in lanes before all others.
        let more = NewJob { concurrency_key: Some("a".into()), queue: "a".into(), ..job("r") };
        if started.len() < 6000 {
            enqueue_all(&*store, vec![more; 100], T0).await;
        }
        if all.is_subset(&started) {
            return;
        }
    }
    panic!("some lane was never served");
}
