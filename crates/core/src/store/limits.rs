//! What is paused, and how many jobs may run or start.

use std::collections::BTreeMap;

use super::driver::Driver;
use super::jobs::existing;
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::{JobId, JobState};
use crate::port::JobsIn;
use crate::queue::rules::{Gate, Held, Limits, QueueState, Rule, Scope};

/// The gate for jobs of `role`; none where there are no rules.
pub fn gate<D: Driver>(db: &mut D, role: &str, now: Millis) -> Done<Option<Gate>> {
    let rules = db.rules()?;
    if rules.is_empty() {
        return Ok(None);
    }
    let counts_running = |rule: &Rule| rule.limits.running.is_some() || rule.limits.running_per_key.is_some();
    let running = if rules.iter().any(counts_running) { db.started()? } else { Vec::new() };
    Ok(Some(Gate::new(role, rules, running, now)))
}

/// Stores the buckets that jobs were taken from.
pub fn store_spent<D: Driver>(db: &mut D, gate: Gate) -> Done<()> {
    gate.spent().try_for_each(|(scope, full_at_us)| db.set_full_at(&scope, full_at_us))
}

/// Changes the rule of `scope`, whether there is one or not, and takes it off when nothing is left
/// of it. Gives what `change` gave.
pub fn change<D: Driver, T>(tx: &mut Tx<'_, D>, scope: &Scope, change: impl FnOnce(&mut Rule) -> T) -> Outcome<T> {
    let found = tx.db.rules()?.into_iter().find(|rule| rule.scope == *scope);
    let none = Rule { scope: scope.clone(), paused_at: None, limits: Limits::default(), full_at_us: 0 };
    let mut rule = found.unwrap_or(none);
    let was_fair = rule.limits.fair;
    let given = change(&mut rule);
    tx.db.forget_rule(scope)?;
    if rule.paused_at.is_some() || rule.limits != Limits::default() {
        tx.db.add_rule(&rule)?;
    }
    if was_fair && !rule.limits.fair {
        // Those of other scopes too: nobody loses more than a place in the round that is under way.
        tx.db.forget_turns()?;
    }
    // Jobs may start that might not before.
    tx.notify();
    Ok(given)
}

/// The queues with jobs that are not final, or with a rule, by name.
pub fn queues<D: Driver>(db: &mut D) -> Outcome<Vec<QueueState>> {
    let empty = |queue: &str| QueueState { queue: queue.to_owned(), ..QueueState::default() };
    let ruled = db.rules()?.into_iter().filter_map(|rule| match rule.scope {
        Scope::Queue(name) => Some((name.clone(), empty(&name))),
        _ => None,
    });
    let mut queues: BTreeMap<String, QueueState> = ruled.collect();
    for JobsIn { queue, state, jobs, .. } in db.jobs_in()? {
        let one = queues.entry(queue).or_insert_with_key(|name| empty(name));
        match state {
            JobState::Available => one.available += jobs,
            JobState::Scheduled | JobState::Retryable => one.scheduled += jobs,
            JobState::Running => one.running += jobs,
            JobState::Suspended => one.suspended += jobs,
            JobState::Completed | JobState::Cancelled | JobState::Discarded => {}
        }
    }
    Ok(queues.into_values().collect())
}

/// Why an available job may not start by the rules.
pub fn held<D: Driver>(db: &mut D, job: JobId, now: Millis) -> Outcome<Option<Held>> {
    let row = existing(db, job)?;
    if row.standing.state != JobState::Available {
        return Ok(None);
    }
    let gate = gate(db, &row.role, now)?;
    Ok(gate.and_then(|gate| gate.held(&row.queue, &row.concurrency_key)))
}
