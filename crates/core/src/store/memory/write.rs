//! Writing items: what all ways of saving one have in common.

use super::{vectors, words};
use crate::clock::Millis;
use crate::memory::{Became, MemoryId, NewMemory, Origin, Remembered, normalised};
use crate::store::driver::{Driver, MemoryEnd, MemoryOf, MemoryRow};
use crate::store::seal::Place;
use crate::store::{Outcome, Tx};

/// What a call saved when it was made before.
pub(super) fn of_call<D: Driver>(tx: &mut Tx<'_, D>, key: Option<&str>) -> Outcome<Option<Remembered>> {
    let Some(key) = key else { return Ok(None) };
    let found = tx.db.memory(MemoryOf::Effect(key))?.pop();
    Ok(found.map(|row| Remembered { id: MemoryId(row.id), became: Became::Again }))
}

/// What an item has of those before it.
pub(in crate::store) struct Lineage {
    pub version: i64,
    pub supersedes: Option<MemoryId>,
    pub revision: i64,
}

/// Stores an item, whose words are not indexed yet.
pub(in crate::store) fn insert<D: Driver>(
    tx: &mut Tx<'_, D>,
    new: &NewMemory,
    of: Lineage,
    now: Millis,
) -> Outcome<MemoryId> {
    let Lineage { version, supersedes, revision } = of;
    let created_at = new.at.unwrap_or(now);
    let metadata = match new.metadata.is_empty() {
        true => None,
        false => Some(tx.keys.seal(Place::metadata(created_at, revision), serde_json::to_string(&new.metadata)?)),
    };
    let Origin { author, job, step, tool, untrusted, source } = new.origin.clone();
    let row = MemoryRow {
        scope: new.scope.clone(),
        tier: new.tier.as_str().into(),
        content: tx.keys.seal(Place::remembered(created_at, revision), new.text.as_str()),
        metadata,
        tags: serde_json::to_string(&new.tags)?,
        job,
        seq: Some(revision),
        // What has none left a conversation.
        step: Some(step.map_or(0, |step| i64::try_from(step).unwrap_or(i64::MAX))),
        author,
        tool,
        untrusted,
        source,
        spot: new.spot.as_ref().map(|spot| (spot.thread.clone(), spot.place)),
        fingerprint: new.spot.is_none().then(|| tx.keys.fingerprint(&normalised(&new.text))),
        effect_key: new.effect_key.clone(),
        version,
        supersedes: supersedes.map(|id| id.0),
        revision,
        created_at,
        ..MemoryRow::default()
    };
    Ok(tx.db.insert_memory(&row)?)
}

/// Has an item hold no more, in favour of another one that there is.
pub(super) fn give_way<D: Driver>(tx: &mut Tx<'_, D>, row: &MemoryRow, to: MemoryId, now: Millis) -> Outcome<()> {
    let revision = tx.db.last_memory_revision()? + 1;
    end(tx, row, Some(to), revision, now)?;
    gone(tx, row)
}

/// Stores an item in the place of another one, which is found no more.
pub(in crate::store) fn replace<D: Driver>(
    tx: &mut Tx<'_, D>,
    old: &MemoryRow,
    new: &NewMemory,
    now: Millis,
) -> Outcome<MemoryId> {
    let revision = tx.db.last_memory_revision()? + 1;
    // First it gives up its place, which its successor takes: also where what is held in memory follows the revisions.
    end(tx, old, None, revision, now)?;
    let lineage = Lineage { version: old.version + 1, supersedes: Some(MemoryId(old.id)), revision: revision + 1 };
    let id = insert(tx, new, lineage, now)?;
    end(tx, old, Some(id), revision, now)?;
    gone(tx, old)?;
    words::index(tx.db, tx.keys, &[id])?;
    Ok(id)
}

fn end<D: Driver>(
    tx: &mut Tx<'_, D>,
    row: &MemoryRow,
    superseded_by: Option<MemoryId>,
    revision: i64,
    now: Millis,
) -> Outcome<()> {
    let end = MemoryEnd { superseded_by, at: row.ended_at.unwrap_or(now), revision, ..MemoryEnd::default() };
    Ok(tx.db.end_memory(MemoryId(row.id), &end)?)
}

/// Takes an item that holds no more out of the indexes, and what it was to those beside it.
pub(super) fn gone<D: Driver>(tx: &mut Tx<'_, D>, row: &MemoryRow) -> Outcome<()> {
    tx.db.drop_words(MemoryId(row.id))?;
    words::index_beside(tx.db, tx.keys, row)?;
    vectors::gone(tx.db, tx.keys, row)
}
