//! Whether the files that a store has open are the ones that others find by their names.
//!
//! A file that is deleted, moved or replaced stays open where it is, and takes what is written to it: into nowhere.
//! SQLite says nothing of it. So it is looked for by name at each commit, before anybody is told that something was
//! saved, and once a second.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use posse_core::port::RepositoryError;
use rustix::fs::{AtFlags, StatxFlags, makedev};

use super::connection::beside;

/// Which file it is: its device and its number there.
type Id = (u64, u64);

/// The files of an open database: itself, its log, and the memory that processes share.
pub(super) struct Identity {
    path: PathBuf,
    files: Vec<(PathBuf, OnceLock<Id>)>,
    /// What was found to be wrong. It stays: a file that comes back has missed something.
    lost: OnceLock<RepositoryError>,
}

impl Identity {
    /// Of the database at `path`, which a connection of this process has open, to write.
    pub fn of(path: &Path) -> Identity {
        Identity::of_files(path, &["", "-wal", "-shm"])
    }

    /// The same for who only reads: what lies beside the file may come and go while nobody has it open.
    pub fn of_file(path: &Path) -> Identity {
        Identity::of_files(path, &[""])
    }

    fn of_files(path: &Path, suffixes: &[&str]) -> Identity {
        let file = |suffix: &&str| {
            let file = beside(path, suffix);
            let id = OnceLock::new();
            if let Ok(now) = look(&file) {
                let _ = id.set(now);
            }
            (file, id)
        };
        Identity { path: path.to_owned(), files: suffixes.iter().map(file).collect(), lost: OnceLock::new() }
    }

    /// What [`Identity::check`] last found.
    pub fn found(&self) -> Result<(), RepositoryError> {
        self.lost.get().map_or(Ok(()), |lost| Err(lost.clone()))
    }

    /// Fails once one of the files is not the one that is open.
    pub fn check(&self) -> Result<(), RepositoryError> {
        self.found()?;
        let Some(what) = self.files.iter().find_map(|(file, id)| changed(file, id)) else { return Ok(()) };
        let lost = RepositoryError::Gone(format!(
            "{what} while it was in use: the database {} is not the one that this process has open. What it wrote since may \
             be lost, and it writes nothing more. Put the file back, or restore a backup (posse db restore FILE), then start \
             this again",
            self.path.display()
        ));
        Err(self.lost.get_or_init(|| lost).clone())
    }
}

/// Asks for the number alone. Who asks for a file's times has the kernel give it a new time at the next write, however
/// soon that is, and then each sync of the log writes the times too: a commit took a quarter longer.
fn look(file: &Path) -> std::io::Result<Id> {
    let data = rustix::fs::statx(rustix::fs::CWD, file, AtFlags::empty(), StatxFlags::INO)?;
    Ok((makedev(data.stx_dev_major, data.stx_dev_minor), data.stx_ino))
}

/// What became of a file, if it is not what it was.
fn changed(file: &Path, id: &OnceLock<Id>) -> Option<String> {
    match (look(file), id.get()) {
        (Ok(now), Some(then)) if now == *then => None,
        (Ok(_), Some(_)) => Some(format!("{} was replaced", file.display())),
        // Made since.
        (Ok(now), None) => {
            let _ = id.set(now);
            None
        }
        (Err(error), Some(_)) if error.kind() == ErrorKind::NotFound => {
            Some(format!("{} was deleted or moved", file.display()))
        }
        // That it cannot be looked at now says nothing.
        (Err(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_files_is_missed_and_stays_lost() {
        for suffix in ["", "-wal", "-shm"] {
            for replaced in [false, true] {
                let folder = tempfile::tempdir().expect("a folder");
                let path = folder.path().join("posse.db");
                for suffix in ["", "-wal", "-shm"] {
                    std::fs::write(beside(&path, suffix), "x").expect("is written");
                }
                let identity = Identity::of(&path);
                assert!(identity.check().is_ok());
                std::fs::write(beside(&path, suffix), "more").expect("is written");
                assert!(identity.check().is_ok(), "what is in it may change");
                let aside = folder.path().join("aside");
                std::fs::rename(beside(&path, suffix), &aside).expect("is moved");
                if replaced {
                    std::fs::write(beside(&path, suffix), "x").expect("is written");
                }
                let said = identity.check().expect_err("is lost").to_string();
                assert!(said.contains(if replaced { "was replaced" } else { "was deleted or moved" }), "{said}");
                std::fs::rename(&aside, beside(&path, suffix)).expect("is moved back");
                assert!(identity.check().is_err(), "what was answered meanwhile is not there");
            }
        }
    }

    #[test]
    fn a_log_that_is_made_later_is_learned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("posse.db");
        std::fs::write(&path, "x").expect("is written");
        let identity = Identity::of(&path);
        std::fs::write(beside(&path, "-wal"), "x").expect("is written");
        assert!(identity.check().is_ok());
        std::fs::remove_file(beside(&path, "-wal")).expect("is removed");
        assert!(identity.check().is_err());
    }
}
