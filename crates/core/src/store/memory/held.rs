//! The index of words of a database whose texts are sealed: in the memory of each process, and nowhere else.
//!
//! It is a copy of the items with their texts in the clear, in rows of its own, brought up to date before each search by
//! what has a higher revision than the last. It is bounded: what comes when it is full is left out, and counted.

use super::row::text;
use super::words::{index, index_beside};
use crate::memory::MemoryId;
use crate::store::Outcome;
use crate::store::driver::{Driver, MemoryEnd, MemoryOf, MemoryRow};
use crate::store::seal::{Keys, Place};

/// Most bytes of texts that a process holds.
pub const MAX_BYTES: usize = 64 << 20;

/// Items read at once.
const AT_ONCE: u32 = 2_000;

/// Words in memory.
#[derive(Debug)]
pub struct Held<D> {
    rows: Option<D>,
    /// The revision up to which it is.
    through: i64,
    bytes: usize,
    most: usize,
    /// Items that had no room.
    left_out: u64,
}

impl<D> Default for Held<D> {
    fn default() -> Self {
        Held { rows: None, through: -1, bytes: 0, most: MAX_BYTES, left_out: 0 }
    }
}

impl<D: Driver> Held<D> {
    /// One that holds no more than so many bytes of texts.
    pub fn of_at_most(most: usize) -> Self {
        Held { most, ..Held::default() }
    }

    /// Items that had no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Takes in what changed in the database, and gives the rows to be searched.
    pub fn up_to_date(&mut self, db: &mut D, keys: &Keys) -> Outcome<&mut D> {
        let clear = Keys::default();
        let mut fresh = Vec::new();
        let mut rows = match self.rows.take() {
            Some(rows) => rows,
            None => D::in_memory()?,
        };
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
                    }
                    (None, None) => {
                        let Ok(text) = text(keys, &row) else {
                            self.left_out += 1;
                            continue;
                        };
                        if self.bytes + text.len() > self.most {
                            self.left_out += 1;
                            continue;
                        }
                        self.bytes += text.len();
                        rows.insert_memory(&copy(&row, &text, &clear))?;
                        fresh.push(copied);
                    }
                    _ => {}
                }
            }
            self.through = last;
        }
        index(&mut rows, &clear, &fresh)?;
        Ok(self.rows.insert(rows))
    }
}

/// Nothing is sealed here, so nothing depends on it.
const PLACE: Place<'static> = Place::remembered(0, 0);

/// What a search looks at of an item.
fn copy(row: &MemoryRow, text: &str, clear: &Keys) -> MemoryRow {
    MemoryRow { content: clear.seal(PLACE, text), metadata: None, reason: None, job: row.job, ..row.clone() }
}
