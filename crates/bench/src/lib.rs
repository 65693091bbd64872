//! What both benchmark peers need: a fleet on a SQLite file and this process's own figures.

use anyhow::Context;
use posse_core::clock::Clock;
use posse_core::worker::Fleet;
use posse_infra::process::SystemClock;
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
    let id = format!("bench-{}-{}", std::process::id(), SystemClock.now());
    let worker = posse_infra::fleet::record(id, vec![role.to_owned()], slots, &SystemClock);
    Ok(Fleet::start(posse_infra::fleet::options(store, worker, Arc::new(SystemClock))).await?)
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
