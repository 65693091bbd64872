//! `posse job`: jobs and what is done with them.

use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};
use posse_core::annotation::NewAnnotation;
use posse_core::job::{Job, JobId, JobState};
use posse_core::port::{Cancelled, JobFilter, JobRepository as _, RepositoryError};
use serde::Serialize;
use serde_json::json;

use super::{Context, enqueue, job_events, job_fork, job_show};
use crate::exit::{Exit, fail, not_found, usage};
use crate::fleet::Signals;
use crate::live::{Follower, Renderer, follow};
use crate::output::table::{Cell, painted, plain, render};
use crate::output::text::{ago, one_line};
use crate::settings::Settings;
use crate::wire::{self, Reader};

/// Jobs
#[derive(Subcommand)]
pub enum JobCommand {
    /// Put a goal into the queue
    Enqueue(enqueue::EnqueueArgs),
    /// Jobs, newest first
    List(ListArgs),
    /// One job: state, steps, answer, cost
    Show(job_show::ShowArgs),
    /// Follow a job live, whoever works it; ends with it, and with its outcome as exit code
    Watch(WatchArgs),
    /// What happened to a job, one JSON line for each event
    Events(job_events::EventsArgs),
    /// Show a run again from its journal, asking no model and running no tool
    Replay(job_events::ReplayArgs),
    /// Ask for a job's end; a running one ends at its next boundary
    Cancel(CancelArgs),
    /// Make a job that ended available again; its run goes on from where it was
    Retry(RetryArgs),
    /// Make a new job that goes on from the middle of another one's run
    Fork(job_fork::ForkArgs),
    /// Attach a remark to a job
    Annotate(AnnotateArgs),
}

/// Which jobs to list
#[derive(Args)]
pub struct ListArgs {
    /// Only in this state; may be given more than once
    #[arg(long, value_name = "STATE")]
    state: Vec<JobState>,
    /// Only of this role
    #[arg(long, short, value_name = "ROLE")]
    role: Option<String>,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only with numbers below this one: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
}

/// Which job to follow
#[derive(Args)]
pub struct WatchArgs {
    /// The job's number
    id: i64,
    /// Show arguments and results whole
    #[arg(long)]
    full: bool,
}

/// Which job to end
#[derive(Args)]
pub struct CancelArgs {
    /// The job's number
    id: i64,
    /// Why; kept with the job
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Which job to re-run
#[derive(Args)]
pub struct RetryArgs {
    /// The job's number
    id: i64,
}

/// What to remark on which job
#[derive(Args)]
pub struct AnnotateArgs {
    /// The job's number
    id: i64,
    /// A word to find it by; may be given more than once
    #[arg(long, short, value_name = "TAG")]
    tag: Vec<String>,
    /// What to say
    #[arg(required = true)]
    text: Vec<String>,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: JobCommand) -> Result<Exit> {
    match command {
        JobCommand::Enqueue(args) => enqueue::enqueue(cx, args).await,
        JobCommand::List(args) => list(cx, args).await,
        JobCommand::Show(args) => job_show::show(cx, args).await,
        JobCommand::Watch(args) => watch(cx, args).await,
        JobCommand::Events(args) => job_events::events(cx, args).await,
        JobCommand::Replay(args) => job_events::replay(cx, args).await,
        JobCommand::Cancel(args) => cancel(cx, args).await,
        JobCommand::Retry(args) => retry(cx, args).await,
        JobCommand::Fork(args) => job_fork::fork(cx, args).await,
        JobCommand::Annotate(args) => annotate(cx, args).await,
    }
}

#[derive(Serialize)]
struct Listed {
    jobs: Vec<Job>,
    /// Pass it to `--before` for the next page; null on the last one.
    next: Option<JobId>,
}

/// Jobs, newest first.
pub async fn list(cx: &Context, args: ListArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let filter = JobFilter {
        states: args.state,
        role: args.role,
        before: args.before.map(JobId),
        // One more than is shown tells whether there is a next page.
        limit: args.limit + 1,
    };
    let mut jobs = match wire::open_reader(&settings)? {
        Some(queries) => queries.jobs(filter).await?,
        None => Vec::new(),
    };
    let more = jobs.len() > args.limit as usize;
    jobs.truncate(args.limit as usize);
    let next = if more { jobs.last().map(|job| job.id) } else { None };
    if cx.out.json {
        cx.out.document(&Listed { jobs, next })?;
        return Ok(Exit::Ok);
    }
    if jobs.is_empty() {
        cx.out.note("no jobs; posse enqueue --role researcher \"<goal>\" makes one");
        return Ok(Exit::Ok);
    }
    let now = wire::now();
    let rows = jobs.iter().map(|job| row(cx, job, now)).collect();
    let titles = ["ID", "STATE", "ROLE", "TRY", "AGE", "GOAL"];
    for line in render(&titles, rows, cx.out.width, |title| cx.out.paint.dim(title)) {
        cx.out.line(line)?;
    }
    if let Some(next) = next {
        cx.out.note(cx.out.note_paint.dim(format!("more: --before {next}")));
    }
    Ok(Exit::Ok)
}

fn row(cx: &Context, job: &Job, now: i64) -> Vec<Cell> {
    let (paint, state) = (cx.out.paint, job.state);
    let stopping = if job.cancel_requested && !state.is_final() { " (cancelling)" } else { "" };
    vec![
        plain(job.id.to_string()),
        painted(format!("{state}{stopping}"), move |text| paint.state(state, text)),
        plain(&job.role),
        plain(format!("{}/{}", job.attempt, job.max_attempts)),
        plain(ago(job.created_at, now).replace(" ago", "")),
        plain(one_line(&job.payload.goal, 200)),
    ]
}

/// The queries, or that there is no such job because there is no database.
pub fn reader_for(settings: &Settings, id: i64) -> Result<Arc<dyn Reader>> {
    let path = settings.database.display();
    wire::open_reader(settings)?.ok_or_else(|| {
        not_found(format!("there is no job {id}, and no database at {path} yet (--db, POSSE_DB name another)"))
    })
}

/// The exit code that a job's final state stands for.
pub fn exit_of(job: &Job) -> Exit {
    if job.state == JobState::Completed { Exit::Ok } else { Exit::Failed }
}

async fn watch(cx: &Context, args: WatchArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let queries = reader_for(&settings, args.id)?;
    let renderer = Renderer::new(cx.out.paint, cx.out.width, args.full, wire::free_models(&settings));
    let mut signals = Signals::listen()?;
    tokio::select! {
        ended = follow(&cx.out, Follower::new(queries, JobId(args.id)), renderer, None) => Ok(exit_of(&ended?)),
        () = signals.next() => {
            cx.out.note(format!("no longer watching; job {} goes on", args.id));
            Ok(Exit::Interrupted)
        }
    }
}

async fn cancel(cx: &Context, args: CancelArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let id = JobId(args.id);
    reader_for(&settings, args.id)?;
    let reason = args.reason.unwrap_or_else(|| "cancelled by a person".into());
    if reason.contains('\0') || reason.len() > 4096 {
        return Err(usage("--reason must be text of at most 4096 bytes, without NUL"));
    }
    let store = wire::open_store(&settings)?;
    let became = store.cancel(id, reason, wire::now()).await?;
    let (what, exit) = match became {
        Cancelled::Now => (format!("job {id} is cancelled"), Exit::Ok),
        Cancelled::Requested => (format!("job {id} is running; its worker ends it at the next boundary"), Exit::Ok),
        Cancelled::Already => (format!("job {id} was cancelled before"), Exit::Ok),
        Cancelled::TooLate(state) => (format!("too late: job {id} is {state} already"), Exit::Conflict),
    };
    if cx.out.json {
        let (word, state) = match became {
            Cancelled::Now => ("now", JobState::Cancelled),
            Cancelled::Requested => ("requested", JobState::Running),
            Cancelled::Already => ("already", JobState::Cancelled),
            Cancelled::TooLate(state) => ("too_late", state),
        };
        cx.out.document(&json!({"id": id, "cancelled": word, "state": state}))?;
        return Ok(exit);
    }
    match exit {
        Exit::Conflict => return Err(fail(Exit::Conflict, what)),
        _ => cx.out.line(what)?,
    }
    Ok(exit)
}

async fn retry(cx: &Context, args: RetryArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let id = JobId(args.id);
    reader_for(&settings, args.id)?;
    let store = wire::open_store(&settings)?;
    match store.retry(id, wire::now()).await {
        Ok(()) => {}
        Err(RepositoryError::Illegal(illegal)) => {
            let way_out = "only a job that ended can be re-run";
            return Err(fail(
                Exit::Conflict,
                format!("job {id} is {}; {way_out} (posse job cancel {id} ends it)", illegal.state),
            ));
        }
        Err(error) => return Err(error.into()),
    }
    if cx.out.json {
        cx.out.document(&json!({"id": id, "state": JobState::Available}))?;
    } else {
        cx.out.line(format!("job {id} is available again; posse work runs it"))?;
    }
    Ok(Exit::Ok)
}

async fn annotate(cx: &Context, args: AnnotateArgs) -> Result<Exit> {
    let text = args.text.join(" ");
    if text.trim().is_empty() || text.len() > 64 * 1024 || text.contains('\0') {
        return Err(usage("a remark must be text of 1 to 65536 bytes, without NUL"));
    }
    if let Some(tag) =
        args.tag.iter().find(|tag| tag.trim().is_empty() || tag.len() > 128 || tag.chars().any(char::is_control))
    {
        return Err(usage(format!("tag '{}' must be 1 to 128 bytes without control characters", tag.escape_debug())));
    }
    let settings = cx.plain_settings()?;
    reader_for(&settings, args.id)?;
    let store = wire::open_store(&settings)?;
    let id =
        store.annotate(JobId(args.id), "person".into(), NewAnnotation { text, tags: args.tag }, wire::now()).await?;
    if cx.out.json {
        cx.out.document(&json!({"id": id, "job": args.id}))?;
    } else {
        cx.out.line(format!("noted on job {}", args.id))?;
    }
    Ok(Exit::Ok)
}
