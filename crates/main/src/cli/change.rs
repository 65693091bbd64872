//! What changes jobs, one by its number or many by filter: cancel, retry, edit, set-priority, move,
//! delete.

use anyhow::Result;
use clap::Args;
use posse_core::clock::Millis;
use posse_core::job::change::{Change, Edit};
use posse_core::job::{Job, JobId, JobState};
use posse_core::port::{Cancelled, JobFilter, JobRelations as _, JobRepository as _, Reach, RepositoryError};
use posse_core::usecase::enqueue::accept_edit;
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::enqueue::read_goal;
use super::filter::parse_where;
use super::job::{reader_for, table};
use crate::exit::{Exit, fail, not_found, usage};
use crate::output::text::{count, plural};
use crate::settings::Settings;
use crate::{times, wire};

/// Jobs changed in one transaction; others write between two of them.
const AT_ONCE: usize = 200;
/// Jobs shown before many are changed, and refusals told of after.
const SAMPLE: u32 = 5;

/// One job by its number, or many by filter
#[derive(Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["id", "filter"])))]
pub struct Which {
    /// The job's number
    #[arg(conflicts_with = "yes")]
    id: Option<i64>,
    /// Many jobs: `state=discarded role=scribe`, all of which must hold. Keys: state, role, queue, group,
    /// tag, search, since, until, ended-since, ended-until. Shows what is meant, and does it with --yes
    #[arg(id = "filter", long = "where", value_name = "KEY=VALUE")]
    terms: Vec<String>,
    /// Do it to all that --where means
    #[arg(long)]
    yes: bool,
}

/// Which jobs to end
#[derive(Args)]
pub struct CancelArgs {
    #[command(flatten)]
    which: Which,
    /// Why; kept with the job
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Leave the jobs that it made alone; otherwise they end with it, for nobody would read their answers
    #[arg(long, conflicts_with_all = ["tree", "filter"])]
    alone: bool,
    /// End the whole tree that it is part of, from its topmost job down
    #[arg(long, conflicts_with = "filter")]
    tree: bool,
}

/// Which jobs to re-run
#[derive(Args)]
pub struct RetryArgs {
    #[command(flatten)]
    which: Which,
}

/// Which jobs to delete
#[derive(Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    which: Which,
}

/// Which jobs to put where
#[derive(Args)]
pub struct MoveArgs {
    #[command(flatten)]
    which: Which,
    /// The queue
    #[arg(long, value_name = "QUEUE")]
    to: String,
}

/// Which jobs are how urgent
#[derive(Args)]
pub struct SetPriorityArgs {
    #[command(flatten)]
    which: Which,
    /// 1 (first) to 9 (last)
    #[arg(long, value_name = "N")]
    to: u8,
}

/// What to ask for instead
#[derive(Args)]
pub struct EditArgs {
    #[command(flatten)]
    which: Which,
    /// What is to be done; `-` reads it from standard input. A run that has begun begins again
    #[arg(long, value_name = "GOAL")]
    goal: Option<String>,
    /// The role that shall work it. A run that has begun begins again
    #[arg(long, short, value_name = "ROLE")]
    role: Option<String>,
    /// 1 (first) to 9 (last)
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Attempts it gets
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The queue it waits in
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Not before this time: 2026-05-01T09:00:00Z, or without a zone in this machine's
    #[arg(long, value_name = "TIME", conflicts_with = "delay", value_parser = times::moment)]
    at: Option<Millis>,
    /// Not before so long from now: 90s, 10m, 2h, 1d
    #[arg(long, visible_alias = "in", value_name = "TIME", value_parser = times::span)]
    delay: Option<Millis>,
}

/// Asks for the end of jobs.
pub async fn cancel(cx: &Context, args: CancelArgs) -> Result<Exit> {
    let reason = args.reason.unwrap_or_else(|| "cancelled by a person".into());
    if reason.contains('\0') || reason.len() > 4096 {
        return Err(usage("--reason must be text of at most 4096 bytes, without NUL"));
    }
    let Some(id) = args.which.id else { return many(cx, args.which, Change::Cancel { reason }).await };
    let reach = match (args.alone, args.tree) {
        (true, _) => Reach::Alone,
        (_, true) => Reach::Tree,
        _ => Reach::Beneath,
    };
    let settings = cx.plain_settings()?;
    reader_for(&settings, id)?;
    let store = wire::open_store(&settings)?;
    let mut told = store.cancel_within(JobId(id), reach, reason, wire::now()).await?;
    let (_, became) = told.remove(0);
    let (what, exit) = match became {
        Cancelled::Now => (format!("job {id} is cancelled"), Exit::Ok),
        Cancelled::Requested => (format!("job {id} is running; its worker ends it at the next boundary"), Exit::Ok),
        Cancelled::Already => (format!("job {id} was cancelled before"), Exit::Ok),
        Cancelled::TooLate(state) => (format!("too late: job {id} is {state} already"), Exit::Conflict),
    };
    told.retain(|(_, became)| matches!(became, Cancelled::Now | Cancelled::Requested));
    if cx.out.json {
        let word = |became| match became {
            Cancelled::Now => ("now", JobState::Cancelled),
            Cancelled::Requested => ("requested", JobState::Running),
            Cancelled::Already => ("already", JobState::Cancelled),
            Cancelled::TooLate(state) => ("too_late", state),
        };
        let with: Vec<_> = told.iter().map(|(id, became)| json!({"id": id, "cancelled": word(*became).0})).collect();
        let (word, state) = word(became);
        cx.out.document(&json!({"id": id, "cancelled": word, "state": state, "with": with}))?;
        return Ok(exit);
    }
    let with = match told.len() as u64 {
        0 => String::new(),
        n => format!(", and {} of its tree with it", plural(n, "job")),
    };
    match exit {
        Exit::Conflict if told.is_empty() => return Err(fail(Exit::Conflict, what)),
        _ => cx.out.line(format!("{what}{with}"))?,
    }
    Ok(exit)
}

/// Makes jobs that ended available again.
pub async fn retry(cx: &Context, args: RetryArgs) -> Result<Exit> {
    let Some(id) = args.which.id else { return many(cx, args.which, Change::Retry).await };
    let settings = cx.plain_settings()?;
    reader_for(&settings, id)?;
    let store = wire::open_store(&settings)?;
    match store.retry(JobId(id), wire::now()).await {
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

/// Asks for something else.
pub async fn edit(cx: &Context, args: EditArgs) -> Result<Exit> {
    let EditArgs { which, goal, role, priority, max_attempts, queue, at, delay } = args;
    let goal = goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let run_at = at.or(delay.map(|delay| wire::now() + delay));
    one_or_many(cx, which, Edit { goal, role, priority, max_attempts, queue, run_at }).await
}

/// Says how urgent jobs are.
pub async fn set_priority(cx: &Context, args: SetPriorityArgs) -> Result<Exit> {
    one_or_many(cx, args.which, Edit { priority: Some(args.to), ..Edit::default() }).await
}

/// Puts jobs into another queue.
pub async fn move_to(cx: &Context, args: MoveArgs) -> Result<Exit> {
    one_or_many(cx, args.which, Edit { queue: Some(args.to), ..Edit::default() }).await
}

async fn one_or_many(cx: &Context, which: Which, edit: Edit) -> Result<Exit> {
    let personas = {
        let settings = cx.plain_settings()?;
        wire::personas(&settings, &wire::Offer::gather(&settings))?
    };
    accept_edit(&edit, &personas.roles())?;
    match which.id {
        Some(id) => one(cx, id, Change::Edit(edit)).await,
        None => many(cx, which, Change::Edit(edit)).await,
    }
}

/// Deletes jobs.
pub async fn delete(cx: &Context, args: DeleteArgs) -> Result<Exit> {
    match args.which.id {
        Some(id) => one(cx, id, Change::Delete).await,
        None => many(cx, args.which, Change::Delete).await,
    }
}

async fn one(cx: &Context, id: i64, change: Change) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let queries = reader_for(&settings, id)?;
    let store = wire::open_store(&settings)?;
    let done = change.done();
    let told = store.change(vec![JobId(id)], change, wire::now()).await?;
    let told = told.first().ok_or(RepositoryError::NoSuchJob(JobId(id)))?;
    if let Some(why) = &told.refused {
        return Err(fail(Exit::Conflict, format!("job {id} was not {done}: {why}")));
    }
    if cx.out.json {
        let state = queries.job(JobId(id)).await?.map(|job| job.state);
        cx.out.document(&json!({"id": id, "done": done, "state": state}))?;
    } else {
        cx.out.line(format!("job {id} was {done}"))?;
    }
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Preview<'a> {
    /// Jobs that are meant.
    jobs: u64,
    /// What is to be done to them.
    change: &'static str,
    /// Whether it was.
    done: bool,
    /// The newest of them, as they were.
    sample: &'a [Job],
    /// Jobs that were changed.
    changed: u64,
    /// Jobs that were not, since their state was another by then.
    refused: Vec<serde_json::Value>,
}

async fn many(cx: &Context, which: Which, change: Change) -> Result<Exit> {
    let mut filter = parse_where(&which.terms).map_err(|error| usage(format!("--where: {error}")))?;
    // Of those that are meant, the ones that allow it.
    let states = change.states();
    filter.states = match filter.states.as_slice() {
        [] => states,
        named => named.iter().copied().filter(|state| states.contains(state)).collect(),
    };
    let settings = cx.plain_settings()?;
    let nothing = || not_found(format!("there is no database at {} yet", settings.database.display()));
    let queries = wire::open_reader(&settings)?.ok_or_else(nothing)?;
    let (ids, sample) = match filter.states.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => {
            let sample = queries.jobs(JobFilter { limit: SAMPLE, ..filter.clone() }).await?;
            (queries.ids(JobFilter { limit: u32::MAX, ..filter }).await?, sample)
        }
    };
    let (jobs, done) = (ids.len() as u64, change.done());
    let mut told = Preview { jobs, change: done, done: false, sample: &sample, changed: 0, refused: Vec::new() };
    if which.yes && jobs > 0 {
        change_all(&settings, &ids, &change, &mut told).await?;
    }
    told.done = which.yes;
    let exit = if told.refused.is_empty() { Exit::Ok } else { Exit::Conflict };
    if cx.out.json {
        cx.out.document(&told)?;
        return Ok(exit);
    }
    if jobs == 0 {
        cx.out.note(format!("no job that can be {done} fits"));
        return Ok(exit);
    }
    if which.yes {
        cx.out.line(format!("{} {done}", plural(told.changed, "job")))?;
        for refused in told.refused.iter().take(SAMPLE as usize) {
            cx.out.note(format!("job {} was not: {}", refused["id"], refused["why"].as_str().unwrap_or_default()));
        }
        return Ok(exit);
    }
    table(cx, &sample)?;
    let more = jobs.saturating_sub(sample.len() as u64);
    let more = if more > 0 { format!(" (and {} more)", count(more)) } else { String::new() };
    cx.out.note(format!("{}{more} would be {done}; nothing was done yet, --yes does it", plural(jobs, "job")));
    Ok(exit)
}

/// Those that were found, and none that come in the meantime; a few at a time, so that nobody's write
/// waits for long.
async fn change_all(settings: &Settings, ids: &[JobId], change: &Change, told: &mut Preview<'_>) -> Result<()> {
    let store = wire::open_store(settings)?;
    for some in ids.chunks(AT_ONCE) {
        for one in store.change(some.to_vec(), change.clone(), wire::now()).await? {
            match one.refused {
                None => told.changed += 1,
                Some(why) => told.refused.push(json!({"id": one.job, "why": why})),
            }
        }
    }
    Ok(())
}
