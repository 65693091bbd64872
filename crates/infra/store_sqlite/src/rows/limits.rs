//! Rows of `rules` and `queues`.

use diesel::prelude::*;
use posse_core::queue::retention::Kept;
use posse_core::queue::rules::{Limits, Rule, Scope};
use posse_core::queue::{Queue, QueueDefaults};
use posse_core::store::driver::{Forgets, Keeps};
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::update;
use crate::schema::{limits, queues, rules};

fn count(stored: Option<i64>) -> Option<u32> {
    stored.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// What is stored for a time that has no end.
const FOR_EVER: i64 = -1;

#[derive(Queryable, Insertable)]
#[diesel(table_name = queues)]
struct QueueRow {
    name: String,
    paused_at: Option<i64>,
    running: Option<i64>,
    running_per_key: Option<i64>,
    per_minute: Option<i64>,
    fair: bool,
    full_at_us: i64,
    priority: Option<i64>,
    priority_step_ms: Option<i64>,
    max_attempts: Option<i64>,
    keep_completed_ms: Option<i64>,
    keep_cancelled_ms: Option<i64>,
    keep_discarded_ms: Option<i64>,
    created_at: i64,
}

impl From<QueueRow> for Queue {
    fn from(row: QueueRow) -> Queue {
        let [running, running_per_key, per_minute] = [row.running, row.running_per_key, row.per_minute].map(count);
        let keep = [
            (Kept::Completed, row.keep_completed_ms),
            (Kept::Cancelled, row.keep_cancelled_ms),
            (Kept::Discarded, row.keep_discarded_ms),
        ];
        Queue {
            name: row.name,
            paused_at: row.paused_at,
            limits: Limits { running, running_per_key, per_minute, fair: row.fair },
            full_at_us: row.full_at_us,
            defaults: QueueDefaults {
                priority: row.priority.and_then(|n| u8::try_from(n).ok()),
                priority_step_ms: row.priority_step_ms,
                max_attempts: count(row.max_attempts),
            },
            keep: keep.into_iter().filter_map(|(kind, ms)| Some((kind, Some(ms?).filter(|ms| *ms >= 0)))).collect(),
            created_at: Some(row.created_at),
        }
    }
}

impl From<&Queue> for QueueRow {
    fn from(queue: &Queue) -> QueueRow {
        let Limits { running, running_per_key, per_minute, fair } = queue.limits;
        let QueueDefaults { priority, priority_step_ms, max_attempts } = queue.defaults;
        let keep = |kind| queue.keep.iter().find(|(kept, _)| *kept == kind).map(|(_, ms)| ms.unwrap_or(FOR_EVER));
        QueueRow {
            name: queue.name.clone(),
            paused_at: queue.paused_at,
            running: running.map(i64::from),
            running_per_key: running_per_key.map(i64::from),
            per_minute: per_minute.map(i64::from),
            fair,
            full_at_us: queue.full_at_us,
            priority: priority.map(i64::from),
            priority_step_ms,
            max_attempts: max_attempts.map(i64::from),
            keep_completed_ms: keep(Kept::Completed),
            keep_cancelled_ms: keep(Kept::Cancelled),
            keep_discarded_ms: keep(Kept::Discarded),
            created_at: queue.created_at.unwrap_or_default(),
        }
    }
}

impl Keeps<Rule> for Rows {
    fn kept(&mut self, (): ()) -> Done<Vec<Rule>> {
        type Row = (String, String, Option<i64>, Option<i64>, Option<i64>, Option<i64>, i64, bool);
        let mut rows: Vec<Row> = limits::table.load(&mut self.0)?;
        // Here, since SQLite would sort what both tables give in a tree of its own, at every claim.
        rows.sort_unstable_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let rule = |(kind, name, paused_at, running, running_per_key, per_minute, full_at_us, fair): Row| {
            let unknown = || Unreadable(format!("'{kind}' is no scope of a rule"));
            let [running, running_per_key, per_minute] = [running, running_per_key, per_minute].map(count);
            let limits = Limits { running, running_per_key, per_minute, fair };
            Ok(Rule { scope: Scope::of(&kind, &name).ok_or_else(unknown)?, paused_at, limits, full_at_us })
        };
        rows.into_iter().map(rule).collect()
    }

    fn keep(&mut self, rule: &Rule) -> Done<()> {
        let Limits { running, running_per_key, per_minute, fair } = rule.limits;
        let [running, running_per_key, per_minute] = [running, running_per_key, per_minute].map(|n| n.map(i64::from));
        if let Scope::Queue(name) = &rule.scope {
            let said = (
                queues::paused_at.eq(rule.paused_at),
                queues::running.eq(running),
                queues::running_per_key.eq(running_per_key),
                queues::per_minute.eq(per_minute),
                queues::fair.eq(fair),
                queues::full_at_us.eq(rule.full_at_us),
            );
            return self.run(update(queues::table, queues::name.eq(name), said));
        }
        self.run(diesel::replace_into(rules::table).values((
            rules::scope.eq(rule.scope.kind()),
            rules::name.eq(rule.scope.name()),
            rules::paused_at.eq(rule.paused_at),
            rules::running.eq(running),
            rules::running_per_key.eq(running_per_key),
            rules::per_minute.eq(per_minute),
            rules::full_at_us.eq(rule.full_at_us),
            rules::fair.eq(fair),
        )))
    }
}

impl Forgets<Rule> for Rows {
    fn forget(&mut self, scope: &Scope) -> Done<bool> {
        let deleted = match scope {
            Scope::Queue(name) => diesel::delete(queues::table.find(name)).execute(&mut self.0)?,
            _ => diesel::delete(rules::table.find((scope.kind(), scope.name()))).execute(&mut self.0)?,
        };
        Ok(deleted > 0)
    }
}

impl Keeps<Queue> for Rows {
    fn kept(&mut self, name: Option<&str>) -> Done<Vec<Queue>> {
        match name {
            Some(name) => self.load(queues::table.find(name), |row: QueueRow| row.into()),
            None => self.load(queues::table.order(queues::name), |row: QueueRow| row.into()),
        }
    }

    fn keep(&mut self, queue: &Queue) -> Done<()> {
        self.run(diesel::replace_into(queues::table).values(QueueRow::from(queue)))
    }
}
