//! The index of words, kept in step with the items.

use std::collections::BTreeSet;

use super::row::text;
use crate::memory::words::{around, spread};
use crate::memory::{MemoryId, normalised};
use crate::store::Outcome;
use crate::store::driver::{Driver, MemoryOf, MemoryRow};
use crate::store::seal::Keys;

/// Items read, or indexed anew in one transaction.
const AT_ONCE: u32 = 500;

/// Indexes items that are new, and anew what stands beside them. Where texts are sealed nothing is written.
pub fn index<D: Driver>(db: &mut D, keys: &Keys, ids: &[MemoryId]) -> Outcome<()> {
    if keys.seals() {
        return Ok(());
    }
    let mut done = BTreeSet::new();
    for some in ids.chunks(AT_ONCE as usize) {
        for row in db.memory(MemoryOf::Ids(some))? {
            one(db, keys, &row, &mut done, true)?;
        }
    }
    Ok(())
}

/// Indexes anew what stands beside an item that holds no more.
pub fn index_beside<D: Driver>(db: &mut D, keys: &Keys, gone: &MemoryRow) -> Outcome<()> {
    if keys.seals() {
        return Ok(());
    }
    let mut done = BTreeSet::from([gone.id]);
    for row in beside(db, gone)?.into_iter().flatten() {
        one(db, keys, &row, &mut done, false)?;
    }
    Ok(())
}

fn one<D: Driver>(db: &mut D, keys: &Keys, row: &MemoryRow, done: &mut BTreeSet<i64>, and_beside: bool) -> Outcome<()> {
    if row.ended_at.is_some() || !done.insert(row.id) {
        return Ok(());
    }
    let [before, after] = beside(db, row)?;
    // One whose key is not here cannot be searched, and is no reason to fail.
    let open =
        |row: &Option<MemoryRow>| row.as_ref().and_then(|row| text(keys, row).ok().map(|text| text.into_owned()));
    let Ok(own) = text(keys, row) else { return Ok(()) };
    db.index_words(MemoryId(row.id), &spread(&own), &around(open(&before).as_deref(), open(&after).as_deref()))?;
    if and_beside {
        for row in [before, after].into_iter().flatten() {
            one(db, keys, &row, done, false)?;
        }
    }
    Ok(())
}

/// What stands before an item in its conversation, and what after it.
pub(super) fn beside<D: Driver>(db: &mut D, row: &MemoryRow) -> Outcome<[Option<MemoryRow>; 2]> {
    let Some((thread, place)) = &row.spot else { return Ok([None, None]) };
    let mut beside = [None, None];
    for other in db.memory(MemoryOf::Beside(&row.scope, thread, *place))? {
        let is_after = other.spot.as_ref().is_some_and(|(_, its)| its > place);
        beside[usize::from(is_after)] = Some(other);
    }
    Ok(beside)
}

/// Indexes some items anew, those with higher numbers than `after`, and gives the last of them; none behind the last
/// one. What an item is known by is made anew too. With `after` 0 all words are dropped first.
pub fn reindex<D: Driver>(db: &mut D, keys: &Keys, after: i64) -> Outcome<Option<i64>> {
    if after == 0 {
        db.drop_all_words()?;
    }
    let rows = db.memory(MemoryOf::After(after, AT_ONCE))?;
    let mut done = BTreeSet::new();
    for row in rows.iter().filter(|row| row.ended_at.is_none()) {
        if row.fingerprint.is_some()
            && let Ok(own) = text(keys, row)
        {
            let print = keys.fingerprint(&normalised(&own));
            db.print_memory(MemoryId(row.id), &print)?;
        }
        if !keys.seals() {
            one(db, keys, row, &mut done, false)?;
        }
    }
    Ok(rows.last().filter(|_| rows.len() == AT_ONCE as usize).map(|row| row.id))
}
