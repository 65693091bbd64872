//! What is remembered of a conversation's older turns: items of memory, beside the jobs that they are read from.

use std::collections::HashMap;

use super::driver::{Driver, MemoryOf, MemoryRow};
use super::memory::{Lineage, insert, replace, text, words};
use super::{Done, Outcome, Tx};
use crate::clock::Millis;
use crate::job::JobId;
use crate::session::turns::{places, thread, turns};
use crate::session::{Exchange, Session};

/// Remembers the turns of those of the exchanges, oldest first, that have ended. What is remembered already is not saved
/// again, what has changed since is replaced, and what a person had forgotten stays so.
pub fn remember<D: Driver>(tx: &mut Tx<'_, D>, of: &Session, exchanges: &[Exchange], now: Millis) -> Outcome<()> {
    let (Some(first), Some(last)) = (exchanges.first(), exchanges.last()) else { return Ok(()) };
    let within = (places(first.job).0, places(last.job).1);
    let rows = tx.db.memory(MemoryOf::Thread(&of.role, &thread(of.id), within))?;
    // Of each place the last one is what became of it.
    let known: HashMap<i64, MemoryRow> = rows.into_iter().filter_map(|row| Some((row.spot.as_ref()?.1, row))).collect();
    let mut saved = Vec::new();
    for new in exchanges.iter().filter(|exchange| exchange.state.is_final()).flat_map(|one| turns(of.id, &of.role, one))
    {
        match new.spot.as_ref().and_then(|spot| known.get(&spot.place)) {
            None => {
                let revision = tx.db.last_memory_revision()? + 1;
                saved.push(insert(tx, &new, Lineage { version: 1, supersedes: None, revision }, now)?);
            }
            Some(row) if row.ended_at.is_some() || text(tx.keys, row).is_ok_and(|text| text == new.text) => {}
            Some(row) => drop(replace(tx, row, &new, now)?),
        }
    }
    words::index(tx.db, tx.keys, &saved)
}

/// Deletes what is remembered of an exchange, or of the whole session.
pub fn forget<D: Driver>(db: &mut D, of: &Session, exchange: Option<JobId>) -> Done<()> {
    db.drop_thread(&of.role, &thread(of.id), exchange.map_or((0, i64::MAX), places))
}
