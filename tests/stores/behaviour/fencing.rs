//! Leases: who holds one may write, who lost one may not, and nobody is missed for ever.

use std::sync::Arc;

use super::*;
use posse_core::annotation::NewAnnotation;
use posse_core::job::deaths::DEFAULT_MAX_CRASHES;
use posse_core::port::{Heartbeat, Rescued, WorkerRecord};

pub async fn a_stale_worker_changes_nothing(store: Arc<dyn Store>) {
    let old = running(&*store, "r", T0).await;
    store.append(old, 0, vec![note("first")], T0).await.expect("is saved");
    let after = T0 + LEASE;
    store.rescue(Vec::new(), after).await.expect("works");
    for stage in ["taken back", "claimed by another", "finished by another"] {
        let before = everything(&*store, old.job).await;
        let end = Ending { entries: vec![note("late")], seq: 1, ..ending(Event::Complete, after) };
        assert!(is_lost(store.append(old, 1, vec![note("late")], after).await, old.job), "{stage}");
        assert!(is_lost(store.finish(old, end, after).await, old.job), "{stage}");
        let heard = store.heartbeat(WorkerId("w1".into()), vec![old], after + 99, after).await.expect("works");
        assert_eq!(heard, Heartbeat { lost: vec![old.job], cancelled: vec![] }, "{stage}");
        assert_eq!(everything(&*store, old.job).await, before, "{stage}");
        match stage {
            "taken back" => drop(claim(&*store, "r", 1, after).await),
            "claimed by another" => {
                let lease = Lease { token: old.token + 1, ..old };
                finish(&*store, lease, Event::Complete, after).await;
            }
            _ => {}
        }
    }
    let nobody = Lease { job: JobId(4_000_000), token: 1 };
    assert!(is_lost(store.append(nobody, 0, vec![note("late")], after).await, nobody.job));
}

pub async fn a_heartbeat_keeps_leases_and_reports_lost_ones(store: Arc<dyn Store>) {
    let kept = running(&*store, "r", T0).await;
    let flagged = running(&*store, "r", T0).await;
    let ended = running(&*store, "r", T0).await;
    let not_named = running(&*store, "r", T0).await;
    store.cancel(flagged.job, "enough".into(), T0).await.expect("is asked for");
    assert_eq!(store.cancel_requested().await.expect("can be read"), [flagged.job]);
    finish(&*store, ended, Event::Complete, T0).await;
    let until = T0 + 2 * LEASE;
    let leases = vec![kept, flagged, ended];
    let heard = store.heartbeat(WorkerId("w1".into()), leases, until, T0 + 10).await.expect("works");
    assert_eq!(heard, Heartbeat { lost: vec![ended.job], cancelled: vec![flagged.job] });
    assert_eq!(get(&*store, kept.job).await.lease_until, Some(until));
    assert_eq!(get(&*store, flagged.job).await.lease_until, Some(until));
    assert_eq!(get(&*store, not_named.job).await.lease_until, Some(T0 + LEASE));
    let rescued = store.rescue(Vec::new(), T0 + LEASE).await.expect("works");
    assert_eq!(rescued.len(), 1, "only the one that was not renewed: {rescued:?}");
    assert_eq!(rescued[0].job, not_named.job);
}

pub async fn an_interrupt_gives_the_attempt_back(store: Arc<dyn Store>) {
    let mut lease = running(&*store, "r", T0).await;
    for _ in 0..20 {
        assert_eq!(finish(&*store, lease, Event::Interrupt, T0).await, JobState::Available);
        let job = get(&*store, lease.job).await;
        assert_eq!((job.attempt, job.leased_by, job.lease_until), (0, None, None));
        lease = claim(&*store, "r", 1, T0).await[0].lease;
    }
    let attempts = store.attempts(lease.job).await.expect("can be read");
    assert_eq!(attempts.len(), 21);
    assert!(attempts.iter().all(|attempt| attempt.number == 1));
}

pub async fn a_snooze_waits_and_gives_the_attempt_back(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let state = store.finish(lease, ending(Event::Snooze, T0 + 50), T0).await.expect("finishes");
    assert_eq!(state, JobState::Scheduled);
    let job = get(&*store, lease.job).await;
    assert_eq!((job.attempt, job.run_at), (0, T0 + 50));
    assert!(claim(&*store, "r", 1, T0 + 49).await.is_empty());
    assert_eq!(claim(&*store, "r", 1, T0 + 50).await.len(), 1);
}

pub async fn a_failure_waits_and_the_last_discards(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![NewJob { max_attempts: 2, ..job("r") }], T0).await[0];
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let failed = |reason: &str| Ending {
        reason: Some(reason.into()),
        output: Some(output("so far")),
        ..ending(Event::Fail, T0 + 50)
    };
    assert_eq!(store.finish(lease, failed("one"), T0).await.expect("finishes"), JobState::Retryable);
    let job = get(&*store, id).await;
    assert_eq!((job.run_at, job.reason.as_deref(), job.attempt), (T0 + 50, Some("one"), 1));
    assert!(claim(&*store, "r", 1, T0 + 49).await.is_empty());
    let lease = claim(&*store, "r", 1, T0 + 50).await[0].lease;
    let silent = Ending { output: None, ..failed("two") };
    assert_eq!(store.finish(lease, silent, T0 + 60).await.expect("finishes"), JobState::Discarded);
    let job = get(&*store, id).await;
    assert_eq!((job.reason.as_deref(), job.finalized_at), (Some("two"), Some(T0 + 60)));
    assert_eq!(job.output, Some(output("so far")), "what was stored before is kept");
}

pub async fn a_job_that_kills_its_workers_is_discarded(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![NewJob { max_attempts: 50, ..job("r") }], T0).await[0];
    let mut now = T0;
    for crash in 1..=DEFAULT_MAX_CRASHES {
        assert_eq!(claim(&*store, "r", 1, now).await.len(), 1, "crash {crash}");
        assert_eq!(store.rescue(Vec::new(), now + LEASE - 1).await.expect("works"), []);
        now += LEASE;
        let state = if crash == DEFAULT_MAX_CRASHES { JobState::Discarded } else { JobState::Available };
        let want = [Rescued { job: id, worker: "w1".into(), state }];
        assert_eq!(store.rescue(Vec::new(), now).await.expect("works"), want);
    }
    let job = get(&*store, id).await;
    assert_eq!(job.crashes, DEFAULT_MAX_CRASHES);
    let reason = job.reason.unwrap_or_default();
    assert!(reason.starts_with("its worker was lost 3 times in a row while working on it"), "{reason}");
    assert!(reason.contains("max_crashes, is 3") && reason.contains(&format!("posse job retry {id}")), "{reason}");
    let attempts = store.attempts(id).await.expect("can be read");
    assert_eq!(attempts.len(), 3);
    for attempt in attempts {
        assert_eq!(attempt.outcome.as_deref(), Some("worker_lost"));
        assert_eq!(attempt.reason.as_deref(), Some("worker w1 was lost while working on it"));
    }
}

pub async fn a_crash_in_the_last_attempt_discards(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![NewJob { max_attempts: 1, ..job("r") }], T0).await[0];
    claim(&*store, "r", 1, T0).await;
    store.rescue(Vec::new(), T0 + LEASE).await.expect("works");
    let job = get(&*store, id).await;
    assert_eq!(job.state, JobState::Discarded);
    let reason = job.reason.unwrap_or_default();
    assert!(reason.starts_with("its worker was lost in its only attempt (max_attempts)"), "{reason}");
}

pub async fn the_jobs_of_a_dead_worker_are_rescued_at_once(store: Arc<dyn Store>) {
    let of_dead = running(&*store, "r", T0).await;
    enqueue(&*store, "r", T0).await;
    let other = ClaimRequest { worker: WorkerId("w2".into()), ..request("r", 1, T0) };
    let of_living = store.claim(other).await.expect("works")[0].lease;
    let rescued = store.rescue(vec![WorkerId("w1".into()), WorkerId("gone".into())], T0 + 1).await.expect("works");
    assert_eq!(rescued, [Rescued { job: of_dead.job, worker: "w1".into(), state: JobState::Available }]);
    assert_eq!(get(&*store, of_living.job).await.state, JobState::Running);
    // Expired and dead at once is still one crash.
    claim(&*store, "r", 1, T0 + 1).await;
    let both = vec![WorkerId("w1".into()), WorkerId("w2".into())];
    assert_eq!(store.rescue(both, T0 + 10 * LEASE).await.expect("works").len(), 2);
    assert_eq!(get(&*store, of_dead.job).await.crashes, 2);
}

pub async fn a_suspended_job_holds_no_lease(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    assert_eq!(finish(&*store, lease, Event::Suspend, T0).await, JobState::Suspended);
    let job = get(&*store, lease.job).await;
    assert_eq!((job.leased_by, job.lease_until, job.attempt), (None, None, 0));
    assert_eq!(store.next_deadline(T0).await.expect("can be read"), None);
    assert!(store.rescue(Vec::new(), T0 + 100 * LEASE).await.expect("works").is_empty());
    assert!(claim(&*store, "r", 1, T0 + 100 * LEASE).await.is_empty());
    let remark = NewAnnotation { text: "still here".into(), tags: vec![] };
    store.annotate(lease.job, "person".into(), remark, T0).await.expect("may be remarked on");
}

pub async fn workers_are_listed_until_they_leave(store: Arc<dyn Store>) {
    let worker = |id: &str| WorkerRecord {
        id: id.into(),
        host: "h".into(),
        pid: u32::MAX,
        pid_started: u64::MAX,
        roles: vec!["a".into(), "b".into()],
        slots: 4,
        started_at: T0,
        heartbeat_at: T0,
        lease_ms: LEASE,
        drain_requested_at: None,
    };
    store.register_worker(worker("w2")).await.expect("works");
    store.register_worker(worker("w1")).await.expect("works");
    store.register_worker(WorkerRecord { slots: 9, ..worker("w1") }).await.expect("a second time too");
    store.heartbeat(WorkerId("w1".into()), vec![], T0 + LEASE, T0 + 5).await.expect("works");
    let listed = store.workers().await.expect("can be read");
    assert_eq!(listed, [WorkerRecord { slots: 9, heartbeat_at: T0 + 5, ..worker("w1") }, worker("w2")]);
    store.unregister_worker(WorkerId("w1".into()), T0).await.expect("works");
    store.unregister_worker(WorkerId("w1".into()), T0).await.expect("twice is no harm");
    assert_eq!(store.workers().await.expect("can be read"), [worker("w2")]);
}
