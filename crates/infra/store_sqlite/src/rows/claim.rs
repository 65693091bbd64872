//! Rows of jobs that may be claimed, and of `turns`.

use diesel::prelude::*;
use posse_core::job::{JobId, JobState};
use posse_core::store::Done;
use posse_core::store::driver::{
    AvailableRow, ClaimRows, Claimable, ClaimableOf, Forgets, Front, Head, Keeps, Lanes, LastServed,
};

use super::{DataColumns, Rows, WorkedColumns};
use crate::literal::{IsAvailable, after_rank, among};
use crate::schema::{job_data, jobs, turns};

impl ClaimRows for Rows {
    fn head(&mut self, role: &str, of: Lanes<'_>) -> Done<Option<Head>> {
        let of_role = jobs::table
            .filter(IsAvailable)
            .filter(jobs::role.eq(role))
            .order((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id))
            .select((jobs::queue, jobs::concurrency_key, jobs::rank, jobs::id));
        let head = match of {
            Lanes::All => of_role.first(&mut self.0),
            Lanes::Of(queue) => of_role.filter(jobs::queue.eq(queue)).first(&mut self.0),
            Lanes::Behind(queue, key) => {
                of_role.filter(jobs::queue.eq(queue)).filter(jobs::concurrency_key.gt(key)).first(&mut self.0)
            }
            Lanes::After(queue) => of_role.filter(jobs::queue.gt(queue)).first(&mut self.0),
        };
        let head: Option<(String, String, i64, i64)> = head.optional()?;
        Ok(head.map(|(queue, key, rank, id)| Head { queue, key, front: (rank, JobId(id)) }))
    }

    fn lane(&mut self, role: &str, queue: &str, key: &str, (rank, id): Front, most: u32) -> Done<Vec<Front>> {
        let lane: Vec<(i64, i64)> = jobs::table
            .filter(IsAvailable)
            .filter(jobs::role.eq(role))
            .filter(jobs::queue.eq(queue))
            .filter(jobs::concurrency_key.eq(key))
            .filter(after_rank(rank, id.0))
            .order((jobs::rank, jobs::id))
            .limit(i64::from(most))
            .select((jobs::rank, jobs::id))
            .load(&mut self.0)?;
        Ok(lane.into_iter().map(|(rank, id)| (rank, JobId(id))).collect())
    }

    fn claimable(&mut self, of: ClaimableOf<'_>) -> Done<Vec<Claimable>> {
        let both = |(row, data): (AvailableColumns, DataColumns)| (row.into(), data.into());
        let jobs =
            jobs::table.inner_join(job_data::table).select((AvailableColumns::as_select(), DataColumns::as_select()));
        match of {
            ClaimableOf::First { role, queue, key, most } => {
                let lane = jobs
                    .filter(IsAvailable)
                    .filter(jobs::role.eq(role))
                    .filter(jobs::queue.eq(queue))
                    .filter(jobs::concurrency_key.eq(key));
                self.load(lane.order((jobs::rank, jobs::id)).limit(i64::from(most)), both)
            }
            ClaimableOf::Ids(ids) => self.load(jobs.filter(among(ids)).order(jobs::id), both),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = jobs, check_for_backend(diesel::sqlite::Sqlite))]
struct AvailableColumns {
    #[diesel(embed)]
    worked: WorkedColumns,
    queue: String,
    priority: i32,
    created_at: i64,
    concurrency_key: String,
    unique_key: Option<String>,
}

impl From<AvailableColumns> for AvailableRow {
    fn from(row: AvailableColumns) -> AvailableRow {
        AvailableRow {
            worked: row.worked.read(JobState::Available),
            queue: row.queue,
            priority: u8::try_from(row.priority).unwrap_or(u8::MAX),
            created_at: row.created_at,
            concurrency_key: row.concurrency_key,
            unique_key: row.unique_key,
        }
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

impl Forgets<LastServed> for Rows {
    fn forget(&mut self, (): ()) -> Done<bool> {
        Ok(diesel::delete(turns::table).execute(&mut self.0)? > 0)
    }
}
