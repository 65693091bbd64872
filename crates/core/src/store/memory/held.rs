//! The indexes of a database whose texts are sealed: in the memory of each process, and nowhere else.
//!
//! They are a copy of the items with their texts in the clear, in rows of its own, brought up to date before each search
//! by what has a higher revision than the last. It is bounded: what comes when it is full is left out, and counted.

use std::collections::{BTreeSet, HashSet};

use super::row::text;
use super::vectors::compared;
use super::words::{beside, index, index_beside};
use crate::memory::MemoryId;
use crate::memory::meaning::Space;
use crate::store::Outcome;
use crate::store::driver::{Driver, MemoryEnd, MemoryOf, MemoryRow};
use crate::store::seal::{Keys, Place, Sealed};

/// Most bytes of texts that a process holds.
pub const MAX_BYTES: usize = 64 << 20;

/// Most bytes of vectors that it holds: of 384 numbers some 80,000.
pub const MAX_VECTOR_BYTES: usize = 128 << 20;

/// Items read at once.
const AT_ONCE: u32 = 2_000;

/// Words and vectors in memory.
#[derive(Debug)]
pub struct Held<D> {
    rows: Option<D>,
    /// Where the vectors lie.
    space: Option<Space>,
    /// The revision up to which it is.
    through: i64,
    bytes: usize,
    most: usize,
    most_of_vectors: usize,
    /// Items that had no room.
    left_out: HashSet<i64>,
    with_vector: HashSet<i64>,
    vectors_left_out: HashSet<i64>,
}

impl<D> Default for Held<D> {
    fn default() -> Self {
        Held::of_at_most(MAX_BYTES, MAX_VECTOR_BYTES)
    }
}

impl<D> Held<D> {
    /// One that holds no more than so many bytes of texts, and so many of vectors.
    pub fn of_at_most(most: usize, most_of_vectors: usize) -> Self {
        Held {
            rows: None,
            space: None,
            through: -1,
            bytes: 0,
            most,
            most_of_vectors,
            left_out: HashSet::new(),
            with_vector: HashSet::new(),
            vectors_left_out: HashSet::new(),
        }
    }

    /// Items that had no room.
    pub fn left_out(&self) -> u64 {
        self.left_out.len() as u64
    }

    /// Items whose vectors had none.
    pub fn vectors_left_out(&self) -> u64 {
        self.vectors_left_out.len() as u64
    }
}

impl<D: Driver> Held<D> {
    /// Takes in what changed in the database, and gives the rows to be searched.
    pub fn up_to_date(&mut self, db: &mut D, keys: &Keys) -> Outcome<&mut D> {
        let clear = Keys::default();
        let space = db.memory_space()?.map(|chosen| chosen.space);
        // Vectors of two models never lie side by side.
        let mut rows = match self.rows.take().filter(|_| self.space == space) {
            Some(rows) => rows,
            // From the beginning, also where the last time came to no end.
            None => {
                *self = Held { space, ..Held::of_at_most(self.most, self.most_of_vectors) };
                let mut rows = D::in_memory()?;
                if let Some(space) = &self.space {
                    rows.make_vectors(space.dimension)?;
                }
                rows
            }
        };
        let (mut fresh, mut moved) = (Vec::new(), Vec::new());
        loop {
            let changed = db.memory(MemoryOf::Revised(self.through, AT_ONCE))?;
            let Some(last) = changed.last().map(|row| row.revision) else { break };
            for row in changed {
                let copied = MemoryId(row.id);
                let before = rows.memory(MemoryOf::Ids(&[copied]))?.pop();
                match (before, row.ended_at) {
                    (Some(before), Some(at)) => {
                        rows.end_memory(
                            copied,
                            &MemoryEnd { at, erased: Some(clear.seal(PLACE, "")), ..MemoryEnd::default() },
                        )?;
                        rows.drop_words(copied)?;
                        index_beside(&mut rows, &clear, &before)?;
                        self.drop_vector(&mut rows, row.id)?;
                        moved.extend(beside(db, &row)?.into_iter().flatten());
                    }
                    (Some(_), None) => moved.push(without_text(row)),
                    (None, None) => {
                        let text = text(keys, &row).ok().filter(|text| self.bytes + text.len() <= self.most);
                        let Some(text) = text else {
                            self.left_out.insert(row.id);
                            continue;
                        };
                        self.bytes += text.len();
                        rows.insert_memory(&copy(&row, &text, &clear))?;
                        fresh.push(copied);
                        moved.push(without_text(row));
                    }
                    (None, Some(_)) => {
                        self.left_out.remove(&row.id);
                    }
                }
            }
            self.through = last;
        }
        index(&mut rows, &clear, &fresh)?;
        self.take_vectors(db, keys, &mut rows, &moved)?;
        Ok(self.rows.insert(rows))
    }

    /// Takes in the vectors of items, and anew those of what stands beside them.
    fn take_vectors(&mut self, db: &mut D, keys: &Keys, rows: &mut D, moved: &[MemoryRow]) -> Outcome<()> {
        let Some(space) = self.space.clone() else { return Ok(()) };
        // Of each its numbers, their signs, and what an index costs.
        let each = 4 * space.dimension + space.dimension / 8 + 64;
        let mut done = BTreeSet::new();
        for row in moved {
            // Its own vector may be there or not: those beside it are as they were then.
            let has_own = row.ended_at.is_none() && row.model.is_some();
            let around = if has_own { beside(db, row)? } else { [None, None] };
            for row in [Some(row), around[0].as_ref(), around[1].as_ref()].into_iter().flatten() {
                if self.left_out.contains(&row.id) || row.model.is_none() || !done.insert(row.id) {
                    continue;
                }
                let Some(vector) = compared(db, keys, &space, row)? else { continue };
                if !self.with_vector.contains(&row.id) && (self.with_vector.len() + 1) * each > self.most_of_vectors {
                    self.vectors_left_out.insert(row.id);
                    continue;
                }
                self.with_vector.insert(row.id);
                rows.put_vector(MemoryId(row.id), &row.scope, &vector)?;
            }
        }
        Ok(())
    }

    fn drop_vector(&mut self, rows: &mut D, id: i64) -> Outcome<()> {
        self.vectors_left_out.remove(&id);
        if self.with_vector.remove(&id) {
            rows.drop_vector(MemoryId(id))?;
        }
        Ok(())
    }
}

/// Nothing is sealed here, so nothing depends on it.
const PLACE: Place<'static> = Place::remembered(0, 0);

/// Enough to find its vector by.
fn without_text(row: MemoryRow) -> MemoryRow {
    MemoryRow { content: Sealed::default(), metadata: None, ..row }
}

/// What a search looks at of an item.
fn copy(row: &MemoryRow, text: &str, clear: &Keys) -> MemoryRow {
    MemoryRow { content: clear.seal(PLACE, text), metadata: None, reason: None, job: row.job, ..row.clone() }
}
