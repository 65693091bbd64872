//! The events of a session, as lines of a file: written as the chat goes, and made whole from the
//! journals whenever a chat begins.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use posse_core::event::{Follower, Happened};
use posse_core::port::JobQueries;
use posse_core::session::Session;

use crate::output::json;

/// A session's file, open at its end.
pub struct EventLog {
    file: File,
    path: PathBuf,
}

impl EventLog {
    /// Makes the file whole and opens it.
    pub async fn open(queries: &Arc<dyn JobQueries>, folder: &Path, session: &Session) -> Result<EventLog> {
        let path = write_whole(queries, folder, session).await?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(EventLog { file, path })
    }

    /// Adds an event.
    pub fn write(&mut self, happened: &Happened) -> Result<()> {
        let line = json::line(happened)? + "\n";
        self.file.write_all(line.as_bytes()).with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

/// Writes the events of all jobs of a session that have ended, in the place of whatever was there,
/// and gives the file. Whoever reads it meanwhile sees the old file or the new one.
pub async fn write_whole(queries: &Arc<dyn JobQueries>, folder: &Path, session: &Session) -> Result<PathBuf> {
    let folder = folder.join(session.label());
    let failed = || format!("{} cannot be written", folder.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(failed)?;
    let (path, new) = (folder.join("events.jsonl"), folder.join("events.jsonl.new"));
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).with_context(failed)?;
    let mut file = BufWriter::new(file);
    for turn in queries.session_turns(session.id, None).await? {
        if turn.state.is_final() {
            for happened in Follower::new(Arc::clone(queries), turn.job).poll().await? {
                writeln!(file, "{}", json::line(&happened)?).with_context(failed)?;
            }
        }
    }
    file.into_inner().map_err(|error| error.into_error()).with_context(failed)?;
    std::fs::rename(&new, &path).with_context(failed)?;
    Ok(path)
}
