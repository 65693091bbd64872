//! Workers that die, or do not renew their leases: what jobs are charged, and who is worked alone.

use super::*;
use posse_core::job::deaths::SUSPECT_PATIENCE_MS;
use posse_core::port::{Forfeit, WorkerRecord};

fn w(name: &str) -> WorkerId {
    WorkerId(name.into())
}

async fn claim_as(store: &dyn Store, worker: &str, limit: u32, now: Millis) -> Vec<Claimed> {
    store.claim(ClaimRequest { worker: w(worker), ..request("r", limit, now) }).await.expect("works")
}

async fn dies(store: &dyn Store, worker: &str, now: Millis) {
    store.rescue_from(vec![w(worker)], now).await.expect("works");
}

fn ids(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|claimed| claimed.job.id).collect()
}

pub async fn deaths_with_progress_discard_nobody(store: Arc<dyn Store>) {
    let id = enqueue(&*store, "r", T0).await;
    for round in 0..20 {
        let lease = claim(&*store, "r", 1, T0 + round).await[0].lease;
        let seq = store.journal(id, 0).await.expect("can be read").len() as u64;
        store.append(lease, seq, vec![note("a"), note("b")], T0 + round).await.expect("is saved");
        dies(&*store, "w1", T0 + round).await;
        let job = get(&*store, id).await;
        assert_eq!((job.state, job.attempt), (JobState::Available, 0), "round {round}: {:?}", job.reason);
    }
    assert_eq!(get(&*store, id).await.crashes, 20, "each is told of");
    // And those at the same place count.
    for _ in 0..3 {
        assert_eq!(claim(&*store, "r", 1, T0 + 50).await.len(), 1);
        dies(&*store, "w1", T0 + 50).await;
    }
    let job = get(&*store, id).await;
    assert_eq!(job.state, JobState::Discarded);
    assert!(job.reason.as_deref().is_some_and(|said| said.contains("3 times in a row")), "{:?}", job.reason);
    // A retry by hand begins anew.
    store.retry(id, T0 + 60).await.expect("may be");
    claim(&*store, "r", 1, T0 + 60).await;
    dies(&*store, "w1", T0 + 60).await;
    assert_eq!(get(&*store, id).await.state, JobState::Available);
}

pub async fn the_limit_is_the_jobs_own(store: Arc<dyn Store>) {
    let with = |max_crashes| NewJob { max_crashes, max_attempts: 50, ..job("r") };
    for limit in [1, 2, 5] {
        let id = enqueue_all(&*store, vec![with(limit)], T0).await[0];
        for death in 1..=limit {
            assert_eq!(ids(&claim(&*store, "r", 1, T0).await), [id], "{limit}: death {death}");
            dies(&*store, "w1", T0).await;
        }
        let job = get(&*store, id).await;
        assert_eq!(job.state, JobState::Discarded);
        assert!(job.reason.as_deref().is_some_and(|said| said.contains(&format!("max_crashes, is {limit}"))));
    }
}

pub async fn a_suspect_is_worked_with_nothing_beside_it(store: Arc<dyn Store>) {
    let first = enqueue_all(&*store, vec![job("r"); 4], T0).await;
    for _ in 0..2 {
        assert_eq!(claim_as(&*store, "w1", 10, T0).await.len(), 4);
        dies(&*store, "w1", T0).await;
    }
    // All four are suspected, and each is taken alone.
    let [one] = &claim_as(&*store, "w1", 10, T0).await[..] else { panic!("one alone") };
    assert_eq!(one.job.id, first[0]);
    let fresh = enqueue(&*store, "r", T0).await;
    assert!(claim_as(&*store, "w1", 10, T0).await.is_empty(), "nothing comes beside it");
    // Another worker takes another one, alone.
    let [other] = &claim_as(&*store, "w2", 10, T0).await[..] else { panic!("one alone") };
    assert_eq!(other.job.id, first[1]);
    finish(&*store, other.lease, Event::Complete, T0).await;
    // Only the one that kills when nothing is beside it meets the third death.
    dies(&*store, "w1", T0).await;
    let states: Vec<_> = {
        let mut states = Vec::new();
        for id in &first {
            states.push(get(&*store, *id).await.state);
        }
        states
    };
    let want = [JobState::Discarded, JobState::Completed, JobState::Available, JobState::Available];
    assert_eq!(states, want);
    // A worker with something in hand passes suspects by, and takes what is behind them.
    let left = claim_as(&*store, "w2", 10, T0).await;
    assert_eq!(ids(&left), [first[2]]);
    assert!(claim_as(&*store, "w2", 10, T0).await.is_empty());
    finish(&*store, left[0].lease, Event::Interrupt, T0).await;
    let other = enqueue(&*store, "s", T0).await;
    let busy = ClaimRequest { worker: w("w3"), ..request("s", 1, T0) };
    assert_eq!(ids(&store.claim(busy).await.expect("works")), [other]);
    assert_eq!(ids(&claim_as(&*store, "w3", 10, T0).await), [fresh]);
}

pub async fn a_suspect_is_waited_for_by_one_worker_only(store: Arc<dyn Store>) {
    for name in ["w2", "w3"] {
        let record = WorkerRecord {
            id: name.into(),
            host: "h".into(),
            pid: 1,
            pid_started: 1,
            roles: vec!["r".into()],
            slots: 4,
            started_at: T0,
            heartbeat_at: T0,
            lease_ms: LEASE,
            drain_requested_at: None,
        };
        store.register_worker(record).await.expect("is listed");
    }
    let suspect = enqueue(&*store, "r", T0).await;
    for _ in 0..2 {
        claim_as(&*store, "w1", 1, T0).await;
        dies(&*store, "w1", T0).await;
    }
    // Both are busy with something else.
    let busy = enqueue_all(&*store, vec![job("s"); 2], T0).await;
    let mut leases = Vec::new();
    for name in ["w2", "w3"] {
        let ask = ClaimRequest { worker: w(name), ..request("s", 1, T0) };
        leases.push(store.claim(ask).await.expect("works")[0].lease);
    }
    assert_eq!(busy.len(), leases.len());
    let others = enqueue_all(&*store, vec![job("r"); 3], T0).await;
    assert_eq!(ids(&claim_as(&*store, "w2", 1, T0).await), [others[0]], "it passes the suspect by");
    // After a while the first one that comes claims nothing until its hands are empty; the other goes on.
    let late = T0 + SUSPECT_PATIENCE_MS;
    assert!(claim_as(&*store, "w2", 1, late).await.is_empty());
    assert_eq!(ids(&claim_as(&*store, "w3", 1, late).await), [others[1]]);
    assert!(claim_as(&*store, "w2", 1, late).await.is_empty());
    // The one that waits dies: then another does.
    dies(&*store, "w2", late).await;
    assert!(claim_as(&*store, "w3", 1, late).await.is_empty());
    for claimed in [leases[1]] {
        finish(&*store, claimed, Event::Complete, late).await;
    }
    let held = store.held_jobs().await.expect("can be read");
    for held in held.iter().filter(|held| held.worker == "w3") {
        let lease = Lease { job: held.job, token: 1 };
        finish(&*store, lease, Event::Complete, late).await;
    }
    assert_eq!(ids(&claim_as(&*store, "w3", 5, late).await), [suspect]);
}

pub async fn a_worker_that_lives_is_charged_no_death(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![NewJob { max_attempts: 1, ..job("r") }], T0).await[0];
    for round in 1..=10 {
        claim(&*store, "r", 1, T0).await;
        let overdue = store.overdue(T0 + LEASE).await.expect("can be read");
        assert_eq!(overdue.len(), 1);
        assert!(store.overdue(T0 + LEASE - 1).await.expect("can be read").is_empty());
        let forfeits = overdue.into_iter().map(|overdue| Forfeit { overdue, is_alive: true }).collect();
        assert_eq!(store.take_back(forfeits, T0).await.expect("works").len(), 1);
        let job = get(&*store, id).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Available, 0, 0), "round {round}");
        let attempts = store.attempts(id).await.expect("can be read");
        let last = attempts.last().expect("is written down");
        assert_eq!(last.outcome.as_deref(), Some("interrupted"));
        assert!(last.reason.as_deref().is_some_and(|why| why.contains("worker w1 lives")), "{last:?}");
    }
}

/// Held, given back without a death, and available again with all its attempts.
async fn met_no_death(store: &dyn Store, id: JobId, why: &str) {
    let job = get(store, id).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Available, 0, 0), "{:?}", job.reason);
    let attempts = store.attempts(id).await.expect("can be read");
    let last = attempts.last().expect("is written down");
    assert_eq!(last.outcome.as_deref(), Some("interrupted"));
    assert!(last.reason.as_deref().is_some_and(|said| said.contains(why)), "{last:?}");
}

pub async fn a_worker_that_left_word_is_charged_no_death(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![NewJob { max_attempts: 1, ..job("r") }], T0).await[0];
    for round in 0..10 {
        let name = format!("w{round}");
        claim_as(&*store, &name, 1, T0).await;
        store.leave_word(&w(&name));
        if round % 2 == 0 {
            dies(&*store, &name, T0).await;
        } else {
            // Seen from where nobody knows whether it runs.
            let overdue = store.overdue(T0 + LEASE).await.expect("can be read");
            let forfeits = overdue.into_iter().map(|overdue| Forfeit { overdue, is_alive: false }).collect();
            assert_eq!(store.take_back(forfeits, T0).await.expect("works").len(), 1);
        }
        met_no_death(&*store, id, &format!("worker {name} ended, and could not store")).await;
    }
    // A word is good for one end, and of nobody else's.
    claim_as(&*store, "w0", 1, T0).await;
    dies(&*store, "w0", T0).await;
    assert_eq!(get(&*store, id).await.crashes, 1);
}

pub async fn a_worker_that_leaves_gives_back_what_it_holds(store: Arc<dyn Store>) {
    let id = enqueue_all(&*store, vec![NewJob { max_attempts: 1, ..job("r") }], T0).await[0];
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let others = claim_as(&*store, "w2", 1, T0).await;
    assert!(others.is_empty());
    store.unregister_worker(w("w1"), T0).await.expect("leaves");
    met_no_death(&*store, id, "worker w1 ended").await;
    let late = store.finish(lease, ending(Event::Complete, T0), T0).await;
    assert!(matches!(late, Err(RepositoryError::LeaseLost(_))), "{late:?}");
}

pub async fn a_lease_that_was_renewed_is_not_taken(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let seen = store.overdue(T0 + LEASE).await.expect("can be read");
    store.heartbeat(w("w1"), vec![lease], T0 + 2 * LEASE, T0 + LEASE).await.expect("works");
    let forfeits: Vec<_> = seen.into_iter().map(|overdue| Forfeit { overdue, is_alive: false }).collect();
    assert!(store.take_back(forfeits.clone(), T0 + LEASE).await.expect("works").is_empty());
    assert_eq!(get(&*store, lease.job).await.state, JobState::Running);
    // Nor one that was given back and claimed again.
    finish(&*store, lease, Event::Interrupt, T0).await;
    claim(&*store, "r", 1, T0).await;
    assert!(store.take_back(forfeits, T0 + LEASE).await.expect("works").is_empty());
}
