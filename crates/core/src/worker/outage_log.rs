//! Saying that the database cannot be used, and not saying it over and over.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tracing::warn;

use crate::clock::{Clock, Millis};

/// At most one line about it in so many milliseconds, over all parts of a process.
const QUIET_MS: Millis = 60_000;

/// What the parts of a process share to speak with one voice.
pub(super) struct OutageLog {
    clock: Arc<dyn Clock>,
    said_at: AtomicI64,
}

impl OutageLog {
    pub(super) fn new(clock: Arc<dyn Clock>) -> OutageLog {
        OutageLog { clock, said_at: AtomicI64::new(Millis::MIN / 2) }
    }

    /// Says it, unless that was done within the last minute.
    pub(super) fn say(&self, why: &str) {
        let now = self.clock.elapsed();
        let last = self.said_at.load(Ordering::Relaxed);
        let due = now.saturating_sub(last) >= QUIET_MS;
        if due && self.said_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            warn!("the database cannot be used now; nothing is lost, trying again until it can: {why}");
        }
    }
}
