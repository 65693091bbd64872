//! Jobs whose stored content cannot be read: they are given up with a reason, so that they do not stand
//! in the way of those behind them.
//!
//! They are found after the commit of their claim, outside of the transaction. If the process dies
//! before they are given up, their leases run out, and the next claim finds them again.

use posse_core::clock::Millis;
use posse_core::job::lease::Lease;
use posse_core::job::transition::{Event, transition};
use posse_core::store::attempts;

use super::fault::Outcome;
use super::relations;
use super::writer::Transaction;
use posse_core::store::driver::JobRows as _;
use posse_core::store::jobs::{set_reason, store};

/// A job that was claimed and cannot be worked.
pub(super) struct Unreadable {
    /// The claim's.
    pub lease: Lease,
    /// What is wrong with it, in words.
    pub why: String,
}

/// Gives up those whose leases still stand.
pub(super) fn give_up(tx: &mut Transaction<'_>, unreadable: &[Unreadable], now: Millis) -> Outcome<()> {
    for Unreadable { lease, why } in unreadable {
        let job = lease.job;
        let Some(row) = tx.db.job(job)?.filter(|row| row.is_leased_as(lease.token)) else { continue };
        let reason = format!("it cannot be worked: {why}");
        let change = transition(row.standing, Event::GiveUp, now)?;
        attempts::end(tx, &[job], Event::GiveUp, Some(&reason), now)?;
        store(tx.db, job, &change, now)?;
        set_reason(tx, job, Some(&reason))?;
        relations::ended(tx, &row, change.to.state, now)?;
        tracing::warn!(job.id = job.0, "job {job} is discarded: {reason}");
    }
    // Whoever claims got fewer jobs than there may be.
    tx.ring();
    Ok(())
}
