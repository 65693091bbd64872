//! Under any sequence of claims, ends, deaths and changes of the rules, over several processes, no
//! limit is exceeded, and no job is held that may start.

use std::sync::Arc;

use super::*;
use posse_core::port::JobFilter;
use posse_core::queue::rules::{Limits, Scope};
use proptest::prelude::*;

/// Something that is done. Numbers choose among what there is.
#[derive(Debug, Clone)]
pub enum Op {
    Enqueue {
        role: usize,
        queue: usize,
        key: usize,
        count: usize,
    },
    Claim {
        process: usize,
        role: usize,
        limit: u32,
    },
    Finish {
        process: usize,
        lease: usize,
        event: Event,
    },
    /// A process dies, and another finds out.
    Kill {
        process: usize,
    },
    Limit {
        scope: usize,
        running: Option<u32>,
        per_key: Option<u32>,
        fair: bool,
    },
    Pause {
        scope: usize,
    },
    Resume {
        scope: usize,
    },
    Retry {
        job: usize,
    },
    Pass {
        ms: Millis,
    },
}

pub(super) const ROLES: [&str; 2] = ["r", "s"];
pub(super) const QUEUES: [&str; 2] = ["p", "q"];
const KEYS: [&str; 4] = ["", "", "k", "l"];

/// A rule's scope, by a number below 6.
pub(super) fn scope(number: usize) -> Scope {
    match number {
        0 => Scope::All,
        1 | 2 => Scope::Role(ROLES[number - 1].into()),
        3 | 4 => Scope::Queue(QUEUES[number - 3].into()),
        _ => Scope::Key("k".into()),
    }
}

/// Sequences of operations.
pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let endings = prop::sample::select(&Event::ALL[..]);
    let limit = || prop_oneof![1 => Just(None), 2 => (0..4_u32).prop_map(Some)];
    let op = prop_oneof![
        4 => (0..2_usize, 0..2_usize, 0..4_usize, 1..6_usize)
            .prop_map(|(role, queue, key, count)| Op::Enqueue { role, queue, key, count }),
        8 => (0..3_usize, 0..2_usize, 1..6_u32).prop_map(|(process, role, limit)| Op::Claim { process, role, limit }),
        6 => (0..3_usize, any::<usize>(), endings)
            .prop_map(|(process, lease, event)| Op::Finish { process, lease, event }),
        1 => (0..3_usize).prop_map(|process| Op::Kill { process }),
        3 => (0..6_usize, limit(), limit(), any::<bool>())
            .prop_map(|(scope, running, per_key, fair)| Op::Limit { scope, running, per_key, fair }),
        1 => (0..6_usize).prop_map(|scope| Op::Pause { scope }),
        2 => (0..6_usize).prop_map(|scope| Op::Resume { scope }),
        1 => any::<usize>().prop_map(|job| Op::Retry { job }),
        2 => (0..40_000_i64).prop_map(|ms| Op::Pass { ms }),
    ];
    prop::collection::vec(op, 1..60)
}

/// Does `ops`, and looks after each claim whether it gave what it may and nothing else.
pub async fn holds(stores: [Arc<dyn Store>; 3], ops: Vec<Op>) {
    let mut now = T0;
    let mut leases: Vec<Lease> = Vec::new();
    let mut jobs: Vec<JobId> = Vec::new();
    for op in ops {
        match op {
            Op::Pass { ms } => now += ms,
            Op::Enqueue { role, queue, key, count } => {
                let new =
                    NewJob { role: ROLES[role].into(), max_crashes: 1, ..ruling::queued(QUEUES[queue], KEYS[key]) };
                jobs.extend(enqueue_all(&*stores[0], vec![new; count], now).await);
            }
            Op::Claim { process, role, limit } => {
                let worker = WorkerId(format!("w{process}"));
                let ask = ClaimRequest { worker, ..request(ROLES[role], limit, now) };
                let got = stores[process].claim(ask).await.expect("works");
                leases.extend(got.iter().map(|claimed| claimed.lease));
                check(&*stores[0], ROLES[role], limit, &got).await;
            }
            Op::Finish { process, lease, event } => {
                let Some(lease) = leases.get(lease % leases.len().max(1)).copied() else { continue };
                // Most leases are lost, and not every event is legal.
                let _ = stores[process].finish(lease, ending(event, now + 5000), now).await;
            }
            Op::Kill { process } => {
                let dead = vec![WorkerId(format!("w{process}"))];
                stores[(process + 1) % 3].rescue(dead, now).await.expect("works");
            }
            Op::Limit { scope: number, running, per_key, fair } => {
                let running_per_key = per_key.filter(|_| number != 5);
                let limits = Limits { running, running_per_key, per_minute: None, fair: fair && number != 5 };
                stores[1].set_limits(scope(number), limits, now).await.expect("is set");
            }
            Op::Pause { scope: number } => drop(stores[2].pause(scope(number), now).await.expect("is paused")),
            Op::Resume { scope: number } => drop(stores[0].resume(scope(number)).await.expect("is resumed")),
            Op::Retry { job } => {
                if let Some(job) = jobs.get(job % jobs.len().max(1)) {
                    let _ = stores[0].retry(*job, now).await;
                }
            }
        }
    }
}

fn is_of(job: &Job, scope: &Scope) -> bool {
    match scope {
        Scope::All => true,
        Scope::Role(name) => job.role == *name,
        Scope::Queue(name) => job.queue == *name,
        Scope::Key(name) => job.concurrency_key.as_deref() == Some(name),
    }
}

async fn check(store: &dyn Store, role: &str, limit: u32, got: &[Claimed]) {
    let all = store.jobs(JobFilter { limit: 10_000, ..JobFilter::default() }).await.expect("can be read");
    let rules = store.rules().await.expect("can be read");
    let running: Vec<_> = all.iter().filter(|job| job.state == JobState::Running).collect();
    // How far a job is within a rule, with what runs now.
    let room = |job: &Job, rule: &posse_core::queue::rules::Rule| {
        let beside: Vec<_> = running.iter().filter(|other| is_of(other, &rule.scope)).collect();
        let same_key = beside.iter().filter(|other| other.concurrency_key == job.concurrency_key).count();
        let left = |limit: Option<u32>, count: usize| limit.map_or(i64::MAX, |limit| i64::from(limit) - count as i64);
        let per_key = rule.limits.running_per_key.filter(|_| job.concurrency_key.is_some());
        left(rule.limits.running, beside.len()).min(left(per_key, same_key))
    };
    for job in got.iter().map(|claimed| &claimed.job) {
        for rule in rules.iter().filter(|rule| is_of(job, &rule.scope)) {
            assert!(room(job, rule) >= 0, "job {} exceeds {rule:?}", job.id);
            assert!(rule.paused_at.is_none(), "job {} is paused by {rule:?}", job.id);
        }
    }
    if got.len() < limit as usize {
        for job in all.iter().filter(|job| job.state == JobState::Available && job.role == role) {
            let of_job = || rules.iter().filter(|rule| is_of(job, &rule.scope));
            let is_held = of_job().any(|rule| rule.paused_at.is_some() || room(job, rule) <= 0);
            assert!(is_held, "job {} may start and does not: {rules:?}", job.id);
        }
    }
}
