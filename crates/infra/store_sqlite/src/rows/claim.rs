//! Rows of jobs that may be claimed, and of `turns`.

use diesel::prelude::*;
use posse_core::job::JobId;
use posse_core::store::Done;
use posse_core::store::driver::{
    ClaimRows, ClaimableOf, Forgets, Front, Head, JobRows as _, Keeps, Lanes, LastServed, StoredJob,
};

use super::{DataColumns, JobColumns, Rows, both};
use crate::literal::{IsAvailable, after_rank};
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

    fn claimable(&mut self, of: ClaimableOf<'_>) -> Done<Vec<StoredJob>> {
        match of {
            ClaimableOf::First { role, queue, key, most } => jobs::table
                .inner_join(job_data::table)
                .filter(IsAvailable)
                .filter(jobs::role.eq(role))
                .filter(jobs::queue.eq(queue))
                .filter(jobs::concurrency_key.eq(key))
                .order((jobs::rank, jobs::id))
                .limit(i64::from(most))
                .select((JobColumns::as_select(), DataColumns::as_select()))
                .load_iter(&mut self.0)?
                .map(|row| both(row?))
                .collect(),
            ClaimableOf::Ids(ids) => self.whole_jobs(ids),
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
