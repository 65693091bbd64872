//! Random jobs that wait for each other, to their ends.

use std::collections::HashMap;
use std::sync::Arc;

use super::waiting::{after, one};
use super::*;
use posse_core::job::dependency::{Meaning, OnFailed, meaning};
use proptest::prelude::*;

/// What a job of the property test is made of, and how its attempts end.
#[derive(Debug, Clone)]
pub struct Node {
    after: Vec<usize>,
    rule: OnFailed,
    delay: Millis,
    ends: Vec<Event>,
    children: usize,
}

/// Random jobs that wait for earlier ones, and orders in which things happen to them.
pub fn plans() -> impl Strategy<Value = (Vec<Node>, Vec<(u8, usize)>)> {
    let end = prop::sample::select(vec![
        Event::Complete,
        Event::Complete,
        Event::GiveUp,
        Event::Fail,
        Event::Interrupt,
        Event::Snooze,
        Event::LeaseExpired,
    ]);
    let node = (
        prop::collection::vec(any::<usize>(), 0..4),
        prop::sample::select(&OnFailed::ALL[..]),
        prop_oneof![3 => Just(0), 1 => 1..5_000_i64],
        prop::collection::vec(end, 1..4),
        prop_oneof![4 => Just(0_usize), 1 => 1..3_usize],
    )
        .prop_map(|(after, rule, delay, ends, children)| Node { after, rule, delay, ends, children });
    (prop::collection::vec(node, 1..14), prop::collection::vec((0..8_u8, any::<usize>()), 0..60))
}

/// Whatever jobs wait for each other and however they end: none runs too early, and in the end each
/// has ended, or waits by its own rule for one that failed, and says so.
pub async fn every_job_ends_or_is_explained(store: Arc<dyn Store>, nodes: Vec<Node>, order: Vec<(u8, usize)>) {
    let mut fleet = Driven { store: &*store, now: T0, held: Vec::new(), ends: HashMap::new(), by_hand: Vec::new() };
    let mut ids: Vec<JobId> = Vec::new();
    for node in &nodes {
        let mut others: Vec<_> = node.after.iter().filter_map(|n| ids.get(n % ids.len().max(1)).copied()).collect();
        others.dedup();
        let new = NewJob { run_at: Some(T0 + node.delay), max_attempts: 2, ..after(&others, node.rule) };
        let id = one(&*store, new).await;
        fleet.ends.insert(id, (node.ends.clone(), node.children));
        ids.push(id);
        if let Some((what, which)) = order.get(ids.len()) {
            fleet.happen(*what, ids[which % ids.len()]).await;
        }
    }
    for (what, which) in order {
        fleet.happen(what, ids[which % ids.len()]).await;
    }
    fleet.drain().await;
    for id in &ids {
        let is = get(&*store, *id).await;
        if is.state.is_final() {
            continue;
        }
        assert_eq!(is.state, JobState::Suspended, "job {id} is stuck: {is:?}");
        let dependencies = store.dependencies(*id).await.expect("can be read");
        let open: Vec<_> = dependencies.iter().filter(|dependency| dependency.open).collect();
        assert!(!open.is_empty(), "job {id} is stuck");
        for dependency in open {
            let on = dependency.state.expect("nothing was deleted");
            let waits_itself = on == JobState::Suspended;
            assert!(waits_itself || (on.is_final() && dependency.on_failed == OnFailed::Wait), "{dependency:?}");
        }
        assert!(is.reason.is_some_and(|reason| reason.starts_with("waits for job")));
    }
    // The way out: what failed runs again, and now it works.
    fleet.ends.clear();
    for _ in 0..ids.len() {
        for id in &ids {
            if matches!(get(&*store, *id).await.state, JobState::Cancelled | JobState::Discarded) {
                store.retry(*id, fleet.now).await.expect("runs again");
                fleet.by_hand.push(*id);
            }
        }
        fleet.drain().await;
    }
    for id in ids {
        assert_eq!(get(&*store, id).await.state, JobState::Completed, "job {id} ends at last");
    }
}

struct Driven<'a> {
    store: &'a dyn Store,
    now: Millis,
    held: Vec<Claimed>,
    ends: HashMap<JobId, (Vec<Event>, usize)>,
    /// Jobs that a person re-ran: they wait for nothing.
    by_hand: Vec<JobId>,
}

impl Driven<'_> {
    async fn happen(&mut self, what: u8, which: JobId) {
        match what {
            0..=2 => self.claim(1).await,
            3..=5 => self.end(which.0 as usize).await,
            6 => drop(self.store.cancel(which, "enough".into(), self.now).await.expect("works")),
            _ => {
                if self.store.retry(which, self.now).await.is_ok() {
                    self.by_hand.push(which);
                }
            }
        }
    }

    async fn claim(&mut self, limit: u32) {
        for claimed in claim(self.store, "r", limit, self.now).await {
            for dependency in self.store.dependencies(claimed.job.id).await.expect("can be read") {
                let state = dependency.state.expect("is there");
                // It may have been re-run since it ended.
                let may = !dependency.open
                    && (meaning(state, dependency.on_failed) == Meaning::Met
                        || self.by_hand.contains(&claimed.job.id)
                        || self.by_hand.contains(&dependency.on));
                assert!(may, "job {} runs too early: {dependency:?}", claimed.job.id);
            }
            self.held.push(claimed);
        }
    }

    async fn end(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let Claimed { job: held, lease } = self.held.swap_remove(which % self.held.len());
        let (ends, children) = self.ends.entry(held.id).or_default();
        let children = std::mem::take(children);
        let event = if children > 0 { Event::Suspend } else { ends.pop().unwrap_or(Event::Complete) };
        if event == Event::LeaseExpired {
            self.now += LEASE + 1;
            self.store.rescue(Vec::new(), self.now).await.expect("works");
            self.held.clear();
            return;
        }
        let made = vec![NewJob { max_attempts: 1, ..job("r") }; children];
        let end = Ending { children: made, ..ending(event, self.now + 10) };
        self.store.finish(lease, end, self.now).await.expect("the lease stands");
    }

    async fn drain(&mut self) {
        loop {
            while !self.held.is_empty() {
                self.end(0).await;
            }
            self.claim(50).await;
            if self.held.is_empty() {
                match self.store.next_deadline(self.now).await.expect("can be read") {
                    Some(at) if at > self.now => self.now = at,
                    _ => return,
                }
            }
        }
    }
}
