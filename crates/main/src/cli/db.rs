//! `posse db`: where the database is, whether it is sound, copies of it, how long it keeps what has ended.

use std::path::PathBuf;
use std::sync::Arc;

use posse_app::retention::{disagreement, words};
use posse_app::{Code, times, workers};
use posse_core::doctor::RESTORE;
use posse_core::job::JobState;
use posse_core::port::{Compacted, Restored, SchemaSteps, Store, WorkerRecord};
use posse_core::queue::retention::{Keep, Kept, Retention};
use posse_infra::process::LinuxProcessProbe;

use super::prelude::*;
use crate::output::before_change;
use crate::output::text::{bytes, plural, visible};
use crate::settings::Settings;

#[derive(Subcommand)]
pub enum DbCommand {
    /// Print its path
    Path,
    /// Look the file through for damage, and count what is in it
    Check {
        /// Compare each index with its table too, which takes several times as long
        #[arg(long)]
        full: bool,
    },
    /// Copy it while it is in use; the copy is looked through before it gets its name
    Backup {
        /// The file to make; nothing is written over
        path: PathBuf,
    },
    /// Put a backup in its place, while nobody has it open; what is there is kept beside it
    #[command(after_help = RESTORE_HELP)]
    Restore {
        /// A backup (posse db backup); it is left as it is
        backup: PathBuf,
    },
    /// Bring it to this version's schema, as any command that writes does by itself
    Migrate,
    /// Seal what is stored with the first of the keys configured, or store it in the clear again; while no worker
    /// is at work
    #[command(after_help = RESEAL_HELP)]
    Reseal {
        /// Open everything with the keys there are and store it in the clear
        #[arg(long)]
        clear: bool,
    },
    /// How long what has ended is kept, and setting it
    Retention(RetentionArgs),
    /// Rewrite it without its free space; about a second for each 100 MB, while nothing else writes
    Compact,
}

const RESTORE_HELP: &str = "\
The backup is looked through first. Jobs that a worker had in hand when it was made wait again, with their attempt; calls
that were under way then count as unknown. What came after the backup is in the old file alone, which is kept.";

const RESEAL_HELP: &str = "\
To begin: drain the workers, set a key (POSSE_SEAL_KEYS or [sealing] key_file), run this, start the workers.
To change keys: give all processes both, the new one second; then the new one first; run this; take the old one away.
To end: run this with --clear, then take the keys away.";

#[derive(Args)]
#[command(after_help = "\
It belongs to the database: every worker on it deletes by what is stored here. A database takes [retention] of the
settings of whoever makes it, over these: jobs 30d, sessions 365d. From then on only this command changes it; a worker
whose settings say otherwise says so. Turns of a session are kept as long as the session, which counts from its last
turn; posse session delete deletes one at once.")]
pub struct RetentionArgs {
    /// Jobs that are done, since their end
    #[arg(long, value_name = "TIME")]
    completed: Option<String>,
    /// Jobs that were stopped on request
    #[arg(long, value_name = "TIME")]
    cancelled: Option<String>,
    /// Jobs that were given up
    #[arg(long, value_name = "TIME")]
    discarded: Option<String>,
    /// Sessions with all that was said in them, since they were last used
    #[arg(long, value_name = "TIME")]
    sessions: Option<String>,
    /// What [retention] of the settings says
    #[arg(long, conflicts_with_all = ["completed", "cancelled", "discarded", "sessions"])]
    from_settings: bool,
}

impl RetentionArgs {
    fn said(&self, settings: &Settings) -> Result<Vec<Keep>> {
        if self.from_settings {
            return match settings.retention.is_empty() {
                true => Err(usage("the settings have no [retention]; name what to keep instead (--completed 7d)")),
                false => Ok(settings.retention.clone()),
            };
        }
        let all = [
            (Kept::Completed, &self.completed),
            (Kept::Cancelled, &self.cancelled),
            (Kept::Discarded, &self.discarded),
            (Kept::Sessions, &self.sessions),
        ];
        let named = all.into_iter().filter_map(|(kind, text)| Some((kind, text.as_deref()?)));
        named
            .map(|(kind, text)| {
                let wrong = |why| usage(format!("--{} is '{}'; {why}", kind.as_str(), text.escape_debug()));
                Ok((kind, times::keep(text).map_err(wrong)?))
            })
            .collect()
    }
}

pub async fn dispatch(cx: &Context, command: DbCommand) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let path = settings.database.display().to_string();
    match command {
        DbCommand::Path => {
            return cx.out.say(&json!({"path": path, "exists": settings.database.exists()}), visible(&path));
        }
        DbCommand::Retention(args) => return retention(cx, args).await,
        DbCommand::Check { full } => return check(cx, full).await,
        DbCommand::Compact => return compact(cx).await,
        DbCommand::Reseal { clear } => return reseal(cx, clear).await,
        DbCommand::Restore { backup } => return restore(cx, backup).await,
        DbCommand::Backup { path } => {
            let store = reader(&settings)?;
            before_change()?;
            let backup = store.backup(&path).await?;
            let to = backup.path.display().to_string();
            let line = format!("{}  {}, looked through", visible(&to), bytes(backup.bytes));
            cx.out.say(&json!({"path": to, "bytes": backup.bytes, "checked": true}), line)?;
            if !cx.out.json {
                cx.out.note(format!("posse db restore {} puts it back", visible(&to)));
            }
        }
        DbCommand::Migrate => {
            let exists = settings.database.exists();
            let before = if exists { Some(wire::database(&settings).schema()?) } else { None };
            drop(wire::open_store(&settings)?);
            let after = wire::database(&settings).schema()?.last;
            if cx.read(async |store| store.storage().await.map(|storage| !storage.gives_back)).await? {
                cx.out.note(
                    "it was made by a version that could not give free space back to the disk; posse db compact \
                     rewrites it, after which it does (about a second for each 100 MB, while no worker is at work)",
                );
            }
            let (shown, schema) = (visible(&path), after.as_deref().unwrap_or_default());
            let line = match &before {
                Some(before) if before.is_current => format!("{shown} has schema {schema} already"),
                Some(SchemaSteps { last: Some(last), .. }) => {
                    format!("{shown} was brought from schema {last} to {schema}")
                }
                _ => format!("{shown} was made with schema {schema}"),
            };
            let before = before.and_then(|before| before.last);
            cx.out.say(&json!({"path": path, "before": before, "after": after}), line)?;
        }
    }
    Ok(Exit::Ok)
}

async fn restore(cx: &Context, backup: PathBuf) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let path = settings.database.display().to_string();
    // What cannot be read any more cannot tell who works on it; then only who has it open counts.
    if let Ok(Some(store)) = wire::open_reader(&settings)
        && let Ok(workers) = store.workers().await
    {
        drop(store);
        refuse_for(&workers)?;
    }
    wire::make_database_folder(&settings)?;
    before_change()?;
    let (database, from) = (wire::database(&settings), backup.clone());
    let Restored { kept, schema, given_back } = tokio::task::spawn_blocking(move || database.restore(&from)).await??;
    let (backup, kept) = (backup.display().to_string(), kept.map(|kept| kept.display().to_string()));
    if cx.out.json {
        let document = json!({
            "path": path, "backup": backup, "kept": kept, "schema": schema, "given_back": given_back,
        });
        return cx.out.document(&document);
    }
    cx.out.line(format!("{}  restored from {}, schema {schema}", visible(&path), visible(&backup)))?;
    if let Some(kept) = kept {
        cx.out.note(format!("what was there is kept as {}; delete it when you need it no more", visible(&kept)));
    }
    if given_back > 0 {
        let jobs = plural(given_back as u64, "job");
        cx.out
            .note(format!("{jobs} that a worker had in hand when the backup was made wait again, with their attempt"));
    }
    Ok(Exit::Ok)
}

async fn compact(cx: &Context) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let path = settings.database.display().to_string();
    nobody_at_work(&settings).await?;
    before_change()?;
    let database = wire::database(&settings);
    let Compacted { before, after, .. } = tokio::task::spawn_blocking(move || database.compact()).await??;
    let line = format!("{}  {} became {}", visible(&path), bytes(before), bytes(after));
    cx.out.say(&json!({"path": path, "before": before, "after": after}), line)
}

async fn reseal(cx: &Context, clear: bool) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let path = settings.database.display().to_string();
    let Some(key) = settings.keys.sealing().map(str::to_owned) else {
        return Err(usage(
            "there is no key: set POSSE_SEAL_KEYS, or [sealing] key_file in config/posse.toml (openssl rand -hex 32 \
             makes one)",
        ));
    };
    nobody_at_work(&settings).await?;
    let store = wire::open_store(&settings)?;
    let (out, mut told) = (cx.out, 0);
    let mut tell = |column: &str, values| {
        if values >= told + TOLD_EVERY {
            out.note(format!("{} so far, at {column}", plural(values, "value")));
            told = values;
        }
    };
    let done = store.reseal(clear, &mut tell).await?;
    drop(store);
    // What was there before is still in the file's free space.
    let database = wire::database(&settings);
    let Compacted { after, log_bytes, .. } = tokio::task::spawn_blocking(move || database.compact()).await??;
    if log_bytes > 0 {
        cx.out.warn("another process reads the database, so its log still has what was there before; run this again");
    }
    if !clear && settings.beside_database("sessions").is_dir() {
        let folder = settings.beside_database("sessions").display().to_string();
        cx.out.note(format!("chats from before have files of what was said in {folder}; delete those you do not want"));
    }
    let key = (!clear).then_some(key);
    let how = key.as_ref().map_or_else(|| "in the clear".to_owned(), |key| format!("sealed with key {key}"));
    let line = format!("{}  {} written {how}", visible(&path), plural(done.values, "value"));
    let document = json!({"path": path, "key": key, "values": done.values, "closed": done.closed, "bytes": after});
    cx.out.say(&document, line)?;
    match done.first_closed {
        None => Ok(Exit::Ok),
        Some(first) => Err(fail(
            Code::Failed,
            format!("{} could not be opened and stayed as they are: {first}", plural(done.closed, "value")),
        )),
    }
}

/// After how many values it is told how far it is.
const TOLD_EVERY: u64 = 10_000;

/// Refuses while a worker is at work, with how to end it.
async fn nobody_at_work(settings: &Settings) -> Result<()> {
    refuse_for(&reader(settings)?.workers().await?)
}

fn reader(settings: &Settings) -> Result<Arc<dyn Store>> {
    let path = settings.database.display();
    let none = || format!("there is no database at {path} yet; the first job makes it");
    wire::open_reader(settings)?.ok_or_else(|| fail(Code::DatabaseNotFound, none()))
}

fn refuse_for(workers: &[WorkerRecord]) -> Result<()> {
    Ok(workers::nobody_at_work(workers, &LinuxProcessProbe, wire::now())?)
}

async fn check(cx: &Context, full: bool) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let path = settings.database.display().to_string();
    let store = reader(&settings)?;
    let problems = store.check(full).await?;
    // A damaged file may not even be counted.
    let counts = if problems.is_empty() { store.counts().await? } else { Vec::new() };
    let storage = store.storage().await?;
    let schema = wire::database(&settings).schema()?.last;
    let of_state = |state| counts.iter().filter(|(_, s, _)| *s == state).map(|(_, _, n)| n).sum::<u64>();
    let totals: Vec<_> = JobState::ALL.into_iter().map(|s| (s, of_state(s))).filter(|(_, n)| *n > 0).collect();
    if cx.out.json {
        let jobs: serde_json::Map<_, _> = totals.iter().map(|(s, n)| (s.to_string(), json!(n))).collect();
        let size = settings.database.metadata().map_or(0, |data| data.len());
        let document = json!({
            "path": path, "bytes": size, "schema": schema, "storage": storage, "full": full, "problems": problems,
            "jobs": jobs,
        });
        cx.out.document(&document)?;
        return Ok(if problems.is_empty() { Exit::Ok } else { Exit::Database });
    }
    for problem in &problems {
        cx.out.line(visible(problem))?;
    }
    if !problems.is_empty() {
        return Err(fail(Code::DatabaseUnusable, format!("the database {path} is damaged; {RESTORE}")));
    }
    let free = match storage.free_bytes {
        0 => String::new(),
        free => format!(" ({} of it free)", bytes(free)),
    };
    let (size, schema) = (bytes(storage.bytes), schema.unwrap_or_default());
    cx.out.line(format!("{}  {size}{free}, schema {schema}, no damage found", visible(&path)))?;
    let total: u64 = totals.iter().map(|(_, n)| n).sum();
    let parts: Vec<_> = totals.iter().map(|(s, n)| format!("{n} {s}")).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    cx.out.line(format!("{}{parts}", plural(total, "job")))?;
    Ok(Exit::Ok)
}

async fn retention(cx: &Context, args: RetentionArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let said = args.said(&settings)?;
    let (kept, is_stored) = match said.is_empty() {
        false => (wire::open_store(&settings)?.set_retention(said).await?, true),
        true => match wire::open_reader(&settings)? {
            Some(store) => (store.retention().await?.unwrap_or_default(), true),
            None => (Retention::default().with(&settings.retention), false),
        },
    };
    if cx.out.json {
        return cx.out.document(&json!({"retention": kept, "is_stored": is_stored}));
    }
    if !is_stored {
        let path = settings.database.display().to_string();
        cx.out.note(format!("there is no database at {} yet; it would begin with this", visible(&path)));
    }
    for kind in Kept::ALL {
        cx.out.line(format!("{:<10} {}", kind.as_str(), words(kept.of(kind))))?;
    }
    if let Some((what, way_out)) = disagreement(&kept, &settings.retention) {
        cx.out.warn(format!("{what}; {way_out}"));
    }
    Ok(Exit::Ok)
}
