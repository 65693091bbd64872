//! A row of what is remembered as the item it is.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::memory::{MemoryId, MemoryItem, Origin, Spot, Tier};
use crate::store::Outcome;
use crate::store::driver::MemoryRow;
use crate::store::seal::{Keys, Place, Sealed};

/// What an item says.
pub(in crate::store) fn text<'a>(keys: &Keys, row: &'a MemoryRow) -> Outcome<Cow<'a, str>> {
    Ok(keys.open(place(row), &row.content)?)
}

fn place(row: &MemoryRow) -> Place<'static> {
    Place::remembered(row.created_at, row.seq.unwrap_or_default())
}

/// An item as it is shown: what cannot be opened is a remark that says so.
pub(super) fn item(keys: &Keys, row: MemoryRow) -> MemoryItem {
    let seq = row.seq.unwrap_or_default();
    let metadata = |sealed: &Sealed| -> Map<String, Value> {
        let opened = keys.open(Place::metadata(row.created_at, seq), sealed);
        opened.ok().and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
    };
    MemoryItem {
        id: MemoryId(row.id),
        tier: Tier::ALL.into_iter().find(|tier| tier.as_str() == row.tier).unwrap_or_default(),
        text: keys.show(place(&row), &row.content),
        metadata: row.metadata.as_ref().map(metadata).unwrap_or_default(),
        tags: serde_json::from_str(&row.tags).unwrap_or_default(),
        origin: Origin {
            author: row.author,
            job: row.job,
            step: row.step.filter(|_| row.tool.is_some()).and_then(|step| u64::try_from(step).ok()),
            tool: row.tool,
            untrusted: row.untrusted,
            source: row.source,
        },
        spot: row.spot.map(|(thread, place)| Spot { thread, place }),
        version: u32::try_from(row.version).unwrap_or(1),
        supersedes: row.supersedes.map(MemoryId),
        superseded_by: row.superseded_by.map(MemoryId),
        created_at: row.created_at,
        ended_at: row.ended_at,
        reason: row.reason.map(|reason| keys.show(Place::forgotten(row.created_at, seq), &reason)),
        model: row.model,
        dimension: row.dimension.and_then(|n| u32::try_from(n).ok()),
        scope: row.scope,
    }
}
