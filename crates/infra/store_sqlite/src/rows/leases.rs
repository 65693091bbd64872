//! Rows of `workers`.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::lease::WorkerId;
use posse_core::port::WorkerRecord;
use posse_core::store::Done;
use posse_core::store::driver::{Forgets, Keeps, LeaseRows};

use super::Rows;
use crate::literal::update;
use crate::schema::workers;

impl LeaseRows for Rows {
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
