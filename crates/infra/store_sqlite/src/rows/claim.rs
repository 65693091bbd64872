//! Rows of jobs that may be claimed, and of `turns`.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::transition::Standing;
use posse_core::job::{JobId, JobState};
use posse_core::store::Done;
use posse_core::store::driver::{ClaimRow, ClaimRows, DataRow, Front, Head, Keeps, LastServed, Lines, Taking};
use posse_core::store::seal::Sealed;

use super::{DataColumns, Rows, count, stored};
use crate::literal::{IsAvailable, IsWaiting, after_rank, among, update};
use crate::schema::{job_data, jobs, turns};

/// A [`ClaimRow`] as diesel reads it.
#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
struct ClaimColumns {
    id: i64,
    queue: String,
    priority: i32,
    run_at: i64,
    attempt: i32,
    max_attempts: i32,
    crashes: i32,
    lease_token: i64,
    cancel_requested: bool,
    created_at: i64,
    concurrency_key: String,
    unique_key: Option<String>,
    output: Option<Sealed>,
    reason: Option<Sealed>,
}

impl From<ClaimColumns> for ClaimRow {
    fn from(row: ClaimColumns) -> ClaimRow {
        ClaimRow {
            id: JobId(row.id),
            queue: row.queue,
            standing: Standing {
                state: JobState::Available,
                attempt: count(row.attempt),
                max_attempts: count(row.max_attempts),
                crashes: count(row.crashes),
                cancel_requested: row.cancel_requested,
                run_at: row.run_at,
            },
            priority: u8::try_from(row.priority).unwrap_or(u8::MAX),
            lease_token: row.lease_token,
            created_at: row.created_at,
            concurrency_key: row.concurrency_key,
            unique_key: row.unique_key,
            output: row.output,
            reason: row.reason,
        }
    }
}

fn both(row: QueryResult<(ClaimColumns, DataColumns)>) -> Done<(ClaimRow, DataRow)> {
    let (row, data) = row?;
    Ok((row.into(), data.into()))
}

impl ClaimRows for Rows {
    fn due(&mut self, now: Millis, most: u32) -> Done<Vec<JobId>> {
        let due: Vec<i64> = jobs::table
            .filter(IsWaiting)
            .filter(jobs::run_at.le(now))
            .order(jobs::run_at)
            .limit(i64::from(most))
            .select(jobs::id)
            .load(&mut self.0)?;
        Ok(due.into_iter().map(JobId).collect())
    }

    fn set_state(&mut self, ids: &[JobId], to: JobState) -> Done<()> {
        update(jobs::table, among(ids), jobs::state.eq(to.as_str())).execute(&mut self.0)?;
        Ok(())
    }

    fn head(&mut self, role: &str, of: Lines<'_>) -> Done<Option<Head>> {
        let of_role = jobs::table
            .filter(IsAvailable)
            .filter(jobs::role.eq(role))
            .order((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id))
            .select((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id));
        let head = match of {
            Lines::All => of_role.first(&mut self.0),
            Lines::Of(queue) => of_role.filter(jobs::queue.eq(queue)).first(&mut self.0),
            Lines::Behind(queue, key) => {
                of_role.filter(jobs::queue.eq(queue)).filter(jobs::concurrency_key.gt(key)).first(&mut self.0)
            }
            Lines::After(queue) => of_role.filter(jobs::queue.gt(queue)).first(&mut self.0),
        };
        let head: Option<(String, String, i64, i64)> = head.optional()?;
        Ok(head.map(|(queue, key, rank, id)| Head { queue, key, front: (rank, JobId(id)) }))
    }

    fn line(&mut self, role: &str, queue: &str, key: &str, (rank, id): Front, most: u32) -> Done<Vec<Front>> {
        let line: Vec<(i64, i64)> = jobs::table
            .filter(IsAvailable)
            .filter(jobs::role.eq(role))
            .filter(jobs::queue.eq(queue))
            .filter(jobs::concurrency_key.eq(key))
            .filter(after_rank(rank, id.0))
            .order((jobs::rank, jobs::id))
            .limit(i64::from(most))
            .select((jobs::rank, jobs::id))
            .load(&mut self.0)?;
        Ok(line.into_iter().map(|(rank, id)| (rank, JobId(id))).collect())
    }

    fn first_of_line(&mut self, role: &str, queue: &str, key: &str, most: u32) -> Done<Vec<(ClaimRow, DataRow)>> {
        jobs::table
            .inner_join(job_data::table)
            .select((ClaimColumns::as_select(), DataColumns::as_select()))
            .filter(IsAvailable)
            .filter(jobs::role.eq(role))
            .filter(jobs::queue.eq(queue))
            .filter(jobs::concurrency_key.eq(key))
            .order((jobs::rank, jobs::id))
            .limit(i64::from(most))
            .load_iter(&mut self.0)?
            .map(both)
            .collect()
    }

    fn available(&mut self, ids: &[JobId]) -> Done<Vec<(ClaimRow, DataRow)>> {
        jobs::table
            .inner_join(job_data::table)
            .select((ClaimColumns::as_select(), DataColumns::as_select()))
            .filter(among(ids))
            .load_iter(&mut self.0)?
            .map(both)
            .collect()
    }

    fn take(&mut self, ids: &[JobId], to: &Taking<'_>) -> Done<()> {
        let taken = (
            jobs::state.eq(to.state.as_str()),
            jobs::attempt.eq(stored(to.attempt)),
            jobs::lease_token.eq(jobs::lease_token + 1),
            jobs::lease_until.eq(to.until),
            jobs::leased_by.eq(to.worker),
            jobs::claimed_at.eq(to.at),
        );
        update(jobs::table, among(ids), taken).execute(&mut self.0)?;
        Ok(())
    }
}

impl Keeps<LastServed> for Rows {
    fn kept(&mut self, key: (&str, &str)) -> Done<Vec<LastServed>> {
        type Row = (String, String, String, String);
        self.load(turns::table.find(key), |(role, scope, queue, key): Row| LastServed { role, scope, queue, key })
    }

    fn keep(&mut self, last: &LastServed) -> Done<()> {
        let row = (
            turns::role.eq(&last.role),
            turns::scope.eq(&last.scope),
            turns::queue.eq(&last.queue),
            turns::key.eq(&last.key),
        );
        self.run(diesel::replace_into(turns::table).values(row))
    }
}
