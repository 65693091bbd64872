//! This process as a worker of a fleet.

use std::sync::Arc;

use posse_core::clock::Clock;
use posse_core::job::lease::DEFAULT_LEASE_MS;
use posse_core::port::WorkerRecord;
use posse_core::worker::FleetOptions;

use posse_host::process::{LinuxProcessProbe, this_process};
use posse_store_sqlite::SqliteStore;

/// What others are told of this process, with leases of the usual length. `id` must be nobody else's.
pub fn record(id: String, roles: Vec<String>, slots: usize, clock: &dyn Clock) -> WorkerRecord {
    let (host, pid, pid_started) = this_process();
    let now = clock.now();
    WorkerRecord {
        id,
        host,
        pid,
        pid_started,
        roles,
        slots: u32::try_from(slots).unwrap_or(u32::MAX),
        started_at: now,
        heartbeat_at: now,
        lease_ms: DEFAULT_LEASE_MS,
        drain_requested_at: None,
    }
}

/// A fleet's part in this process, with all it needs from one store, and no embedder.
pub fn options(store: &Arc<SqliteStore>, worker: WorkerRecord, clock: Arc<dyn Clock>) -> FleetOptions {
    FleetOptions { store: store.clone(), clock, processes: Arc::new(LinuxProcessProbe), worker, embedder: None }
}
