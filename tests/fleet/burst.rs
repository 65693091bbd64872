//! Five thousand jobs that fall due at one instant, and urgent ones that come while they are worked.

use std::time::{Duration, Instant};

use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState, NewJob};
use posse_core::port::Rules as _;
use posse_core::port::{JobQueries as _, JobRepository as _};
use posse_core::queue::rules::{Limits, Scope};

use super::host::Host;
use super::worker::{AT_ONCE, SLEEPER, host_now};

const DUE_AT_ONCE: usize = 5000;
const URGENT: usize = 500;

/// The value that a part of them, 0 to 1, lies below.
fn quantile(values: &mut [Millis], part: f64) -> Millis {
    values.sort_unstable();
    values[((values.len() - 1) as f64 * part) as usize]
}

/// When the attempt that completed the job began.
async fn began(host: &Host, id: JobId) -> Millis {
    let job = host.store().job(id).await.expect("readable").expect("is there");
    let attempts = host.store().attempts(id).await.expect("readable");
    assert_eq!((job.state, attempts.len()), (JobState::Completed, 1), "job {id} ran once: {attempts:?}");
    attempts[0].started_at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_that_are_due_at_once_keep_no_urgent_one_waiting() {
    let mut host = Host::new();
    (0..3).for_each(|_| host.start_worker());
    let job = NewJob { role: SLEEPER.into(), ..NewJob::default() };
    let due_at = host_now(host.root()) + 2500;
    let many = NewJob { run_at: Some(due_at), ..job.clone() };
    let enqueued = host.store().enqueue(vec![many; DUE_AT_ONCE], host_now(host.root())).await.expect("is stored");
    let many: Vec<_> = enqueued.into_iter().map(|one| one.id).collect();
    assert!(host_now(host.root()) < due_at, "they were all there before they were due");
    tokio::time::sleep(Duration::from_millis((due_at - host_now(host.root())).max(0) as u64)).await;

    let (mut urgent, mut took) = (Vec::new(), Vec::new());
    for _ in 0..URGENT {
        let now = host_now(host.root());
        let begun = Instant::now();
        let new = NewJob { priority: 1, ..job.clone() };
        urgent.push((host.store().enqueue(vec![new], now).await.expect("is stored")[0].id, now));
        took.push(begun.elapsed().as_millis() as Millis);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    host.until_all_ended("a burst", Duration::from_secs(60)).await;

    let mut late = Vec::new();
    for id in many {
        late.push(began(&host, id).await - due_at);
    }
    let mut waited = Vec::new();
    for (id, enqueued_at) in urgent {
        waited.push(began(&host, id).await - enqueued_at);
    }
    let (first, last) = (quantile(&mut late, 0.0), quantile(&mut late, 1.0));
    eprintln!(
        "after they were due, {DUE_AT_ONCE} began within {} to {last} ms (half of them {}); an urgent one began after \
         {} ms, p99 {}; an enqueue took {} ms, p99 {}",
        first,
        quantile(&mut late, 0.5),
        quantile(&mut waited, 0.5),
        quantile(&mut waited, 0.99),
        quantile(&mut took, 0.5),
        quantile(&mut took, 0.99),
    );
    assert!(first >= 0, "none began before its time");
    assert!(first < 2000, "the first began {first} ms after they were due");
    assert!(quantile(&mut took, 0.99) < 1000, "an enqueue waits for nobody");
    assert!(quantile(&mut waited, 0.99) < last / 2, "the urgent ones were not behind the many");
    assert!(host.log().lines().all(|line| !line.contains("locked")), "{}", host.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_are_at_work_than_may_be_whoever_works_them() {
    let mut host = Host::new();
    let limits = Limits { running: Some(AT_ONCE as u32), ..Limits::default() };
    host.store().set_limits(Scope::Role(SLEEPER.into()), limits, 1).await.expect("is set");
    let job = NewJob { role: SLEEPER.into(), ..NewJob::default() };
    host.store().enqueue(vec![job.clone(); 400], host_now(host.root())).await.expect("are stored");
    (0..3).for_each(|_| host.start_worker());
    host.until_all_ended("with a limit", Duration::from_secs(60)).await;
    let crowded = host.root().join("crowded");
    assert!(!crowded.exists(), "24 slots in three processes, and never more than {AT_ONCE} jobs");
    // Without it there are more.
    host.store().set_limits(Scope::Role(SLEEPER.into()), Limits::default(), 1).await.expect("is taken off");
    host.store().enqueue(vec![job; 400], host_now(host.root())).await.expect("are stored");
    host.until_all_ended("without a limit", Duration::from_secs(60)).await;
    assert!(crowded.exists());
}
