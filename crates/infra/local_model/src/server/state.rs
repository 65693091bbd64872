//! What is written down about a running server, and the lock around it.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::error::ServerError;
use crate::cache::write_whole;
use crate::last_lines;
use crate::lock::Lock;

/// The log of a server is cut when it is longer than this and somebody asks for the server.
const LOG_BYTES: u64 = 1 << 20;

/// How much of a log people are shown.
const SAID_BYTES: u64 = 2000;

/// The file about a running server. It holds a secret: only its owner may read it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub name: String,
    pub port: u16,
    pub token: String,
    pub pid: u32,
    pub start_ticks: u64,
    pub model: PathBuf,
    /// What it runs with, and what it was asked for: a model may have less to give.
    pub context: u32,
    pub asked_context: u32,
}

impl Record {
    /// Whether this server is as good as one that would be started for the same.
    pub(super) fn serves(&self, model: &Path, context: u32) -> bool {
        self.model == model && self.context.max(self.asked_context) >= context
    }
}

/// The files about the server of one name.
pub(super) struct Room {
    dir: PathBuf,
    name: String,
}

impl Room {
    pub(super) fn open(dir: Option<PathBuf>, name: &str) -> Result<Self, ServerError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > 80 || !name.chars().all(good) {
            return Err(ServerError::BadName(name.to_owned()));
        }
        let dir = dir.or_else(super::state_dir).ok_or(ServerError::NoPlace)?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|e| ServerError::State { path: dir.clone(), source: e })?;
        Ok(Self { dir, name: name.to_owned() })
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("local-{}.{ending}", self.name))
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.path("log")
    }

    pub(super) fn lock(&self, deadline: Instant) -> Result<Lock, ServerError> {
        let path = self.path("lock");
        match Lock::take(&path, Some(deadline)) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => Err(ServerError::Busy),
            Err(source) => Err(ServerError::State { path, source }),
        }
    }

    /// What is written down. A file that another user could have written counts for nothing: its port would get our
    /// prompts.
    pub(super) fn read(&self) -> Option<Record> {
        let mut file = File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(self.path("json"))
            .ok()?;
        let meta = file.metadata().ok()?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
            return None;
        }
        let mut json = String::new();
        file.read_to_string(&mut json).ok()?;
        serde_json::from_str(&json).ok().filter(|r: &Record| r.name == self.name)
    }

    pub(super) fn write(&self, record: &Record) -> Result<(), ServerError> {
        let path = self.path("json");
        serde_json::to_vec(record)
            .map_err(io::Error::from)
            .and_then(|json| write_whole(&path, &json))
            .map_err(|source| ServerError::State { path, source })
    }

    pub(super) fn forget(&self) {
        let _ = fs::remove_file(self.path("json"));
    }

    /// A new log, to be appended to.
    pub(super) fn new_log(&self) -> Result<File, ServerError> {
        let path = self.log_path();
        // Removed first: what an older server still writes must not end up in this one.
        let _ = fs::remove_file(&path);
        File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| ServerError::State { path, source })
    }

    /// Cuts a log that has grown too long. The server appends, so it goes on at the new end.
    pub(super) fn trim_log(&self) {
        let path = self.log_path();
        if fs::metadata(&path).is_ok_and(|m| m.len() > LOG_BYTES)
            && let Ok(log) = File::options().write(true).open(&path)
        {
            let _ = log.set_len(0);
        }
    }

    /// The end of the log, in one line.
    pub(super) fn said(&self) -> String {
        tail(&self.log_path()).unwrap_or_else(|_| "nothing".into())
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SAID_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(SAID_BYTES).read_to_end(&mut bytes)?;
    Ok(last_lines(&String::from_utf8_lossy(&bytes), 5))
}
