//! Rows of `rules`, and of what counts against them.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use posse_core::port::JobsIn;
use posse_core::queue::rules::{Limits, Rule, Running, Scope};
use posse_core::store::driver::LimitRows;
use posse_core::store::{Done, Unreadable};

use super::{Rows, state};
use crate::literal::{IsRunning, update};
use crate::schema::{jobs, rules, turns};

/// Jobs that have not ended. Each part reads one partial index; none looks at a final job.
pub(crate) const JOBS: &str = "
    SELECT role, queue, 'available' AS state, count(*) AS jobs FROM jobs WHERE state = 'available' GROUP BY role, queue
    UNION ALL
    SELECT role, queue, state, count(*) FROM jobs WHERE state IN ('scheduled', 'retryable') GROUP BY role, queue, state
    UNION ALL
    SELECT role, queue, 'running', count(*) FROM jobs WHERE state = 'running' GROUP BY role, queue
    UNION ALL
    SELECT role, queue, 'suspended', count(*) FROM jobs WHERE state = 'suspended' GROUP BY role, queue
    ORDER BY 1, 2, 3";

fn count(stored: Option<i64>) -> Option<u32> {
    stored.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

impl LimitRows for Rows {
    fn rules(&mut self) -> Done<Vec<Rule>> {
        type Row = (String, String, Option<i64>, Option<i64>, Option<i64>, Option<i64>, i64, bool);
        let rows: Vec<Row> = rules::table.order((rules::scope, rules::name)).load(&mut self.0)?;
        let rule = |(kind, name, paused_at, running, running_per_key, per_minute, full_at_us, fair): Row| {
            let unknown = || Unreadable(format!("'{kind}' is no scope of a rule"));
            let [running, running_per_key, per_minute] = [running, running_per_key, per_minute].map(count);
            let limits = Limits { running, running_per_key, per_minute, fair };
            Ok(Rule { scope: Scope::of(&kind, &name).ok_or_else(unknown)?, paused_at, limits, full_at_us })
        };
        rows.into_iter().map(rule).collect()
    }

    fn add_rule(&mut self, rule: &Rule) -> Done<()> {
        let Limits { running, running_per_key, per_minute, fair } = rule.limits;
        diesel::insert_into(rules::table)
            .values((
                rules::scope.eq(rule.scope.kind()),
                rules::name.eq(rule.scope.name()),
                rules::paused_at.eq(rule.paused_at),
                rules::running.eq(running.map(i64::from)),
                rules::running_per_key.eq(running_per_key.map(i64::from)),
                rules::per_minute.eq(per_minute.map(i64::from)),
                rules::full_at_us.eq(rule.full_at_us),
                rules::fair.eq(fair),
            ))
            .execute(&mut self.0)?;
        Ok(())
    }

    fn forget_rule(&mut self, scope: &Scope) -> Done<()> {
        diesel::delete(rules::table.find((scope.kind(), scope.name()))).execute(&mut self.0)?;
        Ok(())
    }

    fn set_full_at(&mut self, scope: &Scope, full_at_us: i64) -> Done<()> {
        let this = rules::scope.eq(scope.kind()).and(rules::name.eq(scope.name()));
        update(rules::table, this, rules::full_at_us.eq(full_at_us)).execute(&mut self.0)?;
        Ok(())
    }

    fn any_counts_running(&mut self) -> Done<bool> {
        let counting = rules::table.filter(rules::running.is_not_null().or(rules::running_per_key.is_not_null()));
        Ok(diesel::select(diesel::dsl::exists(counting)).get_result(&mut self.0)?)
    }

    fn started(&mut self) -> Done<Vec<Running>> {
        let running: Vec<(String, String, String)> =
            jobs::table.filter(IsRunning).select((jobs::role, jobs::queue, jobs::concurrency_key)).load(&mut self.0)?;
        Ok(running.into_iter().map(|(role, queue, key)| Running { role, queue, key }).collect())
    }

    fn jobs_in(&mut self) -> Done<Vec<JobsIn>> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = Text)]
            role: String,
            #[diesel(sql_type = Text)]
            queue: String,
            #[diesel(sql_type = Text)]
            state: String,
            #[diesel(sql_type = BigInt)]
            jobs: i64,
        }
        let rows: Vec<Row> = diesel::sql_query(JOBS).load(&mut self.0)?;
        let of = |Row { role, queue, state: name, jobs }: Row| {
            Ok(JobsIn { role, queue, state: state(&name)?, jobs: jobs.unsigned_abs() })
        };
        rows.into_iter().map(of).collect()
    }

    fn forget_turns(&mut self) -> Done<()> {
        diesel::delete(turns::table).execute(&mut self.0)?;
        Ok(())
    }
}
