//! Waiting for a stop in a future that may move between threads.

use posse_core::stop::{Stop, StopReason};
use std::time::Duration;

/// How late a stop may be noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until a stop is asked for.
///
/// Looks again and again, because the future of [`Stop::stopped`] is not `Send` (it keeps the
/// guard of a watch channel over its last await) and so cannot be awaited under `async_trait`.
/// Once it is `Send`, this is `stop.stopped().await`.
pub(super) async fn stopped(stop: &Stop) -> StopReason {
    loop {
        if let Some(reason) = stop.reason() {
            return reason;
        }
        tokio::time::sleep(LOOK).await;
    }
}
