//! Why nothing more may be done for a job, and waiting for a database that cannot be used now.

use std::time::Duration;

use super::fleet::Fleet;
use crate::port::RepositoryError;
use crate::stop::{Stop, StopReason};

/// Why nothing more may be done for a job by this worker now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// Asked to end.
    Stop(StopReason),
    /// The database cannot be used, in words.
    Broken(String),
}

impl From<StopReason> for Halt {
    fn from(reason: StopReason) -> Self {
        Halt::Stop(reason)
    }
}

/// Makes the call again until the database takes it, or the step is asked to end.
pub(super) async fn until_available<T, F>(fleet: &Fleet, stop: &Stop, mut call: impl FnMut() -> F) -> Result<T, Halt>
where
    F: Future<Output = Result<T, RepositoryError>>,
{
    let mut wait = Duration::from_millis(500);
    loop {
        match call().await {
            Ok(value) => return Ok(value),
            Err(RepositoryError::LeaseLost(_)) => return Err(StopReason::LeaseLost.into()),
            Err(RepositoryError::Unavailable(why)) => fleet.warn_unavailable(&why),
            Err(other) => return Err(Halt::Broken(other.to_string())),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            reason = stop.stopped() => return Err(reason.into()),
        }
        wait = (wait * 2).min(Duration::from_secs(10));
    }
}
