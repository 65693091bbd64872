//! The rules: what is paused, and how many jobs may run or start.

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState};
use posse_core::metrics::JobsIn;
use posse_core::port::RepositoryError;
use posse_core::port::Rules;
use posse_core::queue::rules::{Gate, Held, Limits, LimitsChange, QueueState, Rule, Running, Scope};

use super::SqliteStore;
use super::fault::{Outcome, unusable};
use super::literal::{IsRunning, update};
use super::metrics;
use super::rows::Rows;
use super::schema::{jobs, rules, turns};
use super::writer::Transaction;
use posse_core::store::jobs::existing;

/// Roughly what a rule takes, in bytes.
const ROW: usize = 200;

/// All rules. Nearly always none, and then nearly free.
pub(super) fn all(connection: &mut SqliteConnection) -> Outcome<Vec<Rule>> {
    type Row = (String, String, Option<i64>, Option<i64>, Option<i64>, Option<i64>, i64, bool);
    let rows: Vec<Row> = rules::table.order((rules::scope, rules::name)).load(connection)?;
    let rule = |(kind, name, paused_at, running, running_per_key, per_minute, full_at_us, fair): Row| {
        let scope = Scope::of(&kind, &name).ok_or_else(|| unusable(format!("'{kind}' is no scope of a rule")))?;
        let [running, running_per_key, per_minute] = [running, running_per_key, per_minute].map(count);
        let limits = Limits { running, running_per_key, per_minute, fair };
        Ok(Rule { scope, paused_at, limits, full_at_us })
    };
    rows.into_iter().map(rule).collect()
}

fn count(stored: Option<i64>) -> Option<u32> {
    stored.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// The gate for jobs of `role`; none where there are no rules.
pub(super) fn gate(connection: &mut SqliteConnection, role: &str, now: Millis) -> Outcome<Option<Gate>> {
    let rules = all(connection)?;
    if rules.is_empty() {
        return Ok(None);
    }
    let running: Vec<(String, String, String)> = if rules.iter().any(|rule| counts_running(&rule.limits)) {
        jobs::table.filter(IsRunning).select((jobs::role, jobs::queue, jobs::concurrency_key)).load(connection)?
    } else {
        Vec::new()
    };
    let running = running.into_iter().map(|(role, queue, key)| Running { role, queue, key });
    Ok(Some(Gate::new(role, rules, running, now)))
}

fn counts_running(limits: &Limits) -> bool {
    limits.running.is_some() || limits.running_per_key.is_some()
}

/// Whether the end of a job can let another one start.
pub(super) fn any_counts_running(connection: &mut SqliteConnection) -> QueryResult<bool> {
    let counting = rules::table.filter(rules::running.is_not_null().or(rules::running_per_key.is_not_null()));
    diesel::select(diesel::dsl::exists(counting)).get_result(connection)
}

/// Stores the buckets that jobs were taken from.
pub(super) fn store_spent(connection: &mut SqliteConnection, gate: Gate) -> QueryResult<()> {
    for (scope, full_at_us) in gate.spent() {
        let this = rules::scope.eq(scope.kind()).and(rules::name.eq(scope.name()));
        update(rules::table, this, rules::full_at_us.eq(full_at_us)).execute(connection)?;
    }
    Ok(())
}

/// Changes the rule of `scope`, whether there is one or not, and takes it off when nothing is left
/// of it. Gives what `change` gave.
pub(super) fn change<T>(tx: &mut Transaction<'_>, scope: &Scope, change: impl FnOnce(&mut Rule) -> T) -> Outcome<T> {
    let found = all(&mut tx.db.0)?.into_iter().find(|rule| rule.scope == *scope);
    let none = Rule { scope: scope.clone(), paused_at: None, limits: Limits::default(), full_at_us: 0 };
    let mut rule = found.unwrap_or(none);
    let was_fair = rule.limits.fair;
    let given = change(&mut rule);
    diesel::delete(rules::table.find((scope.kind(), scope.name()))).execute(&mut tx.db.0)?;
    let Limits { running, running_per_key, per_minute, fair } = rule.limits;
    if rule.paused_at.is_some() || rule.limits != Limits::default() {
        diesel::insert_into(rules::table)
            .values((
                rules::scope.eq(scope.kind()),
                rules::name.eq(scope.name()),
                rules::paused_at.eq(rule.paused_at),
                rules::running.eq(running.map(i64::from)),
                rules::running_per_key.eq(running_per_key.map(i64::from)),
                rules::per_minute.eq(per_minute.map(i64::from)),
                rules::full_at_us.eq(rule.full_at_us),
                rules::fair.eq(fair),
            ))
            .execute(&mut tx.db.0)?;
    }
    if was_fair && !fair {
        // Those of other scopes too: nobody loses more than a place in the round that is under way.
        diesel::delete(turns::table).execute(&mut tx.db.0)?;
    }
    // Jobs may start that might not before.
    tx.ring();
    Ok(given)
}

/// The queues with jobs that are not final, or with a rule, by name.
fn queues(connection: &mut SqliteConnection) -> Outcome<Vec<QueueState>> {
    let ruled: Vec<String> = rules::table.filter(rules::scope.eq("queue")).select(rules::name).load(connection)?;
    let empty = |queue: &str| QueueState { queue: queue.to_owned(), ..QueueState::default() };
    let mut queues: BTreeMap<String, QueueState> = ruled.iter().map(|name| (name.clone(), empty(name))).collect();
    for JobsIn { queue, state, jobs, .. } in metrics::jobs(connection)? {
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
fn held(connection: &mut SqliteConnection, job: JobId, now: Millis) -> Outcome<Option<Held>> {
    let row = existing(Rows::of(connection), job)?;
    if row.standing.state != JobState::Available {
        return Ok(None);
    }
    let gate = gate(connection, &row.role, now)?;
    Ok(gate.and_then(|gate| gate.held(&row.queue, &row.concurrency_key)))
}

#[async_trait]
impl Rules for SqliteStore {
    async fn set_limits(&self, scope: Scope, limits: Limits) -> Result<(), RepositoryError> {
        self.writer()?.run(ROW, move |tx| change(tx, &scope, |rule| rule.limits = limits)).await
    }

    async fn change_limits(&self, scope: Scope, wanted: LimitsChange) -> Result<Limits, RepositoryError> {
        let changed = move |rule: &mut Rule| {
            rule.limits = wanted.apply(rule.limits);
            rule.limits
        };
        self.writer()?.run(ROW, move |tx| change(tx, &scope, changed)).await
    }

    async fn pause(&self, scope: Scope, now: Millis) -> Result<bool, RepositoryError> {
        let pause = move |rule: &mut Rule| {
            let is_new = rule.paused_at.is_none();
            rule.paused_at = rule.paused_at.or(Some(now));
            is_new
        };
        self.writer()?.run(ROW, move |tx| change(tx, &scope, pause)).await
    }

    async fn resume(&self, scope: Scope) -> Result<bool, RepositoryError> {
        self.writer()?.run(ROW, move |tx| change(tx, &scope, |rule| rule.paused_at.take().is_some())).await
    }

    async fn rules(&self) -> Result<Vec<Rule>, RepositoryError> {
        self.readers.run(all).await
    }

    async fn queues(&self) -> Result<Vec<QueueState>, RepositoryError> {
        self.readers.run(queues).await
    }

    async fn held(&self, job: JobId, now: Millis) -> Result<Option<Held>, RepositoryError> {
        self.readers.run(move |connection| held(connection, job, now)).await
    }
}
