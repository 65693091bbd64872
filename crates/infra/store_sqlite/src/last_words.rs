//! What workers leave beside a database that they cannot write to: that they ended by themselves.
//!
//! A process that has ended and still holds jobs looks as if it had died. So a worker that ends because its database is
//! lost, or is asked to end while that is locked or full, leaves an empty file with its name; the jobs are then given
//! back without counting a death. Where no such file can be made either, it is as if the process had died.

use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use posse_core::job::lease::WorkerId;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::paths::beside;

/// What such a file is called behind the database's name, before its worker's.
const MIDDLE: &str = ".ended-";

/// The longest name of a file.
const LONGEST: usize = 255;

pub(super) struct LastWords {
    /// The folder as it was opened: it may be moved, and come back.
    folder: io::Result<OwnedFd>,
    path: PathBuf,
}

impl LastWords {
    pub fn beside(path: &Path) -> LastWords {
        let folder = path.parent().unwrap_or(path);
        let opened = rustix::fs::openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        LastWords { folder: opened.map_err(Into::into), path: path.to_owned() }
    }

    /// Says that `worker` ended by itself.
    pub fn say(&self, worker: &WorkerId) -> io::Result<()> {
        let (folder, name) = self.place(worker)?;
        // Made without being opened: a process that ends may have no descriptor left.
        match rustix::fs::mknodat(folder, name, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
            Err(Errno::EXIST) => Ok(()),
            made => made.map_err(Into::into),
        }
    }

    pub fn has(&self, worker: &WorkerId) -> bool {
        let found = |(folder, name): (&OwnedFd, _)| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        self.place(worker).is_ok_and(found)
    }

    /// What `worker` said has been heeded.
    pub fn forget(&self, worker: &WorkerId) {
        if let Ok((folder, name)) = self.place(worker) {
            // Its worker is on no list any more, so a file that stays does no harm.
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }

    fn place(&self, worker: &WorkerId) -> io::Result<(&OwnedFd, std::ffi::OsString)> {
        let folder = self.folder.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let mut name = beside(&self.path, MIDDLE).file_name().unwrap_or_default().as_bytes().to_owned();
        for &byte in worker.0.as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => name.push(byte),
                _ => name.extend(format!("%{byte:02X}").bytes()),
            }
        }
        if name.len() > LONGEST {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        Ok((folder, std::ffi::OsString::from_vec(name)))
    }
}

/// Takes away all that lie beside the database at `path`, whose workers are on no list any more.
pub(super) fn sweep(path: &Path) {
    let beginning = beside(path, MIDDLE);
    let beginning = beginning.file_name().unwrap_or_default();
    let Some(Ok(entries)) = path.parent().map(std::fs::read_dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(beginning.as_bytes())) {
        let _ = std::fs::remove_file(entry.path());
    }
}
