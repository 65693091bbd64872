//! Writing: group commit.
//!
//! One connection writes. Commands that wait are run in one transaction, committed once, and only
//! then answered, all of them. What many callers ask for alike is done in a few statements for all
//! of them ([`posse_core::store::Verb`]). A command that fails changes nothing and does not harm its neighbours. When the
//! commit fails, every command of the batch fails: nothing is reported done that is not on disk.
//!
//! A thread of its own does the writing, since a commit waits for the disk and for other processes.
//! Where a command takes no such wait and nobody else writes, the caller does it itself
//! (`docs/decisions/0038`).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use diesel::prelude::*;
use posse_core::metrics::Written;
use posse_core::port::{RepositoryError, Result};
use posse_core::store::enqueue::{self, Enqueue};
use posse_core::store::finish::{self, Finish};
use posse_core::store::seal::Keys;
use posse_core::store::{Answer, Fault};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Synchronous;
use super::identity::Identity;
use super::notify::Notifier;

mod batch;
mod checkpoint;
mod owner;

pub(super) use batch::Transaction;
use batch::{Alone, Batch, Call, Command, What};
use owner::{Count, Owner};

/// Most commands waiting; further callers wait for a permit.
const WAITING: usize = 4096;
/// After so many batches of one command, commands are taken to come one by one: then there is nothing to
/// gain from the thread, which would have them share commits.
const ALONE: u32 = 8;
/// Most bytes a caller writes by itself, so that its thread is kept for a millisecond or two at most.
const AT_ONCE_BYTES: usize = 64 << 10;

pub(super) struct Writer {
    shared: Arc<Shared>,
    permits: Arc<Semaphore>,
    count: Arc<Count>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// Something waits, or the writer is dropped.
    changed: Condvar,
    /// Whoever holds it writes. Taken before `waiting`, never after it.
    owner: Mutex<Owner>,
    /// How many batches of the thread's had one command, one after the other, up to [`ALONE`].
    alone: AtomicU32,
}

#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    /// Whether the thread is to be woken for the next one.
    asleep: bool,
    closed: bool,
}

impl Writer {
    /// Starts the thread. `synchronous` is what `connection` is set to.
    pub fn start(
        connection: SqliteConnection,
        synchronous: Synchronous,
        (identity, path, keys): (Arc<Identity>, PathBuf, Keys),
        notifier: Arc<Notifier>,
    ) -> std::io::Result<Writer> {
        let owner = Owner::new(connection, synchronous, (identity, path, keys), notifier);
        let count = owner.count();
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            owner: Mutex::new(owner),
            alone: AtomicU32::new(0),
        });
        let thread = std::thread::Builder::new().name("posse-writer".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.write()
        })?;
        Ok(Writer { shared, permits: Arc::new(Semaphore::new(WAITING)), count, thread: Some(thread) })
    }

    /// Runs `work` in a transaction and returns after it is durable, as [`Engine::write`] says; where it is `passing`, a
    /// power cut may take it back, as [`Engine::write_passing`] says.
    ///
    /// [`Engine::write`]: posse_core::store::engine::Engine::write
    /// [`Engine::write_passing`]: posse_core::store::engine::Engine::write_passing
    pub async fn run<T, E, F>(&self, bytes: usize, passing: bool, work: F) -> Result<T>
    where
        T: Send + 'static,
        E: Into<Fault>,
        F: FnMut(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    {
        self.ask(bytes, passing, |permit, answer| What::Alone(Box::new(Alone::new(work, permit, answer)))).await?
    }

    /// Stores jobs; the same holds as for [`Writer::run`].
    pub async fn enqueue(&self, bytes: usize, batch: enqueue::Batch) -> Answer<Enqueue> {
        let call = |permit, answer| What::Enqueue(Call::new(vec![batch], permit, answer));
        self.ask(bytes, false, call).await?.pop().ok_or_else(stopped)?
    }

    /// Ends attempts; the same holds as for [`Writer::run`], for each of them.
    pub async fn finish(&self, bytes: usize, ends: Vec<finish::End>) -> Result<Vec<Answer<Finish>>> {
        self.ask(bytes, false, |permit, answer| What::Finish(Call::new(ends, permit, answer))).await
    }

    /// Has a command run and waits for its answer.
    async fn ask<T>(
        &self,
        bytes: usize,
        passing: bool,
        what: impl FnOnce(OwnedSemaphorePermit, oneshot::Sender<T>) -> What,
    ) -> Result<T> {
        // Held by the command, so that a caller who stops waiting does not let more in than fit.
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        self.shared.take(Command { bytes, passing, what: what(permit, answer) });
        answered.await.map_err(|_| stopped())
    }

    pub fn written(&self) -> Written {
        self.count.written()
    }
}

impl Drop for Writer {
    /// Waits until what was asked for is written.
    fn drop(&mut self) {
        self.shared.waiting().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the database's writer had panicked");
        }
    }
}

fn stopped() -> RepositoryError {
    RepositoryError::Unavailable("the database was closed".into())
}

impl Shared {
    /// Runs the command here and now if that takes no waiting, or leaves it to the thread.
    fn take(&self, command: Command) {
        let mut batch = Batch::default();
        batch.add(command);
        let alone = self.alone.load(Ordering::Relaxed) >= ALONE;
        if alone && batch.bytes() <= AT_ONCE_BYTES && self.write_at_once(&mut batch) {
            return batch.answer();
        }
        let mut waiting = self.waiting();
        // Closed means that writing panicked. The command is dropped, and so its caller told.
        if !waiting.closed {
            waiting.commands.extend(batch.into_command());
            if std::mem::take(&mut waiting.asleep) {
                self.changed.notify_one();
            }
        }
    }

    fn write_at_once(&self, batch: &mut Batch) -> bool {
        let Ok(mut owner) = self.owner.try_lock() else { return false };
        let alone = self.waiting().commands.is_empty();
        alone && !owner.needs_care() && owner.write_at_once(batch)
    }

    fn write(&self) {
        let _closed_at_last = Closed(self);
        let mut next_care = Instant::now();
        while self.wait(next_care) {
            let Ok(mut owner) = self.owner.lock() else { return };
            next_care = owner.care();
            let mut batch = Batch::collect(&mut self.waiting().commands);
            let alone = if batch.len() <= 1 { (self.alone.load(Ordering::Relaxed) + 1).min(ALONE) } else { 0 };
            self.alone.store(alone, Ordering::Relaxed);
            if batch.len() > 0 {
                owner.write(&mut batch);
            }
            drop(owner);
            batch.answer();
        }
    }

    /// Waits for commands, at most until `end`; false when there will be none any more.
    fn wait(&self, end: Instant) -> bool {
        let mut waiting = self.waiting();
        while waiting.commands.is_empty() {
            if waiting.closed {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            waiting.asleep = true;
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
            waiting.asleep = false;
        }
        true
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the thread ends, be it by a panic, no caller waits for it any longer.
struct Closed<'a>(&'a Shared);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.closed = true;
        waiting.commands.clear();
    }
}
