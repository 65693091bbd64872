//! The owner of the connection that writes, through whom alone anything is done with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use posse_core::metrics::Written;
use posse_core::store::claim::Cursors;
use posse_core::store::seal::Keys;

use super::batch::{Batch, Try};
use super::checkpoint::Checkpointer;
use crate::Synchronous;
use crate::fault::{Kind, describe, kind};
use crate::identity::Identity;
use crate::literal::{Begin, Commit, Rollback};
use crate::log::Log;
use crate::notify::Notifier;

/// How long the write lock of another process is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// How often to look for commits of other processes that sent no notification.
const POLL: Duration = Duration::from_secs(1);
/// After roughly how many bytes written to it the log is taken into the database. That takes two syncs of
/// the disk, which no command is to wait for: so it is done beside the writing.
const CHECKPOINT_BYTES: usize = 8 << 20;
/// After how many it is done before the next command: otherwise writers outrun it, and the log grows.
const MOST_BYTES: usize = 24 << 20;
/// Roughly what a commit writes beside its content: the pages of the tables and indexes it touches.
const COMMIT_BYTES: usize = 6 * 4096;

/// Counts transactions that were committed, and the commands in them.
#[derive(Default)]
pub(super) struct Count {
    commits: AtomicU64,
    commands: AtomicU64,
}

impl Count {
    pub fn written(&self) -> Written {
        Written { commits: self.commits.load(Ordering::Relaxed), commands: self.commands.load(Ordering::Relaxed) }
    }
}

pub(super) struct Owner {
    connection: SqliteConnection,
    identity: Arc<Identity>,
    path: PathBuf,
    keys: Keys,
    /// Where its claims go on, whichever thread they come from.
    cursors: Cursors,
    notifier: Arc<Notifier>,
    log: Log,
    checkpointer: Checkpointer,
    /// What a lasting commit is made with.
    lasting: Synchronous,
    /// What the connection is set to.
    set_to: Synchronous,
    count: Arc<Count>,
    /// Roughly the bytes written to the log since it was last taken into the database.
    written: usize,
    /// The last `data_version`, which changes when another connection commits.
    seen: Option<i64>,
    next_poll: Instant,
}

impl Owner {
    /// `synchronous` is what `connection` is set to.
    pub fn new(
        connection: SqliteConnection,
        synchronous: Synchronous,
        (identity, path, keys): (Arc<Identity>, PathBuf, Keys),
        notifier: Arc<Notifier>,
    ) -> Owner {
        let log = Log::of(&path);
        let checkpointer = Checkpointer::new(path.clone());
        let mut owner = Owner {
            connection,
            identity,
            path,
            keys,
            cursors: Cursors::default(),
            notifier,
            log,
            checkpointer,
            lasting: synchronous,
            set_to: synchronous,
            count: Arc::default(),
            written: 0,
            seen: None,
            next_poll: Instant::now(),
        };
        // From here on nothing that others commit goes unseen, however late the thread comes to run.
        owner.poll();
        owner
    }

    pub fn count(&self) -> Arc<Count> {
        Arc::clone(&self.count)
    }

    /// Whether a commit of the batch waits for the disk.
    pub fn syncs(&self, batch: &Batch) -> bool {
        self.synchronous(batch) == Synchronous::Full
    }

    /// Whether something is to be looked after that may wait for the disk.
    pub fn needs_care(&self) -> bool {
        let now = Instant::now();
        now >= self.next_poll || self.log.is_due(now) || self.written >= MOST_BYTES
    }

    /// Looks after what is due, and tells when to do so again if nothing is written.
    pub fn care(&mut self) -> Instant {
        let is_look = Instant::now() >= self.next_poll;
        let there = if is_look { self.identity.check() } else { self.identity.found() };
        if there.is_err() {
            // Nothing more is worth doing there; callers that wait are told at once.
            self.next_poll = Instant::now() + POLL;
            self.notifier.notify_here();
            return self.next_poll;
        }
        if is_look {
            self.poll();
            self.next_poll = Instant::now() + POLL;
        }
        self.log.keep_small(&mut self.connection);
        if self.written >= MOST_BYTES {
            self.written = 0;
            // What others keep it from taking over now is taken over the next time.
            let _ = self.connection.batch_execute("PRAGMA wal_checkpoint(PASSIVE)");
        } else if is_look && self.written >= CHECKPOINT_BYTES {
            self.written = 0;
            self.checkpointer.begin();
        }
        self.next_poll
    }

    /// Runs the batch and commits it, if that takes no waiting: for the lock, the disk, or a second
    /// try. Otherwise nothing was kept, and it is to be written with [`Owner::write`].
    pub fn write_at_once(&mut self, batch: &mut Batch) -> bool {
        if self.syncs(batch)
            || self.identity.check_changes().is_err()
            || self.set_synchronous(batch).is_err()
            || Begin.execute(&mut self.connection).is_err()
        {
            return false;
        }
        let notifies = self.attempt(batch, false).ok().flatten();
        if notifies.is_some() {
            self.tell(notifies, batch);
        }
        notifies.is_some()
    }

    pub fn write(&mut self, batch: &mut Batch) {
        if let Err(lost) = self.identity.check_changes() {
            return batch.fail(&lost);
        }
        // Most batches have no failing piece, and a savepoint for each would copy every page it
        // touches. So they are tried without, and run again with savepoints when one fails.
        let outcome = match self.begin_and_attempt(batch, false) {
            Ok(None) => self.begin_and_attempt(batch, true),
            outcome => outcome,
        };
        match outcome {
            Ok(notifies) => self.tell(notifies, batch),
            Err(error) => batch.fail(&describe(&error, &self.path)),
        }
    }

    /// Tells of a commit, before the callers are answered: one of them may ask at once who was woken. What went into a
    /// file that has lost its name was not saved.
    fn tell(&self, notifies: Option<bool>, batch: &mut Batch) {
        if let Err(lost) = self.identity.check_changes() {
            return batch.fail(&lost);
        }
        match notifies {
            Some(true) => self.notifier.notify(),
            Some(false) => self.notifier.committed(),
            None => {}
        }
    }

    fn begin_and_attempt(&mut self, batch: &mut Batch, apart: bool) -> Result<Option<bool>, diesel::result::Error> {
        self.set_synchronous(batch)?;
        self.begin()?;
        self.attempt(batch, apart)
    }

    /// One try at a batch in the transaction that was begun; tells whether workers are to look. None when a
    /// piece failed and `apart` was not asked for; then nothing was kept. An error is about the whole
    /// batch; then nothing was kept either.
    fn attempt(&mut self, batch: &mut Batch, apart: bool) -> Result<Option<bool>, diesel::result::Error> {
        let mut this = Try {
            connection: &mut self.connection,
            path: &self.path,
            keys: &self.keys,
            cursors: &mut self.cursors,
            apart,
            notifies: false,
        };
        let outcome = this.run(batch).and_then(|complete| {
            if !complete {
                return Ok(None);
            }
            Commit.execute(this.connection)?;
            Ok(Some(this.notifies))
        });
        if matches!(outcome, Ok(Some(_))) {
            self.count.commits.fetch_add(1, Ordering::Relaxed);
            self.count.commands.fetch_add(batch.len() as u64, Ordering::Relaxed);
            self.written += COMMIT_BYTES + batch.bytes();
        } else {
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

    fn synchronous(&self, batch: &Batch) -> Synchronous {
        if batch.is_lasting() { self.lasting } else { Synchronous::Normal }
    }

    /// Has the next commit wait for the disk, or not, as the batch asks.
    fn set_synchronous(&mut self, batch: &Batch) -> Result<(), diesel::result::Error> {
        let wanted = self.synchronous(batch);
        if self.set_to != wanted {
            self.connection.batch_execute(&format!("PRAGMA synchronous = {}", wanted.as_str()))?;
            self.set_to = wanted;
        }
        Ok(())
    }

    /// Notifies this process if another one has committed since the last look. The look is cheap; it is
    /// for file systems without inotify.
    fn poll(&mut self) {
        let version = sql::<BigInt>("PRAGMA data_version").get_result::<i64>(&mut self.connection);
        let Ok(data_version) = version else { return };
        if self.seen.replace(data_version).is_some_and(|before| before != data_version) {
            self.notifier.notify_here();
        }
    }
}
