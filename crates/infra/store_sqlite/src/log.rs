//! The log beside the database (`-wal`), and keeping it small.
//!
//! Each commit appends to the log. Once a second, if roughly 8 MB were written, the writer has the log taken
//! into the database beside its work; from 24 MB on it does so itself before it writes anything more, and at 8,000 pages
//! (32 MB) the commit that reaches them does, also where other processes wrote them. It begins again at its start only at a moment when nobody
//! reads from it. With many short reads that moment may never come by itself; so once the log is larger than
//! [`BOUND`], the writer tries to have it empty each time it looks, for at most 40 ms. That needs
//! the write lock and a moment without readers of the log, so with several processes at full speed
//! some tries are lost, and the log grows over the bound by what is written between two looks. It
//! keeps growing only while a reader holds on for long, or reads overlap that each outlast the longest
//! try: then the looks become rarer, up to [`LONGEST_PAUSE`], and it is said.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Integer;

use super::paths::beside;

/// The size in bytes from which on the log is emptied.
pub(super) const BOUND: u64 = 64 << 20;

/// How long the tries of one look wait for locks, in milliseconds, and so keep the writer from its
/// work; only while the log is too large. SQLite waits in steps that grow, and between two steps another
/// writer has come first: several short tries find a moment without writers sooner than a long one.
/// A long one outlasts readers.
const TRIES_MS: [u32; 5] = [5, 5, 5, 5, 20];

/// How often the size is looked at, and how rarely during a long read.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a read lasts before it is reported.
const NOTABLE: Duration = Duration::from_secs(5);

/// How often it is reported that the log cannot be kept small.
const QUIET: Duration = Duration::from_secs(60);

/// The log, as the writer looks after it.
pub(super) struct Log {
    path: PathBuf,
    next_look: Instant,
    pause: Duration,
    read_since: Option<Instant>,
    said_at: Option<Instant>,
}

impl Log {
    pub fn of(path: &Path) -> Log {
        Log {
            path: beside(path, "-wal"),
            next_look: Instant::now(),
            pause: FIRST_PAUSE,
            read_since: None,
            said_at: None,
        }
    }

    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |data| data.len())
    }

    /// Whether it is time to look.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next_look
    }

    /// Takes the log into the database and empties it, if it is time to look and it is too large.
    pub fn keep_small(&mut self, connection: &mut SqliteConnection) {
        let now = Instant::now();
        if !self.is_due(now) {
            return;
        }
        let bytes = self.bytes();
        let end = if bytes <= BOUND { End::Empty } else { empty(connection) };
        if end == End::Read {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            let since = *self.read_since.get_or_insert(now);
            if now - since >= NOTABLE && self.said_at.is_none_or(|said| said.elapsed() >= QUIET) {
                self.said_at = Some(now);
                tracing::warn!(
                    "the log {} has grown to {}, because some process reads from the database without letting go; \
                     it shrinks when that ends",
                    self.path.display(),
                    posse_core::text::bytes(bytes)
                );
            }
        } else {
            self.pause = FIRST_PAUSE;
            self.read_since = None;
        }
        self.next_look = Instant::now() + self.pause;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is small, or empty.
    Empty,
    /// All of it is in the database, but others were always busy with it.
    Busy,
    /// Somebody reads from a part of it that is therefore kept.
    Read,
}

/// Takes the log into the database and empties it.
fn empty(connection: &mut SqliteConnection) -> End {
    let mut end = End::Busy;
    for wait in TRIES_MS {
        let _ = connection.batch_execute(&format!("PRAGMA busy_timeout = {wait}"));
        // Whether it was busy; frames in the log, and those of them that are in the database.
        let done = sql::<(Integer, Integer, Integer)>("PRAGMA wal_checkpoint(TRUNCATE)");
        end = match done.get_result::<(i32, i32, i32)>(connection) {
            Ok((0, ..)) => End::Empty,
            Ok((_, log, checkpointed)) if checkpointed < log => End::Read,
            // Another process may be at it.
            Ok(_) | Err(_) => End::Busy,
        };
        if end == End::Empty {
            break;
        }
    }
    // The writer waits for locks in its own way, which is not to wait in SQLite.
    let _ = connection.batch_execute("PRAGMA busy_timeout = 0");
    end
}
