//! What SQLite brings to the core's store besides rows: the writer, the readers, notifications and the file.

use std::sync::{Arc, PoisonError};

use diesel::prelude::*;
use posse_core::job::lease::WorkerId;
use posse_core::port::{Result, Storage, Written};
use posse_core::store::engine::Engine;
use posse_core::store::enqueue::{Batch, Enqueue};
use posse_core::store::finish::{End, Finish};
use posse_core::store::memory::held::Held;
use posse_core::store::seal::Keys;
use posse_core::store::{Answer, DbError, Fault, MANY_ROWS, Tx};
use tokio::sync::watch;

use super::connection::transaction;
use super::log::Log;
use super::rows::Rows;
use super::writer::Writer;
use super::{SqliteStore, space};

impl Engine for SqliteStore {
    type Rows = Rows;

    async fn write<T, F, W>(&self, bytes: usize, work: W) -> Result<T>
    where
        T: Send + 'static,
        F: Into<Fault> + 'static,
        W: FnMut(&mut Tx<'_, Rows>) -> Result<T, F> + Send + 'static,
    {
        self.writer()?.run(bytes, false, work).await
    }

    async fn write_passing<T, F, W>(&self, bytes: usize, work: W) -> Result<T>
    where
        T: Send + 'static,
        F: Into<Fault> + 'static,
        W: FnMut(&mut Tx<'_, Rows>) -> Result<T, F> + Send + 'static,
    {
        self.writer()?.run(bytes, true, work).await
    }

    async fn enqueue_all(&self, batch: Batch) -> Answer<Enqueue> {
        self.writer()?.enqueue(batch.bytes(), batch).await
    }

    async fn finish_ends(&self, ends: Vec<End>) -> Result<Vec<Answer<Finish>>> {
        self.writer()?.finish(ends.iter().map(End::bytes).sum(), ends).await
    }

    async fn read<T, F, R>(&self, read: R) -> Result<T>
    where
        T: Send + 'static,
        F: Into<Fault>,
        R: FnOnce(&mut Rows, &Keys) -> Result<T, F> + Send + 'static,
    {
        let keys = self.keys.clone();
        self.readers.run(move |connection| read(Rows::of(connection), &keys)).await
    }

    async fn read_at_once<T, F, R>(&self, read: R) -> Result<T>
    where
        T: Send + 'static,
        F: Into<Fault>,
        R: FnOnce(&mut Rows, &Keys) -> Result<T, F> + Send + 'static,
    {
        let keys = self.keys.clone();
        let read = move |connection: &mut SqliteConnection| read(Rows::of(connection), &keys).map_err(Into::into);
        self.readers.run(|connection| transaction(connection, read)).await
    }

    async fn read_words<T, F, R>(&self, read: R) -> Result<T>
    where
        T: Send + 'static,
        F: Into<Fault>,
        R: FnOnce(&mut Rows, &Keys, &mut Held<Rows>) -> Result<T, F> + Send + 'static,
    {
        let (keys, held) = (self.keys.clone(), Arc::clone(&self.held));
        let read = move |connection: &mut SqliteConnection| {
            // Where texts are not sealed nothing is held, and nobody waits for another.
            let mut none = Held::default();
            let mut locked = keys.seals().then(|| held.lock().unwrap_or_else(PoisonError::into_inner));
            read(Rows::of(connection), &keys, locked.as_deref_mut().unwrap_or(&mut none)).map_err(Into::into)
        };
        // One moment for all of it: no vector is compared with those of a model that was chosen meanwhile.
        self.readers.run(|connection| transaction(connection, read)).await
    }

    fn sealing_keys(&self) -> &Keys {
        &self.keys
    }

    fn database_id(&self) -> &Arc<str> {
        &self.installation
    }

    fn check_identity(&self) -> Result<()> {
        self.identity.check()
    }

    fn listen(&self) -> watch::Receiver<u64> {
        self.notifier.listen()
    }

    fn listen_to_commits(&self) -> watch::Receiver<u64> {
        self.notifier.listen_to_commits()
    }

    fn tally(&self) -> Written {
        self.writer.as_ref().map_or_else(Written::default, Writer::written)
    }

    async fn space(&self) -> Result<Storage> {
        let look = |connection: &mut SqliteConnection| {
            Ok::<_, DbError>((space::pages(connection)?, space::gives_back(connection)?))
        };
        let ((pages, free, size), gives_back) = self.readers.run(look).await?;
        let log_bytes = Log::of(&self.path).bytes();
        Ok(Storage { bytes: pages * size, free_bytes: free * size, log_bytes, gives_back })
    }

    async fn give_back(&self) -> Result<bool> {
        self.writer()?.run(MANY_ROWS, false, space::shrink).await
    }

    fn ended_by_itself(&self, worker: &WorkerId) -> bool {
        self.last_words.has(worker)
    }

    fn say_word(&self, worker: &WorkerId) {
        if let Err(error) = self.last_words.say(worker) {
            tracing::warn!(
                "nothing could be left beside {} that tells that this worker ended by itself ({error}): its jobs are \
                 charged as if it had died",
                self.path.display()
            );
        }
    }

    fn forget_word(&self, worker: &WorkerId) {
        self.last_words.forget(worker);
    }
}
