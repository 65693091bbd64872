//! Running jobs again that have ended.

use super::driver::{DeathRow, Driver, Forgets};
use super::jobs::{Why, existing, store};
use super::{Outcome, Tx, attempts, groups, journal, unique};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::transition::{Event, transition};

/// Makes a final job available again.
pub fn retry<D: Driver>(tx: &mut Tx<'_, D>, job: JobId, now: Millis) -> Outcome<()> {
    let row = existing(tx.db, job)?;
    let change = transition(row.standing, Event::Retry, now)?;
    unique::check(tx.db, &row, now)?;
    // A completed job's row tells of the attempt that completed it.
    attempts::end(tx, &[job], Event::Complete, None, row.finalized_at.unwrap_or(now))?;
    store(tx, &row, &change, Why::Nothing, now)?;
    journal::reopen(tx, job, now)?;
    Forgets::<DeathRow>::forget(tx.db, job)?;
    groups::join_again(tx, job, change.to.state, now)?;
    tx.notify();
    Ok(())
}
