//! What outlives the conversation it comes from.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::memory::{
    Forgetting, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch, MemoryStanding, NewMemory, Remembered,
    Revision,
};

/// Changes what is remembered. What an agent asks for carries its lease, and is refused once that is lost.
#[async_trait]
pub trait MemoryRepository: Send + Sync {
    /// Keeps what leaves a run's conversation with its entry `seq`; the same again changes nothing.
    /// [`JobQueries::archived`](super::JobQueries::archived) reads it, and a search finds it.
    async fn archive(&self, lease: Lease, seq: u64, content: String, now: Millis) -> Result<()>;

    /// Saves items, all or none, and says what became of each, in the same order. What its scope knows already, in the
    /// same words or at the same place of a conversation, or was saved by the same call, is not saved again. Words find
    /// an item as soon as it is saved.
    async fn remember(&self, new: Vec<NewMemory>, by: Option<Lease>, now: Millis) -> Result<Vec<Remembered>>;

    /// Replaces an item by a changed one, which is given a number of its own; what it was stays to be read. Refused where
    /// it was replaced before, and for an agent that has read what others wrote where a person wrote the item.
    async fn revise_memory(&self, id: MemoryId, to: Revision, by: Option<Lease>, now: Millis) -> Result<Remembered>;

    /// Has items hold no more, in one transaction; gives of how many that changed anything.
    async fn forget_memory(&self, ids: Vec<MemoryId>, how: Forgetting, by: Option<Lease>, now: Millis) -> Result<u64>;

    /// The same for all that fit, a few in a transaction: who is interrupted asks again.
    async fn forget_memory_like(&self, filter: MemoryFilter, how: Forgetting, now: Millis) -> Result<u64>;

    /// Makes the index of words anew, a few items in a transaction; a search finds less meanwhile.
    async fn reindex_memory(&self) -> Result<()>;
}

/// Everything that is asked about what is remembered.
#[async_trait]
pub trait MemoryQueries: Send + Sync {
    /// One item, whatever became of it.
    async fn memory_item(&self, id: MemoryId) -> Result<Option<MemoryItem>>;

    /// What an item was before it was changed and what became of it, oldest first; empty where there is none.
    async fn memory_history(&self, id: MemoryId) -> Result<Vec<MemoryItem>>;

    /// Items that fit, newest first, with smaller numbers than `before`. Walks the items from there on until it has enough.
    async fn memory_items(&self, filter: MemoryFilter, before: MemoryId, limit: u32) -> Result<Vec<MemoryItem>>;

    /// What a question finds, by its words. Whatever is asked, it is no error. Costs as much as there are items with any
    /// of the words; where texts are sealed, the first search of a process opens all of them.
    async fn search_memory(&self, what: MemorySearch) -> Result<MemoryFound>;

    /// How the index of words stands beside the items; walks both.
    async fn memory_standing(&self) -> Result<MemoryStanding>;
}
