//! The one thread that writes: group commit.
//!
//! It takes whatever commands wait, runs them in one transaction, commits once, and only then
//! answers all of them. What many callers ask for alike is done in a few statements for all of them
//! ([`Verb`]). A command that fails changes nothing and does not harm its neighbours. When the commit
//! fails, every command of the batch fails: nothing is reported done that is not on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use posse_core::port::RepositoryError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::fault::{Fault, Kind, Outcome, describe, kind};
use super::literal::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
use super::log::Log;
use super::wake::Bell;
use super::{finish, jobs};

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

/// Work that many callers ask for, and that costs less when it is done for all of them at once.
pub(super) trait Verb {
    /// What one caller asks for. It is done whole or not at all.
    type Ask: Send + 'static;
    /// What comes of it.
    type Answer: Send + 'static;

    /// Does what is asked for and gives an answer for each, in order. An ask that is refused in its
    /// answer has changed nothing. A fault is about all: then they are done one at a time.
    fn run(tx: &mut Transaction<'_>, asks: &[&Self::Ask]) -> Outcome<Vec<Answer<Self>>>;
}

/// What comes of one ask.
pub(super) type Answer<V> = Result<<V as Verb>::Answer, RepositoryError>;

/// Takes commands; see the module's documentation.
pub(super) struct Writer {
    commands: Option<mpsc::Sender<Command>>,
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
        let alone = |place, answer| {
            Command::Alone(bytes, Box::new(Alone { work, result: None, answer, _place: place }) as Box<dyn Piece>)
        };
        self.ask(alone).await?
    }

    /// Stores jobs; the same holds as for [`Writer::run`].
    pub async fn enqueue(&self, bytes: usize, batch: jobs::Batch) -> Answer<jobs::Enqueue> {
        let call = |place, answer| Command::Enqueue(bytes, Call::new(vec![batch], place, answer));
        self.ask(call).await?.pop().ok_or_else(stopped)?
    }

    /// Ends attempts; the same holds as for [`Writer::run`], for each of them.
    pub async fn finish(
        &self,
        bytes: usize,
        ends: Vec<finish::End>,
    ) -> Result<Vec<Answer<finish::Finish>>, RepositoryError> {
        self.ask(|place, answer| Command::Finish(bytes, Call::new(ends, place, answer))).await
    }

    /// Sends a command and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(Place, oneshot::Sender<T>) -> Command) -> Result<T, RepositoryError> {
        // Held by the command, so that a caller who stops waiting does not let more in than fit.
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.as_ref().and_then(|commands| commands.send(command(place, answer)).ok());
        sent.ok_or_else(stopped)?;
        answered.await.map_err(|_| stopped())
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

fn stopped() -> RepositoryError {
    RepositoryError::Unavailable("the database was closed".into())
}

/// A command's place among those that may wait.
type Place = OwnedSemaphorePermit;

/// What is sent to the thread, with roughly the bytes it writes.
enum Command {
    Enqueue(usize, Call<jobs::Enqueue>),
    Finish(usize, Call<finish::Finish>),
    Alone(usize, Box<dyn Piece>),
}

/// One caller's asks of a verb.
struct Call<V: Verb> {
    asks: Vec<V::Ask>,
    answers: Vec<Answer<V>>,
    answer: oneshot::Sender<Vec<Answer<V>>>,
    _place: Place,
}

impl<V: Verb> Call<V> {
    fn new(asks: Vec<V::Ask>, place: Place, answer: oneshot::Sender<Vec<Answer<V>>>) -> Call<V> {
        Call { asks, answers: Vec::new(), answer, _place: place }
    }

    fn fail(&mut self, error: &RepositoryError) {
        self.answers = self.asks.iter().map(|_| Err(error.clone())).collect();
    }

    fn answer(self) {
        // A caller that is gone wants no answer.
        let _ = self.answer.send(self.answers);
    }
}

/// One piece of work and its caller, whatever its type.
trait Piece: Send {
    fn abandoned(&self) -> bool;
    fn run(&mut self, tx: &mut Transaction<'_>) -> Outcome<()>;
    /// Replaces the result.
    fn fail(&mut self, error: RepositoryError);
    fn answer(self: Box<Self>);
}

struct Alone<T, F> {
    work: F,
    result: Option<Result<T, RepositoryError>>,
    answer: oneshot::Sender<Result<T, RepositoryError>>,
    _place: Place,
}

impl<T, F> Piece for Alone<T, F>
where
    T: Send,
    F: FnMut(&mut Transaction<'_>) -> Outcome<T> + Send,
{
    fn abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn run(&mut self, tx: &mut Transaction<'_>) -> Outcome<()> {
        self.result = Some(Ok((self.work)(tx)?));
        Ok(())
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

/// Commands that are committed together. Their callers wait side by side, so any order is right.
#[derive(Default)]
struct Batch {
    enqueues: Vec<Call<jobs::Enqueue>>,
    finishes: Vec<Call<finish::Finish>>,
    others: Vec<Box<dyn Piece>>,
    bytes: usize,
}

impl Batch {
    /// The command and those that wait behind it, within a batch's limits.
    fn collect(first: Command, commands: &mpsc::Receiver<Command>) -> Batch {
        let mut batch = Batch::default();
        batch.add(first);
        while batch.len() < BATCH_COMMANDS && batch.bytes < BATCH_BYTES {
            let Ok(command) = commands.try_recv() else { break };
            batch.add(command);
        }
        batch
    }

    fn add(&mut self, command: Command) {
        self.bytes += match &command {
            Command::Enqueue(bytes, _) | Command::Finish(bytes, _) | Command::Alone(bytes, _) => bytes,
        };
        match command {
            Command::Enqueue(_, call) => self.enqueues.push(call),
            Command::Finish(_, call) => self.finishes.push(call),
            Command::Alone(_, piece) => self.others.push(piece),
        }
    }

    fn len(&self) -> usize {
        self.enqueues.len() + self.finishes.len() + self.others.len()
    }

    fn fail(&mut self, error: &RepositoryError) {
        self.enqueues.iter_mut().for_each(|call| call.fail(error));
        self.finishes.iter_mut().for_each(|call| call.fail(error));
        self.others.iter_mut().for_each(|piece| piece.fail(error.clone()));
    }

    fn answer(self) {
        self.enqueues.into_iter().for_each(Call::answer);
        self.finishes.into_iter().for_each(Call::answer);
        self.others.into_iter().for_each(Piece::answer);
    }
}

/// One try at a batch, inside its transaction.
struct Try<'a> {
    connection: &'a mut SqliteConnection,
    path: &'a Path,
    /// Whether each piece is to be undone by itself when it fails.
    apart: bool,
    rings: bool,
}

impl Try<'_> {
    /// Runs the batch. False when something failed and is not `apart`; then all is to be undone.
    /// An error is about the whole batch.
    fn run(&mut self, batch: &mut Batch) -> Result<bool, diesel::result::Error> {
        if !self.all::<jobs::Enqueue>(&mut batch.enqueues)? || !self.all::<finish::Finish>(&mut batch.finishes)? {
            return Ok(false);
        }
        for piece in batch.others.iter_mut().filter(|piece| !piece.abandoned()) {
            match self.piece(|tx| piece.run(tx))? {
                Some(Ok(())) => {}
                Some(Err(error)) => piece.fail(error),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Runs a verb for all its callers.
    fn all<V: Verb>(&mut self, calls: &mut [Call<V>]) -> Result<bool, diesel::result::Error> {
        let mut calls: Vec<_> = calls.iter_mut().filter(|call| !call.answer.is_closed()).collect();
        if self.apart {
            for call in calls {
                call.answers.clear();
                for ask in &call.asks {
                    match self.piece(|tx| V::run(tx, &[ask]))? {
                        Some(Ok(answers)) => call.answers.extend(answers),
                        Some(Err(error)) => call.answers.push(Err(error)),
                        None => return Ok(false),
                    }
                }
            }
            return Ok(true);
        }
        let asks: Vec<_> = calls.iter().flat_map(|call| &call.asks).collect();
        if asks.is_empty() {
            return Ok(true);
        }
        let Some(Ok(answers)) = self.piece(|tx| V::run(tx, &asks))? else { return Ok(false) };
        let mut answers = answers.into_iter();
        for call in &mut calls {
            call.answers = answers.by_ref().take(call.asks.len()).collect();
        }
        Ok(true)
    }

    /// Runs one piece of the batch. When it fails: `None`, or if it is `apart` its error, and then
    /// nothing of it was kept.
    fn piece<T>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Outcome<T>,
    ) -> Result<Option<Result<T, RepositoryError>>, diesel::result::Error> {
        if self.apart {
            Savepoint.execute(self.connection)?;
        }
        let mut rings = false;
        let result = match work(&mut Transaction::new(self.connection, &mut rings)) {
            Ok(value) => Ok(value),
            Err(Fault::Db(error)) if kind(&error) != Kind::Statement => return Err(error),
            Err(_) if !self.apart => return Ok(None),
            Err(Fault::Db(error)) => Err(describe(&error, self.path)),
            Err(Fault::Refused(error)) => Err(error),
        };
        match &result {
            Ok(_) => self.rings |= rings,
            Err(_) => drop(RollbackTo.execute(self.connection)?),
        }
        if self.apart {
            Release.execute(self.connection)?;
        }
        Ok(Some(result))
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
    fn run(&mut self, commands: &mpsc::Receiver<Command>) {
        let mut next_poll = Instant::now();
        loop {
            if Instant::now() >= next_poll {
                self.poll();
                next_poll = Instant::now() + POLL;
            }
            self.log.keep_small(&mut self.connection);
            match commands.recv_timeout(next_poll.saturating_duration_since(Instant::now())) {
                Ok(first) => {
                    let mut batch = Batch::collect(first, commands);
                    let rings = self.commit(&mut batch);
                    // Before the answers: who is answered may ask at once who was woken.
                    if rings {
                        self.bell.ring();
                    } else {
                        self.bell.committed();
                    }
                    batch.answer();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Runs a batch and commits it, and tells whether the bell is to be rung.
    fn commit(&mut self, batch: &mut Batch) -> bool {
        // Most batches have no failing piece, and a savepoint for each would copy every page it
        // touches. So they are tried without, and run again with savepoints when one fails.
        let outcome = match self.attempt(batch, false) {
            Ok(None) => self.attempt(batch, true),
            outcome => outcome,
        };
        match outcome {
            Ok(rings) => rings.unwrap_or(false),
            Err(error) => {
                batch.fail(&describe(&error, &self.path));
                false
            }
        }
    }

    /// One try at a batch; tells whether it rings. None when a piece failed and `apart` was not
    /// asked for; then nothing was kept. An error is about the whole batch; then nothing was kept
    /// either.
    fn attempt(&mut self, batch: &mut Batch, apart: bool) -> Result<Option<bool>, diesel::result::Error> {
        self.begin()?;
        let mut this = Try { connection: &mut self.connection, path: &self.path, apart, rings: false };
        let outcome = this.run(batch).and_then(|complete| {
            if !complete {
                return Ok(None);
            }
            Commit.execute(this.connection)?;
            self.commits.fetch_add(1, Ordering::Relaxed);
            Ok(Some(this.rings))
        });
        if !matches!(outcome, Ok(Some(_))) {
            // SQLite has rolled back by itself after some errors and then refuses this; the error
            // worth telling is the first.
            let _ = Rollback.execute(&mut self.connection);
        }
        outcome
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
