//! Files about runs, for programs that read no database: what happened, and how each run stood when its attempt
//! ended. All of it follows from the journal, so a file that is lost is made again by `posse job export`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use posse_app::json;
use posse_core::events::run::RunFollower;
use posse_core::job::JobId;
use posse_core::port::JobQueries;
use posse_core::run::checkpoint::checkpoint;
use posse_core::worker::Progress;
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::settings::Settings;

/// After so many runs that were written, older ones are looked for.
const LOOK_EVERY: usize = 20;

/// How long the files of runs that just ended are waited for when the process ends.
const AT_THE_END: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct RunFiles {
    pub folder: PathBuf,
    pub keep: usize,
}

impl RunFiles {
    /// As the settings have it; none where nobody wants any, and where texts are sealed, which files would undo.
    pub fn of(settings: &Settings) -> Option<RunFiles> {
        let keep = settings.run_files;
        (keep > 0 && !settings.keys.seals()).then(|| RunFiles { folder: settings.beside_database("runs"), keep })
    }
}

/// The folder of one job's run. Its name is made of the number alone.
pub fn folder_of(folder: &Path, job: JobId) -> PathBuf {
    folder.join(format!("job-{job}"))
}

/// Writes `events.jsonl` and a checkpoint of how the run stands now into `folder`, or of how it stood after a step.
/// Gives what was written.
pub async fn write(
    queries: &Arc<dyn JobQueries>,
    job: JobId,
    folder: &Path,
    at_step: Option<u64>,
) -> Result<Vec<PathBuf>> {
    let mut events = String::new();
    for happened in RunFollower::new(Arc::clone(queries), job).poll().await? {
        events += &json::line(&happened)?;
        events.push('\n');
    }
    let mut journal = queries.journal(job, 0).await?;
    journal.retain(|recorded| at_step.is_none_or(|last| recorded.seq <= last));
    let mut written = vec![folder.join("events.jsonl")];
    put(&written[0], events.as_bytes())?;
    if let Some(checkpoint) = checkpoint(job, &journal) {
        let file = folder.join("checkpoints").join(format!("{}.json", checkpoint.step));
        put(&file, format!("{}\n", json::line(&checkpoint)?).as_bytes())?;
        written.push(file);
    }
    Ok(written)
}

/// Puts a file in the place of what was there. Whoever reads it meanwhile sees the old one or the new one.
fn put(file: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("{} cannot be written", file.display());
    let folder = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(failed)?;
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    opened.and_then(|mut opened| opened.write_all(bytes)).with_context(failed)?;
    fs::rename(&new, file).with_context(failed)
}

/// Writes the files of each run of this process, when its attempt ends.
pub struct Recorder {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Recorder {
    pub fn start(files: RunFiles, queries: Arc<dyn JobQueries>, heard: broadcast::Receiver<Progress>) -> Recorder {
        let (stop, stopped) = oneshot::channel();
        Recorder { stop, task: tokio::spawn(record(files, queries, heard, stopped)) }
    }

    pub async fn end(self) {
        let Recorder { stop, task } = self;
        drop(stop);
        // Whatever is missing then can be exported.
        let _ = tokio::time::timeout(AT_THE_END, task).await;
    }
}

async fn record(
    files: RunFiles,
    queries: Arc<dyn JobQueries>,
    mut heard: broadcast::Receiver<Progress>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut written = 0;
    let mut is_told = false;
    loop {
        let progress = tokio::select! {
            biased;
            progress = heard.recv() => progress,
            _ = &mut stopped => return,
        };
        let job = match progress {
            Ok(Progress::Ended { job, .. }) => job,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => continue,
            Err(broadcast::error::RecvError::Closed) => return,
        };
        let done = write(&queries, job, &folder_of(&files.folder, job), None).await;
        match done {
            Ok(_) if written % LOOK_EVERY == 0 => remove_old(&files),
            Ok(_) => {}
            Err(error) if !is_told => {
                is_told = true;
                warn!(job.id = job.0, "the files about job {job} were not written: {error:#} (told once)");
            }
            Err(_) => {}
        }
        written += 1;
    }
}

pub fn remove(settings: &Settings, job: JobId) -> Result<()> {
    let folder = folder_of(&settings.beside_database("runs"), job);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("{} cannot be deleted", folder.display())),
    }
}

/// Removes the files of all but the newest runs. Another process may do the same: what is gone is gone.
fn remove_old(files: &RunFiles) {
    let entries = fs::read_dir(&files.folder).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("job-").and_then(|digits| digits.parse::<u64>().ok());
    let mut runs: Vec<_> =
        entries.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path()))).collect();
    runs.sort_unstable_by(|a, b| b.cmp(a));
    for (_, path) in runs.into_iter().skip(files.keep) {
        let _ = fs::remove_dir_all(path);
    }
}
