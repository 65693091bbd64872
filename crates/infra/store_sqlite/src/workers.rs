//! The list of worker processes.

use diesel::prelude::*;
use posse_core::job::lease::WorkerId;
use posse_core::port::WorkerRecord;

use super::fault::Outcome;
use super::schema::workers;
use super::writer::Transaction;

/// Puts a worker on the list, in place of what was known of it.
pub(super) fn register(tx: &mut Transaction<'_>, worker: &WorkerRecord) -> Outcome<()> {
    diesel::replace_into(workers::table)
        .values((
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
        ))
        .execute(&mut tx.db.0)?;
    Ok(())
}

/// Takes a worker off the list. Nothing may be in its hands: nobody would see there that it is gone.
pub(super) fn unregister(tx: &mut Transaction<'_>, worker: &WorkerId) -> Outcome<()> {
    diesel::delete(workers::table.find(&worker.0)).execute(&mut tx.db.0)?;
    Ok(())
}

/// The list, by id.
pub(super) fn all(connection: &mut SqliteConnection) -> Outcome<Vec<WorkerRecord>> {
    type Row = (String, String, i64, i64, String, i32, i64, i64, i64, Option<i64>);
    let rows: Vec<Row> = workers::table.order(workers::id).load(connection)?;
    let worker = |row: Row| {
        let (id, host, pid, pid_started, roles, slots, started_at, heartbeat_at, lease_ms, drain_requested_at) = row;
        Ok(WorkerRecord {
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
        })
    };
    rows.into_iter().map(worker).collect()
}
