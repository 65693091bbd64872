//! Any sequence of operations on jobs that belong together, under rules that change: unique keys,
//! dependencies, children, groups, limits, pauses, retention by queue, snoozes, retries by hand, edits, deletions. The
//! repository, the core's state machine and a model as simple as it can be agree after each.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::limited::{QUEUES, ROLES, scope};
use super::*;
use posse_core::job::change::{Change, Edit};
use posse_core::job::dependency::{After, OnFailed};
use posse_core::job::{IfHeld, Unique};
use posse_core::port::{JobFilter, Reach};
use posse_core::queue::QueueChange;
use posse_core::queue::retention::Kept;
use posse_core::queue::rules::{Limits, Scope};
use proptest::prelude::*;
use simple::Simple;

mod simple;

const KEYS: [Option<&str>; 4] = [None, None, Some("k"), Some("l")];
const GROUPS: [Option<&str>; 3] = [None, Some("g"), Some("h")];

/// A job to be made. Numbers choose among what there is.
#[derive(Debug, Clone)]
pub struct Spec {
    role: usize,
    queue: usize,
    key: usize,
    group: usize,
    priority: u8,
    delay: Millis,
    max_attempts: u32,
    unique: Option<(u8, Option<Millis>, IfHeld)>,
    after: Vec<usize>,
    after_group: Option<usize>,
    /// It also waits for the one before it in its batch.
    follows: bool,
    on_failed: OnFailed,
}

/// Something that is done.
#[derive(Debug, Clone)]
pub enum Op {
    Enqueue { jobs: Vec<Spec> },
    Claim { worker: usize, role: usize, limit: u32 },
    Finish { lease: usize, event: Event, delay: Millis, children: Vec<Spec> },
    Rescue { dead: Option<usize> },
    Cancel { job: usize, reach: Reach },
    Retry { job: usize },
    Edit { job: usize, queue: usize, priority: u8, delay: Option<Millis> },
    Delete { job: usize },
    Keep { queue: usize, kind: usize, keep: Option<Option<Millis>> },
    Prune { keep: Millis },
    Limit { scope: usize, limits: Limits },
    Pause { scope: usize },
    Resume { scope: usize },
    Pass { ms: Millis },
}

fn specs(most: usize) -> impl Strategy<Value = Vec<Spec>> {
    let rule = prop::sample::select(&OnFailed::ALL[..]);
    let debounce = prop::option::of(1..90_000_i64).prop_map(|at_most_ms| IfHeld::Debounce { at_most_ms });
    let if_held = prop_oneof![2 => Just(IfHeld::Keep), 1 => Just(IfHeld::Replace), 1 => debounce];
    let unique = prop_oneof![
        2 => Just(None),
        1 => (0..3_u8, prop::option::of(1..90_000_i64), if_held).prop_map(Some),
    ];
    let delay = prop_oneof![3 => Just(0), 1 => 1..60_000_i64];
    let after = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any::<usize>(), 1..3)];
    let after_group = prop::option::weighted(0.15, 1..3_usize);
    let place = (0..2_usize, 0..2_usize, 0..4_usize, 0..3_usize, 1..=9_u8);
    let spec = (place, delay, 1..3_u32, unique, (after, after_group), prop::bool::weighted(0.2), rule).prop_map(
        |(
            (role, queue, key, group, priority),
            delay,
            max_attempts,
            unique,
            (after, after_group),
            follows,
            on_failed,
        )| Spec {
            role,
            queue,
            key,
            group,
            priority,
            delay,
            max_attempts,
            unique,
            after,
            after_group: after_group.filter(|named| *named != group),
            follows,
            on_failed,
        },
    );
    prop::collection::vec(spec, 1..most)
}

/// Sequences of operations.
pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Most attempts complete, some make children.
    let event = prop_oneof![
        3 => Just(Event::Complete),
        2 => Just(Event::Suspend),
        3 => prop::sample::select(&Event::ALL[..]),
    ];
    let children = prop_oneof![1 => Just(Vec::new()), 1 => specs(4)];
    let limit = || prop_oneof![2 => Just(None), 2 => (0..4_u32).prop_map(Some)];
    let rate = prop_oneof![3 => Just(None), 1 => (1..200_u32).prop_map(Some)];
    let reach = prop::sample::select(vec![Reach::Alone, Reach::Beneath, Reach::Tree]);
    let limits = (limit(), limit(), rate, any::<bool>())
        .prop_map(|(running, running_per_key, per_minute, fair)| Limits { running, running_per_key, per_minute, fair });
    let op = prop_oneof![
        5 => specs(5).prop_map(|jobs| Op::Enqueue { jobs }),
        8 => (0..3_usize, 0..2_usize, 1..6_u32).prop_map(|(worker, role, limit)| Op::Claim { worker, role, limit }),
        9 => (any::<usize>(), event, 1..60_000_i64, children)
            .prop_map(|(lease, event, delay, children)| Op::Finish { lease, event, delay, children }),
        2 => prop::option::of(0..3_usize).prop_map(|dead| Op::Rescue { dead }),
        3 => (any::<usize>(), reach).prop_map(|(job, reach)| Op::Cancel { job, reach }),
        4 => any::<usize>().prop_map(|job| Op::Retry { job }),
        2 => (any::<usize>(), 0..2_usize, 1..=9_u8, prop::option::of(-9..60_000_i64))
            .prop_map(|(job, queue, priority, delay)| Op::Edit { job, queue, priority, delay }),
        1 => any::<usize>().prop_map(|job| Op::Delete { job }),
        1 => (0..2_usize, 0..3_usize, prop::option::of(prop::option::of(0..90_000_i64)))
            .prop_map(|(queue, kind, keep)| Op::Keep { queue, kind, keep }),
        1 => (0..90_000_i64).prop_map(|keep| Op::Prune { keep }),
        1 => (0..6_usize, limits).prop_map(|(scope, limits)| Op::Limit { scope, limits }),
        1 => (0..6_usize).prop_map(|scope| Op::Pause { scope }),
        2 => (0..6_usize).prop_map(|scope| Op::Resume { scope }),
        4 => (0..40_000_i64).prop_map(|ms| Op::Pass { ms }),
    ];
    prop::collection::vec(op, 1..90)
}

/// Does `ops` to the store and to the model, and compares them after each.
pub async fn agree(store: Arc<dyn Store>, ops: Vec<Op>) {
    let mut both = Both { store: &*store, simple: Simple::default(), leases: Vec::new(), now: T0 };
    for op in ops {
        both.apply(&op).await;
        both.compare(&op).await;
    }
}

struct Both<'a> {
    store: &'a dyn Store,
    simple: Simple,
    /// All there ever were.
    leases: Vec<Lease>,
    now: Millis,
}

impl Both<'_> {
    /// The jobs that are there, by id.
    fn ids(&self) -> Vec<JobId> {
        self.simple.there().map(|job| job.id).collect()
    }

    fn pick(&self, number: usize) -> Option<JobId> {
        let ids = self.ids();
        ids.get(number % ids.len().max(1)).copied()
    }

    fn news(&self, specs: &[Spec]) -> Vec<NewJob> {
        let new = |(place, spec): (usize, &Spec)| {
            let before = (spec.follows && place > 0).then(|| After::Earlier(place - 1));
            let named = spec.after.iter().filter_map(|number| self.pick(*number)).map(After::Job);
            NewJob {
                role: ROLES[spec.role].into(),
                queue: QUEUES[spec.queue].into(),
                concurrency_key: KEYS[spec.key].map(Into::into),
                group: GROUPS[spec.group].map(Into::into),
                priority: spec.priority,
                run_at: (spec.delay > 0).then_some(self.now + spec.delay),
                max_attempts: spec.max_attempts,
                // A death without progress ends it, so that nobody comes to be suspected: see `model` for those.
                max_crashes: 1,
                unique: spec.unique.map(|(key, for_ms, if_held)| Unique { key: format!("u{key}"), for_ms, if_held }),
                after: named.chain(before).collect(),
                after_groups: spec.after_group.and_then(|group| GROUPS[group]).map(Into::into).into_iter().collect(),
                on_failed: spec.on_failed,
                ..NewJob::default()
            }
        };
        specs.iter().enumerate().map(new).collect()
    }

    async fn apply(&mut self, op: &Op) {
        let (store, now) = (self.store, self.now);
        match op {
            Op::Pass { ms } => self.now += ms,
            Op::Enqueue { jobs } => {
                let new = self.news(jobs);
                let got = store.enqueue(new.clone(), now).await;
                let before = self.simple.clone();
                if let Some(want) = self.simple.enqueue(&new, None, now) {
                    assert_eq!(got.expect("is stored"), want, "{op:?}");
                } else {
                    assert!(
                        matches!(got, Err(RepositoryError::Refused(_) | RepositoryError::EmptyGroup(_))),
                        "{got:?}: {op:?}"
                    );
                    self.simple = before;
                }
            }
            &Op::Claim { worker, role, limit } => {
                let worker = format!("w{worker}");
                let ask = ClaimRequest { worker: WorkerId(worker.clone()), ..request(ROLES[role], limit, now) };
                let got = store.claim(ask).await.expect("works");
                let want = self.simple.claim(&worker, ROLES[role], limit as usize, now + LEASE, now);
                assert_eq!(got.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), want, "{op:?}");
                self.leases.extend(got.into_iter().map(|claimed| claimed.lease));
            }
            Op::Finish { lease, event, delay, children } => self.finish(*lease, *event, *delay, children).await,
            Op::Rescue { dead } => {
                let dead = dead.map(|worker| format!("w{worker}"));
                let gone = dead.iter().map(|worker| WorkerId(worker.clone())).collect();
                self.get_further().await;
                let got = store.rescue(gone, now).await.expect("works");
                let got: Vec<_> = got.into_iter().map(|rescued| rescued.job).collect();
                assert_eq!(got, self.simple.rescue(dead.as_deref(), now), "{op:?}");
            }
            Op::Limit { scope: number, limits } => {
                let (scope, mut limits) = (scope(*number), *limits);
                if matches!(scope, Scope::Key(_)) {
                    (limits.running_per_key, limits.fair) = (None, false);
                }
                store.set_limits(scope.clone(), limits, now).await.expect("is set");
                self.simple.limit(scope, limits);
            }
            Op::Pause { scope: number } => {
                let is_new = store.pause(scope(*number), now).await.expect("is paused");
                let rule = self.simple.rules.entry(scope(*number)).or_default();
                assert_eq!(is_new, !std::mem::replace(&mut rule.paused, true), "{op:?}");
            }
            Op::Resume { scope: number } => {
                let was = store.resume(scope(*number)).await.expect("is resumed");
                let rule = self.simple.rules.entry(scope(*number)).or_default();
                assert_eq!(was, std::mem::take(&mut rule.paused), "{op:?}");
            }
            &Op::Keep { queue, kind, keep } => {
                let (kept, state) = [
                    (Kept::Completed, JobState::Completed),
                    (Kept::Cancelled, JobState::Cancelled),
                    (Kept::Discarded, JobState::Discarded),
                ][kind];
                let change = QueueChange { keep: vec![(kept, keep)], ..QueueChange::default() };
                store.change_queue(QUEUES[queue].into(), change, now).await.expect("is changed");
                self.simple.keep.insert((QUEUES[queue], state.as_str()), keep);
            }
            Op::Prune { keep } => {
                let cutoffs = JobState::ALL.into_iter().filter(|state| state.is_final());
                let cutoffs: Vec<_> = cutoffs.map(|state| (state, now - keep)).collect();
                super::care::keep(store, &cutoffs, now).await;
                let has_any = store.has_prunable(now).await.expect("can be read");
                let mut got = 0;
                loop {
                    let pruned = store.prune(now).await.expect("works");
                    got += pruned.jobs;
                    if !pruned.more {
                        break;
                    }
                }
                assert_eq!(has_any, got > 0, "{op:?}");
                assert_eq!(got, self.simple.prune(*keep, now), "{op:?}");
            }
            Op::Cancel { job, .. } | Op::Retry { job } | Op::Edit { job, .. } | Op::Delete { job } => {
                if let Some(id) = self.pick(*job) {
                    self.by_hand(op, id).await;
                }
            }
        }
    }

    /// Every other running job gets further, which makes of its worker's death one that does not count.
    async fn get_further(&self) {
        let running = self.simple.there().filter(|job| job.lease.is_some() && job.id.0 % 2 == 0);
        let leases: Vec<_> = running.map(|job| Lease { job: job.id, token: job.token }).collect();
        for lease in leases {
            let seq = self.store.journal(lease.job, 0).await.expect("can be read").len() as u64;
            self.store.append(lease, seq, vec![note("n"), note("n")], self.now).await.expect("is saved");
        }
    }

    async fn by_hand(&mut self, op: &Op, id: JobId) {
        let (store, now) = (self.store, self.now);
        let change = |change| async move {
            let changed = store.change(vec![id], change, now).await.expect("works");
            changed[0].refused.is_none()
        };
        match op {
            Op::Cancel { reach, .. } => {
                let got = store.cancel_within(id, *reach, "enough".into(), now).await.expect("works");
                assert_eq!(got[0].0, id, "the one that was named comes first");
                let got: BTreeMap<_, _> = got.into_iter().collect();
                let want = self.simple.cancel_within(id, *reach, now);
                assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{op:?}");
                assert_eq!(got[&id], want[&id], "{op:?}");
            }
            Op::Retry { .. } => match (store.retry(id, now).await, self.simple.retry(id, now)) {
                (Err(RepositoryError::KeyHeld { holder, .. }), Err(Some(other))) => assert_eq!(holder, other),
                (Err(RepositoryError::Illegal(_)), Err(None)) | (Ok(()), Ok(())) => {}
                (got, want) => panic!("{got:?} rather than {want:?}: {op:?}"),
            },
            Op::Edit { queue, priority, delay, .. } => {
                let (queue, priority) = (QUEUES[*queue], *priority);
                let run_at = delay.map(|delay| now + delay);
                let edit = Edit { queue: Some(queue.into()), priority: Some(priority), run_at, ..Edit::default() };
                let could = self.simple.edit(id, queue, priority, run_at, now);
                assert_eq!(change(Change::Edit(edit)).await, could, "{op:?}");
            }
            Op::Delete { .. } => assert_eq!(change(Change::Delete).await, self.simple.delete(id), "{op:?}"),
            _ => unreachable!("is not done by hand"),
        }
    }

    async fn finish(&mut self, lease: usize, event: Event, delay: Millis, children: &[Spec]) {
        // Those that stand first, so that not nearly all are lost.
        let stands = |lease: &&Lease| {
            let job = self.simple.job(lease.job);
            job.lease.is_some() && job.token == lease.token
        };
        let standing: Vec<_> = self.leases.iter().filter(stands).copied().collect();
        let among = if lease.is_multiple_of(5) || standing.is_empty() { &self.leases } else { &standing };
        let Some(lease) = among.get(lease % among.len().max(1)).copied() else { return };
        let (is_standing, now) = (standing.contains(&lease), self.now);
        let children = if event == Event::Suspend { self.news(children) } else { Vec::new() };
        let end = Ending { children: children.clone(), ..ending(event, now + delay) };
        let got = self.store.finish(lease, end, now).await;
        if !is_standing {
            assert!(is_lost(got, lease.job), "an end by a lease that is lost");
            return;
        }
        let before = self.simple.clone();
        match self.simple.finish(lease.job, event, now + delay, &children, now) {
            Ok(Some(state)) => assert_eq!(got.expect("is legal"), state, "job {} after {event:?}", lease.job),
            Ok(None) => assert!(matches!(got, Err(RepositoryError::Illegal(_))), "{got:?}"),
            Err(simple::WaitsForItself) => {
                assert!(matches!(got, Err(RepositoryError::Refused(_) | RepositoryError::EmptyGroup(_))), "{got:?}");
                self.simple = before;
            }
        }
    }

    async fn compare(&self, op: &Op) {
        let filter = JobFilter { limit: 10_000, ..JobFilter::default() };
        let mut stored = self.store.jobs(filter).await.expect("can be read");
        stored.reverse();
        assert_eq!(stored.iter().map(|job| job.id).collect::<Vec<_>>(), self.ids(), "after {op:?}");
        for (job, want) in stored.iter().zip(self.simple.there()) {
            let about = format!("job {} after {op:?}", job.id);
            let is = (job.state, job.attempt, job.crashes, job.cancel_requested, job.run_at);
            let should = want.standing;
            let should = (should.state, should.attempt, should.crashes, should.cancel_requested, should.run_at);
            assert_eq!(is, should, "{about}");
            assert_eq!(job.leased_by.clone().zip(job.lease_until), want.lease, "{about}");
            assert_eq!((job.finalized_at, job.parent), (want.ended_at, want.parent), "{about}");
            assert_eq!((&job.queue, job.priority), (&want.new.queue, want.new.priority), "{about}");
            let dependencies = self.store.dependencies(job.id).await.expect("can be read");
            let dependencies: BTreeMap<_, _> =
                dependencies.into_iter().map(|d| (d.on, (d.on_failed, d.open))).collect();
            assert_eq!(dependencies, want.waits, "{about}");
            if job.state == JobState::Available {
                let held = self.store.held(job.id, self.now).await.expect("can be read");
                assert_eq!(held.is_none(), self.simple.may_start(job.id, self.now), "{about}: {held:?}");
            }
        }
        let groups = self.store.groups().await.expect("can be read");
        let states = |states: Vec<(JobState, u64)>| states.into_iter().map(|(s, n)| (s.as_str(), n)).collect();
        let groups: BTreeMap<_, BTreeMap<_, _>> =
            groups.into_iter().map(|group| (group.group, states(group.states))).collect();
        assert_eq!(groups, self.simple.groups(), "after {op:?}");
    }
}
