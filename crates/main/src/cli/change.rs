//! What changes jobs, one by its number or many by filter: cancel, retry, edit, set-priority, move,
//! delete.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use posse_app::times;
use posse_app::{Code, json};
use posse_core::clock::Millis;
use posse_core::job::change::{Change, Edit};
use posse_core::job::enqueue::accept_edit;
use posse_core::job::{JobId, JobState};
use posse_core::port::{Cancelled, Forfeit, HeldJob, JobFilter, ProcessProbe as _, Reach, RepositoryError, Store};
use posse_infra::process::LinuxProcessProbe;
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::enqueue::{read_goal, read_words};
use super::filter::{FilterArgs, WhereArgs};
use super::job::{reader_for, table};
use crate::exit::{Exit, fail, not_found, usage};
use crate::output::text::{count, plural, visible};
use crate::settings::Settings;
use crate::wire;

/// Jobs changed in one transaction; others write between two of them.
const AT_ONCE: usize = 200;
/// Jobs shown before many are changed, and refusals told of after.
const SAMPLE: u32 = 5;

/// One job by its number, or many by filter
#[derive(Args)]
pub struct Which {
    /// The job's number; or many jobs by what holds for them, which are shown, and changed with --yes
    #[arg(conflicts_with = "yes")]
    id: Option<i64>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Do it to all that are meant
    #[arg(long)]
    yes: bool,
}

/// The same where --role and --queue say what shall be different
#[derive(Args)]
pub struct WhichByTerms {
    /// The job's number
    #[arg(conflicts_with = "yes")]
    id: Option<i64>,
    #[command(flatten)]
    terms: WhereArgs,
    /// Do it to all that --where means
    #[arg(long)]
    yes: bool,
}

/// Which jobs are meant.
enum Meant {
    One(i64),
    Many {
        filter: Box<JobFilter>,
        /// Whether it is to be done, and not only shown.
        yes: bool,
    },
}

impl Which {
    fn meant(self) -> Result<Meant> {
        match (self.id, self.filter.is_given()) {
            (Some(id), false) => Ok(Meant::One(id)),
            (None, true) => Ok(Meant::Many { filter: Box::new(self.filter.filter().map_err(usage)?), yes: self.yes }),
            (Some(_), true) => Err(usage("name a job by its number, or jobs by what holds for them, and not both")),
            (None, false) => Err(nothing_meant()),
        }
    }
}

impl WhichByTerms {
    fn meant(self) -> Result<Meant> {
        match (self.id, self.terms.terms.is_empty()) {
            (Some(id), true) => Ok(Meant::One(id)),
            (None, false) => Ok(Meant::Many { filter: Box::new(self.terms.filter().map_err(usage)?), yes: self.yes }),
            (Some(_), false) => Err(usage("name a job by its number, or jobs by --where, and not both")),
            (None, true) => Err(nothing_meant()),
        }
    }
}

fn nothing_meant() -> anyhow::Error {
    usage("say which job by its number, or which jobs: --where \"group=night state=discarded\"")
}

/// Which jobs to end
#[derive(Args)]
pub struct CancelArgs {
    #[command(flatten)]
    which: Which,
    /// Why; kept with the job. `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Leave the jobs that it made alone; otherwise they end with it, for nobody would read their answers
    #[arg(long, conflicts_with = "tree", requires = "id")]
    alone: bool,
    /// End the whole tree that it is part of, from its topmost job down
    #[arg(long, requires = "id")]
    tree: bool,
}

/// Which jobs to re-run
#[derive(Args)]
pub struct RetryArgs {
    #[command(flatten)]
    which: Which,
    /// Of many, those that completed too: they are asked again, and paid for again. So does state=completed
    #[arg(long, conflicts_with = "id")]
    completed: bool,
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
    which: WhichByTerms,
    /// What is to be done; `-` reads it from standard input. A run that has begun begins again
    #[arg(long, value_name = "GOAL")]
    goal: Option<String>,
    /// The role that shall work it. A run that has begun begins again
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
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
    let reason = args.reason.map(|reason| read_words("reason", vec![reason], 4096)).transpose()?;
    let reason = reason.unwrap_or_else(|| "cancelled by a person".into());
    if reason.contains('\0') || reason.len() > 4096 {
        return Err(usage("--reason must be text of at most 4096 bytes, without NUL"));
    }
    let id = match args.which.meant()? {
        Meant::One(id) => id,
        Meant::Many { filter, yes } => return many(cx, *filter, yes, Change::Cancel { reason }).await,
    };
    let reach = match (args.alone, args.tree) {
        (true, _) => Reach::Alone,
        (_, true) => Reach::Tree,
        _ => Reach::Beneath,
    };
    let settings = cx.plain_settings()?;
    reader_for(&settings, id)?;
    let store = wire::open_store(&settings)?;
    let mut told = store.cancel_within(JobId(id), reach, reason, wire::now()).await?;
    let mut gone = None;
    if told.iter().any(|(_, became)| *became == Cancelled::Requested) {
        gone = end_for_the_dead(&*store, told.iter().map(|(id, _)| *id).collect()).await?;
        for (id, became) in &mut told {
            if *became == Cancelled::Requested && is_cancelled(&*store, *id).await? {
                *became = Cancelled::Now;
            }
        }
    }
    let (_, became) = told.remove(0);
    let (what, exit) = match became {
        Cancelled::Now => match gone {
            Some(worker) => (format!("job {id} is cancelled; {} was gone", visible(&worker)), Exit::Ok),
            None => (format!("job {id} is cancelled"), Exit::Ok),
        },
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
        Exit::Conflict if told.is_empty() => return Err(fail(Code::Conflict, what)),
        _ => cx.out.line(format!("{what}{with}"))?,
    }
    Ok(exit)
}

/// Makes jobs that ended available again.
pub async fn retry(cx: &Context, args: RetryArgs) -> Result<Exit> {
    let id = match args.which.meant()? {
        Meant::One(id) => id,
        Meant::Many { mut filter, yes } => {
            if args.completed {
                match filter.states.is_empty() {
                    true => filter.states = Change::Retry.states(),
                    false => filter.states.push(JobState::Completed),
                }
            }
            return many(cx, *filter, yes, Change::Retry).await;
        }
    };
    let settings = cx.plain_settings()?;
    reader_for(&settings, id)?;
    let store = wire::open_store(&settings)?;
    match store.retry(JobId(id), wire::now()).await {
        Ok(()) => {}
        Err(RepositoryError::Illegal(illegal)) => {
            let way_out = "only a job that ended can be re-run";
            return Err(fail(
                Code::Conflict,
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
    one_or_many(cx, which.meant()?, Edit { goal, role, priority, max_attempts, queue, run_at }).await
}

/// Says how urgent jobs are.
pub async fn set_priority(cx: &Context, args: SetPriorityArgs) -> Result<Exit> {
    one_or_many(cx, args.which.meant()?, Edit { priority: Some(args.to), ..Edit::default() }).await
}

/// Puts jobs into another queue.
pub async fn move_to(cx: &Context, args: MoveArgs) -> Result<Exit> {
    one_or_many(cx, args.which.meant()?, Edit { queue: Some(args.to), ..Edit::default() }).await
}

async fn one_or_many(cx: &Context, meant: Meant, edit: Edit) -> Result<Exit> {
    let personas = {
        let settings = cx.plain_settings()?;
        wire::personas(&settings, &wire::Offer::gather(&settings))?
    };
    accept_edit(&edit, &personas.roles())?;
    match meant {
        Meant::One(id) => one(cx, id, Change::Edit(edit)).await,
        Meant::Many { filter, yes } => many(cx, *filter, yes, Change::Edit(edit)).await,
    }
}

/// Deletes jobs.
pub async fn delete(cx: &Context, args: DeleteArgs) -> Result<Exit> {
    match args.which.meant()? {
        Meant::One(id) => one(cx, id, Change::Delete).await,
        Meant::Many { filter, yes } => many(cx, *filter, yes, Change::Delete).await,
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
        return Err(fail(Code::Conflict, format!("job {id} was not {done}: {why}")));
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
struct Preview {
    /// Jobs that are meant.
    jobs: u64,
    /// How many of them are in each state.
    states: BTreeMap<&'static str, u64>,
    /// Jobs that fit too and are left out, by state: they can be changed, and only where that is said.
    left_out: BTreeMap<&'static str, u64>,
    /// What is to be done to them.
    change: &'static str,
    /// Whether it was.
    done: bool,
    /// The newest of them, as they were.
    sample: Vec<serde_json::Value>,
    /// Jobs that were changed.
    changed: u64,
    /// Jobs that were not, since their state was another by then.
    refused: Vec<serde_json::Value>,
}

async fn many(cx: &Context, mut filter: JobFilter, yes: bool, change: Change) -> Result<Exit> {
    // Of those that are meant, the ones that allow it; nobody means by a group what has to be said.
    let (allowed, meant) = (change.states(), change.usual_states());
    let unsaid: Vec<_> = match filter.states.is_empty() {
        true => allowed.iter().copied().filter(|state| !meant.contains(state)).collect(),
        false => Vec::new(),
    };
    filter.states = match filter.states.as_slice() {
        [] => meant,
        named => named.iter().copied().filter(|state| allowed.contains(state)).collect(),
    };
    let settings = cx.plain_settings()?;
    let nothing = || not_found(format!("there is no database at {} yet", settings.database.display()));
    let queries = wire::open_reader(&settings)?.ok_or_else(nothing)?;
    let (ids, sample) = match filter.states.is_empty() {
        true => (Vec::new(), Vec::new()),
        false => {
            let sample = queries.jobs(JobFilter { limit: SAMPLE, ..filter.clone() }).await?;
            (queries.ids(JobFilter { limit: u32::MAX, ..filter.clone() }).await?, sample)
        }
    };
    let mut left_out = BTreeMap::new();
    for state in unsaid {
        let others = queries.ids(JobFilter { states: vec![state], limit: u32::MAX, ..filter.clone() }).await?;
        if !others.is_empty() {
            left_out.insert(state.as_str(), others.len() as u64);
        }
    }
    let mut states = BTreeMap::new();
    for some in ids.chunks(AT_ONCE) {
        for row in queries.states(some.to_vec()).await? {
            *states.entry(row.state.as_str()).or_insert(0) += 1;
        }
    }
    let (jobs, done) = (ids.len() as u64, change.done());
    let by_state = |states: &BTreeMap<&str, u64>| {
        let each: Vec<_> = states.iter().map(|(state, jobs)| format!("{} {state}", count(*jobs))).collect();
        each.join(", ")
    };
    let in_words = by_state(&states);
    let others = match left_out.is_empty() {
        true => None,
        false => Some(format!(
            "{} left out: what completed is asked, and paid for, again only with --completed",
            by_state(&left_out)
        )),
    };
    let mut told = Preview {
        jobs,
        states,
        left_out,
        change: done,
        done: false,
        sample: json::listed(&sample, false)?,
        changed: 0,
        refused: Vec::new(),
    };
    if yes && jobs > 0 {
        change_all(&settings, &ids, &change, &mut told).await?;
    }
    told.done = yes;
    let exit = if told.refused.is_empty() { Exit::Ok } else { Exit::Conflict };
    if cx.out.json {
        cx.out.document(&told)?;
        return Ok(exit);
    }
    if jobs == 0 {
        cx.out.note(format!("no job that can be {done} fits"));
        others.iter().for_each(|others| cx.out.note(others));
        return Ok(exit);
    }
    others.iter().for_each(|others| cx.out.note(others));
    if yes {
        cx.out.line(format!("{} {done}", plural(told.changed, "job")))?;
        for refused in told.refused.iter().take(SAMPLE as usize) {
            cx.out.note(format!("job {} was not: {}", refused["id"], refused["why"].as_str().unwrap_or_default()));
        }
        return Ok(exit);
    }
    table(cx, &*queries, &sample).await?;
    let more = jobs.saturating_sub(sample.len() as u64);
    let more = if more > 0 { format!(" (and {} more)", count(more)) } else { String::new() };
    cx.out.note(format!(
        "{}{more} would be {done} ({in_words}); nothing was done yet, --yes does it",
        plural(jobs, "job")
    ));
    Ok(exit)
}

/// Those that were found, and none that come in the meantime; a few at a time, so that nobody's write
/// waits for long.
async fn change_all(settings: &Settings, ids: &[JobId], change: &Change, told: &mut Preview) -> Result<()> {
    let store = wire::open_store(settings)?;
    for some in ids.chunks(AT_ONCE) {
        for one in store.change(some.to_vec(), change.clone(), wire::now()).await? {
            match one.refused {
                None => told.changed += 1,
                Some(why) => told.refused.push(json!({"id": one.job, "why": why})),
            }
        }
    }
    if matches!(change, Change::Cancel { .. }) {
        end_for_the_dead(&*store, ids.to_vec()).await?;
    }
    Ok(())
}

/// Takes back what workers hold that are known to be gone, or whose lease has run out, where that is one of `jobs`:
/// those that are to be cancelled then are. Else they would stay running until some worker starts. Gives the worker
/// of the first of them.
async fn end_for_the_dead(store: &dyn Store, jobs: Vec<JobId>) -> Result<Option<String>> {
    let now = wire::now();
    let held = store.held_jobs().await?;
    let held: Vec<_> = held.into_iter().filter(|held| jobs.contains(&held.job)).collect();
    if held.is_empty() {
        return Ok(None);
    }
    let workers = store.workers().await?;
    let dead = LinuxProcessProbe.dead(&workers);
    let lease_of = |worker: &str| workers.iter().find(|known| known.id == worker).map_or(0, |known| known.lease_ms);
    let is_dead = |held: &HeldJob| dead.iter().any(|dead| dead.0 == held.worker);
    // Long enough after its end that no clock that was set, and no heartbeat under way, explains it.
    let is_over = |held: &HeldJob| held.lease_until + lease_of(&held.worker) < now;
    let Some(first) = held.iter().find(|held| is_dead(held) || is_over(held)) else { return Ok(None) };
    store.rescue_from(dead.clone(), now).await?;
    let alive = LinuxProcessProbe.alive(&workers);
    let is_among = |job: JobId| held.iter().any(|held| held.job == job && is_over(held));
    let overdue = store.overdue(now).await?.into_iter().filter(|overdue| is_among(overdue.lease.job));
    let forfeits = overdue.map(|overdue| Forfeit { is_alive: alive.contains(&overdue.worker), overdue }).collect();
    store.take_back(forfeits, now).await?;
    Ok(Some(format!("worker {}", first.worker)))
}

async fn is_cancelled(store: &dyn Store, job: JobId) -> Result<bool> {
    Ok(store.job(job).await?.is_some_and(|job| job.state == JobState::Cancelled))
}
