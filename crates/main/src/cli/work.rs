//! `posse work`, `posse run`, `posse up`: this process as a worker.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posse_app::personas::{Offer, chosen};
use posse_app::staff::{News, Staff};
use posse_core::events::{Follower, JobEvent};
use posse_core::job::enqueue::EnqueueRequest;
use posse_core::job::{Job, JobState};
use posse_core::metrics::ModelTallies;
use posse_core::model::Models as _;
use posse_core::persona::{PersonaFile, Personas};
use posse_core::port::Store;
use posse_core::worker::executor::AgentExecutor;
use tokio::net::TcpListener;

use super::enqueue::{TermsArgs, intake, read_goal};
use super::job_show;
use super::prelude::*;
use crate::faults::{warn_of, warn_of_personas, warn_of_skills};
use crate::fleet::{Plan, RoleWork, WorkerProcess};
use crate::live::{AtWork, Renderer, feed, follow};
use crate::output::text::{plural, visible};
use crate::output::{Out, before_change};
use crate::process::{self, Signals, random};
use crate::settings::{Endpoint, Overrides, Settings};
use crate::wire::Project;
use crate::{metrics, models};

/// The default model's endpoint, over what the settings and the environment say
#[derive(Args, Clone, Default)]
pub struct EndpointArgs {
    /// The default model's endpoint, up to and including /v1 [env: OPENAI_BASE_URL]
    #[arg(long, value_name = "URL", help_heading = "Endpoint")]
    base_url: Option<String>,
    /// The environment variable that holds its key; "" for no key [OPENAI_API_KEY]
    #[arg(long, value_name = "VARIABLE", help_heading = "Endpoint")]
    api_key_env: Option<String>,
    /// The organisation billed [env: OPENAI_ORG_ID]
    #[arg(long, value_name = "ID", help_heading = "Endpoint")]
    organization: Option<String>,
    /// A further header, "Name: value"; ${VARIABLE} in the value stands for an environment variable; may be given more
    /// than once
    #[arg(long, value_name = "HEADER", help_heading = "Endpoint")]
    header: Vec<String>,
}

impl EndpointArgs {
    /// What was said, checked as far as it can be without asking anybody.
    pub fn checked(self) -> Result<Endpoint> {
        let mut headers = BTreeMap::new();
        for header in self.header {
            let Some((name, value)) = header.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
                return Err(usage(format!("--header '{}' must read \"Name: value\"", header.escape_debug())));
            };
            headers.insert(name.trim().to_owned(), value.trim().to_owned());
        }
        let EndpointArgs { base_url, api_key_env, organization, .. } = self;
        Ok(Endpoint { base_url, api_key_env, organization, headers })
    }
}

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
    let (project, personas, team) = Project::gather_for(&cx.out, &settings, &role, model.as_deref()).await?;
    warn_of_commands(cx, &settings, &project, &personas).await;
    // A queue of its own, so that this process works this job and no other; any posse work takes it
    // over should this process end before it.
    let queue = format!("run-{:08x}", random() & 0xffff_ffff);
    let job = {
        let known = Settings { models: Default::default(), ..settings.clone() };
        let request =
            EnqueueRequest { role, goal: read_goal(goal)?, queue: queue.clone(), ..terms.request(&settings)? };
        intake(&known, project.personas.clone()).accept(request, &terms.retry(), &[])?
    };
    before_change()?;
    let store = project.open(&settings)?;
    // Before there is a job, so that this process hears of it before any other can.
    // The job itself, or as many of its tasks as each role works at once.
    let slots = if team.len() == 1 { 1 } else { settings.slots };
    let plan = Plan { queues: vec![queue], slots, watched: true };
    let mut process = WorkerProcess::start(&store, &settings, team, plan).await?;
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
                cx.out.hint(format!("  posse show {id} --full shows it all{next}"));
            }
            // A reader who had enough misses nothing; anybody else is told that there was more.
            Ok(match (Exit::of(&job), unwritten) {
                (Exit::Ok, Some(unwritten)) if !unwritten.is_broken_pipe() => Exit::Untold,
                (exit, _) => exit,
            })
        }
        None => {
            let job = store.job(id).await?;
            match job.map(|job| (job.state, Exit::of(&job))) {
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

pub async fn work(cx: &Context, args: WorkArgs) -> Result<Exit> {
    at_work(cx, args, false).await
}

/// The same, with what there is and how to go on.
pub async fn up(cx: &Context, model: ModelArgs) -> Result<Exit> {
    at_work(cx, WorkArgs { role: Vec::new(), queue: Vec::new(), model, metrics: None, quiet: false }, true).await
}

async fn at_work(cx: &Context, args: WorkArgs, says_how_to_go_on: bool) -> Result<Exit> {
    let WorkArgs { role, queue, model, metrics, quiet } = args;
    let ModelArgs { slots, model, endpoint } = model;
    let endpoint = endpoint.checked()?;
    let mut settings = cx.settings(Overrides { slots, model, endpoint, ..Overrides::default() })?;
    let mut signals = Signals::listen()?;
    let project = Project::gather(&settings).await?;
    warn_of_personas(&cx.out, &project.personas);
    warn_of_skills(&cx.out, &project.offer.skills);
    let personas = chosen(&project.personas, &role)?;
    // No more jobs at once than this process has open files for.
    let (fitting, said) = process::slots(settings.slots, personas.len(), process::raise_open_files());
    settings.slots = fitting;
    said.into_iter().for_each(|said| cx.out.warn(said));
    warn_of_commands(cx, &settings, &project, &personas).await;
    let work = personas.iter().map(|persona| {
        let executor = project.executor(&project.offer, &project.personas, persona)?;
        Ok(RoleWork { role: persona.persona.role.clone(), executor })
    });
    let work = work.collect::<Result<Vec<_>>>()?;
    let listener = match metrics {
        Some(address) => Some(metrics::listen(address).await?),
        None => None,
    };
    let store = project.open(&settings)?;
    if !quiet {
        greet(&cx.out, &settings, &project, &personas);
    }
    // Has it said where the usual model cannot be asked by this process, with what to do: once for each model.
    let _ = project.models.get(None);
    if says_how_to_go_on {
        let waiting = store.counts().await?.iter().filter(|(_, state, _)| !state.is_final()).map(|(_, _, n)| n).sum();
        let example = personas.first().map_or("researcher", |p| p.persona.role.as_str());
        cx.out.note(format!("  waiting    {}", plural(waiting, "job")));
        cx.out.note(format!("  enqueue    posse enqueue --role {example} \"<what is to be done>\""));
        cx.out.note("  look       posse list · posse show ID · posse job watch ID\n");
    }
    let metrics = listener.map(|at| (at, Arc::clone(&project.models.tallies)));
    let serving = Serving { project, personas, work, only: role, queues: queue, quiet, metrics };
    serve(cx, &settings, &store, serving, &mut signals).await
}

/// Says so, once, where agents are going to want commands and cannot have them.
async fn warn_of_commands(cx: &Context, settings: &Settings, project: &Project, personas: &[PersonaFile]) {
    if let Some(Err(why)) = wire::probe_commands(settings, &project.offer, personas).await {
        cx.out.warn(format!("commands cannot run here: {}. {}", visible(&why), wire::COMMANDS_WAY_OUT));
    }
}

fn greet(out: &Out, settings: &Settings, project: &Project, personas: &[PersonaFile]) {
    let paint = out.note_paint;
    let roles: Vec<_> = personas.iter().map(|p| p.persona.role.as_str()).collect();
    let model = match project.models.default_name() {
        Some(name) => match project.models.known.get(name) {
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

struct Serving {
    project: Project,
    /// Those that are worked for at first.
    personas: Vec<PersonaFile>,
    work: Vec<RoleWork>,
    /// Only these roles; all when empty.
    only: Vec<String>,
    /// Only jobs of these queues; all when empty.
    queues: Vec<String>,
    quiet: bool,
    /// Where its numbers are asked for, and those of its models.
    metrics: Option<(TcpListener, Arc<ModelTallies>)>,
}

/// How often personas and skills are looked at while a process works.
const LOOK_EVERY: Duration = Duration::from_secs(1);

async fn serve(
    cx: &Context,
    settings: &Settings,
    store: &Arc<dyn Store>,
    serving: Serving,
    signals: &mut Signals,
) -> Result<Exit> {
    let Serving { project, personas, work, only, queues, quiet, metrics } = serving;
    let mut staff = Staff::new(project.sources.clone(), (&project.offer, &project.personas), &personas, only);
    let hire =
        |offer: &Offer, personas: &Personas, persona: &PersonaFile| match project.executor(offer, personas, persona) {
            Ok(executor) => Ok(executor as Arc<dyn AgentExecutor>),
            Err(error) => Err(format!("{error:#}")),
        };
    let plan = Plan { queues, slots: settings.slots, watched: !quiet || cx.out.json };
    let mut process = WorkerProcess::start(store, settings, work, plan).await?;
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
            Some(heard) => feed::show(&cx.out, heard, Arc::clone(&project.models.outages)).await,
            None => std::future::pending().await,
        }
    };
    let asked_to_end = process.asked_to_end();
    tokio::pin!(showing, asked_to_end);
    let mut tick = tokio::time::interval(LOOK_EVERY);
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
                let news = staff.look(&hire);
                if let Err(error) = follow_news(&cx.out, &mut process, news).await {
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

/// Tells what has become of the personas, and has this process work as they are now.
async fn follow_news(out: &Out, process: &mut WorkerProcess, news: Vec<News>) -> Result<()> {
    let mut is_changed = false;
    for one in news {
        is_changed |= matches!(one, News::New(..) | News::Changed(..) | News::Gone(_));
        match one {
            News::Unreadable(why) => out.warn(format!("{why}; the personas as they were stay in force")),
            News::Problem { problem, stays: true } => {
                out.warn(format!("{problem} (the persona as it was before stays in force)"));
            }
            News::Problem { problem, stays: false } => warn_of(out, problem.severity, &problem),
            News::Unfit(why) => out.warn(why),
            News::New(role, executor) => {
                out.note(format!("  the persona {role} is new: its jobs are worked here from now on"));
                process.serve(RoleWork { role, executor });
            }
            News::Changed(role, executor) => {
                out.note(format!("  the persona {role} has changed: runs that begin from now on follow it"));
                process.change(RoleWork { role, executor });
            }
            News::Gone(role) => {
                out.note(format!("  the persona {role} is gone: no more of its jobs are begun here"));
                process.retire(&role);
            }
        }
    }
    if is_changed { process.announce().await } else { Ok(()) }
}
