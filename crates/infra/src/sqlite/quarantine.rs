//! Jobs whose stored content cannot be read: they are given up with a reason, so that they do not stand
//! in the way of those behind them.

use diesel::prelude::*;
use posse_core::clock::Millis;
use posse_core::job::transition::{Event, Standing, transition};
use posse_core::lease::Lease;
use posse_core::port::RepositoryError;

use super::attempts;
use super::fault::{Fault, Outcome};
use super::jobs::{set_reason, store};

/// Gives up a job that was just claimed in standing `from` and whose content gave `fault`. What is not
/// about the content is handed on.
pub(super) fn give_up(
    connection: &mut SqliteConnection,
    lease: Lease,
    from: Standing,
    fault: Fault,
    now: Millis,
) -> Outcome<()> {
    let Fault::Refused(RepositoryError::Unusable(why)) = fault else { return Err(fault) };
    let reason = format!("it cannot be worked: {why}");
    let change = transition(from, Event::GiveUp, now)?;
    store(connection, lease.job, &change, now)?;
    attempts::end(connection, lease, Event::GiveUp, Some(&reason), now)?;
    set_reason(connection, lease.job, Some(&reason))?;
    tracing::warn!(job.id = lease.job.0, "job {} is discarded: {reason}", lease.job);
    Ok(())
}
