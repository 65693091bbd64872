//! A lock between processes: flock on a file that is gone when nobody holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a waiting caller looks again: short beside a download or a server's start.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Held until dropped. The kernel lets go of it when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    // Never read; closing it is what releases the lock.
    _file: File,
}

impl Lock {
    /// Takes the lock if it is free.
    pub(super) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(e),
            }
            // The last holder unlinks the file while it holds it, so this may be a lock on a file that is no longer
            // there; a third process would then make a new one, and both would think they are alone.
            let held = file.metadata()?;
            match std::fs::metadata(path) {
                Ok(there) if there.ino() == held.ino() && there.dev() == held.dev() => {
                    return Ok(Some(Self { path: path.to_owned(), _file: file }));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes the lock, waiting for it until `deadline` (for ever without one).
    pub(super) fn take(path: &Path, deadline: Option<Instant>) -> io::Result<Option<Self>> {
        loop {
            if let Some(lock) = Self::try_take(path)? {
                return Ok(Some(lock));
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(None);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the file is closed, hence while it is still locked; see `try_take`.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_waited_for_only_so_long() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("x.lock");
        let _held = Lock::try_take(&path).expect("the lock").expect("free");
        let none = Lock::take(&path, Some(Instant::now() + Duration::from_millis(120))).expect("the lock");
        assert!(none.is_none());
    }
}
