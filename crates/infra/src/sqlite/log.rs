//! The log beside the database (`-wal`), and keeping it small.
//!
//! Each commit appends to the log, and from 2,000 pages on (8 MB) the commit that reaches them takes
//! the log into the database. It begins again at its start only at a moment when nobody reads from
//! it. With many short reads that moment may never come by itself; so once the log is larger than
//! [`BOUND`], the writer waits for it, for at most [`PATIENCE`] at a time, and again after a pause that
//! doubles from [`FIRST_PAUSE`] to [`LONGEST_PAUSE`]. So writing at full speed, by several processes
//! too, keeps the log under the bound and what is written in two pauses. What remains is a reader that
//! holds on for long: then the log grows until it lets go, and that is said.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Integer;

use super::connection::beside;

/// The log is kept below this many bytes, unless somebody reads for long.
pub(super) const BOUND: u64 = 64 << 20;

/// How long writing waits for those who read, and only while the log is too large.
const PATIENCE: Duration = Duration::from_millis(40);

/// How often the size is looked at, and how long after a vain try the next one comes.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Since when the log has to be too large before somebody is told.
const NOTABLE: Duration = Duration::from_secs(5);

/// How often it is said that the log cannot be kept small.
const QUIET: Duration = Duration::from_secs(60);

/// The log, as the writer looks after it.
pub(super) struct Log {
    path: PathBuf,
    next_look: Instant,
    pause: Duration,
    too_large_since: Option<Instant>,
    said_at: Option<Instant>,
}

impl Log {
    /// The log of the database at `path`.
    pub fn of(path: &Path) -> Log {
        Log {
            path: beside(path, "-wal"),
            next_look: Instant::now(),
            pause: FIRST_PAUSE,
            too_large_since: None,
            said_at: None,
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |data| data.len())
    }

    /// Takes the log into the database and empties it, if it is time to look and it is too large.
    pub fn keep_small(&mut self, connection: &mut SqliteConnection) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        let bytes = self.bytes();
        if bytes <= BOUND || empty(connection) {
            self.pause = FIRST_PAUSE;
            self.too_large_since = None;
        } else {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            let since = *self.too_large_since.get_or_insert(now);
            if now - since >= NOTABLE && self.said_at.is_none_or(|said| said.elapsed() >= QUIET) {
                self.said_at = Some(now);
                tracing::warn!(
                    "the log {} has grown to {} MB, because some process reads from the database without letting go; \
                     it shrinks when that ends",
                    self.path.display(),
                    bytes >> 20
                );
            }
        }
        self.next_look = Instant::now() + self.pause;
    }
}

/// Takes the log into the database and empties it, unless somebody reads from it all the time.
fn empty(connection: &mut SqliteConnection) -> bool {
    #[derive(QueryableByName)]
    struct Checkpoint {
        #[diesel(sql_type = Integer)]
        busy: i32,
    }
    let patience = PATIENCE.as_millis();
    let emptied = connection
        .batch_execute(&format!("PRAGMA busy_timeout = {patience}"))
        .and_then(|()| diesel::sql_query("PRAGMA wal_checkpoint(TRUNCATE)").get_result::<Checkpoint>(connection));
    // The writer waits for locks in its own way.
    let _ = connection.batch_execute("PRAGMA busy_timeout = 0");
    emptied.is_ok_and(|checkpoint| checkpoint.busy == 0)
}
