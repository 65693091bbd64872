//! Rows of `workers`, and of `jobs` as far as workers hold them.

use std::collections::HashMap;

use diesel::dsl::min;
use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::lease::{Lease, WorkerId};
use posse_core::port::{Overdue, WorkerRecord};
use posse_core::store::Done;
use posse_core::store::driver::{Forgets, JobRow, Keeps, LeaseRow, LeaseRows};

use super::{JobColumns, Rows};
use crate::literal::{IsRunning, IsToBeCancelled, among, update};
use crate::schema::{jobs, workers};

impl LeaseRows for Rows {
    fn tokens(&mut self, ids: &[JobId]) -> Done<HashMap<JobId, i64>> {
        let rows = jobs::table.filter(among(ids)).filter(IsRunning).select((jobs::id, jobs::lease_token));
        let token = |row: QueryResult<(i64, i64)>| row.map(|(id, token)| (JobId(id), token));
        Ok(rows.load_iter(&mut self.0)?.map(token).collect::<QueryResult<_>>()?)
    }

    fn set_lease_until(&mut self, ids: &[JobId], until: Millis) -> Done<()> {
        update(jobs::table, among(ids), jobs::lease_until.eq(until)).execute(&mut self.0)?;
        Ok(())
    }

    fn cut_lease(&mut self, id: JobId, until: Millis) -> Done<()> {
        update(jobs::table, jobs::id.eq(id.0).and(IsRunning), jobs::lease_until.eq(until)).execute(&mut self.0)?;
        Ok(())
    }

    fn leases(&mut self) -> Done<Vec<LeaseRow>> {
        let rows = jobs::table.filter(IsRunning).select((jobs::id, jobs::lease_until, jobs::leased_by));
        let rows: Vec<(i64, Option<i64>, Option<String>)> = rows.load(&mut self.0)?;
        Ok(rows.into_iter().map(|(id, until, worker)| LeaseRow { job: JobId(id), until, worker }).collect())
    }

    fn overdue(&mut self, now: Millis) -> Done<Vec<Overdue>> {
        let rows: Vec<(i64, i64, Option<String>, Option<i64>)> = jobs::table
            .filter(IsRunning)
            .filter(jobs::lease_until.le(now))
            .select((jobs::id, jobs::lease_token, jobs::leased_by, jobs::lease_until))
            .load(&mut self.0)?;
        let overdue = |(job, token, worker, until): (i64, i64, Option<String>, Option<i64>)| Overdue {
            lease: Lease { job: JobId(job), token },
            worker: WorkerId(worker.unwrap_or_default()),
            until: until.unwrap_or_default(),
        };
        Ok(rows.into_iter().map(overdue).collect())
    }

    fn next_lease_end(&mut self) -> Done<Option<Millis>> {
        Ok(jobs::table.filter(IsRunning).select(min(jobs::lease_until)).first(&mut self.0)?)
    }

    fn held_by(&mut self, worker: &WorkerId) -> Done<Vec<JobRow>> {
        // By the index of leases, whatever they say.
        let held = jobs::table.filter(IsRunning).filter(jobs::lease_until.gt(Millis::MIN));
        let held = held.filter(jobs::leased_by.eq(&worker.0)).select(JobColumns::as_select());
        held.load_iter(&mut self.0)?.map(|row| row?.read()).collect()
    }

    fn to_be_cancelled(&mut self) -> Done<Vec<JobId>> {
        let ids: Vec<i64> = jobs::table.filter(IsToBeCancelled).order(jobs::id).select(jobs::id).load(&mut self.0)?;
        Ok(ids.into_iter().map(JobId).collect())
    }

    fn beat(&mut self, worker: &WorkerId, at: Millis) -> Done<()> {
        update(workers::table, workers::id.eq(&worker.0), workers::heartbeat_at.eq(at)).execute(&mut self.0)?;
        Ok(())
    }
}

impl Keeps<WorkerRecord> for Rows {
    fn kept(&mut self, id: Option<&str>) -> Done<Vec<WorkerRecord>> {
        type Row = (String, String, i64, i64, String, i32, i64, i64, i64, Option<i64>);
        let worker = |row: Row| {
            let (id, host, pid, pid_started, roles, slots, started_at, heartbeat_at, lease_ms, drain_requested_at) =
                row;
            WorkerRecord {
                id,
                host,
                pid: u32::try_from(pid).unwrap_or(0),
                pid_started: pid_started.cast_unsigned(),
                // Its death must be noticed, whatever became of this.
                roles: serde_json::from_str(&roles).unwrap_or_default(),
                slots: u32::try_from(slots).unwrap_or(0),
                started_at,
                heartbeat_at,
                lease_ms,
                drain_requested_at,
            }
        };
        match id {
            Some(id) => self.load(workers::table.find(id), worker),
            None => self.load(workers::table.order(workers::id), worker),
        }
    }

    fn keep(&mut self, worker: &WorkerRecord) -> Done<()> {
        let row = (
            workers::id.eq(&worker.id),
            workers::host.eq(&worker.host),
            workers::pid.eq(i64::from(worker.pid)),
            workers::pid_started.eq(worker.pid_started.cast_signed()),
            workers::roles.eq(serde_json::to_string(&worker.roles)?),
            workers::slots.eq(i32::try_from(worker.slots).unwrap_or(i32::MAX)),
            workers::started_at.eq(worker.started_at),
            workers::heartbeat_at.eq(worker.heartbeat_at),
            workers::lease_ms.eq(worker.lease_ms),
            workers::drain_requested_at.eq(worker.drain_requested_at),
        );
        self.run(diesel::replace_into(workers::table).values(row))
    }
}

impl Forgets<WorkerRecord> for Rows {
    fn forget(&mut self, worker: &WorkerId) -> Done<bool> {
        Ok(diesel::delete(workers::table.find(&worker.0)).execute(&mut self.0)? > 0)
    }
}
