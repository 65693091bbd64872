//! `posse enqueue`: a person's words become a job.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use posse_core::clock::Millis;
use posse_core::job::retry::{RetryPolicy, Strategy};
use posse_core::job::{DEFAULT_PRIORITY, DEFAULT_QUEUE, JobId, NewJob, Unique};
use posse_core::port::{Enqueued, JobRepository as _};
use posse_core::usecase::enqueue::{Ask, MAX_GOAL_BYTES, accept};
use posse_infra::persona::Loaded;
use serde::Serialize;

use super::Context;
use crate::exit::{Exit, usage};
use crate::output::text::moment;
use crate::settings::Settings;
use crate::{times, wire};

/// What is asked for, and of whom.
#[derive(Args)]
pub struct GoalArgs {
    /// The role that shall work it (posse persona list)
    #[arg(long, short, value_name = "ROLE")]
    pub role: String,
    /// The folder its tools are confined to; the project's workspace when absent
    #[arg(long, short, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// 1 (first) to 9 (last)
    #[arg(long, default_value_t = DEFAULT_PRIORITY, value_name = "N")]
    pub priority: u8,
    /// Attempts it gets; as its persona says when absent, else 5
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<u32>,
    #[command(flatten)]
    pub retry: RetryArgs,
    /// The model to use instead of the persona's (posse model list)
    #[arg(long, short, value_name = "NAME")]
    pub model: Option<String>,
    /// What is to be done, in your words; `-` reads it from standard input
    #[arg(required = true, value_name = "GOAL")]
    pub goal: Vec<String>,
}

/// When it is tried again after a failure; as its persona says when absent
#[derive(Args)]
pub struct RetryArgs {
    /// How waits grow from one failure to the next; none makes one attempt
    #[arg(long, value_enum, value_name = "STRATEGY")]
    retry: Option<RetryChoice>,
    /// The first wait: 2s, 10m, 1h
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    retry_wait: Option<Millis>,
    /// No wait is longer
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    retry_wait_most: Option<Millis>,
}

/// How waits grow.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RetryChoice {
    Exponential,
    Fixed,
    None,
}

impl RetryArgs {
    /// The persona's policy, with what the command line says over it.
    fn over(&self, persona: Option<RetryPolicy>) -> Option<RetryPolicy> {
        let RetryArgs { retry, retry_wait, retry_wait_most } = self;
        if retry.is_none() && retry_wait.is_none() && retry_wait_most.is_none() {
            return persona;
        }
        let mut policy = persona.unwrap_or_default();
        let seconds = |ms: &Millis| u32::try_from(ms / 1000).unwrap_or(u32::MAX);
        policy.base_seconds = retry_wait.as_ref().map_or(policy.base_seconds, seconds);
        policy.max_seconds = match retry_wait_most {
            Some(most) => seconds(most),
            // A first wait may be named without the longest.
            None => policy.max_seconds.max(policy.base_seconds),
        };
        policy.strategy = match retry {
            Some(RetryChoice::Exponential) => Strategy::Exponential,
            Some(RetryChoice::Fixed) => Strategy::Fixed,
            Some(RetryChoice::None) => Strategy::None,
            None => policy.strategy,
        };
        if policy.strategy == Strategy::None {
            policy.max_attempts = None;
        }
        Some(policy)
    }
}

/// Where a job waits, and what for.
#[derive(Debug, Default)]
pub struct Placing {
    queue: String,
    run_at: Option<Millis>,
    unique: Option<Unique>,
    concurrency_key: Option<String>,
}

impl Placing {
    /// In `queue`, due at once.
    pub fn in_queue(queue: String) -> Placing {
        Placing { queue, ..Placing::default() }
    }
}

/// Put a goal into the queue
#[derive(Args)]
pub struct EnqueueArgs {
    #[command(flatten)]
    goal: GoalArgs,
    /// Not before this time: 2026-05-01T09:00:00Z, or without a zone in this machine's
    #[arg(long, value_name = "TIME", conflicts_with = "delay", value_parser = times::moment)]
    at: Option<Millis>,
    /// Not before so long from now: 90s, 10m, 2h, 1d
    #[arg(long, visible_alias = "in", value_name = "TIME", value_parser = times::span)]
    delay: Option<Millis>,
    /// The queue it waits in
    #[arg(long, default_value = DEFAULT_QUEUE, value_name = "NAME")]
    queue: String,
    /// Only if no job with this key is waiting or running; else that job is named and nothing is stored
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// Nor if one has completed within so long: 10m, 2h, 1d
    #[arg(long, value_name = "TIME", requires = "unique", value_parser = times::span)]
    unique_for: Option<Millis>,
    /// Limits per key count it with the jobs of the same key (posse limit)
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    id: JobId,
    /// Whether a job with this unique key was there already; then it is that one's id, and nothing
    /// was stored.
    existing: bool,
    role: &'a str,
    queue: &'a str,
    priority: u8,
    max_attempts: u32,
    /// Milliseconds since 1970; null when it is due at once.
    run_at: Option<Millis>,
    unique: Option<&'a Unique>,
    concurrency_key: Option<&'a str>,
    goal: &'a str,
}

/// Enqueues, and answers after it is durable.
pub async fn enqueue(cx: &Context, args: EnqueueArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let personas = wire::personas(&settings, &wire::Offer::gather(&settings))?;
    let now = wire::now();
    let run_at = args.at.or(args.delay.map(|delay| now + delay));
    let unique = args.unique.map(|key| Unique { key, for_ms: args.unique_for });
    let placing = Placing { queue: args.queue, run_at, unique, concurrency_key: args.concurrency_key };
    let job = new_job(&settings, &personas, args.goal, placing)?;
    let store = wire::open_store(&settings)?;
    let Enqueued { id, existed: existing } = store.enqueue(vec![job.clone()], now).await?[0];
    if cx.out.json {
        let NewJob { role, queue, priority, max_attempts, run_at, unique, concurrency_key, payload, .. } = &job;
        let (priority, max_attempts, run_at, goal) = (*priority, *max_attempts, *run_at, payload.goal.as_str());
        let (unique, concurrency_key) = (unique.as_ref(), concurrency_key.as_deref());
        let shown = Shown { id, existing, role, queue, priority, max_attempts, run_at, unique, concurrency_key, goal };
        cx.out.document(&shown)?;
        return Ok(Exit::Ok);
    }
    if existing {
        cx.out.line(format!("{}  existing", cx.out.paint.bold(format!("job {id}"))))?;
        cx.out
            .note(cx.out.note_paint.dim(format!("it holds that key; nothing was enqueued · posse show {id} shows it")));
        return Ok(Exit::Ok);
    }
    let due = run_at.filter(|at| *at > now).map(|at| format!(", due {}", moment(at))).unwrap_or_default();
    cx.out.line(format!("{}  {}{due}", cx.out.paint.bold(format!("job {id}")), cx.out.paint.cyan(&job.role)))?;
    cx.out
        .note(cx.out.note_paint.dim(format!("posse work runs it · posse job watch {id} follows it · posse show {id}")));
    Ok(Exit::Ok)
}

/// The job that is asked for, checked.
pub fn new_job(settings: &Settings, personas: &Loaded, args: GoalArgs, placing: Placing) -> Result<NewJob> {
    if personas.get(&args.role).is_none() && !personas.errors_of(&args.role).is_empty() {
        // A broken file is a better answer than that there is none.
        wire::persona(personas, &args.role)?;
    }
    if let Some(model) =
        args.model.as_deref().filter(|m| !settings.models.is_empty() && !settings.models.contains_key(*m))
    {
        let names = settings.models.keys().cloned().collect::<Vec<_>>().join(", ");
        if model != crate::local::NAME {
            return Err(usage(format!("model '{model}' is not in the settings; there are {names} (posse model list)")));
        }
    }
    let Placing { queue, run_at, unique, concurrency_key } = placing;
    let retry = args.retry.over(personas.get(&args.role).and_then(|file| file.persona.retry));
    let ask = Ask {
        role: args.role,
        goal: read_goal(args.goal)?,
        queue,
        priority: args.priority,
        priority_step_ms: settings.priority_step.as_millis() as Millis,
        run_at,
        max_attempts: args.max_attempts,
        retry,
        unique,
        concurrency_key,
        workspace: args.workspace.as_deref().map(workspace).transpose()?.unwrap_or_default(),
        model: args.model,
    };
    Ok(accept(ask, &personas.roles())?)
}

fn read_goal(words: Vec<String>) -> Result<String> {
    if words != ["-"] {
        return Ok(words.join(" "));
    }
    let mut bytes = Vec::new();
    // One byte more than is allowed tells that it is too much, without reading all of it.
    let most = MAX_GOAL_BYTES as u64 + 1;
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|e| usage(format!("standard input cannot be read: {e}")))?;
    if bytes.len() as u64 == most {
        return Err(usage(format!(
            "goal on standard input has more than {MAX_GOAL_BYTES} bytes, the most allowed. Put the text in a file and name it"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        usage(format!("goal on standard input is not valid UTF-8 at byte {at}; convert it to UTF-8 first"))
    })
}

fn workspace(folder: &Path) -> Result<String> {
    let shown = folder.display();
    let real = std::fs::canonicalize(folder)
        .map_err(|e| usage(format!("workspace {shown} cannot be used: {e}; name a folder that exists")))?;
    if !real.is_dir() {
        return Err(usage(format!("workspace {shown} is no folder; tools are confined to a folder")));
    }
    real.into_os_string()
        .into_string()
        .map_err(|_| usage(format!("workspace {shown} has a path that is not UTF-8; rename it")))
}
