//! What is remembered: saving, changing and forgetting it.
//!
//! An item holds until it ends: replaced by another one, or forgotten. The words and vectors of those that hold are
//! indexed in the transaction that changes them, unless texts are sealed; then [`held`] has them, in memory alone.

use super::driver::{Driver, MemoryEnd, MemoryOf, MemoryRow};
use super::fault::{misused, refused};
use super::guard::{guard, guarded};
use super::seal::{Keys, Place};
use super::{Outcome, Tx};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::memory::block::{self, CORE_MEMORY_EDIT};
use crate::memory::{
    Became, CONVERSATION, Forgetting, MemoryFilter, MemoryId, MemoryItem, MemoryStanding, NewMemory, Origin, PERSON,
    Remembered, Revision, Tier, normalised,
};
use row::item;
use write::{give_way, gone, of_call};

pub(super) use row::text;
pub(super) use write::{Lineage, insert, replace};

pub mod blocks;
pub mod held;
mod row;
pub mod search;
pub mod vectors;
pub mod words;
mod write;

/// Items in one transaction, where there may be many.
const AT_ONCE: u32 = 500;

/// Saves items, all or none.
pub fn save<D: Driver>(
    tx: &mut Tx<'_, D>,
    new: &[NewMemory],
    by: Option<Lease>,
    now: Millis,
) -> Outcome<Vec<Remembered>> {
    guard(tx, by)?;
    let mut saved = Vec::with_capacity(new.len());
    let mut changed = Vec::new();
    let mut revision = tx.db.last_memory_revision()?;
    for new in new {
        if let Some(known) = known(tx, new)? {
            saved.push(known);
            continue;
        }
        revision += 1;
        let id = insert(tx, new, Lineage { version: 1, supersedes: None, revision }, now)?;
        saved.push(Remembered { id, became: Became::Saved });
        changed.push(id);
    }
    words::index(tx.db, tx.keys, &changed)?;
    Ok(saved)
}

/// The item that makes saving this one needless, if there is one.
fn known<D: Driver>(tx: &mut Tx<'_, D>, new: &NewMemory) -> Outcome<Option<Remembered>> {
    if let Some(again) = of_call(tx, new.effect_key.as_deref())? {
        return Ok(Some(again));
    }
    let prints;
    let of = match &new.spot {
        Some(spot) => MemoryOf::Spot(&new.scope, &spot.thread, spot.place),
        None => {
            prints = tx.keys.fingerprints(&normalised(&new.text));
            MemoryOf::Same(&new.scope, &prints)
        }
    };
    let found = tx.db.memory(of)?.pop();
    Ok(found.map(|row| Remembered { id: MemoryId(row.id), became: Became::Known }))
}

/// Keeps what leaves a run's conversation with its entry `seq`. It has read what tools gave, so nobody vouches for it.
pub fn archive<D: Driver>(tx: &mut Tx<'_, D>, lease: Lease, seq: u64, content: &str, now: Millis) -> Outcome<()> {
    let role = guarded(tx.db, lease)?.role;
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let before = tx.db.memory(MemoryOf::Archived(lease.job))?;
    if before.iter().any(|row| row.seq == Some(seq)) {
        return Ok(());
    }
    let row = MemoryRow {
        scope: role.clone(),
        tier: Tier::Archival.as_str().into(),
        content: tx.keys.seal(Place::remembered(now, seq), content),
        tags: "[]".into(),
        job: Some(lease.job),
        seq: Some(seq),
        author: role,
        untrusted: true,
        source: Some(CONVERSATION.into()),
        spot: Some((format!("archive {}", lease.job), seq)),
        version: 1,
        revision: tx.db.last_memory_revision()? + 1,
        created_at: now,
        ..MemoryRow::default()
    };
    let id = tx.db.insert_memory(&row)?;
    words::index(tx.db, tx.keys, &[id])
}

/// What was archived of a job's conversation, in the order of entries.
pub fn archived<D: Driver>(db: &mut D, keys: &Keys, job: crate::job::JobId) -> Outcome<Vec<(u64, String)>> {
    let archived = |row: MemoryRow| Ok((row.seq.unwrap_or_default().unsigned_abs(), text(keys, &row)?.into_owned()));
    db.memory(MemoryOf::Archived(job))?.into_iter().map(archived).collect()
}

/// Replaces an item by a changed one; by one that says the same already, where there is such.
pub fn revise<D: Driver>(
    tx: &mut Tx<'_, D>,
    id: MemoryId,
    to: &Revision,
    by: Option<Lease>,
    now: Millis,
) -> Outcome<Remembered> {
    guard(tx, by)?;
    if let Some(again) = of_call(tx, to.effect_key.as_deref())? {
        return Ok(again);
    }
    let row = existing(tx, id)?;
    let is_person = to.origin.author == PERSON;
    if row.tier == Tier::Core.as_str() {
        let name = block::name_of(&item(tx.keys, row)).unwrap_or_default().to_owned();
        return Err(refused(format!(
            "item {id} is a version of the block {name}, which posse memory block edit changes, and {CORE_MEMORY_EDIT}"
        )));
    }
    if let Some(newer) = row.superseded_by {
        return Err(refused(format!("item {id} was replaced by item {newer}; change that one")));
    }
    if row.ended_at.is_some() && !is_person {
        return Err(refused(format!("item {id} was forgotten; save it anew if it holds")));
    }
    if row.author == PERSON && !is_person && to.origin.untrusted {
        return Err(refused(format!(
            "item {id} was written by a person, and you have read what others wrote ({}); save what you know as an item \
             of its own",
            to.origin.source.as_deref().unwrap_or("untrusted")
        )));
    }
    let old = item(tx.keys, row.clone());
    let text = to.text.clone().unwrap_or_else(|| old.text.clone());
    let new = NewMemory {
        scope: row.scope.clone(),
        tier: old.tier,
        text,
        metadata: to.metadata.clone().unwrap_or(old.metadata),
        tags: to.tags.clone().unwrap_or(old.tags),
        // What was not trusted stays so, unless a person has looked at it.
        origin: Origin {
            untrusted: !is_person && (to.origin.untrusted || row.untrusted),
            source: if is_person { None } else { to.origin.source.clone().or(row.source.clone()) },
            ..to.origin.clone()
        },
        spot: old.spot,
        at: Some(now),
        effect_key: to.effect_key.clone(),
    };
    let same = match new.spot {
        Some(_) => None,
        None => {
            let prints = tx.keys.fingerprints(&normalised(&new.text));
            tx.db.memory(MemoryOf::Same(&new.scope, &prints))?.pop().filter(|same| same.id != id.0)
        }
    };
    if let Some(same) = same {
        let same = MemoryId(same.id);
        give_way(tx, &row, same, now)?;
        return Ok(Remembered { id: same, became: Became::Known });
    }
    let new_id = replace(tx, &row, &new, now)?;
    Ok(Remembered { id: new_id, became: Became::Saved })
}

fn existing<D: Driver>(tx: &mut Tx<'_, D>, id: MemoryId) -> Outcome<MemoryRow> {
    let found = tx.db.memory(MemoryOf::Ids(&[id]))?.pop();
    found.ok_or_else(|| refused(format!("there is no item {id}; a search tells the numbers of those there are")))
}

/// Has these items hold no more; gives how many of them held, or had a text to be erased.
pub fn forget<D: Driver>(
    tx: &mut Tx<'_, D>,
    ids: &[MemoryId],
    how: &Forgetting,
    by: Option<Lease>,
    now: Millis,
) -> Outcome<u64> {
    guard(tx, by)?;
    let mut forgotten = 0;
    let mut revision = tx.db.last_memory_revision()?;
    for id in ids {
        let Some(row) = tx.db.memory(MemoryOf::Ids(&[*id]))?.pop() else { continue };
        let held = row.ended_at.is_none();
        let mut of = vec![row];
        // What it replaced says nearly the same. But what a block said before is what people bring back.
        let is_block = of[0].tier == Tier::Core.as_str();
        while let Some(before) = of.last().and_then(|row| row.supersedes).filter(|_| how.erase && !is_block) {
            let Some(row) = tx.db.memory(MemoryOf::Ids(&[MemoryId(before)]))?.pop() else { break };
            of.push(row);
        }
        let mut changed = false;
        for (position, row) in of.iter().enumerate() {
            let has_text = !text(tx.keys, row).is_ok_and(|text| text.is_empty());
            if !(how.erase && has_text || position == 0 && held) {
                continue;
            }
            revision += 1;
            changed = true;
            let seal = |place: Place<'_>, text: &str| tx.keys.seal(place, text);
            let seq = row.seq.unwrap_or_default();
            let end = MemoryEnd {
                superseded_by: row.superseded_by.map(MemoryId),
                at: row.ended_at.unwrap_or(now),
                reason: Some(seal(Place::forgotten(row.created_at, seq), &how.reason)),
                erased: how.erase.then(|| seal(Place::remembered(row.created_at, seq), "")),
                revision,
            };
            tx.db.end_memory(MemoryId(row.id), &end)?;
        }
        if held {
            gone(tx, &of[0])?;
        }
        forgotten += u64::from(changed);
    }
    Ok(forgotten)
}

/// How the indexes stand.
pub fn standing<D: Driver>(db: &mut D, keys: &Keys) -> Outcome<MemoryStanding> {
    let standing = db.memory_standing(keys.seals())?;
    let Some(chosen) = db.memory_space()? else { return Ok(standing) };
    let (unindexed_vectors, stray_vectors) = match chosen.filled_through {
        // What is not there yet is counted as such.
        Some(_) => (0, 0),
        None => db.vector_faults(&chosen.space, keys.seals())?,
    };
    let without_vector = db.without_vector(&chosen)?;
    Ok(MemoryStanding { space: Some(chosen.space), without_vector, unindexed_vectors, stray_vectors, ..standing })
}

/// Some of the items that fit, to be forgotten in one transaction.
pub fn some<D: Driver>(db: &mut D, filter: &MemoryFilter, before: i64) -> Outcome<Vec<MemoryId>> {
    let rows = db.memory(MemoryOf::Listed(filter, before, AT_ONCE))?;
    Ok(rows.into_iter().map(|row| MemoryId(row.id)).collect())
}

/// One item, whatever became of it.
pub fn one<D: Driver>(db: &mut D, keys: &Keys, id: MemoryId) -> Outcome<Option<MemoryItem>> {
    Ok(db.memory(MemoryOf::Ids(&[id]))?.pop().map(|row| item(keys, row)))
}

/// What an item was before it was changed, and what it became, oldest first.
pub fn history<D: Driver>(db: &mut D, keys: &Keys, id: MemoryId) -> Outcome<Vec<MemoryItem>> {
    let mut all: Vec<MemoryItem> = Vec::new();
    let mut next = Some(id);
    while let Some(row) = next.and_then(|id| one(db, keys, id).transpose()).transpose()? {
        next = row.supersedes;
        all.push(row);
    }
    all.reverse();
    while let Some(after) = all.last().and_then(|item| item.superseded_by) {
        // Two may have become one, which is no reason to go in circles.
        if all.iter().any(|item| item.id == after) {
            break;
        }
        let Some(item) = one(db, keys, after)? else { break };
        all.push(item);
    }
    Ok(all)
}

/// Items that fit, newest first, with smaller numbers than `before`.
pub fn list<D: Driver>(
    db: &mut D,
    keys: &Keys,
    filter: &MemoryFilter,
    before: i64,
    most: u32,
) -> Outcome<Vec<MemoryItem>> {
    Ok(db.memory(MemoryOf::Listed(filter, before, most))?.into_iter().map(|row| item(keys, row)).collect())
}

/// Refuses what cannot be an item.
pub(super) fn checked(new: &[NewMemory]) -> Outcome<()> {
    new.iter().try_for_each(|new| {
        crate::memory::check(new).map_err(|(field, why)| misused(format!("the {field} of an item {why}")))?;
        block::check(new).map_err(|why| misused(format!("an item {why}")))
    })
}
