//! What outlives the conversation it comes from.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::memory::block::{Block, BlockEdit, BlockEdited};
use crate::memory::meaning::Space;
use crate::memory::{
    ChosenSpace, Forgetting, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch, MemoryStanding, NewMemory,
    Remembered, Revision, ToEmbed,
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

    /// Changes a block of a scope; see [`Change`](crate::memory::block::Change). Refused for who has read what others wrote,
    /// and, but for a person, where there is no such block and it is none that is always there.
    async fn edit_block(
        &self,
        scope: String,
        name: String,
        edit: BlockEdit,
        by: Option<Lease>,
        now: Millis,
    ) -> Result<BlockEdited>;

    /// Brings back what a block said in a version, or before its last change; asked again, further back. That is a version
    /// of its own.
    async fn restore_block(&self, scope: String, name: String, to: Option<u32>, now: Millis) -> Result<Block>;

    /// Makes the indexes of words and vectors anew, a few items in a transaction; a search finds less meanwhile. Who is
    /// interrupted with the words asks again; vectors go on in the background.
    async fn reindex_memory(&self) -> Result<()>;

    /// Has vectors of this model be compared from now on, where there are none of another or those yield to it
    /// ([`ChosenSpace::yields_to`]); gives whose are. `began` is when the process began that asks, and absent where nobody
    /// chose the model. What has vectors of another keeps them until it is given one of this, and is not compared.
    async fn choose_memory_space(&self, space: Space, began: Option<Millis>) -> Result<ChosenSpace>;

    /// Puts some of the vectors into the index that were there before their model was chosen; whether there may be more.
    async fn fill_memory_vectors(&self) -> Result<bool>;

    /// Stores vectors that a model made of items, and gives of how many: none if the vectors of another are compared by
    /// now, and not those of items that have ended meanwhile.
    async fn embed_memory(&self, space: Space, made: Vec<(MemoryId, Vec<f32>)>) -> Result<u64>;
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

    /// What a question finds, by its words and, where it is known, by its meaning. Whatever is asked, it is no error.
    /// Costs as much as there are items with any of the words, and as many vectors as its scopes have; where texts are
    /// sealed, the first search of a process opens all of them.
    async fn search_memory(&self, what: MemorySearch) -> Result<MemoryFound>;

    /// The blocks of these scopes, or all, by scope and name.
    async fn memory_blocks(&self, scopes: Option<Vec<String>>) -> Result<Vec<Block>>;

    /// Every version of a block, oldest first; empty where there is none.
    async fn block_history(&self, scope: String, name: String) -> Result<Vec<MemoryItem>>;

    /// The model whose vectors are compared, once there is one.
    async fn memory_space(&self) -> Result<Option<ChosenSpace>>;

    /// Items that hold and have no vector of a model, at most so many: first those that have none at all, as they were saved,
    /// then those that have one of another.
    async fn memory_to_embed(&self, space: Space, most: u32) -> Result<Vec<ToEmbed>>;

    /// How the indexes stand beside the items; walks all of them.
    async fn memory_standing(&self) -> Result<MemoryStanding>;
}
