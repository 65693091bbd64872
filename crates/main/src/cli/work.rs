//! `posse work`, `posse run`, `posse up`: this process as a worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use posse_core::events::{Follower, JobEvent};
use posse_core::job::enqueue::Ask;
use posse_core::job::{Job, JobState};
use posse_core::metrics::ModelTallies;
use posse_core::model::Models as _;
use posse_core::port::Store;
use posse_infra::model::outage::Outages;
use posse_infra::persona::PersonaFile;
use tokio::net::TcpListener;

use super::endpoint::EndpointArgs;
use super::enqueue::{TermsArgs, intake, read_goal};
use super::job::exit_of;
use super::{Context, job_show};
use crate::catalog;
use crate::descriptors;
use crate::exit::{Exit, usage};
use crate::fleet::{Plan, RoleWork, Signals, WorkerProcess, random};
use crate::live::{AtWork, Renderer, feed, follow};
use crate::output::text::{plural, visible};
use crate::output::{Out, before_change};
use crate::records::RunFiles;
use crate::settings::{Overrides, Settings};
use crate::staff::{self, Staff};
use crate::wire::{self, Project};
use crate::{metrics, models};

/// Which model works, where none is named
#[derive(Args)]
pub struct ModelArgs {
    /// Jobs each role works at once
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// The default model (posse model list) [env: POSSE_MODEL]
    #[arg(long, short, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

/// What to work
#[derive(Args)]
pub struct WorkArgs {
    /// Only this role; may be given more than once. All personas when absent
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
    role: Vec<String>,
    /// Only this queue; may be given more than once
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,
    #[command(flatten)]
    model: ModelArgs,
    /// Serve numbers to watch at http://ADDRESS/metrics, as Prometheus reads them; on this machine only
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Do not say what happens
    #[arg(long, short)]
    quiet: bool,
}

/// How to serve
#[derive(Args)]
pub struct UpArgs {
    #[command(flatten)]
    model: ModelArgs,
}

/// What to run
#[derive(Args)]
pub struct RunArgs {
    /// The role that shall work it (posse persona list)
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
    role: String,
    #[command(flatten)]
    terms: TermsArgs,
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// Show arguments and results whole
    #[arg(long, conflicts_with = "answer")]
    full: bool,
    /// Print the answer alone, when it is there
    #[arg(long)]
    answer: bool,
    /// What is to be done, in your words; `-` reads it from standard input
    #[arg(required = true, value_name = "GOAL")]
    goal: Vec<String>,
}

/// Waits for the end of a job, or until it waits for what a person has to mend, and shows nothing of it.
async fn until_ended(mut follower: Follower, is_helpless: Box<dyn Fn(&Job) -> bool + Send>) -> Result<Job> {
    loop {
        for event in follower.poll().await? {
            match event {
                JobEvent::Ended { job } => return Ok(*job),
                JobEvent::AttemptEnded { .. } => {
                    if let Some(job) = follower.job().filter(|job| is_helpless(job)) {
                        return Ok(job.clone());
                    }
                }
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Enqueues a goal and works it in this process until it ends; the exit code tells how.
pub async fn run(cx: &Context, args: RunArgs) -> Result<Exit> {
    let RunArgs { role, terms, endpoint, full, answer, goal } = args;
    let endpoint = endpoint.checked()?;
    // In one process the model of the job is the model of the worker.
    let model = terms.model.clone();
    let settings = cx.settings(Overrides { model: model.clone(), endpoint, ..Overrides::default() })?;
    let mut signals = Signals::listen()?;
    let (project, persona, executor) = Project::gather_for(&cx.out, &settings, &role, model.as_deref()).await?;
    warn_of_commands(cx, &settings, &project, std::slice::from_ref(&persona)).await;
    // A queue of its own, so that this process works this job and no other; any posse work takes it
    // over should this process end before it.
    let queue = format!("run-{:08x}", random() & 0xffff_ffff);
    let job = {
        let known = Settings { models: Default::default(), ..settings.clone() };
        let ask = Ask { role, goal: read_goal(goal)?, queue: queue.clone(), ..terms.ask(&settings)? };
        intake(&known, &project.personas).accept(ask, &terms.retry.asked(), &[])?
    };
    before_change()?;
    let store = project.open(&settings)?;
    let one = RoleWork { role: persona.persona.role.clone(), executor };
    let (lease, retention) = (settings.lease, settings.retention.clone());
    let (files, sessions) = (RunFiles::of(&settings), wire::sessions_folder(&settings));
    let plan = Plan { queues: vec![queue], slots: 1, lease, retention, sessions, watched: true, files };
    // Before there is a job, so that this process hears of it before any other can.
    let mut process = WorkerProcess::start(&store, vec![one], plan).await?;
    let id = match store.enqueue(vec![job], wire::now()).await {
        Ok(enqueued) => enqueued[0].id,
        Err(error) => {
            process.shut_down(&cx.out, settings.grace, &mut signals).await?;
            return Err(error.into());
        }
    };
    if let Some(held) = store.held(id, wire::now()).await? {
        cx.out.warn(format!("job {id} is held: {held} (posse limit list)"));
    }
    let renderer = Renderer::new(cx.out.paint, cx.out.width, full, wire::free_models(&settings));
    let follower = Follower::new(store.clone(), id);
    let models = Arc::clone(&project.models);
    let is_helpless = Box::new(move |job: &Job| models::is_helpless(&models, job));
    let at_work = AtWork { worker: process.worker().to_owned(), heard: process.heard(), is_helpless };
    // In a task of its own: a reader who stops reading keeps nobody from hearing signals.
    let out = cx.out;
    let mut following = tokio::spawn(async move {
        match answer {
            true => until_ended(follower, at_work.is_helpless).await.map(|job| (job, None)),
            false => follow(out, follower, renderer, Some(at_work)).await,
        }
    });
    let ended = tokio::select! {
        ended = &mut following => Some(ended),
        () = signals.next() => None,
    };
    following.abort();
    process.shut_down(&cx.out, settings.grace, &mut signals).await?;
    match ended {
        Some(job) => {
            let (job, unwritten) = job??;
            if !job.state.is_final() {
                cx.out.warn(models::waits_for_a_person(&job));
                return Ok(Exit::Failed);
            }
            if answer {
                return job_show::answer(cx, &job);
            }
            if !cx.out.json {
                let next = if job.state == JobState::Completed {
                    ""
                } else {
                    &format!(" · posse job retry {id} goes on with it")
                };
                cx.out.note(cx.out.note_paint.dim(format!("  posse show {id} --full shows it all{next}")));
            }
            // A reader who had enough misses nothing; anybody else is told that there was more.
            Ok(match (exit_of(&job), unwritten) {
                (Exit::Ok, Some(unwritten)) if !unwritten.is_broken_pipe() => Exit::Untold,
                (exit, _) => exit,
            })
        }
        None => {
            let job = store.job(id).await?;
            match job.map(|job| (job.state, exit_of(&job))) {
                Some((state, exit)) if state.is_final() => return Ok(exit),
                Some((JobState::Running, _)) => cx.out.note(format!(
                    "job {id} is still held by a step that did not end; it goes back to the queue when its lease runs out"
                )),
                _ => cx.out.note(format!(
                    "job {id} is back in the queue as it was last saved: posse work goes on with it, posse job cancel {id} ends it"
                )),
            }
            Ok(Exit::Interrupted)
        }
    }
}

/// Works what is enqueued until told to stop.
pub async fn work(cx: &Context, args: WorkArgs) -> Result<Exit> {
    let WorkArgs { role, queue, model, metrics, quiet } = args;
    let mut settings = settings_for(cx, model)?;
    let mut signals = Signals::listen()?;
    let project = Project::gather(&settings).await?;
    catalog::warn_of_problems(&cx.out, &project.personas);
    catalog::warn_of_skills(&cx.out, &project.offer.skills);
    let personas = chosen(&project, &role)?;
    fit_slots(cx, &mut settings, personas.len());
    warn_of_commands(cx, &settings, &project, &personas).await;
    let work = work_of(&project, &personas)?;
    let listener = match metrics {
        Some(address) => Some(metrics::listen(address).await?),
        None => None,
    };
    let store = project.open(&settings)?;
    if !quiet {
        greet(&cx.out, &settings, &project, &personas);
    }
    look_for_default_model(&project);
    let metrics = listener.map(|at| (at, project.models.tallies()));
    let staff = Staff::new(&settings, &project, &personas, role);
    let serving = Serving { work, staff, queues: queue, quiet, metrics, outages: project.models.outages() };
    serve(cx, &settings, &store, serving, &mut signals).await
}

/// Checks the project, says what is served, works everything.
pub async fn up(cx: &Context, args: UpArgs) -> Result<Exit> {
    let mut settings = settings_for(cx, args.model)?;
    let mut signals = Signals::listen()?;
    let project = Project::gather(&settings).await?;
    catalog::warn_of_problems(&cx.out, &project.personas);
    catalog::warn_of_skills(&cx.out, &project.offer.skills);
    let personas = chosen(&project, &[])?;
    fit_slots(cx, &mut settings, personas.len());
    warn_of_commands(cx, &settings, &project, &personas).await;
    let work = work_of(&project, &personas)?;
    let store = project.open(&settings)?;
    greet(&cx.out, &settings, &project, &personas);
    look_for_default_model(&project);
    let waiting: u64 = store.counts().await?.iter().filter(|(_, state, _)| !state.is_final()).map(|(_, _, n)| n).sum();
    let example = personas.first().map_or("researcher", |p| p.persona.role.as_str());
    cx.out.note(format!("  waiting    {}", plural(waiting, "job")));
    cx.out.note(format!("  enqueue    posse enqueue --role {example} \"<what is to be done>\""));
    cx.out.note("  look       posse list · posse show ID · posse job watch ID\n");
    let staff = Staff::new(&settings, &project, &personas, Vec::new());
    let (queues, outages) = (Vec::new(), project.models.outages());
    let serving = Serving { work, staff, queues, quiet: false, metrics: None, outages };
    serve(cx, &settings, &store, serving, &mut signals).await
}

/// Asks for no more jobs at once than this process has open files for, and says so.
fn fit_slots(cx: &Context, settings: &mut Settings, roles: usize) {
    let (slots, said) = descriptors::slots(settings.slots, roles, descriptors::raise());
    settings.slots = slots;
    if let Some(said) = said {
        cx.out.warn(said);
    }
}

/// Has it said where the usual model cannot be asked by this process, with what to do: the catalog says so,
/// once for each model.
fn look_for_default_model(project: &Project) {
    let _ = project.models.get(None);
}

/// Says so, once, where agents are going to want commands and cannot have them.
async fn warn_of_commands(cx: &Context, settings: &Settings, project: &Project, personas: &[PersonaFile]) {
    if let Some(Err(why)) = catalog::probe_commands(settings, &project.offer, personas).await {
        cx.out.warn(format!("commands cannot run here: {}. {}", visible(&why), catalog::COMMANDS_WAY_OUT));
    }
}

fn settings_for(cx: &Context, args: ModelArgs) -> Result<Settings> {
    let ModelArgs { slots, model, endpoint } = args;
    cx.settings(Overrides { slots, model, endpoint: endpoint.checked()?, ..Overrides::default() })
}

/// The personas to work: all that can be used, or the ones named, each of which must be usable.
fn chosen(project: &Project, roles: &[String]) -> Result<Vec<PersonaFile>> {
    let mut personas = Vec::new();
    for role in roles {
        let found = catalog::persona(&project.personas, role)?;
        if !personas.contains(found) {
            personas.push(found.clone());
        }
    }
    if roles.is_empty() {
        personas.clone_from(&project.personas.personas);
    }
    if personas.is_empty() {
        return Err(usage("there is no persona to work for; posse persona check says why, posse init writes four"));
    }
    Ok(personas)
}

fn greet(out: &Out, settings: &Settings, project: &Project, personas: &[PersonaFile]) {
    let paint = out.note_paint;
    let roles: Vec<_> = personas.iter().map(|p| p.persona.role.as_str()).collect();
    let model = match project.models.default_name() {
        Some(name) => match project.models.known().get(name) {
            Some(known) => {
                format!("{name} ({}, {})", known.table.model.as_deref().unwrap_or("its usual model"), known.place())
            }
            None => name.into(),
        },
        None => "none by default".into(),
    };
    out.note(paint.bold(format!(
        "posse {} at work; Ctrl-C ends it, and what is in hand goes back to the queue",
        env!("CARGO_PKG_VERSION")
    )));
    for (what, value) in [
        ("roles", format!("{} ({} at once each)", roles.join(", "), settings.slots)),
        ("model", visible(&model)),
        ("database", visible(&settings.database.display().to_string())),
        ("workspace", visible(&settings.workspace.display().to_string())),
    ] {
        out.note(format!("  {} {value}", paint.dim(format!("{what:<10}"))));
    }
}

fn work_of(project: &Project, personas: &[PersonaFile]) -> Result<Vec<RoleWork>> {
    let one = |persona: &PersonaFile| {
        Ok(RoleWork { role: persona.persona.role.clone(), executor: project.executor(persona)? })
    };
    personas.iter().map(one).collect()
}

/// What a process serves, and how.
struct Serving {
    work: Vec<RoleWork>,
    /// Their personas, as they change.
    staff: Staff,
    /// Only jobs of these queues; all when empty.
    queues: Vec<String>,
    quiet: bool,
    /// Where its numbers are asked for, and those of its models.
    metrics: Option<(TcpListener, Arc<ModelTallies>)>,
    outages: Arc<Outages>,
}

async fn serve(
    cx: &Context,
    settings: &Settings,
    store: &Arc<dyn Store>,
    serving: Serving,
    signals: &mut Signals,
) -> Result<Exit> {
    let Serving { work, mut staff, queues, quiet, metrics, outages } = serving;
    let watched = !quiet || cx.out.json;
    let (lease, retention) = (settings.lease, settings.retention.clone());
    let (files, sessions) = (RunFiles::of(settings), wire::sessions_folder(settings));
    let plan = Plan { queues, slots: settings.slots, lease, retention, sessions, watched, files };
    let mut process = WorkerProcess::start(store, work, plan).await?;
    let watched = match metrics {
        Some((listener, models)) => {
            cx.out.note(format!("  metrics    http://{}/metrics", listener.local_addr()?));
            Some(tokio::spawn(metrics::serve(listener, process.metrics(store, models))))
        }
        None => None,
    };
    let heard = process.heard();
    let showing = async {
        match heard {
            Some(heard) => feed::show(&cx.out, heard, outages).await,
            None => std::future::pending().await,
        }
    };
    let asked_to_end = process.asked_to_end();
    tokio::pin!(showing, asked_to_end);
    let mut tick = tokio::time::interval(staff::EVERY);
    let shown = loop {
        tokio::select! {
            shown = &mut showing => break shown,
            () = &mut asked_to_end => break tokio::select! {
                shown = &mut showing => shown,
                () = process.drained(&cx.out) => Ok(()),
                () = signals.next() => Ok(()),
            },
            () = signals.next() => break Ok(()),
            _ = tick.tick() => {
                let changes = staff.look(&cx.out);
                if let Err(error) = staff::apply(&mut process, changes).await {
                    cx.out.warn(format!("others are not told which roles are worked here: {error:#}"));
                }
            }
        }
    };
    let stood_down = process.shut_down(&cx.out, settings.grace, signals).await;
    if let Some(watched) = watched {
        watched.abort();
    }
    stood_down?;
    shown?;
    Ok(Exit::Ok)
}
