//! What is paused, and how many jobs may run or start.

use std::collections::BTreeMap;

use super::driver::{Driver, Forgets, LastServed};
use super::jobs::existing;
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::{JobId, JobState};
use crate::port::JobsIn;
use crate::queue::rules::{Gate, Held, Limits, QueueState, Rule, Scope};
use crate::queue::{Queue, QueueChange};

/// All rules, those of queues too.
pub fn rules<D: Driver>(db: &mut D) -> Done<Vec<Rule>> {
    db.kept(())
}

/// The gate for jobs of `role`; none where there are no rules.
pub fn gate<D: Driver>(db: &mut D, role: &str, now: Millis) -> Done<Option<Gate>> {
    let rules = rules(db)?;
    if rules.is_empty() {
        return Ok(None);
    }
    let running = if rules.iter().any(counts_running) { db.started()? } else { Vec::new() };
    Ok(Some(Gate::new(role, rules, running, now)))
}

/// Whether any rule counts jobs that run: then the end of one can let another one start.
pub fn any_counts_running<D: Driver>(db: &mut D) -> Done<bool> {
    Ok(rules(db)?.iter().any(counts_running))
}

fn counts_running(rule: &Rule) -> bool {
    rule.limits.running.is_some() || rule.limits.running_per_key.is_some()
}

/// Stores the buckets that jobs were taken from.
pub fn store_spent<D: Driver>(db: &mut D, gate: Gate) -> Done<()> {
    gate.spent().try_for_each(|rule| db.keep(&rule))
}

/// Changes the rule of `scope`, whether there is one or not, and takes it off when nothing is left
/// of it. Gives what `change` gave. `now` is absent where it only takes away.
pub fn change<D: Driver, T>(
    tx: &mut Tx<'_, D>,
    scope: &Scope,
    now: Option<Millis>,
    change: impl FnOnce(&mut Rule) -> T,
) -> Outcome<T> {
    let found = rules(tx.db)?.into_iter().find(|rule| rule.scope == *scope);
    let none = || Rule { scope: scope.clone(), paused_at: None, limits: Limits::default(), full_at_us: 0 };
    let mut rule = found.unwrap_or_else(none);
    let was_fair = rule.limits.fair;
    let given = change(&mut rule);
    let Rule { paused_at, limits, full_at_us, .. } = rule;
    match scope {
        Scope::Queue(name) => {
            let queue = Queue { paused_at, limits, full_at_us, ..queue(tx.db, name)? };
            store(tx.db, &queue, now)?;
        }
        _ if rule.is_empty() => drop(Forgets::<Rule>::forget(tx.db, scope)?),
        _ => tx.db.keep(&rule)?,
    }
    if was_fair && !limits.fair {
        // Those of other scopes too: nobody loses more than a place in the round that is under way.
        Forgets::<LastServed>::forget(tx.db, ())?;
    }
    // Jobs may start that might not before.
    tx.notify();
    Ok(given)
}

/// The queue of a name, whether anything is said of it or not.
pub fn queue<D: Driver>(db: &mut D, name: &str) -> Done<Queue> {
    let mut found: Vec<Queue> = db.kept(Some(name))?;
    Ok(found.pop().unwrap_or_else(|| Queue::named(name)))
}

/// Changes what is said of a queue beside its rule; gives it as it is then.
pub fn change_queue<D: Driver>(tx: &mut Tx<'_, D>, name: &str, change: &QueueChange, now: Millis) -> Done<Queue> {
    let mut queue = queue(tx.db, name)?;
    change.clone().apply(&mut queue);
    store(tx.db, &queue, Some(now))?;
    self::queue(tx.db, name)
}

/// Stores what is said of a queue, or forgets it where that is nothing.
fn store<D: Driver>(db: &mut D, queue: &Queue, now: Option<Millis>) -> Done<()> {
    if queue.is_only_a_name() {
        return Forgets::<Rule>::forget(db, &Scope::Queue(queue.name.clone())).map(drop);
    }
    db.keep(&Queue { created_at: queue.created_at.or(now), ..queue.clone() })
}

/// The queues with jobs that are not final, or of which something is said, by name.
pub fn queue_states<D: Driver>(db: &mut D) -> Outcome<Vec<QueueState>> {
    let empty = |queue: Queue| QueueState { queue, ..QueueState::default() };
    let known: Vec<Queue> = db.kept(None)?;
    let known = known.into_iter().map(|queue| (queue.name.clone(), empty(queue)));
    let mut states: BTreeMap<String, QueueState> = known.collect();
    for JobsIn { queue, state, jobs, .. } in db.jobs_in()? {
        let one = states.entry(queue).or_insert_with_key(|name| empty(Queue::named(name)));
        match state {
            JobState::Available => one.available += jobs,
            JobState::Scheduled | JobState::Retryable => one.scheduled += jobs,
            JobState::Running => one.running += jobs,
            JobState::Suspended => one.suspended += jobs,
            JobState::Completed | JobState::Cancelled | JobState::Discarded => {}
        }
    }
    Ok(states.into_values().collect())
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
