//! Waiting for what is about to be so, with a bound. Other processes and threads tell nobody here, so it is looked for.

// Each test program uses some of it.
#![allow(dead_code)]

use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits for what another process is about to do; a minute is more than any of it takes.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(wait(Duration::from_secs(60), || is_so().then_some(()).ok_or(())).is_ok(), "never: {what}");
}

/// Gives what `look` finds, or what its last look within `limit` gave instead.
pub fn wait<T, E>(limit: Duration, mut look: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let late = Instant::now() + limit;
    loop {
        match look() {
            Err(_) if Instant::now() < late => std::thread::sleep(PAUSE),
            looked => return looked,
        }
    }
}

/// The same for looks that are asynchronous.
pub async fn wait_async<T, E>(limit: Duration, mut look: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let late = Instant::now() + limit;
    loop {
        match look().await {
            Err(_) if Instant::now() < late => tokio::time::sleep(PAUSE).await,
            looked => return looked,
        }
    }
}
