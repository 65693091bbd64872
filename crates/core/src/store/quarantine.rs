//! Jobs whose stored content cannot be read: they are given up with a reason, so that they do not stand
//! in the way of those behind them.
//!
//! They are found after the commit of their claim, outside of the transaction. If the process dies
//! before they are given up, their leases run out, and the next claim finds them again.

use super::driver::Driver;
use super::jobs::{Why, store};
use super::{Outcome, Tx, attempts, waits};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::job::transition::{Event, transition};

/// A job that was claimed and cannot be worked.
#[derive(Debug)]
pub struct Unworkable {
    /// The claim's.
    pub lease: Lease,
    /// What is wrong with it, in words.
    pub why: String,
}

/// Gives up those whose leases still stand.
pub fn give_up<D: Driver>(tx: &mut Tx<'_, D>, unworkable: &[Unworkable], now: Millis) -> Outcome<()> {
    for Unworkable { lease, why } in unworkable {
        let job = lease.job;
        let Some(row) = tx.db.job(job)?.filter(|row| row.is_leased_as(lease.token)) else { continue };
        let reason = format!("it cannot be worked: {why}");
        let change = transition(row.standing, Event::GiveUp, now)?;
        attempts::end(tx, &[job], Event::GiveUp, Some(&reason), now)?;
        store(tx, &row, &change, Why::Said(&reason), now)?;
        waits::ended(tx, &row, change.to.state, now)?;
        tracing::warn!(job.id = job.0, "job {job} is discarded: {reason}");
    }
    // Whoever claims got fewer jobs than there may be.
    tx.notify();
    Ok(())
}
