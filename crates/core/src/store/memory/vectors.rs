//! Vectors of items, and the index of them, kept in step with the items.
//!
//! An item's own vector is at rest with it, sealed where texts are. In the index is what is compared: the vector of an
//! item with something of those beside it, of one model at a time. Where texts are sealed the index is in memory alone.

use std::collections::BTreeSet;

use super::words::beside;
use crate::clock::Millis;
use crate::memory::meaning::{CANDIDATES, Meaning, POOL, Space, bytes, in_context, likeness, numbers, signs};
use crate::memory::{ChosenSpace, MemoryFilter, MemoryId, ToEmbed};
use crate::store::driver::{Driver, MemoryOf, MemoryRow};
use crate::store::fault::misused;
use crate::store::seal::{Keys, Place};
use crate::store::{Outcome, Tx};

/// Items looked at in one transaction.
const AT_ONCE: u32 = 200;

/// Has vectors of this model be compared from now on, where there are none of another or those yield to it; gives whose
/// are. `began` is absent where nobody chose it. What there is of the model already is put into the index by [`fill`].
pub fn choose<D: Driver>(tx: &mut Tx<'_, D>, space: &Space, began: Option<Millis>) -> Outcome<ChosenSpace> {
    let fresh = |chosen_at| ChosenSpace { space: space.clone(), chosen_at, filled_through: Some(MemoryId(0)) };
    let chosen = match tx.db.memory_space()? {
        Some(now) if now.space == *space => {
            let chosen_at = began.unwrap_or(now.chosen_at).max(now.chosen_at);
            ChosenSpace { chosen_at, ..now }
        }
        Some(now) if !now.yields_to(space, began) => return Ok(now),
        _ => {
            tx.db.make_vectors(space.dimension)?;
            // What nobody chose yields to whatever somebody did.
            fresh(began.unwrap_or(Millis::MIN))
        }
    };
    tx.db.keep_memory_space(&chosen)?;
    Ok(chosen)
}

/// Makes the index anew: empties it, and has [`fill`] put into it what there is.
pub fn begin_anew<D: Driver>(db: &mut D) -> Outcome<()> {
    let Some(chosen) = db.memory_space()? else { return Ok(()) };
    db.make_vectors(chosen.space.dimension)?;
    Ok(db.keep_memory_space(&ChosenSpace { filled_through: Some(MemoryId(0)), ..chosen })?)
}

/// Puts some of the vectors into the index that were there before their model was chosen; whether there may be more.
pub fn fill<D: Driver>(db: &mut D, keys: &Keys) -> Outcome<bool> {
    let Some(ChosenSpace { space, chosen_at, filled_through: Some(after) }) = db.memory_space()? else {
        return Ok(false);
    };
    // Where texts are sealed nothing of them is in the file.
    let rows = if keys.seals() { Vec::new() } else { db.embedded(&space, after, AT_ONCE)? };
    for row in &rows {
        if let Some(vector) = compared(db, keys, &space, row)? {
            db.put_vector(MemoryId(row.id), &row.scope, &vector)?;
        }
    }
    let last = rows.last().filter(|_| rows.len() == AT_ONCE as usize).map(|row| MemoryId(row.id));
    db.keep_memory_space(&ChosenSpace { space, chosen_at, filled_through: last })?;
    Ok(last.is_some())
}

/// Some of the items that have no vector of a model.
pub fn to_embed<D: Driver>(db: &mut D, keys: &Keys, space: &Space, most: u32) -> Outcome<Vec<ToEmbed>> {
    let rows = db.unembedded(space, most)?;
    let of = |row: &MemoryRow| super::row::text(keys, row).ok().map(|text| text.into_owned());
    Ok(rows.iter().map(|row| ToEmbed { id: MemoryId(row.id), text: of(row) }).collect())
}

/// Stores vectors that a model made of items, and gives of how many: none if the vectors of another are compared by now,
/// and not those of items that have ended meanwhile.
pub fn store<D: Driver>(tx: &mut Tx<'_, D>, space: &Space, made: &[(MemoryId, Vec<f32>)]) -> Outcome<u64> {
    if tx.db.memory_space()?.is_none_or(|chosen| chosen.space != *space) {
        return Ok(0);
    }
    let mut revision = tx.db.last_memory_revision()?;
    let mut stored = Vec::with_capacity(made.len());
    for (id, vector) in made {
        if vector.len() != space.dimension {
            let (has, ought) = (vector.len(), space.dimension);
            return Err(misused(format!("a vector of {} has {has} numbers and not {ought}", space.model)));
        }
        let Some(row) = tx.db.memory(MemoryOf::Ids(&[*id]))?.pop().filter(|row| row.ended_at.is_none()) else {
            continue;
        };
        revision += 1;
        let sealed = bytes(vector);
        tx.db.embed(*id, space, &tx.keys.seal_bytes(place(&row), &sealed), revision)?;
        stored.push(row);
    }
    if !tx.keys.seals() {
        index(tx.db, tx.keys, space, &stored)?;
    }
    Ok(stored.len() as u64)
}

/// Puts vectors of items into the index, and anew those of what stands beside them.
fn index<D: Driver>(db: &mut D, keys: &Keys, space: &Space, rows: &[MemoryRow]) -> Outcome<()> {
    let mut done = BTreeSet::new();
    for row in rows {
        let around = beside(db, row)?;
        for row in [Some(row), around[0].as_ref(), around[1].as_ref()].into_iter().flatten() {
            if done.insert(row.id)
                && let Some(vector) = compared(db, keys, space, row)?
            {
                db.put_vector(MemoryId(row.id), &row.scope, &vector)?;
            }
        }
    }
    Ok(())
}

/// Takes an item that holds no more out of the index, and what it was to those beside it.
pub fn gone<D: Driver>(db: &mut D, keys: &Keys, gone: &MemoryRow) -> Outcome<()> {
    let Some(chosen) = db.memory_space()?.filter(|_| !keys.seals()) else { return Ok(()) };
    db.drop_vector(MemoryId(gone.id))?;
    for row in beside(db, gone)?.into_iter().flatten() {
        if let Some(vector) = compared(db, keys, &chosen.space, &row)? {
            db.put_vector(MemoryId(row.id), &row.scope, &vector)?;
        }
    }
    Ok(())
}

/// What is compared of an item that holds: its vector with something of those beside it; none where it has none of this
/// model, or none that can be opened.
pub(super) fn compared<D: Driver>(
    db: &mut D,
    keys: &Keys,
    space: &Space,
    row: &MemoryRow,
) -> Outcome<Option<Vec<f32>>> {
    let Some(vector) = own(db, keys, space, row)? else { return Ok(None) };
    let mut around = Vec::new();
    for row in beside(db, row)?.iter().flatten() {
        around.extend(own(db, keys, space, row)?);
    }
    Ok(Some(in_context(&vector, around.iter().map(Vec::as_slice))))
}

fn own<D: Driver>(db: &mut D, keys: &Keys, space: &Space, row: &MemoryRow) -> Outcome<Option<Vec<f32>>> {
    let stored = db.embedding(MemoryId(row.id), space)?;
    let opened = stored.and_then(|stored| keys.open_bytes(place(row), stored).ok());
    Ok(opened.and_then(|bytes| numbers(&bytes, space.dimension)))
}

fn place(row: &MemoryRow) -> Place<'static> {
    Place::embedding(row.created_at, row.seq.unwrap_or_default())
}

/// The items that mean most nearly the same, of those that fit: the most alike first.
pub fn alike<D: Driver>(db: &mut D, what: &Meaning, among: &MemoryFilter) -> Outcome<Vec<(MemoryId, f64)>> {
    let order = db.nearest(&signs(&what.vector), among.scopes.as_deref())?;
    let mut near = Vec::new();
    if among.is_of_scopes_alone() {
        near = order;
    } else {
        // Few fit sometimes, so ever more are looked at.
        let (mut rest, mut at_once) = (&order[..], CANDIDATES);
        while near.len() < CANDIDATES && !rest.is_empty() {
            let (now, later) = rest.split_at(at_once.min(rest.len()));
            near.extend(db.fitting(now, among)?);
            (rest, at_once) = (later, 4 * at_once);
        }
    }
    near.truncate(CANDIDATES);
    let of = |(id, vector): (MemoryId, Vec<f32>)| (id, likeness(&what.vector, &vector));
    let mut alike: Vec<_> = db.vectors(&near, what.space.dimension)?.into_iter().map(of).collect();
    alike.sort_by(|(a_id, a), (b_id, b)| b.total_cmp(a).then(b_id.cmp(a_id)));
    alike.truncate(POOL as usize);
    Ok(alike)
}
