//! Why there is no local model server, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why there is no local model server. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server's binary is not built.
    #[error(
        "posse-local, which runs local models, was not found; ./quickstart builds it, or by hand: cargo build --release --manifest-path crates/local/Cargo.toml (needs cmake and libclang-dev), then put it in PATH or set POSSE_LOCAL_BIN"
    )]
    NoBinary,
    /// `POSSE_LOCAL_BIN` or the options name a binary that is not there.
    #[error("{} is no file that can be run; unset POSSE_LOCAL_BIN, or let it name a posse-local binary", .0.display())]
    WrongBinary(PathBuf),
    /// The model's file is not there.
    #[error("the model's file {} is not there; posse model pull fetches it", .0.display())]
    NoModel(PathBuf),
    /// A name that cannot be part of a file's name.
    #[error("{0:?} is no name for a local model: use letters, digits, '.', '-' and '_', at most 80 of them")]
    BadName(String),
    /// The environment names no place for the server's state.
    #[error("there is no place for the local model server's state; set HOME or XDG_RUNTIME_DIR")]
    NoPlace,
    /// The server's state cannot be read or written.
    #[error("cannot use {}: {source}; check that it can be written", path.display())]
    State {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process is starting the server and does not come to an end.
    #[error("another process has been starting the local model server for too long; end it, or wait, and try again")]
    Busy,
    /// The binary could not be started.
    #[error("cannot start {}: {source}", binary.display())]
    Spawn {
        /// The binary.
        binary: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The server ended before it was ready.
    #[error("the local model server ended before it was ready ({status}); it said: {said} (log: {})", log.display())]
    Died {
        /// How it ended.
        status: String,
        /// The end of its log.
        said: String,
        /// The whole log.
        log: PathBuf,
    },
    /// The server was not ready in time and was ended.
    #[error(
        "the local model server was not ready within {} s and was ended; is the machine out of memory? it said: {said} (log: {})",
        after.as_secs_f32(), log.display()
    )]
    NeverReady {
        /// How long it had.
        after: Duration,
        /// The end of its log.
        said: String,
        /// The whole log.
        log: PathBuf,
    },
    /// The operating system gave no random bytes for the token.
    #[error("the operating system gives no random bytes: {0}")]
    NoRandom(String),
    /// The runtime is shutting down.
    #[error("the start of the local model server was interrupted: {0}")]
    Interrupted(String),
}
