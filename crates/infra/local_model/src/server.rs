//! The loopback server that runs a model: one for all Posse processes of this user.
//!
//! A small file says where the server of a name listens, its token and which process it is. Whoever needs the server
//! takes the lock, checks what the file says, and starts a new one only if there is none. The server outlives who
//! started it and ends by itself when nobody asks it for a while.

mod error;
mod launch;
mod process;
mod state;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::process::{Pid, is_healthy};
use self::state::{Record, Room};
pub use error::ServerError;
pub use launch::find_binary;

/// How a server is started, where one has to be.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Tokens of context. A running server with fewer is replaced; one with more is shared.
    pub context: u32,
    /// Threads that compute; the server's own choice where `None`.
    pub threads: Option<u16>,
    /// The server ends after so long without a request.
    pub idle_exit: Duration,
    /// How long the model may take to load.
    pub start_timeout: Duration,
    /// The server's binary; looked for where `None` (see [`find_binary`]).
    pub binary: Option<PathBuf>,
    /// Where the file about the running server is; see [`state_dir`] where `None`.
    pub state_dir: Option<PathBuf>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            context: 8192,
            threads: None,
            idle_exit: Duration::from_secs(900),
            start_timeout: Duration::from_secs(120),
            binary: None,
            state_dir: None,
        }
    }
}

/// Where a running server is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The OpenAI-compatible base URL, `http://127.0.0.1:PORT/v1`.
    pub base_url: String,
    pub token: String,
    pub model: String,
    /// In tokens.
    pub context: u32,
    pub pid: u32,
    pub started: bool,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token: debug output ends up in logs.
        f.debug_struct("Endpoint")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .field("context", &self.context)
            .field("pid", &self.pid)
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    fn of(record: Record, started: bool) -> Self {
        Self {
            base_url: format!("http://127.0.0.1:{}/v1", record.port),
            token: record.token,
            model: record.name,
            context: record.context,
            pid: record.pid,
            started,
        }
    }
}

/// Where files about running servers are: `posse` in `XDG_RUNTIME_DIR`, else in the user's cache; `None` where the
/// environment names neither.
pub fn state_dir() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute() && p.is_dir());
    match runtime {
        Some(dir) => Some(dir.join("posse")),
        None => super::cache::cache_dir(),
    }
}

/// Finds the server that runs `name`, or starts one for the model's file, and says where it listens.
pub async fn ensure_running(model: &Path, name: &str, options: ServerOptions) -> Result<Endpoint, ServerError> {
    let (model, name) = (model.to_owned(), name.to_owned());
    in_background(move || ensure_running_blocking(&model, &name, &options)).await
}

/// [`ensure_running`] for callers without a runtime.
pub fn ensure_running_blocking(model: &Path, name: &str, options: &ServerOptions) -> Result<Endpoint, ServerError> {
    let model = std::path::absolute(model).map_err(|e| ServerError::State { path: model.to_owned(), source: e })?;
    let room = Room::open(options.state_dir.clone(), name)?;
    // Another caller may be in the middle of starting it: as long as a start may take, and then some.
    let patience = options.start_timeout + Duration::from_secs(30);
    let _lock = room.lock(Instant::now() + patience)?;
    if let Some(record) = room.read() {
        match Pid::find(record.pid, record.start_ticks) {
            Some(_alive) if record.serves(&model, options.context) && is_healthy(record.port) => {
                room.trim_log();
                return Ok(Endpoint::of(record, false));
            }
            // Ours, but not what is asked for or beyond reach: two of them would not fit into memory.
            Some(pid) => pid.end(),
            None => {}
        }
        room.forget();
    }
    let record = launch::launch(&model, name, options, &room)?;
    Ok(Endpoint::of(record, true))
}

/// Ends the server that runs `name`, and says whether there was one. `dir` as in [`ServerOptions::state_dir`].
pub async fn stop(name: &str, dir: Option<PathBuf>) -> Result<bool, ServerError> {
    let name = name.to_owned();
    in_background(move || {
        let room = Room::open(dir, &name)?;
        let _lock = room.lock(Instant::now() + Duration::from_secs(150))?;
        let pid = room.read().and_then(|r| Pid::find(r.pid, r.start_ticks));
        let was_there = pid.is_some();
        if let Some(pid) = pid {
            pid.end();
        }
        room.forget();
        Ok(was_there)
    })
    .await
}

/// Runs blocking work off the runtime's own threads.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ServerError> + Send + 'static,
) -> Result<T, ServerError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(ServerError::Interrupted(e.to_string())))
}
