//! Posse in benchmarks: what the peers of the harnesses share, and the measurement of the queue.

pub mod queue;

use anyhow::Context;
use posse_core::clock::Clock;
use posse_core::worker::Fleet;
use posse_infra::process::SystemClock;
use posse_infra::sqlite::{Keys, Options, SqliteStore, Synchronous};
use std::path::Path;
use std::sync::Arc;

/// The variable that says what a commit promises: `normal`, or `full` when it is anything else.
const DURABILITY: &str = "POSSE_BENCH_SYNC";

/// Opens the database with what [`DURABILITY`] asks for.
pub fn open(path: &str, keys: Keys) -> anyhow::Result<Arc<SqliteStore>> {
    let synchronous = match std::env::var(DURABILITY).as_deref() {
        Ok("normal") => Synchronous::Normal,
        _ => Synchronous::Full,
    };
    let store = SqliteStore::open(Path::new(path), Options { synchronous, keys, ..Options::default() });
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
