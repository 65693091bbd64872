//! Vectors of what is remembered, and the index of them.

use super::MemoryRow;
use crate::memory::meaning::Space;
use crate::memory::{ChosenSpace, MemoryFilter, MemoryId};
use crate::store::Done;

/// Vectors of what is remembered, and the index of them. In the index are vectors of one length at a time.
pub trait VectorRows {
    /// The model whose vectors are in the index.
    fn memory_space(&mut self) -> Done<Option<ChosenSpace>>;
    /// Stores which model that is.
    fn keep_memory_space(&mut self, chosen: &ChosenSpace) -> Done<()>;
    /// Makes the index anew, with nothing in it, for vectors of so many numbers.
    fn make_vectors(&mut self, dimension: usize) -> Done<()>;
    /// Puts a vector of an item into the index, in the place of the one it had.
    fn put_vector(&mut self, id: MemoryId, scope: &str, vector: &[f32]) -> Done<()>;
    /// Takes the vector of an item out of the index.
    fn drop_vector(&mut self, id: MemoryId) -> Done<()>;
    /// All items of these scopes that are in the index, those whose vectors have the most signs in common with these first.
    fn nearest(&mut self, signs: &[u8], scopes: Option<&[String]>) -> Done<Vec<MemoryId>>;
    /// Those of these items that fit, in their order.
    fn fitting(&mut self, ids: &[MemoryId], among: &MemoryFilter) -> Done<Vec<MemoryId>>;
    /// Vectors in the index.
    fn vectors(&mut self, ids: &[MemoryId], dimension: usize) -> Done<Vec<(MemoryId, Vec<f32>)>>;

    /// Stores what a model made of an item, as it is to be at rest.
    fn embed(&mut self, id: MemoryId, space: &Space, stored: &[u8], revision: i64) -> Done<()>;
    /// What a model made of an item, as it is at rest.
    fn embedding(&mut self, id: MemoryId, space: &Space) -> Done<Option<Vec<u8>>>;
    /// Items that hold and have no vector of a model, at most so many: first those that have none at all, as they were saved,
    /// then those that have one of another.
    fn unembedded(&mut self, space: &Space, most: u32) -> Done<Vec<MemoryRow>>;
    /// Items that hold and have a vector of a model, with higher numbers than this, by number, at most so many.
    fn embedded(&mut self, space: &Space, after: MemoryId, most: u32) -> Done<Vec<MemoryRow>>;
    /// How many items hold and have no vector of the model, or one that is not in the index yet. Costs as much as there are.
    fn without_vector(&mut self, chosen: &ChosenSpace) -> Done<u64>;
    /// How many vectors the index lacks where each item that has one ought to be in it, or, in a sealed database, none;
    /// and how many it has too many. Compares all of them.
    fn vector_faults(&mut self, space: &Space, sealed: bool) -> Done<(u64, u64)>;
}
