//! What both benchmark peers need: a fleet on a SQLite file and this process's own figures.

use anyhow::Context;
use posse_core::clock::Clock;
use posse_core::port::WorkerRecord;
use posse_core::worker::{Fleet, FleetOptions};
use posse_infra::process::{LinuxProcessProbe, SystemClock, this_process};
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};
use std::path::Path;
use std::sync::Arc;

/// Opens the database; `POSSE_BENCH_SYNC=normal` asks for less durability than the default.
pub fn open(path: &str) -> anyhow::Result<Arc<SqliteStore>> {
    let synchronous = match std::env::var("POSSE_BENCH_SYNC").as_deref() {
        Ok("normal") => Synchronous::Normal,
        _ => Synchronous::Full,
    };
    let store = SqliteStore::open(Path::new(path), Options { synchronous, ..Options::default() });
    Ok(Arc::new(store.with_context(|| format!("opening {path}"))?))
}

/// This process as one worker of the fleet on `store`.
pub async fn fleet(store: &Arc<SqliteStore>, role: &str, slots: usize) -> anyhow::Result<Arc<Fleet>> {
    let now = SystemClock.now();
    let (host, pid, pid_started) = this_process();
    let worker = WorkerRecord {
        id: format!("bench-{pid}-{now}"),
        host,
        pid,
        pid_started,
        roles: vec![role.to_owned()],
        slots: slots as u32,
        started_at: now,
        heartbeat_at: now,
        lease_ms: posse_core::lease::DEFAULT_LEASE_MS,
        drain_requested_at: None,
    };
    let options = FleetOptions {
        jobs: store.clone(),
        queries: store.clone(),
        care: store.clone(),
        clock: Arc::new(SystemClock),
        processes: Arc::new(LinuxProcessProbe),
        worker,
        retention: posse_core::retention::Retention::default(),
    };
    Ok(Fleet::start(options).await?)
}

/// CPU seconds of this process (user and system) and its peak memory in MB.
pub fn resources() -> (f64, f64) {
    // SAFETY: an all-zero rusage is a valid value, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss as f64 / 1024.0)
}

/// Nanoseconds of the machine's monotonic clock, which all processes share.
pub fn monotonic_ns() -> u64 {
    // SAFETY: the call fills the structure it is given.
    let ts = unsafe {
        let mut ts: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts);
        ts
    };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}
