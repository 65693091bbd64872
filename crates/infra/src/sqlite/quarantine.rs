//! Jobs whose stored content cannot be read: they are given up with a reason, so that they do not stand
//! in the way of those behind them.

use posse_core::clock::Millis;
use posse_core::job::transition::{Event, Standing, transition};
use posse_core::lease::Lease;
use posse_core::port::RepositoryError;

use super::attempts;
use super::fault::{Fault, Outcome};
use super::jobs::{set_reason, store};
use super::writer::Transaction;

/// Gives up a job that was just claimed in standing `from` and whose content gave `fault`. What is not
/// about the content is handed on.
pub(super) fn give_up(
    tx: &mut Transaction<'_>,
    lease: Lease,
    from: Standing,
    fault: Fault,
    now: Millis,
) -> Outcome<()> {
    let Fault::Refused(RepositoryError::Unusable(why)) = fault else { return Err(fault) };
    let reason = format!("it cannot be worked: {why}");
    let change = transition(from, Event::GiveUp, now)?;
    store(tx.connection, lease.job, &change, now)?;
    attempts::end(tx.connection, lease, Event::GiveUp, Some(&reason), now)?;
    set_reason(tx.connection, lease.job, Some(&reason))?;
    tracing::warn!(job.id = lease.job.0, "job {} is discarded: {reason}", lease.job);
    // Whoever claims got fewer jobs than there may be.
    tx.ring();
    Ok(())
}
