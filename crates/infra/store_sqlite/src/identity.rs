//! Whether the files that a store has open are the ones that others find by their names.
//!
//! A file that is deleted, moved or replaced stays open where it is, and takes what is written to it: into nowhere.
//! SQLite says nothing of it. So it is looked for by name once a second, and whenever the kernel tells of a change to one
//! of them (inotify): that is asked at each commit, before anybody is told that something was saved.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use posse_core::port::{RepositoryError, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, StatxFlags, inotify, makedev};
use rustix::io::{Errno, read};

use super::paths::beside;

/// Which file it is: its device and its number there.
type Id = (u64, u64);

/// The files of an open database: itself, its log, and the memory that processes share.
pub(super) struct Identity {
    path: PathBuf,
    files: Vec<(PathBuf, OnceLock<Id>)>,
    /// Tells of changes to the files. Absent where it cannot be had; then they are looked for each time.
    changes: Option<OwnedFd>,
    /// What was found to be wrong. It stays: a file that comes back has missed something.
    lost: OnceLock<RepositoryError>,
}

impl Identity {
    /// Of the database at `path`, which a connection of this process has open, to write.
    pub fn of(path: &Path) -> Identity {
        let changes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
        Identity::of_files(path, &["", "-wal", "-shm"], changes)
    }

    /// The same for a reader: the files beside it may come and go while no process has it open.
    pub fn of_file(path: &Path) -> Identity {
        Identity::of_files(path, &[""], None)
    }

    fn of_files(path: &Path, suffixes: &[&str], changes: Option<OwnedFd>) -> Identity {
        let files = suffixes.iter().map(|suffix| (beside(path, suffix), OnceLock::new())).collect();
        let identity = Identity { path: path.to_owned(), files, changes, lost: OnceLock::new() };
        for (file, id) in &identity.files {
            if let Ok(now) = look(file) {
                identity.learn(file, id, now);
            }
        }
        identity
    }

    fn learn(&self, file: &Path, id: &OnceLock<Id>, now: Id) {
        // A file that is open is deleted by a change to its number of names.
        let flags = inotify::WatchFlags::ATTRIB | inotify::WatchFlags::MOVE_SELF | inotify::WatchFlags::DELETE_SELF;
        if self.changes.as_ref().is_none_or(|changes| inotify::add_watch(changes, file, flags).is_ok()) {
            let _ = id.set(now);
        }
    }

    /// The same as [`Identity::check`], for the price of one look, as long as the kernel tells of no change.
    pub fn check_changes(&self) -> Result<()> {
        self.found()?;
        let is_known = self.files.iter().all(|(_, id)| id.get().is_some());
        match &self.changes {
            Some(changes) if is_known && matches!(read(changes, &mut [0; 1024]), Err(Errno::AGAIN)) => Ok(()),
            _ => self.check(),
        }
    }

    pub fn found(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    /// Fails once one of the files is not the one that is open.
    pub fn check(&self) -> Result<()> {
        self.found()?;
        let Some(what) = self.files.iter().find_map(|(file, id)| self.changed(file, id)) else { return Ok(()) };
        let lost = RepositoryError::Gone(format!(
            "{what} while it was in use: the database {} is not the one that this process has open. What it wrote since may \
             be lost, and it writes nothing more. Put the file back, or restore a backup (posse db restore FILE), then start \
             this again",
            self.path.display()
        ));
        Err(self.lost.get_or_init(|| lost).clone())
    }

    /// What became of a file, if it is not what it was.
    fn changed(&self, file: &Path, id: &OnceLock<Id>) -> Option<String> {
        match (look(file), id.get()) {
            (Ok(now), Some(then)) if now == *then => None,
            (Ok(_), Some(_)) => Some(format!("{} was replaced", file.display())),
            // Made since.
            (Ok(now), None) => {
                self.learn(file, id, now);
                None
            }
            (Err(error), Some(_)) if error.kind() == ErrorKind::NotFound => {
                Some(format!("{} was deleted or moved", file.display()))
            }
            // That it cannot be looked at now says nothing.
            (Err(_), _) => None,
        }
    }
}

/// Asks for the number alone. After a file's times were asked for, the kernel changes them at the next write, however
/// soon that is, and then each sync of the log writes the times too: a commit took a quarter longer.
fn look(file: &Path) -> std::io::Result<Id> {
    let data = rustix::fs::statx(rustix::fs::CWD, file, AtFlags::empty(), StatxFlags::INO)?;
    Ok((makedev(data.stx_dev_major, data.stx_dev_minor), data.stx_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_made_later_is_learned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("posse.db");
        std::fs::write(&path, "x").expect("is written");
        let identity = Identity::of(&path);
        std::fs::write(beside(&path, "-wal"), "x").expect("is written");
        assert!(identity.check_changes().is_ok());
        // Deleted while it is open, as by those who use it.
        let _open = std::fs::File::open(beside(&path, "-wal")).expect("opens");
        std::fs::remove_file(beside(&path, "-wal")).expect("is removed");
        assert!(identity.check_changes().is_err());
    }
}
