//! What is remembered.

use async_trait::async_trait;

use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::memory::block::{Block, BlockEdit, BlockEdited, MAX_BYTES};
use crate::memory::meaning::Space;
use crate::memory::{
    ChosenSpace, Forgetting, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch, MemoryStanding, NewMemory,
    Remembered, Revision, ToEmbed,
};
use crate::port::{MemoryQueries, MemoryRepository, Result};
use crate::store::driver::VectorRows as _;
use crate::store::engine::Engine;
use crate::store::{MANY_ROWS, ROW, memory};

#[async_trait]
impl<E: Engine> MemoryRepository for E {
    async fn archive(&self, lease: Lease, seq: u64, content: String, now: Millis) -> Result<()> {
        self.write(2 * content.len(), move |tx| memory::archive(tx, lease, seq, &content, now)).await
    }

    async fn remember(&self, new: Vec<NewMemory>, by: Option<Lease>, now: Millis) -> Result<Vec<Remembered>> {
        let bytes = new.iter().map(|new| ROW + 3 * new.text.len()).sum();
        self.write(bytes, move |tx| {
            memory::checked(&new)?;
            memory::save(tx, &new, by, now)
        })
        .await
    }

    async fn revise_memory(&self, id: MemoryId, to: Revision, by: Option<Lease>, now: Millis) -> Result<Remembered> {
        let bytes = ROW + 3 * to.text.as_ref().map_or(0, String::len);
        self.write(bytes, move |tx| memory::revise(tx, id, &to, by, now)).await
    }

    async fn forget_memory(&self, ids: Vec<MemoryId>, how: Forgetting, by: Option<Lease>, now: Millis) -> Result<u64> {
        self.write(ROW * ids.len(), move |tx| memory::forget(tx, &ids, &how, by, now)).await
    }

    async fn forget_memory_like(&self, filter: MemoryFilter, how: Forgetting, now: Millis) -> Result<u64> {
        let mut forgotten = 0;
        // What was erased may still fit, so each is gone through once.
        let mut before = i64::MAX;
        loop {
            let (how, of) = (how.clone(), filter.clone());
            let (some, last) = self
                .write(MANY_ROWS, move |tx| {
                    let ids = memory::some(tx.db, &of, before)?;
                    let done = memory::forget(tx, &ids, &how, None, now)?;
                    crate::store::Outcome::Ok((done, ids.last().copied()))
                })
                .await?;
            forgotten += some;
            let Some(last) = last else { return Ok(forgotten) };
            before = last.0;
        }
    }

    async fn edit_block(
        &self,
        scope: String,
        name: String,
        edit: BlockEdit,
        by: Option<Lease>,
        now: Millis,
    ) -> Result<BlockEdited> {
        self.write(ROW + 3 * MAX_BYTES, move |tx| memory::blocks::edit(tx, (&scope, &name), &edit, by, now)).await
    }

    async fn restore_block(&self, scope: String, name: String, to: Option<u32>, now: Millis) -> Result<Block> {
        self.write(ROW + 3 * MAX_BYTES, move |tx| memory::blocks::restore(tx, (&scope, &name), to, now)).await
    }

    async fn reindex_memory(&self) -> Result<()> {
        let mut after = Some(0);
        while let Some(from) = after {
            after = self.write(MANY_ROWS, move |tx| memory::words::reindex(tx.db, tx.keys, from)).await?;
        }
        self.write(MANY_ROWS, move |tx| memory::vectors::begin_anew(tx.db)).await?;
        while self.fill_memory_vectors().await? {}
        Ok(())
    }

    async fn choose_memory_space(&self, space: Space, began: Option<Millis>) -> Result<ChosenSpace> {
        self.write(MANY_ROWS, move |tx| memory::vectors::choose(tx, &space, began)).await
    }

    async fn fill_memory_vectors(&self) -> Result<bool> {
        self.write(MANY_ROWS, move |tx| memory::vectors::fill(tx.db, tx.keys)).await
    }

    async fn embed_memory(&self, space: Space, made: Vec<(MemoryId, Vec<f32>)>) -> Result<u64> {
        let bytes = made.iter().map(|(_, vector)| ROW + 12 * vector.len()).sum();
        self.write(bytes, move |tx| memory::vectors::store(tx, &space, &made)).await
    }
}

#[async_trait]
impl<E: Engine> MemoryQueries for E {
    async fn memory_item(&self, id: MemoryId) -> Result<Option<MemoryItem>> {
        self.read(move |db, keys| memory::one(db, keys, id)).await
    }

    async fn memory_history(&self, id: MemoryId) -> Result<Vec<MemoryItem>> {
        self.read_at_once(move |db, keys| memory::history(db, keys, id)).await
    }

    async fn memory_items(&self, filter: MemoryFilter, before: MemoryId, limit: u32) -> Result<Vec<MemoryItem>> {
        self.read(move |db, keys| memory::list(db, keys, &filter, before.0, limit)).await
    }

    async fn search_memory(&self, what: MemorySearch) -> Result<MemoryFound> {
        self.read_words(move |db, keys, held| memory::search::search(db, keys, held, &what)).await
    }

    async fn memory_space(&self) -> Result<Option<ChosenSpace>> {
        self.read(|db, _| crate::store::Outcome::Ok(db.memory_space()?)).await
    }

    async fn memory_to_embed(&self, space: Space, most: u32) -> Result<Vec<ToEmbed>> {
        self.read(move |db, keys| memory::vectors::to_embed(db, keys, &space, most)).await
    }

    async fn memory_blocks(&self, scopes: Option<Vec<String>>) -> Result<Vec<Block>> {
        self.read(move |db, keys| memory::blocks::all(db, keys, scopes.as_deref())).await
    }

    async fn block_history(&self, scope: String, name: String) -> Result<Vec<MemoryItem>> {
        self.read(move |db, keys| memory::blocks::history(db, keys, &scope, &name)).await
    }

    async fn memory_standing(&self) -> Result<MemoryStanding> {
        self.read_at_once(memory::standing).await
    }
}
