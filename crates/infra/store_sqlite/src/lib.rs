//! The repository on SQLite.
//!
//! What holds here:
//!
//! - **One connection writes** ([`writer`]), and answers after COMMIT. Many callers share one commit.
//! - **Reads have their own connections** ([`readers`]) and never wait for a write.
//! - **The core decides**, in [`posse_core::store`]; here are rows ([`rows`]) and what runs commands ([`engine`]).
//! - **Every query is diesel's**; what diesel cannot say is in [`literal`].

// A failed `unwrap` is how a test fails.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use diesel::SqliteConnection;
use diesel::connection::SimpleConnection;
use posse_core::port::{RepositoryError, Result};
use posse_core::queue::retention::Retention;

mod backup;
mod callers_transaction;
mod cause;
mod compact;
mod connection;
mod engine;
pub mod extension;
mod fault;
mod identity;
mod in_use;
mod last_words;
mod literal;
mod log;
mod meta;
mod migrate;
mod notify;
mod paths;
mod probe;
mod readers;
mod reseal;
mod restore;
mod restoring;
mod rows;
mod schema;
mod sealed_text;
mod space;
mod upkeep;
mod writer;

pub use callers_transaction::{complete_in, enqueue_in, notify};
pub use posse_core::store::seal::{KEY_BYTES, KEYS_VARIABLE, Keys};
pub use upkeep::SqliteDatabase;

use connection::{Access, traceless};
use fault::{Kind, describe, describe_text, in_words};
use identity::Identity;
use last_words::LastWords;
use migrate::Schema;
use notify::{Listener, Notifier};
use paths::may_write;
use posse_core::store::memory::held::Held;
use posse_core::store::{Done, retention};
use readers::Readers;
use rows::Rows;
use writer::Writer;

/// What a commit promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// What was answered survives a power cut.
    #[default]
    Full,
    /// What was answered survives the death of the process; a power cut may take back the last
    /// moments. Several times faster where the disk is slow to sync.
    Normal,
}

impl Synchronous {
    fn as_str(self) -> &'static str {
        match self {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What a commit promises.
    pub synchronous: Synchronous,
    /// What texts are sealed with; none, and they are stored as they are.
    pub keys: Keys,
    /// How long what has ended is kept, unless the database says so already.
    pub retention: Option<Retention>,
    /// Most pages (of 4 KiB) the file may have, so that tests can fill it.
    #[doc(hidden)]
    pub max_page_count: Option<u32>,
}

/// Jobs, journals and all that belongs to them, in one SQLite file.
///
/// Dropping it waits until everything asked for is written.
pub struct SqliteStore {
    // Dropped in this order: no more writes, then no more listening.
    writer: Option<Writer>,
    readers: Readers,
    _listener: Option<Listener>,
    notifier: Arc<Notifier>,
    identity: Arc<Identity>,
    last_words: LastWords,
    installation: Arc<str>,
    keys: Keys,
    /// The words of sealed texts, in memory alone.
    held: Arc<Mutex<Held<Rows>>>,
    path: PathBuf,
}

impl SqliteStore {
    /// Opens the database at `path`, which is made if it is not there, and brings it to this
    /// version's schema. Its folder must exist. Blocks while it does so; a start at the same time in
    /// another process waits for this one.
    ///
    /// Errors are for a person: which path, which user, what to do. A newer database is refused and
    /// left as it is.
    pub fn open(path: &Path, options: Options) -> Result<SqliteStore> {
        let path = &std::path::absolute(path).map_err(|error| unavailable(path, "found", &error))?;
        if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
            return Err(RepositoryError::Unavailable(format!(
                "there is no folder {} for the database; make it (mkdir -p {}), or name another path",
                folder.display(),
                folder.display(),
            )));
        }
        restoring::finished(path)?;
        let (connection, notifier, installation) = start(path, &options)?;
        let listener = Listener::start(path, Arc::clone(&notifier))
            .inspect_err(|error| tracing::warn!(%error, "not woken by other processes; looking once a second"));
        let threads = |error| unavailable(path, "served", &error);
        let identity = Arc::new(Identity::of(path));
        Ok(SqliteStore {
            writer: Some(
                Writer::start(
                    connection,
                    options.synchronous,
                    (Arc::clone(&identity), path.clone(), options.keys.clone()),
                    Arc::clone(&notifier),
                )
                .map_err(threads)?,
            ),
            readers: Readers::start(path.clone(), Access::Read, Arc::clone(&identity)).map_err(threads)?,
            _listener: listener.ok(),
            notifier,
            identity,
            last_words: LastWords::beside(path),
            installation,
            keys: options.keys,
            held: Arc::default(),
            path: path.clone(),
        })
    }

    /// Opens the database at `path` to be looked at. Nothing is written, so it works where the file and its folder may
    /// only be read. The schema must be this version's. What none of the keys opens is shown as a remark that says so.
    pub fn open_read_only(path: &Path, keys: Keys) -> Result<SqliteStore> {
        let path = &std::path::absolute(path).map_err(|error| unavailable(path, "found", &error))?;
        if !path.exists() {
            return Err(RepositoryError::Unavailable(format!(
                "there is no database {}; enqueue a job to make one, or name another path",
                path.display()
            )));
        }
        restoring::finished(path)?;
        let access = if may_write(path) { Access::Read } else { traceless(path) };
        let mut connection = connection::open(path, access)?;
        if migrate::inspect(&mut connection, path)? == Schema::Older {
            return Err(RepositoryError::Unavailable(format!(
                "the database {} was made by an older posse; run any command that writes to bring it up to date",
                path.display()
            )));
        }
        let installation = meta::installation(&mut connection, path)?;
        let notifier = Arc::new(Notifier::read_only(path));
        let identity = Arc::new(Identity::of_file(path));
        let readers = Readers::start(path.clone(), access, Arc::clone(&identity));
        Ok(SqliteStore {
            writer: None,
            readers: readers.map_err(|error| unavailable(path, "served", &error))?,
            // Without a file nobody can have notified us.
            _listener: Listener::start(path, Arc::clone(&notifier)).ok(),
            notifier,
            identity,
            last_words: LastWords::beside(path),
            installation,
            keys,
            held: Arc::default(),
            path: path.clone(),
        })
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Transactions this store has committed: how well writes are grouped.
    pub fn commits(&self) -> u64 {
        posse_core::metrics::MetricsQueries::written(self).commits
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or_else(|| {
            RepositoryError::Unavailable(format!("the database {} was opened to be read only", self.path.display()))
        })
    }
}

/// Only one start at a time in a process: making a file means closing it, and that releases the locks
/// which other stores of this process have on it.
static STARTING: Mutex<()> = Mutex::new(());

/// Makes the file if it is not there, and brings it to this version's schema.
fn start(path: &Path, options: &Options) -> Result<(SqliteConnection, Arc<Notifier>, Arc<str>)> {
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    // Its length tells a new file from others; a start in another process may have just made it.
    let is_new = match std::fs::metadata(path) {
        Ok(data) if data.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        Ok(data) => Ok(data.len() == 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            not_missing(path)?;
            make(path)
        }
        Err(error) => Err(error),
    };
    let is_new = is_new.map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            describe_text(Kind::ReadOnly, &error.to_string(), path)
        }
        _ => unavailable(path, "opened", &error),
    })?;
    // A look that cannot change anything, before anything is changed: a connection that may write
    // can alter the file by merely being closed.
    if !is_new {
        let look = |access| migrate::inspect(&mut connection::open(path, access)?, path);
        let seen = look(traceless(path));
        // It may have been opened elsewhere at this very moment.
        if seen.is_err() {
            look(traceless(path))?;
        }
    }
    if !may_write(path) {
        return Err(describe_text(Kind::ReadOnly, "it may only be read", path));
    }
    let notifier = Notifier::new(path);
    let starting = notifier.lock();
    // One may have begun meanwhile, and ended in the middle.
    restoring::finished(path)?;
    let mut connection = connection::open(path, Access::Write(options.synchronous))?;
    prepare(&mut connection, options, path)?;
    meta::begin_sealing(&mut connection, &options.keys).map_err(|fault| in_words(fault, path))?;
    if let Some(first) = &options.retention {
        adopt(&mut connection, first).map_err(|fault| in_words(fault, path))?;
    }
    drop(starting);
    let installation = meta::installation(&mut connection, path)?;
    connection.batch_execute("PRAGMA busy_timeout = 0").map_err(|error| describe(&error, path))?;
    Ok((connection, Arc::new(notifier), installation))
}

/// Fails where a database seems to be missing. While a process still works on one that was here, a new one would get no
/// workers. Where the log of one is left, SQLite would delete it, and with it what was in the log alone.
fn not_missing(path: &Path) -> Result<()> {
    // The process that listens may have made it at this moment.
    let Some(what) = probe::left_behind(path).filter(|_| !path.exists()) else { return Ok(()) };
    let way_out = match Notifier::read_only(path).has_listeners() {
        true => "put it back, or end that process (posse work ends by itself within a second or two)",
        false => {
            "put it back, or restore a backup (posse db restore FILE), or remove that log if nothing of it is wanted any more"
        }
    };
    Err(RepositoryError::Gone(format!(
        "the database {} is gone, and {what}; {way_out}, then try again",
        path.display()
    )))
}

/// Makes an empty file that only its owner may use. True also where another process has just made it: it is as new.
fn make(path: &Path) -> std::io::Result<bool> {
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(true),
    }
}

/// Gives a file the settings that are kept in it, and its tables.
fn prepare(connection: &mut SqliteConnection, options: &Options, path: &Path) -> Result<()> {
    let failed = |error| describe(&error, path);
    // How space is given back can only be chosen before there is anything in the file.
    connection.batch_execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL").map_err(failed)?;
    if migrate::inspect(connection, path)? == Schema::Older {
        migrate::migrate(connection, path)?;
    }
    if let Some(pages) = options.max_page_count {
        connection.batch_execute(&format!("PRAGMA max_page_count = {pages}")).map_err(failed)?;
    }
    Ok(())
}

/// Stores for how long what is kept, where nobody has said so; the write lock is taken only then.
fn adopt(connection: &mut SqliteConnection, first: &Retention) -> Done<()> {
    if retention::stored(Rows::of(connection))?.is_none() {
        connection.immediate_transaction(|connection| retention::adopt(Rows::of(connection), first))?;
    }
    Ok(())
}

fn unavailable(path: &Path, what: &str, error: &std::io::Error) -> RepositoryError {
    RepositoryError::Unavailable(format!(
        "the database {} could not be {what}: {error}; check the path and its rights",
        path.display()
    ))
}
