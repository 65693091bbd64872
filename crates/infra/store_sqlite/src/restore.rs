//! Putting a backup in the place of a database.
//!
//! A database is its file and the log beside it, and a file put in the place of another one is read with the other's log.
//! So the log is taken into the old file first, and then one rename does it: if the process ends before, the old
//! database is there whole, and after it the new one. Only where the old file is too damaged for that is there more to do
//! than one rename; then a mark lies beside the database meanwhile, and opening it fails with the advice to finish.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use posse_core::clock::{Clock, Millis};
use posse_core::port::{RepositoryError, Restored, Result};
use posse_core::store::claim::Cursors;
use posse_core::store::driver::{JobRow, JobRows as _, JobsOf};
use posse_core::store::leases;
use posse_core::store::seal::Keys;
use posse_core::store::{Done, Outcome};
use posse_host::process::SystemClock;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::backup::{check, copy_into};
use super::connection::{Access, open, transaction};
use super::fault::{Kind, describe, in_words, kind};
use super::migrate::{self, Schema};
use super::notify::Notifier;
use super::paths::beside;
use super::restoring::mark;
use super::rows::Rows;
use super::schema::{duties, sqlite_sequence, workers};
use super::writer::Transaction;
use super::{Synchronous, in_use, last_words, meta};

/// Puts a copy of `backup` in the place of the database at `path`, and keeps what is there beside it. Refuses a
/// backup that is damaged, newer, or sealed with a key that is not among `keys`, and a database that
/// anybody has open, as far as this host can tell. No job of the backup is left in the hands of a worker. Blocks.
pub fn restore(path: &Path, backup: &Path, keys: &Keys) -> Result<Restored> {
    let path = &std::path::absolute(path).map_err(|error| not_restored(path, &error))?;
    let backup = &std::fs::canonicalize(backup).map_err(|error| {
        RepositoryError::Unavailable(format!("the backup {} cannot be read: {error}", backup.display()))
    })?;
    let is_file = |path: &Path| path.metadata().is_ok_and(|data| data.is_file());
    if !is_file(backup) {
        return Err(RepositoryError::Refused(format!("{} is no file; name a backup", backup.display())));
    }
    if same_file(path, backup) {
        return Err(RepositoryError::Refused(format!("{} is the database itself; name a backup", backup.display())));
    }
    // A process that starts meanwhile waits, and finds the new one.
    let notifier = Notifier::new(path);
    let _starting = notifier.lock();
    nobody_has_it(path, &notifier)?;
    look_at(backup, keys)?;
    let mut old = Old::open(path)?;
    let part = Part(beside(path, ".restore-part"));
    let given_back = part.fill(backup, keys, old.sequences(backup))?;
    let schema = migrate::schema_of(&part.0)?.last.unwrap_or_default();
    old.fold(path)?;
    nobody_has_it(path, &notifier)?;
    let kept = swap(&part.0, path, &old).map_err(|error| not_restored(path, &error))?;
    last_words::sweep(path);
    Ok(Restored { kept, schema, given_back })
}

fn not_restored(path: &Path, error: &std::io::Error) -> RepositoryError {
    RepositoryError::Unavailable(format!(
        "{} cannot be restored: {error}; check its folder's rights and space, then run this again",
        path.display()
    ))
}

fn same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| path.metadata().ok().map(|data| (data.dev(), data.ino()));
    id(one).is_some_and(|one| Some(one) == id(other))
}

fn nobody_has_it(path: &Path, notifier: &Notifier) -> Result<()> {
    let who = match in_use::holder(path) {
        Some(who) => who,
        None if notifier.has_listeners() => "a process that waits for its jobs".into(),
        None => return Ok(()),
    };
    Err(RepositoryError::Refused(format!(
        "{} has the database {} open; end it first (posse worker drain --all ends workers), then run this again",
        who,
        path.display()
    )))
}

/// Whether the backup can be used.
fn look_at(backup: &Path, keys: &Keys) -> Result<()> {
    let mut connection = open(backup, access_to(backup))?;
    migrate::inspect(&mut connection, backup)?;
    if migrate::last_step(&mut connection, backup)?.is_none() {
        return Err(RepositoryError::Refused(format!("{} is empty; name another backup", backup.display())));
    }
    let failed = |error| in_words(error, backup);
    if let Some(problem) = check(&mut connection, true).map_err(failed)?.first() {
        return Err(RepositoryError::Unusable(format!(
            "the backup {} is damaged ({problem}) and was not used; name another one",
            backup.display()
        )));
    }
    if let Some(key) = meta::sealing_key(&mut connection).map_err(failed)?.filter(|key| !keys.has(key)) {
        return Err(RepositoryError::Refused(format!(
            "the backup {} is sealed with key {key}, which is not configured here: add it to POSSE_SEAL_KEYS or [sealing] \
             key_file, then run this again",
            backup.display()
        )));
    }
    Ok(())
}

/// A copy that was made of a database at work has a log of its own.
fn access_to(backup: &Path) -> Access {
    let has_log = beside(backup, "-wal").metadata().is_ok_and(|data| data.len() > 0);
    if has_log { Access::Read } else { Access::Frozen }
}

/// The new database before it is at its place; gone with this.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&self.0, suffix));
        }
    }
}

impl Part {
    /// Makes it of the backup, in this version's schema and with no job claimed; gives how many jobs were.
    fn fill(&self, backup: &Path, keys: &Keys, sequences: &[Sequence]) -> Result<usize> {
        let part = &self.0;
        let failed = |error: std::io::Error| not_restored(part, &error);
        // Left by a process that ended in the middle.
        drop(Part(part.clone()));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(part).map_err(failed)?;
        copy_into(backup, access_to(backup), part)?;
        let mut connection = open(part, Access::Write(Synchronous::Full))?;
        if migrate::inspect(&mut connection, part)? == Schema::Older {
            migrate::migrate(&mut connection, part)?;
        }
        let given_back = transaction(&mut connection, |connection| tidy(connection, keys, sequences))
            .map_err(|fault| in_words(fault, part))?;
        connection.batch_execute("PRAGMA journal_mode = DELETE").map_err(|error| describe(&error, part))?;
        drop(connection);
        File::open(part).and_then(|file| file.sync_all()).map_err(failed)?;
        Ok(given_back)
    }
}

/// A table, and what its numbers have come to.
type Sequence = (String, i64);

fn tidy(connection: &mut SqliteConnection, keys: &Keys, sequences: &[Sequence]) -> Outcome<usize> {
    let now: Millis = SystemClock.now();
    let rows = forget_workers(connection)?;
    let held = rows.len();
    let (mut cursors, mut notifies) = (Cursors::default(), false);
    let tx = &mut Transaction::new(Rows::of(connection), keys, &mut cursors, &mut notifies);
    for row in rows {
        let why = format!(
            "worker {} held it when the backup was made that this database was restored from; the attempt was given back",
            row.leased_by.clone().unwrap_or_default()
        );
        leases::given_back(tx, row, &why, now)?;
    }
    raise(connection, sequences)?;
    Ok(held)
}

/// Whoever worked when the backup was made does not work on this. Gives the jobs they had.
fn forget_workers(connection: &mut SqliteConnection) -> Done<Vec<JobRow>> {
    diesel::delete(workers::table).execute(connection)?;
    diesel::delete(duties::table).execute(connection)?;
    Rows::of(connection).jobs(JobsOf::Running)
}

/// A number that was given to a job since the backup is never given again: its calls may have had effects.
fn raise(connection: &mut SqliteConnection, sequences: &[Sequence]) -> Done<()> {
    for (name, seq) in sequences {
        let raised = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?";
        let raised = diesel::sql_query(raised).bind::<BigInt, _>(seq).bind::<Text, _>(name).execute(connection)?;
        if raised == 0 {
            diesel::sql_query("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)")
                .bind::<Text, _>(name)
                .bind::<BigInt, _>(seq)
                .execute(connection)?;
        }
    }
    Ok(())
}

enum Old {
    Nothing,
    /// A file that cannot be opened as a database.
    Damaged,
    Sound {
        connection: Box<SqliteConnection>,
        sequences: Vec<Sequence>,
        installation: Option<Arc<str>>,
    },
    /// Its log is taken in, and it has none any more.
    Folded,
}

impl Old {
    fn open(path: &Path) -> Result<Old> {
        match path.symlink_metadata() {
            Err(_) => return Ok(Old::Nothing),
            Ok(data) if data.is_dir() => {
                return Err(RepositoryError::Refused(format!("{} is a folder; name a file", path.display())));
            }
            Ok(data) if data.len() == 0 => return Ok(Old::Damaged),
            Ok(_) => {}
        }
        let Ok(mut connection) = open(path, Access::Write(Synchronous::Full)) else { return Ok(Old::Damaged) };
        match sqlite_sequence::table.filter(sqlite_sequence::seq.gt(0)).load(&mut connection) {
            Ok(sequences) => {
                let installation = meta::installation(&mut connection, path).ok();
                Ok(Old::Sound { connection: Box::new(connection), sequences, installation })
            }
            Err(error) if kind(&error) == Kind::Busy => Err(describe(&error, path)),
            Err(_) => Ok(Old::Damaged),
        }
    }

    /// What its numbers have come to, which those of an earlier state of the same database must not repeat.
    fn sequences(&self, backup: &Path) -> &[Sequence] {
        let of_backup =
            open(backup, access_to(backup)).and_then(|mut other| meta::installation(&mut other, backup)).ok();
        match self {
            Old::Sound { sequences, installation, .. } if *installation == of_backup => sequences,
            _ => &[],
        }
    }

    /// Takes the log into the file, so that the file is all there is. Fails if anybody else has it open.
    fn fold(&mut self, path: &Path) -> Result<()> {
        let Old::Sound { connection, .. } = self else { return Ok(()) };
        let folded = connection
            .batch_execute("PRAGMA busy_timeout = 2000; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
        let log = beside(path, "-wal").metadata().map_or(0, |data| data.len());
        match folded {
            Err(error) if kind(&error) == Kind::Busy => {
                return Err(RepositoryError::Refused(format!(
                    "another process has the database {} open; end it first, then run this again",
                    path.display()
                )));
            }
            Ok(()) if log == 0 => *self = Old::Folded,
            Ok(()) | Err(_) => *self = Old::Damaged,
        }
        Ok(())
    }
}

/// Puts the new one in the place of the old one, and tells where that is kept.
fn swap(part: &Path, path: &Path, old: &Old) -> std::io::Result<Option<PathBuf>> {
    let folder = path.parent().map(File::open).transpose()?;
    let settle = || folder.as_ref().map_or(Ok(()), File::sync_all);
    let log = ["-wal", "-shm"].map(|suffix| (beside(path, suffix), suffix));
    let kept = match old {
        Old::Nothing => None,
        _ => Some(free_name(path)),
    };
    let needs_mark = log.iter().any(|(file, _)| file.exists());
    if needs_mark {
        let marked = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(mark(path))?;
        marked.sync_all()?;
        settle()?;
        for (file, suffix) in log.iter().filter(|(file, _)| file.exists()) {
            match &kept {
                Some(kept) => std::fs::rename(file, beside(kept, suffix))?,
                // The log of a database that is not there.
                None => std::fs::remove_file(file)?,
            }
        }
        settle()?;
    }
    match &kept {
        None => renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE)?,
        // A second name, and then the first one is the new one's: at no moment is there none.
        Some(kept) if std::fs::hard_link(path, kept).is_ok() => {
            settle()?;
            std::fs::rename(part, path)?;
        }
        // Where files have one name only.
        Some(kept) => {
            renameat_with(CWD, part, CWD, path, RenameFlags::EXCHANGE)?;
            settle()?;
            std::fs::rename(part, kept)?;
        }
    }
    settle()?;
    let _ = std::fs::remove_file(mark(path));
    settle()?;
    Ok(kept)
}

/// A name beside the database that nothing has.
fn free_name(path: &Path) -> PathBuf {
    let now = SystemClock.now() / 1000;
    let named = |n: i64| beside(path, &format!(".before-restore-{}", now + n));
    let taken = |name: &PathBuf| ["", "-wal", "-shm"].iter().any(|suffix| beside(name, suffix).exists());
    (0..).map(named).find(|name| !taken(name)).unwrap_or_else(|| named(0))
}
