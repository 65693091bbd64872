//! The one thread that writes: group commit.
//!
//! It takes whatever commands wait, runs them in one transaction, commits once, and only then
//! answers all of them. A command that fails changes nothing and does not harm its neighbours. When
//! the commit fails, every command of the batch fails: nothing is reported done that is not on disk.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use posse_core::port::RepositoryError;
use tokio::sync::{Semaphore, oneshot};

use super::fault::{Fault, Kind, Outcome, describe, kind};
use super::literal::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
use super::log::Log;
use super::wake::Bell;

/// Most commands in one transaction.
const BATCH_COMMANDS: usize = 512;
/// Most bytes of content in one transaction, so that one large write does not delay the answers of
/// many small ones by much. A single command may be larger.
const BATCH_BYTES: usize = 8 << 20;
/// Most commands waiting; further callers wait for a place.
const WAITING: usize = 4096;
/// How long the write lock of another process is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// How often the writer looks for changes that other processes made without ringing the bell.
const POLL: Duration = Duration::from_secs(1);

/// What a command sees: the connection, inside the batch's transaction.
pub(super) struct Transaction<'a> {
    /// The write connection.
    pub connection: &'a mut SqliteConnection,
    rings: &'a mut bool,
}

impl<'a> Transaction<'a> {
    /// Commands run on `connection` set `rings` if they want the bell rung.
    pub fn new(connection: &'a mut SqliteConnection, rings: &'a mut bool) -> Self {
        Transaction { connection, rings }
    }

    /// Has the bell rung once this is committed: a job may have become claimable or due, or the
    /// end of a running one was asked for.
    pub fn ring(&mut self) {
        *self.rings = true;
    }
}

/// Takes commands; see the module's documentation.
pub(super) struct Writer {
    commands: Option<mpsc::Sender<Box<dyn Command>>>,
    places: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the thread.
    pub fn start(connection: SqliteConnection, path: PathBuf, bell: Arc<Bell>) -> std::io::Result<Writer> {
        let (sender, receiver) = mpsc::channel();
        let commits = Arc::new(AtomicU64::new(0));
        let log = Log::of(&path);
        let mut thread = Thread { connection, path, bell, log, commits: Arc::clone(&commits), seen: None };
        // From here on nothing that others commit goes unseen, however late the thread comes to run.
        thread.poll();
        let thread = std::thread::Builder::new().name("posse-writer".into()).spawn(move || thread.run(&receiver))?;
        let places = Arc::new(Semaphore::new(WAITING));
        Ok(Writer { commands: Some(sender), places, thread: Some(thread), commits })
    }

    /// Runs `work` in a transaction and returns after it is durable. `bytes` is roughly what it
    /// writes. `work` may run more than once, from the same state, and is skipped if the caller
    /// stops waiting before its turn comes.
    pub async fn run<T, F>(&self, bytes: usize, work: F) -> Result<T, RepositoryError>
    where
        T: Send + 'static,
        F: FnMut(&mut Transaction<'_>) -> Outcome<T> + Send + 'static,
    {
        let stopped = || RepositoryError::Unavailable("the database was closed".into());
        // Held by the command, so that a caller who stops waiting does not let more in than fit.
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        let command = Job { bytes, work, result: None, answer, _place: Box::new(place) };
        self.commands.as_ref().and_then(|commands| commands.send(Box::new(command)).ok()).ok_or_else(stopped)?;
        answered.await.map_err(|_| stopped())?
    }

    /// Transactions committed so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    /// Waits until what was asked for is written.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the database's writer had panicked");
        }
    }
}

/// One piece of work and its caller, whatever its type.
trait Command: Send {
    fn bytes(&self) -> usize;
    fn abandoned(&self) -> bool;
    /// Runs the work and keeps its result. Only a database error is returned: whether it is this
    /// command's alone is for the batch to say.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<Done, diesel::result::Error>;
    /// Replaces the result.
    fn fail(&mut self, error: RepositoryError);
    fn answer(self: Box<Self>);
}

/// Whether a command's changes are to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Keep,
    Undo,
}

struct Job<T, F> {
    bytes: usize,
    work: F,
    result: Option<Result<T, RepositoryError>>,
    answer: oneshot::Sender<Result<T, RepositoryError>>,
    _place: Box<dyn Any + Send>,
}

impl<T, F> Command for Job<T, F>
where
    T: Send,
    F: FnMut(&mut Transaction<'_>) -> Outcome<T> + Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<Done, diesel::result::Error> {
        let (result, done) = match (self.work)(transaction) {
            Ok(value) => (Ok(value), Done::Keep),
            Err(Fault::Refused(error)) => (Err(error), Done::Undo),
            Err(Fault::Db(error)) => return Err(error),
        };
        self.result = Some(result);
        Ok(done)
    }

    fn fail(&mut self, error: RepositoryError) {
        self.result = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        // Without a result it was skipped, and nobody waits. A caller that is gone wants no answer.
        if let Some(result) = self.result {
            let _ = self.answer.send(result);
        }
    }
}

struct Thread {
    connection: SqliteConnection,
    path: PathBuf,
    bell: Arc<Bell>,
    log: Log,
    commits: Arc<AtomicU64>,
    /// The last `data_version`, which changes when another connection commits.
    seen: Option<i64>,
}

impl Thread {
    fn run(&mut self, commands: &mpsc::Receiver<Box<dyn Command>>) {
        let mut next_poll = Instant::now();
        loop {
            if Instant::now() >= next_poll {
                self.poll();
                self.log.keep_small(&mut self.connection);
                next_poll = Instant::now() + POLL;
            }
            match commands.recv_timeout(next_poll.saturating_duration_since(Instant::now())) {
                Ok(first) => {
                    let mut batch = collect(first, commands);
                    let rings = self.commit(&mut batch);
                    // Before the answers: who is answered may ask at once who was woken.
                    if rings {
                        self.bell.ring();
                    } else {
                        self.bell.committed();
                    }
                    batch.into_iter().for_each(Command::answer);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Runs a batch and commits it, and tells whether the bell is to be rung.
    fn commit(&mut self, batch: &mut [Box<dyn Command>]) -> bool {
        let mut rings = false;
        // Most batches have no failing command, and a savepoint for each would copy every page it
        // touches. So they are tried without, and run again with savepoints when one fails.
        let outcome = match self.attempt(batch, false, &mut rings) {
            Ok(true) => Ok(()),
            Ok(false) => self.attempt(batch, true, &mut rings).map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            rings = false;
            let error = describe(&error, &self.path);
            batch.iter_mut().for_each(|command| command.fail(error.clone()));
        }
        rings
    }

    /// One try at a batch. False when a command failed and `apart` was not asked for; then nothing
    /// was kept. An error is about the whole batch; then nothing was kept either.
    fn attempt(
        &mut self,
        batch: &mut [Box<dyn Command>],
        apart: bool,
        rings: &mut bool,
    ) -> Result<bool, diesel::result::Error> {
        *rings = false;
        self.begin()?;
        let outcome = self.run_all(batch, apart, rings).and_then(|complete| {
            if complete {
                Commit.execute(&mut self.connection)?;
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
            Ok(complete)
        });
        if !matches!(outcome, Ok(true)) {
            // SQLite has rolled back by itself after some errors and then refuses this; the error
            // worth telling is the first.
            let _ = Rollback.execute(&mut self.connection);
        }
        outcome
    }

    fn run_all(
        &mut self,
        batch: &mut [Box<dyn Command>],
        apart: bool,
        rings: &mut bool,
    ) -> Result<bool, diesel::result::Error> {
        for command in batch.iter_mut().filter(|command| !command.abandoned()) {
            if apart {
                Savepoint.execute(&mut self.connection)?;
            }
            let mut own_rings = false;
            let mut transaction = Transaction::new(&mut self.connection, &mut own_rings);
            let done = match command.run(&mut transaction) {
                Err(error) if kind(&error) == Kind::Statement => {
                    command.fail(describe(&error, &self.path));
                    Done::Undo
                }
                done => done?,
            };
            match done {
                Done::Keep => *rings |= own_rings,
                Done::Undo if !apart => return Ok(false),
                Done::Undo => {
                    RollbackTo.execute(&mut self.connection)?;
                }
            }
            if apart {
                Release.execute(&mut self.connection)?;
            }
        }
        Ok(true)
    }

    /// Begins a transaction, waiting for other processes in small random steps: SQLite's own
    /// waiting sleeps up to 100 ms at a time, long after the lock is free.
    fn begin(&mut self) -> Result<(), diesel::result::Error> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        let mut pause_us = 50;
        loop {
            match Begin.execute(&mut self.connection) {
                Err(error) if kind(&error) == Kind::Busy && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(rand::random_range(pause_us / 2..=pause_us)));
                    pause_us = (pause_us * 2).min(1000);
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Rings the bell of this process if another one has committed since the last look. The look
    /// is cheap; it is for file systems where the bell is not heard.
    fn poll(&mut self) {
        #[derive(QueryableByName)]
        struct Version {
            #[diesel(sql_type = BigInt)]
            data_version: i64,
        }
        let version = diesel::sql_query("PRAGMA data_version").get_result::<Version>(&mut self.connection);
        let Ok(Version { data_version }) = version else { return };
        if self.seen.replace(data_version).is_some_and(|before| before != data_version) {
            self.bell.ring_here();
        }
    }
}

/// The command and those that wait behind it, within a batch's limits.
fn collect(first: Box<dyn Command>, commands: &mpsc::Receiver<Box<dyn Command>>) -> Vec<Box<dyn Command>> {
    let mut bytes = first.bytes();
    let mut batch = vec![first];
    while batch.len() < BATCH_COMMANDS && bytes < BATCH_BYTES {
        let Ok(command) = commands.try_recv() else { break };
        bytes += command.bytes();
        batch.push(command);
    }
    batch
}
