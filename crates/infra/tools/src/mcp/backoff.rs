//! When a server that fails is tried again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use posse_core::text::plural;

/// The longest wait.
const MOST: Duration = Duration::from_secs(60);

/// How a server did lately, for all who use it in this process.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<Option<Failing>>);

#[derive(Debug)]
struct Failing {
    times: u32,
    why: String,
    until: Instant,
}

impl Backoff {
    /// Why it is not tried now, if it is not.
    pub fn refuses(&self) -> Option<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Failing { times, why, until } = state.as_ref()?;
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        let times = plural(u64::from(*times), "time");
        Some(format!(
            "it failed {times} in a row, at last because {why}. It is tried again in {} s",
            left.as_secs() + 1
        ))
    }

    /// It did what it should.
    pub fn worked(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It did not. The first time it may be tried again at once.
    pub fn failed(&self, why: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = state.as_ref().map_or(0, |failing| failing.times) + 1;
        let wait = match times {
            1 => Duration::ZERO,
            _ => Duration::from_secs(1 << (times - 2).min(6)).min(MOST),
        };
        *state = Some(Failing { times, why: why.to_owned(), until: Instant::now() + wait });
    }
}
