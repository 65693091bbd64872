//! Which jobs may start in the simple model, and whose key is next.

use std::collections::BTreeMap;

use posse_core::clock::Millis;
use posse_core::job::transition::Event;
use posse_core::job::{JobId, JobState};
use posse_core::queue::rate::Bucket;
use posse_core::queue::rules::{Limits, Scope};

use super::{Job, Rule, Simple};

impl Simple {
    /// Whether a job stands in the way of nothing but its key's place in the rotation.
    pub fn may_start(&self, id: JobId, now: Millis) -> bool {
        let job = self.job(id);
        let running = |scope: &Scope| {
            let running = self.there().filter(|job| job.standing.state == JobState::Running);
            running.filter(|job| is_of(job, scope)).collect::<Vec<_>>()
        };
        self.rules.iter().filter(|(scope, _)| is_of(job, scope)).all(|(scope, rule)| {
            let beside = running(scope);
            let key = &job.new.concurrency_key;
            let same_key = beside.iter().filter(|other| other.new.concurrency_key == *key).count();
            let below = |limit: Option<u32>, count: usize| limit.is_none_or(|limit| count < limit as usize);
            !rule.paused
                && below(rule.limits.running, beside.len())
                && below(rule.limits.running_per_key.filter(|_| key.is_some()), same_key)
                && rule.bucket().is_none_or(|bucket| bucket.wait_ms(1, now) == 0)
        })
    }

    /// The jobs that a claim takes, in their order.
    pub fn claim(&mut self, worker: &str, role: &str, limit: usize, lease_until: Millis, now: Millis) -> Vec<JobId> {
        let due: Vec<_> = self.there().filter(|job| job.standing.run_at <= now).map(|job| job.id).collect();
        for id in due {
            self.step(id, Event::Due, now, now);
        }
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some((id, scope)) = self.next(role, now)
        {
            assert!(self.step(id, Event::Claim, now, now));
            let job = self.job_mut(id);
            job.token += 1;
            job.lease = Some((worker.into(), lease_until));
            let job = job.clone();
            for (_, rule) in self.rules.iter_mut().filter(|(scope, _)| is_of(&job, scope)) {
                if let Some(mut bucket) = rule.bucket() {
                    bucket.take(1, now);
                    rule.full_at_us = bucket.full_at_us;
                }
            }
            if let Some(scope) = scope {
                self.last_served.insert((role.into(), scope), lane(&job));
            }
            taken.push(id);
        }
        taken
    }

    /// The job that is next to start, and, if that is because its key is next, in which queue (empty for
    /// all).
    fn next(&self, role: &str, now: Millis) -> Option<(JobId, Option<String>)> {
        let available = self.there().filter(|job| job.standing.state == JobState::Available && job.new.role == role);
        let mut lanes: BTreeMap<_, (Millis, JobId)> = BTreeMap::new();
        for job in available {
            // Ten minutes of waiting are worth a step of priority.
            let front = (job.standing.run_at + i64::from(job.new.priority) * 600_000, job.id);
            let first = lanes.entry(lane(job)).or_insert(front);
            *first = front.min(*first);
        }
        lanes.retain(|_, (_, id)| self.may_start(*id, now));
        let is_fair = |scope: Scope| self.rules.get(&scope).is_some_and(|rule| rule.limits.fair);
        let all_are_fair = is_fair(Scope::All) || is_fair(Scope::Role(role.into()));
        let mut scopes: BTreeMap<Option<String>, BTreeMap<_, _>> = BTreeMap::new();
        for (lane, front) in lanes {
            let by_queue = is_fair(Scope::Queue(lane.0.clone())).then(|| lane.0.clone());
            let scope = if all_are_fair { Some(String::new()) } else { by_queue };
            scopes.entry(scope).or_default().insert(lane, front);
        }
        let first = |(scope, lanes): (Option<String>, BTreeMap<_, _>)| {
            let Some(queue) = &scope else { return Some((*lanes.values().min()?, scope)) };
            let last = self.last_served.get(&(role.into(), queue.clone()));
            let behind = lanes.iter().find(|(lane, _)| last.is_none_or(|last| *lane > last));
            Some((*behind.or(lanes.iter().next())?.1, scope))
        };
        scopes.into_iter().filter_map(first).min().map(|((_, id), scope)| (id, scope))
    }

    pub fn limit(&mut self, scope: Scope, limits: Limits) {
        let rule = self.rules.entry(scope).or_default();
        if rule.limits.fair && !limits.fair {
            self.last_served.clear();
        }
        rule.limits = limits;
    }
}

impl Rule {
    fn bucket(&self) -> Option<Bucket> {
        self.limits.per_minute.map(|n| Bucket::paced(n.into(), self.full_at_us))
    }
}

/// Its queue, and its key or nothing.
fn lane(job: &Job) -> (String, String) {
    (job.new.queue.clone(), job.new.concurrency_key.clone().unwrap_or_default())
}

fn is_of(job: &Job, scope: &Scope) -> bool {
    match scope {
        Scope::All => true,
        Scope::Role(name) => job.new.role == *name,
        Scope::Queue(name) => job.new.queue == *name,
        Scope::Key(name) => job.new.concurrency_key.as_deref() == Some(name),
    }
}
