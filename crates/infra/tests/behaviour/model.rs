//! Any sequence of operations leaves the jobs where the core's transition function puts them.

use std::sync::Arc;

use super::*;
use posse_core::job::transition::{Standing, transition};
use posse_core::job::{DEFAULT_PRIORITY_STEP_MS, rank};
use posse_core::port::Cancelled;
use proptest::prelude::*;

/// Something that is done to a repository. Numbers choose among what there is.
#[derive(Debug, Clone)]
pub enum Op {
    Enqueue { priority: u8, delay: Millis, max_attempts: u32 },
    Claim { limit: u32, worker: usize },
    Finish { lease: usize, event: Event, delay: Millis },
    Heartbeat { worker: usize },
    Rescue { dead: Option<usize> },
    Cancel { job: usize },
    Retry { job: usize },
    Pass { ms: Millis },
}

/// Sequences of operations.
pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let endings = prop::sample::select(&Event::ALL[..]);
    let op = prop_oneof![
        3 => (1..=9_u8, prop_oneof![Just(0), 0..60_000_i64], 1..4_u32)
            .prop_map(|(priority, delay, max_attempts)| Op::Enqueue { priority, delay, max_attempts }),
        4 => (1..4_u32, 0..3_usize).prop_map(|(limit, worker)| Op::Claim { limit, worker }),
        6 => (any::<usize>(), endings, 1..60_000_i64)
            .prop_map(|(lease, event, delay)| Op::Finish { lease, event, delay }),
        1 => (0..3_usize).prop_map(|worker| Op::Heartbeat { worker }),
        2 => prop::option::of(0..3_usize).prop_map(|dead| Op::Rescue { dead }),
        2 => any::<usize>().prop_map(|job| Op::Cancel { job }),
        1 => any::<usize>().prop_map(|job| Op::Retry { job }),
        3 => (0..40_000_i64).prop_map(|ms| Op::Pass { ms }),
    ];
    prop::collection::vec(op, 1..80)
}

#[derive(Debug)]
struct Modelled {
    id: JobId,
    priority: u8,
    standing: Standing,
    token: i64,
    lease: Option<(String, Millis)>,
}

/// Moves a job by the rules; whether it could.
fn step(job: &mut Modelled, event: Event, at: Millis) -> bool {
    let Ok(change) = transition(job.standing, event, at) else { return false };
    job.standing = change.to;
    if change.frees_lease {
        job.lease = None;
    }
    true
}

/// Does `ops` to the store and to the model, and compares them after each.
pub async fn agrees(store: Arc<dyn Store>, ops: Vec<Op>) {
    let mut jobs: Vec<Modelled> = Vec::new();
    let mut leases: Vec<Lease> = Vec::new();
    let mut now = T0;
    for op in ops {
        apply(&*store, &mut jobs, &mut leases, &mut now, &op).await;
        for job in &jobs {
            let stored = get(&*store, job.id).await;
            let standing = Standing {
                state: stored.state,
                attempt: stored.attempt,
                max_attempts: stored.max_attempts,
                crashes: stored.crashes,
                cancel_requested: stored.cancel_requested,
                run_at: stored.run_at,
            };
            assert_eq!(standing, job.standing, "job {} after {op:?}", job.id);
            assert_eq!(stored.leased_by.zip(stored.lease_until), job.lease, "job {} after {op:?}", job.id);
        }
    }
}

async fn apply(store: &dyn Store, jobs: &mut Vec<Modelled>, leases: &mut Vec<Lease>, now: &mut Millis, op: &Op) {
    let now = match op {
        Op::Pass { ms } => {
            *now += ms;
            return;
        }
        _ => *now,
    };
    match *op {
        Op::Pass { .. } => {}
        Op::Enqueue { priority, delay, max_attempts } => {
            let run_at = now + delay;
            let new = NewJob { priority, run_at: Some(run_at), max_attempts, ..job("r") };
            let id = enqueue_all(store, vec![new], now).await[0];
            let state = if delay > 0 { JobState::Scheduled } else { JobState::Available };
            let standing = Standing { state, attempt: 0, max_attempts, crashes: 0, cancel_requested: false, run_at };
            jobs.push(Modelled { id, priority, standing, token: 0, lease: None });
        }
        Op::Claim { limit, worker } => {
            let worker = format!("w{worker}");
            let ask = ClaimRequest { worker: WorkerId(worker.clone()), ..request("r", limit, now) };
            let got = store.claim(ask).await.expect("a claim works");
            for job in jobs.iter_mut().filter(|job| job.standing.run_at <= now) {
                step(job, Event::Due, now);
            }
            let mut due: Vec<_> = jobs.iter_mut().filter(|job| job.standing.state == JobState::Available).collect();
            due.sort_by_key(|job| (rank(job.standing.run_at, job.priority, DEFAULT_PRIORITY_STEP_MS), job.id));
            due.truncate(limit as usize);
            let want: Vec<_> = due.iter().map(|job| job.id).collect();
            assert_eq!(got.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), want);
            for (job, claimed) in due.into_iter().zip(got) {
                assert!(step(job, Event::Claim, now));
                assert!(claimed.lease.token > job.token, "tokens rise");
                job.token = claimed.lease.token;
                job.lease = Some((worker.clone(), now + LEASE));
                leases.push(claimed.lease);
            }
        }
        Op::Finish { lease, event, delay } => {
            // Any lease there ever was: most are lost.
            let Some(lease) = leases.get(lease % leases.len().max(1)).copied() else { return };
            let got = store.finish(lease, ending(event, now + delay), now).await;
            let job = jobs.iter_mut().find(|job| job.id == lease.job).expect("is modelled");
            if job.lease.is_none() || job.token != lease.token {
                assert!(is_lost(got, job.id));
                return;
            }
            let at = if matches!(event, Event::Fail | Event::Snooze) { now + delay } else { now };
            if !step(job, event, at) {
                assert!(matches!(got, Err(RepositoryError::Illegal(_))), "{got:?}");
                return;
            }
            if job.standing.state == JobState::Running {
                step(job, event, at);
            }
            assert_eq!(got.expect("is legal"), job.standing.state);
        }
        Op::Heartbeat { worker } => {
            let name = format!("w{worker}");
            let heard = store.heartbeat(WorkerId(name), leases.clone(), now + LEASE, now).await.expect("works");
            let mut lost = Vec::new();
            for lease in leases.iter() {
                let job = jobs.iter_mut().find(|job| job.id == lease.job).expect("is modelled");
                match &mut job.lease {
                    Some((_, until)) if job.token == lease.token => *until = now + LEASE,
                    _ => lost.push(job.id),
                }
            }
            assert_eq!(heard.lost, lost);
        }
        Op::Rescue { dead } => {
            let dead = dead.map(|worker| format!("w{worker}"));
            let gone = dead.iter().map(|worker| WorkerId(worker.clone())).collect();
            let mut got: Vec<_> = store.rescue(gone, now).await.expect("works").into_iter().map(|r| r.job).collect();
            let mut want = Vec::new();
            for job in jobs.iter_mut() {
                if job.lease.as_ref().is_some_and(|(worker, until)| *until <= now || Some(worker) == dead.as_ref()) {
                    assert!(step(job, Event::LeaseExpired, now));
                    want.push(job.id);
                }
            }
            got.sort();
            assert_eq!(got, want);
        }
        Op::Cancel { job } => {
            let count = jobs.len();
            let Some(job) = jobs.get_mut(job % count.max(1)) else { return };
            let got = store.cancel(job.id, "enough".into(), now).await.expect("works");
            let want = match job.standing.state {
                JobState::Cancelled => Cancelled::Already,
                state if state.is_final() => Cancelled::TooLate(state),
                JobState::Running => {
                    job.standing.cancel_requested = true;
                    Cancelled::Requested
                }
                _ => {
                    assert!(step(job, Event::Cancel, now));
                    Cancelled::Now
                }
            };
            assert_eq!(got, want);
        }
        Op::Retry { job } => {
            let count = jobs.len();
            let Some(job) = jobs.get_mut(job % count.max(1)) else { return };
            assert_eq!(store.retry(job.id, now).await.is_ok(), step(job, Event::Retry, now));
        }
    }
}
