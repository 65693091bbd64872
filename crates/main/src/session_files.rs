//! The events of a session, as lines of a file: written as the chat goes, and made whole from the
//! journals whenever a chat begins.
//!
//! Every line is whole: one that cannot be written is taken back, and what a crash of the machine tore is made whole
//! by the next process that works chats. The folder of a session is named by its label, which no other session has,
//! in whatever case.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use posse_app::json;
use posse_core::events::run::{Happened, RunFollower};
use posse_core::port::JobQueries;
use posse_core::session::{Session, SessionId};

const EVENTS: &str = "events.jsonl";

pub struct EventLog {
    path: PathBuf,
}

impl EventLog {
    pub async fn open(queries: &Arc<dyn JobQueries>, folder: &Path, session: &Session) -> Result<EventLog> {
        Ok(EventLog { path: write_whole(queries, folder, session).await? })
    }

    /// Adds an event, to the file that is there now: another chat may have made it whole meanwhile.
    pub fn write(&mut self, happened: &Happened) -> Result<()> {
        let line = json::line(happened)? + "\n";
        let failed = || format!("{} cannot be written", self.path.display());
        let mut file = append(&self.path).with_context(failed)?;
        let before = file.metadata().with_context(failed)?.len();
        if let Err(error) = file.write_all(line.as_bytes()) {
            // Whoever reads it finds whole lines.
            let _ = file.set_len(before);
            return Err(error).with_context(failed);
        }
        Ok(())
    }
}

fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes the events of all jobs of a session that have ended, in the place of whatever was there,
/// and gives the file. Whoever reads it meanwhile sees the old file or the new one.
pub async fn write_whole(queries: &Arc<dyn JobQueries>, folder: &Path, session: &Session) -> Result<PathBuf> {
    let folder = folder.join(session.label());
    let failed = || format!("{} cannot be written", folder.display());
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(failed)?;
    // A name of its own, for two chats may do this at once.
    let (path, new) =
        (folder.join(EVENTS), folder.join(format!("{EVENTS}.{:08x}.new", crate::process::random() as u32)));
    let written = write_ended(queries, session, &new).await;
    let renamed = written.and_then(|()| std::fs::rename(&new, &path).map_err(Into::into));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    renamed.with_context(failed)?;
    Ok(path)
}

async fn write_ended(queries: &Arc<dyn JobQueries>, session: &Session, path: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    for exchange in queries.exchanges(session.id, None).await? {
        if exchange.state.is_final() {
            for happened in RunFollower::new(Arc::clone(queries), exchange.job).poll().await? {
                writeln!(file, "{}", json::line(&happened)?)?;
            }
        }
    }
    // Its name must not reach the disk before its content does.
    Ok(file.into_inner().map_err(|error| error.into_error())?.sync_all()?)
}

/// Deletes what there is of a session in `folder`; of files that are not ours, nothing.
pub fn remove_files(folder: &Path, label: &str) -> Result<()> {
    let folder = folder.join(label);
    let failed = || format!("{} cannot be deleted", folder.display());
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(failed)?,
    };
    for entry in entries {
        let entry = entry.with_context(failed)?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name == EVENTS || name.starts_with(EVENTS) && name.ends_with(".new")) {
            std::fs::remove_file(entry.path()).with_context(failed)?;
        }
    }
    match std::fs::remove_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed.with_context(failed),
    }
}

/// Has the files in `folder` tell what the database tells: those of sessions that are gone are deleted, and one with a
/// torn end is made whole.
pub async fn remove_strays(queries: &Arc<dyn JobQueries>, folder: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let labels: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for label in labels {
        let found = match label.parse() {
            Ok(id) => queries.session(SessionId(id)).await?,
            Err(_) => queries.session_named(label.clone()).await?,
        };
        match found.filter(|session| session.label() == label) {
            None => remove_files(folder, &label)?,
            // Not while somebody may be writing it: the next look finds it as well.
            Some(session) if is_torn(&folder.join(&label).join(EVENTS)) && is_at_rest(queries, &session).await? => {
                write_whole(queries, folder, &session).await?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

async fn is_at_rest(queries: &Arc<dyn JobQueries>, session: &Session) -> Result<bool> {
    Ok(queries.exchanges(session.id, None).await?.iter().all(|exchange| exchange.state.is_final()))
}

fn is_torn(path: &Path) -> bool {
    let last = || -> std::io::Result<Option<u8>> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(None);
        }
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        Ok(Some(byte[0]))
    };
    matches!(last(), Ok(Some(byte)) if byte != b'\n')
}
