//! `posse model test --bench`: small jobs for a model, worked as any job is, in folders and a queue that are thrown away.

use std::fs::{DirBuilder, create_dir_all, read, read_dir, remove_dir_all, write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use posse_app::Code;
use posse_app::bench::{Bench, BenchReport, Files, Task, Tried};
use posse_core::job::enqueue::{EnqueueRequest, accept};
use posse_core::job::{Job, JobId};
use posse_core::model::Models as _;
use posse_core::port::Store;
use posse_core::store::seal::Keys;
use posse_core::worker::Progress;
use posse_infra::agent::GenericAgentExecutor;
use posse_infra::folder::identify;
use posse_infra::sqlite::{Options, SqliteStore};
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::prelude::*;
use crate::fleet::{Plan, RoleWork, WorkerProcess, hear};
use crate::models::{Catalog, is_helpless};
use crate::output::table::{painted, plain};
use crate::output::text::{count, duration, one_line, plural, visible};
use crate::process::{Signals, random};
use crate::settings::Settings;

/// A folder of this command's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Scratch> {
        let path = std::env::temp_dir().join(format!("posse-bench-{:016x}", random()));
        let made = DirBuilder::new().mode(0o700).create(&path).and_then(|()| path.canonicalize());
        let what = || format!("the folder {} for the tasks cannot be made; TMPDIR names another place", path.display());
        Ok(Scratch(made.with_context(what)?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove_dir_all(&self.0) {
            tracing::warn!("the folder {} is still there: {error}", self.0.display());
        }
    }
}

fn lay(files: &Files, folder: &Path) -> std::io::Result<()> {
    files.iter().map(|(path, text)| (folder.join(path), text)).try_for_each(|(path, text)| {
        create_dir_all(path.parent().unwrap_or(folder))?;
        write(path, text)
    })
}

/// All files beneath a folder, but those whose names begin with a dot.
fn look(folder: &Path, beneath: &str, found: &mut Files) -> std::io::Result<()> {
    for entry in read_dir(folder.join(beneath))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if beneath.is_empty() { name.clone() } else { format!("{beneath}/{name}") };
        match entry.file_type()? {
            _ if name.starts_with('.') => {}
            kind if kind.is_dir() => look(folder, &path, found)?,
            _ => drop(found.insert(path, String::from_utf8_lossy(&read(entry.path())?).into_owned())),
        }
    }
    Ok(())
}

pub async fn bench(cx: &Context, settings: &Settings, models: Arc<Catalog>, name: String) -> Result<Exit> {
    let bench = Bench::built_in()?;
    let (offer, personas) = wire::sources(settings).look()?;
    let profile = models.get(None)?.profile().await?;
    let mut signals = Signals::listen()?;
    let scratch = Scratch::make()?;
    // Nothing of it is the person's: neither sealed nor kept, and no files of runs beside it.
    let settings = Settings {
        database: scratch.0.join("bench.db"),
        run_files: 0,
        retention: Vec::new(),
        keys: Keys::default(),
        ..settings.clone()
    };
    wire::register_extension(&settings)?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&settings.database, Options::default())?);
    // Where the person has a database, requests are counted there already.
    models.share(store.clone());
    let persona = bench.persona.clone();
    let (role, tools) = (persona.role.clone(), Arc::clone(&offer.tools));
    let executor = Arc::new(GenericAgentExecutor::new(persona, tools, models.clone(), scratch.0.clone())?);
    let plan = Plan { queues: Vec::new(), slots: 1, watched: true };
    let mut process = WorkerProcess::start(&store, &settings, vec![RoleWork { role, executor }], plan).await?;
    let mut trial = Trial { store, models, heard: process.heard(), job: None };
    let worked = tokio::select! {
        worked = trial.all(cx, &bench, &name, &scratch.0) => Some(worked),
        () = signals.next() => None,
    };
    if worked.is_none() {
        trial.cancel().await?;
    }
    process.shut_down(&cx.out, settings.grace, &mut signals).await?;
    let Some(tried) = worked.transpose()? else { return Ok(Exit::Interrupted) };
    let report = BenchReport::new((name, profile.model), &bench, tried, &personas.personas, &*offer.tools);
    if cx.out.json { cx.out.document(&report) } else { show(cx, &report) }
}

struct Trial {
    store: Arc<dyn Store>,
    models: Arc<Catalog>,
    heard: Option<broadcast::Receiver<Progress>>,
    /// The one at work.
    job: Option<JobId>,
}

impl Trial {
    async fn all(&mut self, cx: &Context, bench: &Bench, name: &str, folder: &Path) -> Result<Vec<Tried>> {
        let mut tried = Vec::new();
        for (at, task) in bench.tasks.iter().enumerate() {
            cx.out.hint(format!("{name}: task {} of {}, {} …", at + 1, bench.tasks.len(), task.kind));
            tried.push(self.one(bench, task, &folder.join(&task.kind)).await?);
        }
        Ok(tried)
    }

    async fn one(&mut self, bench: &Bench, task: &Task, workspace: &Path) -> Result<Tried> {
        let before = bench.files(task);
        lay(&before, workspace).with_context(|| format!("the files in {} cannot be written", workspace.display()))?;
        let (role, goal) = (bench.persona.role.clone(), task.goal.clone());
        let request = EnqueueRequest {
            role: role.clone(),
            goal,
            workspace: workspace.display().to_string(),
            workspace_id: Some(identify(workspace)?),
            max_attempts: Some(1),
            ..EnqueueRequest::default()
        };
        let began = Instant::now();
        let ms = || began.elapsed().as_millis() as u64;
        let id = self.store.enqueue(vec![accept(request, &[role])?], wire::now()).await?[0].id;
        self.job = Some(id);
        let mut first_word = None;
        let job = self.ended(id, || first_word = first_word.or_else(|| Some(ms()))).await?;
        let ms = ms();
        let mut after = Files::new();
        look(workspace, "", &mut after).with_context(|| format!("{} cannot be read", workspace.display()))?;
        Ok(Tried::new(task, &job, &before, &after, ms, first_word))
    }

    /// Waits for the end of a job, and tells of each word that the model says.
    async fn ended(&mut self, id: JobId, mut word: impl FnMut()) -> Result<Job> {
        loop {
            match hear(&mut self.heard).await {
                Some(Progress::Delta { job, .. }) if job == id => word(),
                Some(Progress::Ended { job, .. }) if job == id => {}
                // Some of it was missed.
                None => {}
                _ => continue,
            }
            let Some(job) = self.store.job(id).await? else { continue };
            if job.state.is_final() {
                return Ok(job);
            }
            if is_helpless(&self.models, &job) {
                let why = job.reason.as_deref().unwrap_or("its model cannot be asked now");
                let way_out = "Mend that, see that posse model test gets an answer, and begin again";
                return Err(fail(Code::ModelFailed, format!("the bench ended before its end: {why}. {way_out}")));
            }
        }
    }

    async fn cancel(&mut self) -> Result<()> {
        let Some(id) = self.job else { return Ok(()) };
        self.store.cancel(id, "the bench was interrupted".into(), wire::now()).await?;
        // Whoever does not end in time is told of as any process in hand.
        drop(timeout(Duration::from_secs(10), self.ended(id, || {})).await);
        Ok(())
    }
}

fn show(cx: &Context, report: &BenchReport) -> Result<Exit> {
    let (paint, ms) = (cx.out.paint, |ms: u64| duration(ms as i64));
    let rows = report.tasks.iter().map(|one| {
        let right = one.right;
        let mark = if right { "✓" } else { "✗" };
        vec![
            painted(mark, move |t| if right { paint.green(t) } else { paint.red(t) }),
            plain(one.kind.clone()),
            plain(count(one.turns.into())),
            plain(count(one.input_tokens)),
            plain(count(one.output_tokens)),
            plain(one.first_word_ms.map_or_else(|| "-".into(), ms)),
            plain(ms(one.ms)),
            plain(one_line(one.why.as_deref().unwrap_or_default(), 200)),
        ]
    });
    cx.out.table(&["", "KIND", "TURNS", "READ", "WRITTEN", "FIRST WORD", "TOOK", "WHY NOT"], rows)?;
    let BenchReport { name, model, right, of, percent: (low, high), tasks, personas } = report;
    let all = |of: fn(&Tried) -> u64| tasks.iter().map(of).sum::<u64>();
    let (tokens, turns) = (all(|one| one.input_tokens + one.output_tokens), all(|one| one.turns.into()));
    cx.out.line("")?;
    cx.out.line(format!(
        "{name} ({}) did {right} of {of} right; 95 % sure: {low} to {high} % of such tasks",
        visible(model)
    ))?;
    let took = ms(all(|one| one.ms));
    cx.out.line(format!("{}, {} in {took}", plural(turns, "turn"), plural(tokens, "token")))?;
    let fits = personas.iter().map(|fit| format!("{} {} of {}", fit.role, fit.right, fit.of));
    cx.out.line(format!("what its tools are enough for: {}", visible(&fits.collect::<Vec<_>>().join(", "))))?;
    Ok(Exit::Ok)
}
