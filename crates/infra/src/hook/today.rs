//! `today`: which day it is, for agents whose tasks depend on it.

use async_trait::async_trait;
use posse_core::clock::Clock as _;
use posse_core::run::hook::{HookError, RunHook, RunSetup};
use posse_core::text::rfc3339;
use posse_host::process::SystemClock;

const DAY_MS: i64 = 86_400_000;

/// The first day of all was a Thursday.
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Adds the day to the system message, as it is when the run begins.
pub(super) struct Today;

#[async_trait]
impl RunHook for Today {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        let now = SystemClock.now();
        let day = DAYS[now.div_euclid(DAY_MS).rem_euclid(7) as usize];
        let Some(date) = rfc3339(now) else { return Ok(()) };
        let date = date.split('T').next().unwrap_or_default();
        setup.append("The day", &format!("Today is {day}, {date} (UTC)."));
        Ok(())
    }
}
