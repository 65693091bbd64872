//! Why there is no local model server, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    #[error(
        "posse-local, which runs local models, was not found; ./quickstart builds it, or by hand: cargo build --release --manifest-path crates/local/Cargo.toml (needs cmake and libclang-dev), then put it in PATH or set POSSE_LOCAL_BIN"
    )]
    NoBinary,
    /// `POSSE_LOCAL_BIN` or the options name a binary that is not there.
    #[error("{} is no file that can be run; unset POSSE_LOCAL_BIN, or let it name a posse-local binary", .0.display())]
    WrongBinary(PathBuf),
    #[error("the model's file {} is not there; posse model pull fetches it", .0.display())]
    NoModel(PathBuf),
    #[error("{0:?} is no name for a local model: use letters, digits, '.', '-' and '_', at most 80 of them")]
    BadName(String),
    #[error("there is no place for the local model server's state; set HOME or XDG_RUNTIME_DIR")]
    NoPlace,
    #[error("cannot use {}: {source}; check that it can be written", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("another process has been starting the local model server for too long; end it, or wait, and try again")]
    Busy,
    #[error("cannot start {}: {source}", binary.display())]
    Spawn { binary: PathBuf, source: io::Error },
    #[error("the local model server ended before it was ready ({status}); it said: {said} (log: {})", log.display())]
    Died { status: String, said: String, log: PathBuf },
    #[error(
        "the local model server was not ready within {} s and was ended; is the machine out of memory? it said: {said} (log: {})",
        after.as_secs_f32(), log.display()
    )]
    NeverReady { after: Duration, said: String, log: PathBuf },
    #[error("the operating system gives no random bytes: {0}")]
    NoRandom(String),
    /// The runtime is shutting down.
    #[error("the start of the local model server was interrupted: {0}")]
    Interrupted(String),
}
