//! Core blocks: what runs begin with, each version an item of its own.

use std::collections::BTreeSet;

use super::row::{item, text};
use super::words;
use super::write::{Lineage, insert, replace};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::memory::block::{
    Block, BlockEdit, BlockEdited, Change, MAX_BLOCKS, NOTES, PROFILE, is_standing, name_of, thread,
};
use crate::memory::{Became, MemoryItem, NewMemory, Origin, PERSON, SHARED, Spot, Tier};
use crate::store::driver::{Driver, MemoryOf, MemoryRow};
use crate::store::fault::refused;
use crate::store::guard::guard;
use crate::store::seal::Keys;
use crate::store::{Outcome, Tx};
use crate::text::plural;

/// What is known of the version that a block was brought back to.
const RESTORES: &str = "restores";

/// The blocks of these scopes, or all, by scope and name.
pub fn all<D: Driver>(db: &mut D, keys: &Keys, scopes: Option<&[String]>) -> Outcome<Vec<Block>> {
    let rows = db.memory(MemoryOf::Core(scopes))?;
    Ok(rows.into_iter().filter_map(|row| block(item(keys, row))).collect())
}

fn block(item: MemoryItem) -> Option<Block> {
    let name = name_of(&item)?.to_owned();
    Some(Block { name, scope: item.scope, text: item.text, version: item.version })
}

/// Every version of a block, oldest first.
pub fn history<D: Driver>(db: &mut D, keys: &Keys, scope: &str, name: &str) -> Outcome<Vec<MemoryItem>> {
    Ok(versions(db, scope, name)?.into_iter().map(|row| item(keys, row)).collect())
}

fn versions<D: Driver>(db: &mut D, scope: &str, name: &str) -> Outcome<Vec<MemoryRow>> {
    let mut rows = db.memory(MemoryOf::Thread(scope, &thread(name), (0, 0)))?;
    rows.sort_by_key(|row| row.version);
    Ok(rows)
}

/// Changes a block. One that there is not is begun by a person alone, but for those that are always there; and who has
/// read what others wrote changes none.
pub fn edit<D: Driver>(
    tx: &mut Tx<'_, D>,
    (scope, name): (&str, &str),
    edit: &BlockEdit,
    by: Option<Lease>,
    now: Millis,
) -> Outcome<BlockEdited> {
    guard(tx, by)?;
    let BlockEdit { change, origin, effect_key } = edit;
    let rows = versions(tx.db, scope, name)?;
    if let Some(at) = rows.iter().position(|row| effect_key.is_some() && row.effect_key == *effect_key) {
        return again(tx.keys, &rows[at], at.checked_sub(1).map(|at| &rows[at]), change);
    }
    if origin.untrusted {
        return Err(refused(format!(
            "you have read what others wrote ({}), and nothing of theirs comes into a block by itself; save it with \
             memory_save, from where a person can take it into the block (posse memory block edit)",
            origin.source.as_deref().unwrap_or("untrusted")
        )));
    }
    let current = rows.last().filter(|row| row.ended_at.is_none());
    let before = current.map_or(Ok("".into()), |row| text(tx.keys, row))?;
    if current.is_none() && !is_standing(scope, name) {
        let mut others = all(tx.db, tx.keys, Some(&[scope.to_owned()]))?;
        if origin.author != PERSON {
            return Err(refused(format!(
                "there is no block {name}; there are {}. A person begins others (posse memory block edit)",
                known(scope, &others)
            )));
        }
        others.retain(|block| !is_standing(scope, &block.name));
        if others.len() >= MAX_BLOCKS {
            return Err(refused(format!(
                "{scope} has {} beside the one that is always there, and there may be no more; add to one of {}",
                plural(MAX_BLOCKS as u64, "block"),
                known(scope, &others)
            )));
        }
    }
    let Some((text, left_out)) = change.of(&before) else {
        return Err(refused(format!(
            "the block {name} has no such text to be replaced. It says:\n{}",
            crate::text::quoted(&before)
        )));
    };
    if text == before {
        let block = Block { scope: scope.into(), name: name.into(), text, version: version(current) };
        return Ok(BlockEdited { block, became: Became::Known, left_out });
    }
    let new = NewMemory {
        scope: scope.into(),
        tier: Tier::Core,
        text,
        origin: origin.clone(),
        spot: Some(Spot { thread: thread(name), place: 0 }),
        effect_key: effect_key.clone(),
        ..NewMemory::default()
    };
    let block = put(tx, &rows, new, now)?;
    Ok(BlockEdited { block, became: Became::Saved, left_out })
}

/// What came of a change that was made before.
fn again(keys: &Keys, made: &MemoryRow, before: Option<&MemoryRow>, change: &Change) -> Outcome<BlockEdited> {
    let before = before.map_or(Ok("".into()), |row| text(keys, row))?;
    let left_out = change.of(&before).map(|(_, left_out)| left_out).unwrap_or_default();
    let block = block(item(keys, made.clone())).unwrap_or_default();
    Ok(BlockEdited { block, became: Became::Again, left_out })
}

/// The names of the blocks that an agent of a role may change.
fn known(scope: &str, blocks: &[Block]) -> String {
    let standing = [NOTES, PROFILE].into_iter().filter(|name| scope != SHARED || *name == PROFILE);
    let names: BTreeSet<_> = blocks.iter().map(|block| block.name.as_str()).chain(standing).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn version(row: Option<&MemoryRow>) -> u32 {
    row.map_or(0, |row| u32::try_from(row.version).unwrap_or(u32::MAX))
}

/// Stores a version behind those there are.
fn put<D: Driver>(tx: &mut Tx<'_, D>, rows: &[MemoryRow], new: NewMemory, now: Millis) -> Outcome<Block> {
    let last = rows.last();
    match last.filter(|row| row.ended_at.is_none()) {
        Some(current) => drop(replace(tx, current, &new, now)?),
        None => {
            // One whose text was forgotten goes on with the numbers that it had.
            let revision = tx.db.last_memory_revision()? + 1;
            let version = last.map_or(0, |row| row.version) + 1;
            let id = insert(tx, &new, Lineage { version, supersedes: None, revision }, now)?;
            words::index(tx.db, tx.keys, &[id])?;
        }
    }
    let name = new.spot.as_ref().and_then(|spot| spot.thread.strip_prefix(&thread(""))).unwrap_or_default();
    let version = version(last) + 1;
    Ok(Block { scope: new.scope, name: name.into(), text: new.text, version })
}

/// Brings back what a block said in a version, or before its last change; doing that again goes back further. It is a
/// version of its own.
pub fn restore<D: Driver>(
    tx: &mut Tx<'_, D>,
    (scope, name): (&str, &str),
    to: Option<u32>,
    now: Millis,
) -> Outcome<Block> {
    let rows = versions(tx.db, scope, name)?;
    let Some(last) = rows.last() else {
        return Err(refused(format!(
            "there is no block {name} of {scope}; posse memory block list shows those there are"
        )));
    };
    let stands_for = |row: &MemoryRow| {
        let metadata = item(tx.keys, row.clone()).metadata;
        metadata.get(RESTORES).and_then(serde_json::Value::as_i64).unwrap_or(row.version)
    };
    let is_there = |row: &&MemoryRow| row.reason.is_none();
    let found = match to {
        Some(to) => rows.iter().filter(is_there).find(|row| row.version == i64::from(to)),
        None => {
            let before = stands_for(last);
            let older = rows.iter().filter(is_there).filter(|row| row.version < before);
            older.max_by_key(|row| row.version)
        }
    };
    let (text, restores) = match (found, to) {
        (Some(row), _) => (text(tx.keys, row)?.into_owned(), stands_for(row)),
        // Before its first version it said nothing.
        (None, None) if stands_for(last) > 0 => (String::new(), 0),
        (None, None) => return Err(refused(format!("the block {name} says nothing, as before its first version"))),
        (None, Some(to)) => {
            return Err(refused(format!(
                "the block {name} has no version {to}, or its text was forgotten; posse memory block history {name} shows \
                 those there are"
            )));
        }
    };
    let new = NewMemory {
        scope: scope.into(),
        tier: Tier::Core,
        text,
        metadata: [(RESTORES.to_owned(), restores.into())].into_iter().collect(),
        origin: Origin { author: PERSON.into(), ..Origin::default() },
        spot: Some(Spot { thread: thread(name), place: 0 }),
        ..NewMemory::default()
    };
    put(tx, &rows, new, now)
}
