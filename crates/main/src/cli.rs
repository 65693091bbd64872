//! The command line. Nouns are files, verbs are functions.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use posse_core::job::name::role_name;
use posse_core::port::Store;

use crate::env;
use crate::exit::{EXIT_CODES, Exit};
use crate::output::{ColorChoice, Out};
use crate::settings::{self, Overrides, Settings};
use crate::wire;

mod annotation;
mod change;
mod chat;
mod db;
mod doctor;
mod enqueue;
mod filter;
mod group;
mod hook;
mod init;
mod job;
mod job_events;
mod job_show;
mod job_table;
mod lists;
mod mcp;
mod memory;
mod memory_block;
mod metrics;
mod model;
mod model_bench;
mod model_embedder;
mod persona;
mod prelude;
mod question;
mod queue;
mod rules;
mod schedule;
mod session;
mod skill;
mod status;
mod tool;
mod trust;
mod work;
mod worker;

const EXAMPLES: &str = "\
First steps:
  posse init                                  a project in this folder
  posse run --role researcher \"Which supplier in examples/suppliers ships to Norway?\"
  posse up                                    work everything that is enqueued";

/// A durable worker fleet for AI agents: enqueue goals, let personas work them, trust what comes back.
#[derive(Parser)]
#[command(name = "posse", version, max_term_width = 100, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args, Clone)]
pub struct Global {
    /// Settings file; config/posse.toml here or in a folder above when absent [env: POSSE_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    config: Option<PathBuf>,
    /// The database; .posse/posse.db in the project when absent [env: POSSE_DB]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    db: Option<PathBuf>,
    /// Print JSON: one document, or one line for each event where a command follows something
    #[arg(long, global = true, help_heading = "Everywhere")]
    json: bool,
    /// When to colour
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", help_heading = "Everywhere")]
    color: ColorChoice,
}

#[derive(Subcommand)]
enum Command {
    /// Put a goal into the queue, or many (short for `job enqueue`)
    Enqueue(Box<enqueue::EnqueueArgs>),
    /// Enqueue a goal and work it here and now, with a live view
    Run(work::RunArgs),
    /// Talk with an agent; what was said is kept, and a later chat goes on with it
    Chat(chat::ChatArgs),
    /// Conversations: list, show, export
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Work what is enqueued, until told to stop
    Work(work::WorkArgs),
    /// Check the project, say what is served, and work everything
    Up(work::ModelArgs),
    /// What runs, what waits and why, and what needs a person, on one screen
    Status(status::StatusArgs),
    /// Jobs (short for `job list`)
    List(job::ListArgs),
    /// One job: state, steps, answer, cost (short for `job show`)
    Show(job_show::ShowArgs),
    /// Jobs: enqueue, list, show, watch, events, replay, cancel, retry, fork, edit, move, delete, annotate
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Ask for a job's end, or that of many (short for `job cancel`)
    Cancel(change::CancelArgs),
    /// Make a job that ended available again, or many that did not succeed (short for `job retry`)
    Retry(change::RetryArgs),
    /// Questions that agents ask, and your answers
    #[command(subcommand)]
    Question(question::QuestionCommand),
    /// Remarks on jobs, by agents and people
    #[command(subcommand)]
    Annotation(annotation::AnnotationCommand),
    /// What agents and people remember: add, search, list, show, edit, forget, import, export
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// Groups of jobs: how far they are, what they cost
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Queues: how many jobs are where, what they begin with, how long they are kept
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Limits on how many jobs run or start
    #[command(subcommand)]
    Limit(rules::LimitCommand),
    /// Let no more jobs start; running ones go on
    Pause(rules::ScopeArgs),
    /// Let paused jobs start again
    Resume(rules::ScopeArgs),
    /// Schedules: rules that make jobs at times
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Personas: the kinds of agents there are
    #[command(subcommand)]
    Persona(persona::PersonaCommand),
    /// Models: which there are, fetching the local one, testing
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Tools that personas may use: list, show, check, run
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    /// MCP servers, whose tools personas may use: list, tools, test, accept
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    /// Hooks: what runs before and after an agent's run
    #[command(subcommand)]
    Hook(hook::HookCommand),
    /// Skills: instructions that personas call by name
    #[command(subcommand)]
    Skill(skill::SkillCommand),
    /// Worker processes: what each is doing, asking one to end
    #[command(subcommand)]
    Worker(worker::WorkerCommand),
    /// The database: checking, copying, migrating, compacting
    #[command(subcommand)]
    Db(db::DbCommand),
    /// Look at everything, and say what is wrong and what to do
    Doctor {
        /// Compare each index of the database with its table too, which takes several times as long
        #[arg(long)]
        full: bool,
    },
    /// Numbers to watch the fleet by, as Prometheus reads them
    #[command(after_help = metrics::HELP)]
    Metrics,
    /// How fast this machine is
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Begin a project: settings, personas, files to try it on
    Init {
        /// The folder; made if it is not there
        #[arg(default_value = ".", value_name = "DIR")]
        folder: PathBuf,
    },
    /// Trust a folder, so that the settings, personas, skills and libraries in it are used
    Trust(trust::TrustArgs),
    /// Completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Subcommand)]
enum BenchCommand {
    /// The queue, with jobs that do nothing: one line of JSON for each result
    Queue(posse_bench::queue::QueueArgs),
}

/// The name of a role, however it is spelled.
fn role(written: &str) -> Result<String, std::convert::Infallible> {
    Ok(role_name(written))
}

pub struct Context {
    pub out: Out,
    global: Global,
}

impl Context {
    pub fn settings(&self, overrides: Overrides) -> Result<Settings> {
        let (config, database) = (self.global.config.clone(), self.global.db.clone());
        let overrides = Overrides { config, database, ..overrides };
        match settings::load(&overrides) {
            Err(error) if error.downcast_ref().is_some_and(|why| trust::agrees(&self.out, why)) => {
                settings::load(&overrides)
            }
            loaded => loaded,
        }
    }

    pub fn plain_settings(&self) -> Result<Settings> {
        self.settings(Overrides::default())
    }

    /// What `read` finds in the database; nothing where there is none yet.
    pub async fn read<T: Default, E>(&self, read: impl AsyncFnOnce(&dyn Store) -> Result<T, E>) -> Result<T>
    where
        anyhow::Error: From<E>,
    {
        match wire::open_reader(&self.plain_settings()?)? {
            Some(store) => Ok(read(&*store).await?),
            None => Ok(T::default()),
        }
    }
}

impl Cli {
    /// Whether the command goes on for long, so that its log is worth reading.
    pub fn is_long(&self) -> bool {
        matches!(self.command, Command::Work(_) | Command::Up(_))
    }

    pub fn out(&self) -> Out {
        Out::new(self.global.json, self.global.color)
    }

    /// Does what was asked; gives the exit code of what was not an error.
    pub async fn run(self) -> Result<Exit> {
        let cx = Context { out: self.out(), global: self.global };
        match self.command {
            Command::Enqueue(args) => enqueue::enqueue(&cx, *args).await,
            Command::Run(args) => work::run(&cx, args).await,
            Command::Chat(args) => chat::chat(&cx, args).await,
            Command::Session(command) => session::dispatch(&cx, command).await,
            Command::Work(args) => work::work(&cx, args).await,
            Command::Up(args) => work::up(&cx, args).await,
            Command::Status(args) => status::status(&cx, args).await,
            Command::List(args) => job::list(&cx, args).await,
            Command::Show(args) => job_show::show(&cx, args).await,
            Command::Job(command) => job::dispatch(&cx, command).await,
            Command::Cancel(args) => change::cancel(&cx, args).await,
            Command::Retry(args) => change::retry(&cx, args).await,
            Command::Question(command) => question::dispatch(&cx, command).await,
            Command::Annotation(command) => annotation::dispatch(&cx, command).await,
            Command::Memory(command) => memory::dispatch(&cx, command).await,
            Command::Group(command) => group::dispatch(&cx, command).await,
            Command::Queue(command) => queue::dispatch(&cx, command).await,
            Command::Limit(command) => rules::limit(&cx, command).await,
            Command::Pause(scope) => rules::pause(&cx, scope).await,
            Command::Resume(scope) => rules::resume(&cx, scope).await,
            Command::Schedule(command) => schedule::dispatch(&cx, command).await,
            Command::Persona(command) => persona::dispatch(&cx, command),
            Command::Model(command) => model::dispatch(&cx, command).await,
            Command::Mcp(command) => mcp::dispatch(&cx, command).await,
            Command::Hook(command) => hook::dispatch(&cx, command),
            Command::Skill(command) => skill::dispatch(&cx, command),
            Command::Tool(command) => tool::dispatch(&cx, command).await,
            Command::Worker(command) => worker::dispatch(&cx, command).await,
            Command::Db(command) => db::dispatch(&cx, command).await,
            Command::Doctor { full } => doctor::doctor(&cx, full).await,
            Command::Metrics => metrics::metrics(&cx).await,
            Command::Bench(BenchCommand::Queue(args)) => bench(&cx, args).await,
            Command::Init { folder } => init::init(&cx, &folder),
            Command::Trust(args) => trust::trust(&cx, args),
            Command::Completions { shell } => completions(&cx, shell),
        }
    }
}

async fn bench(cx: &Context, args: posse_bench::queue::QueueArgs) -> Result<Exit> {
    // The environment's keys alone: those of a settings file are for the database that it is of.
    let keys = settings::keys(&env::own, None)?;
    posse_bench::queue::run(args, keys, &|line| cx.out.json_line(line)).await?;
    Ok(Exit::Ok)
}

fn completions(cx: &Context, shell: clap_complete::Shell) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut <Cli as clap::CommandFactory>::command(), "posse", &mut script);
    cx.out.raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
