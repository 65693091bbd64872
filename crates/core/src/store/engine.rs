//! What a database brings besides its rows: connections to run commands and reads on, and a way to tell of commits.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

use super::driver::Driver;
use super::enqueue::{self, Enqueue};
use super::finish::{End, Finish};
use super::memory::held::Held;
use super::seal::Keys;
use super::{Answer, Fault, Tx};
use crate::job::lease::WorkerId;
use crate::port::{Result, Storage, Written};

/// A database that is open. Whatever is one has all the ports of a store. No name here is a port's.
pub trait Engine: Send + Sync + 'static {
    /// The rows, on one of its connections.
    type Rows: Driver;

    /// Runs `work` in a transaction and returns after it is durable. `bytes` is roughly what it
    /// writes. `work` may run more than once, from the same state, and is skipped if the caller
    /// stops waiting before it is served.
    fn write<T, F, W>(&self, bytes: usize, work: W) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Into<Fault> + 'static,
        W: FnMut(&mut Tx<'_, Self::Rows>) -> Result<T, F> + Send + 'static;

    /// The same, but a power cut may take it back: for what means nothing after a restart of the
    /// machine, as a lease does. [`Tx::late_ms`] tells how long it had to wait.
    fn write_passing<T, F, W>(&self, bytes: usize, work: W) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Into<Fault> + 'static,
        W: FnMut(&mut Tx<'_, Self::Rows>) -> Result<T, F> + Send + 'static;

    /// Stores jobs, together with those of others.
    fn enqueue_all(&self, batch: enqueue::Batch) -> impl Future<Output = Answer<Enqueue>> + Send;

    /// Ends attempts, together with those of others.
    fn finish_ends(&self, ends: Vec<End>) -> impl Future<Output = Result<Vec<Answer<Finish>>>> + Send;

    /// Runs `read`, each statement of which may see what was committed meanwhile.
    fn read<T, F, R>(&self, read: R) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Into<Fault>,
        R: FnOnce(&mut Self::Rows, &Keys) -> Result<T, F> + Send + 'static;

    /// Runs `read`, all of which sees one moment.
    fn read_at_once<T, F, R>(&self, read: R) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Into<Fault>,
        R: FnOnce(&mut Self::Rows, &Keys) -> Result<T, F> + Send + 'static;

    /// Runs `read`, all of which sees one moment, with the words and vectors that this process holds in memory. One at a
    /// time.
    fn read_words<T, F, R>(&self, read: R) -> impl Future<Output = Result<T>> + Send
    where
        T: Send + 'static,
        F: Into<Fault>,
        R: FnOnce(&mut Self::Rows, &Keys, &mut Held<Self::Rows>) -> Result<T, F> + Send + 'static;

    /// What texts are sealed with.
    fn sealing_keys(&self) -> &Keys;
    /// What tells this database from all others.
    fn database_id(&self) -> &Arc<str>;
    /// Fails once it is no longer the one that was opened.
    fn check_identity(&self) -> Result<()>;
    /// Changes when workers are to look.
    fn listen(&self) -> watch::Receiver<u64>;
    /// Changes with each commit.
    fn listen_to_commits(&self) -> watch::Receiver<u64>;
    /// What was committed so far.
    fn tally(&self) -> Written;
    /// What it takes, and what of that is free.
    fn space(&self) -> impl Future<Output = Result<Storage>> + Send;
    /// Gives some free space back; whether there is more.
    fn give_back(&self) -> impl Future<Output = Result<bool>> + Send;
    /// Whether a worker said that it ends by itself when it could not write.
    fn ended_by_itself(&self, worker: &WorkerId) -> bool;
    /// Says so of a worker, where that can be said.
    fn say_word(&self, worker: &WorkerId);
    /// Forgets what a worker said.
    fn forget_word(&self, worker: &WorkerId);
}
