//! What changes jobs, one by its number or many by filter: cancel, retry, edit, set-priority, move,
//! delete.

use posse_app::change::{self, Cancelling, Hand, Preview, RefusedChange, SAMPLE, by_state};
use posse_app::json::with_lists;
use posse_app::times;
use posse_app::{Code, jobs};
use posse_core::clock::Millis;
use posse_core::job::change::{Change, Edit, MAX_REASON_BYTES, check_reason};
use posse_core::job::enqueue::accept_edit;
use posse_core::job::{JobId, JobState};
use posse_core::port::{Cancelled, JobFilter, Reach, Store};
use posse_infra::process::{LinuxProcessProbe, SystemClock};

use super::enqueue::{read_goal, read_words};
use super::filter::{FilterArgs, WhereArgs};
use super::job_table::{open_for, reader_for, table};
use super::prelude::*;
use crate::output::text::{count, plural};

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
        let filter = self.filter.is_given().then(|| self.filter.filter());
        meant(self.id, filter, self.yes, "jobs by what holds for them")
    }
}

impl WhichByTerms {
    fn meant(self) -> Result<Meant> {
        let filter = (!self.terms.terms.is_empty()).then(|| self.terms.filter());
        meant(self.id, filter, self.yes, "jobs by --where")
    }
}

fn meant(id: Option<i64>, filter: Option<Result<JobFilter, String>>, yes: bool, many: &str) -> Result<Meant> {
    match (id, filter) {
        (Some(id), None) => Ok(Meant::One(id)),
        (None, Some(filter)) => Ok(Meant::Many { filter: Box::new(filter.map_err(usage)?), yes }),
        (Some(_), Some(_)) => Err(usage(format!("name a job by its number, or {many}, and not both"))),
        (None, None) => {
            Err(usage("say which job by its number, or which jobs: --where \"group=night state=discarded\""))
        }
    }
}

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

#[derive(Args)]
pub struct MoveArgs {
    #[command(flatten)]
    which: Which,
    /// The queue
    #[arg(long, value_name = "QUEUE")]
    to: String,
}

#[derive(Args)]
pub struct SetPriorityArgs {
    #[command(flatten)]
    which: Which,
    /// 1 (first) to 9 (last)
    #[arg(long, value_name = "N")]
    to: u8,
}

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

pub async fn cancel(cx: &Context, args: CancelArgs) -> Result<Exit> {
    let reason = args.reason.map(|reason| read_words("reason", vec![reason], MAX_REASON_BYTES)).transpose()?;
    let reason = reason.unwrap_or_else(|| "cancelled by a person".into());
    check_reason(&reason).map_err(|why| usage(format!("--reason {why}")))?;
    let id = match args.which.meant()? {
        Meant::One(id) => id,
        Meant::Many { filter, yes } => return many(cx, *filter, yes, Change::Cancel { reason }).await,
    };
    let reach = match (args.alone, args.tree) {
        (true, _) => Reach::Alone,
        (_, true) => Reach::Tree,
        _ => Reach::Beneath,
    };
    let store = open_for(&cx.plain_settings()?, JobId(id))?;
    let Cancelling { became, gone, with } = change::cancel(hand(&*store), JobId(id), reach, reason).await?;
    let (what, exit) = match became {
        Cancelled::Now => {
            let gone = gone.map(|worker| format!("; {worker} was gone")).unwrap_or_default();
            (format!("job {id} is cancelled{gone}"), Exit::Ok)
        }
        Cancelled::Requested => (format!("job {id} is running; its worker ends it at the next boundary"), Exit::Ok),
        Cancelled::Already => (format!("job {id} was cancelled before"), Exit::Ok),
        Cancelled::TooLate(state) => (format!("too late: job {id} is {state} already"), Exit::Conflict),
    };
    if cx.out.json {
        let word = |became| match became {
            Cancelled::Now => ("now", JobState::Cancelled),
            Cancelled::Requested => ("requested", JobState::Running),
            Cancelled::Already => ("already", JobState::Cancelled),
            Cancelled::TooLate(state) => ("too_late", state),
        };
        let with: Vec<_> = with.iter().map(|(id, became)| json!({"id": id, "cancelled": word(*became).0})).collect();
        let (word, state) = word(became);
        cx.out.document(&json!({"id": id, "cancelled": word, "state": state, "with": with}))?;
        return Ok(exit);
    }
    let beside = match with.len() as u64 {
        0 => String::new(),
        n => format!(", and {} of its tree with it", plural(n, "job")),
    };
    if exit == Exit::Conflict && with.is_empty() {
        return Err(fail(Code::JobState, what));
    }
    cx.out.line(format!("{what}{beside}"))?;
    Ok(exit)
}

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
    let store = open_for(&cx.plain_settings()?, JobId(id))?;
    change::retry(hand(&*store), JobId(id)).await?;
    let line = format!("job {id} is available again; posse work runs it");
    cx.out.say(&json!({"id": id, "state": JobState::Available}), line)
}

pub async fn edit(cx: &Context, args: EditArgs) -> Result<Exit> {
    let EditArgs { which, goal, role, priority, max_attempts, queue, at, delay } = args;
    let goal = goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let run_at = at.or(delay.map(|delay| wire::now() + delay));
    edited(cx, which.meant()?, Edit { goal, role, priority, max_attempts, queue, run_at }).await
}

pub async fn set_priority(cx: &Context, args: SetPriorityArgs) -> Result<Exit> {
    edited(cx, args.which.meant()?, Edit { priority: Some(args.to), ..Edit::default() }).await
}

pub async fn move_to(cx: &Context, args: MoveArgs) -> Result<Exit> {
    edited(cx, args.which.meant()?, Edit { queue: Some(args.to), ..Edit::default() }).await
}

async fn edited(cx: &Context, meant: Meant, edit: Edit) -> Result<Exit> {
    accept_edit(&edit, &wire::sources(&cx.plain_settings()?).look()?.1.roles())?;
    one_or_many(cx, meant, Change::Edit(edit)).await
}

pub async fn delete(cx: &Context, which: Which) -> Result<Exit> {
    one_or_many(cx, which.meant()?, Change::Delete).await
}

async fn one_or_many(cx: &Context, meant: Meant, change: Change) -> Result<Exit> {
    let id = match meant {
        Meant::One(id) => id,
        Meant::Many { filter, yes } => return many(cx, *filter, yes, change).await,
    };
    let settings = cx.plain_settings()?;
    let queries = reader_for(&settings, JobId(id))?;
    let store = wire::open_store(&settings)?;
    let done = change.done();
    change::one(hand(&*store), JobId(id), change).await?;
    let state = queries.job(JobId(id)).await?.map(|job| job.state);
    cx.out.say(&json!({"id": id, "done": done, "state": state}), format!("job {id} was {done}"))
}

async fn many(cx: &Context, filter: JobFilter, yes: bool, change: Change) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let nothing =
        || fail(Code::DatabaseNotFound, format!("there is no database at {} yet", settings.database.display()));
    let queries = wire::open_reader(&settings)?.ok_or_else(nothing)?;
    let mut told = Preview::find(&*queries, filter, &change).await?;
    let Preview { jobs, change: done, .. } = told;
    let in_words = by_state(&told.states);
    let others = (!told.left_out.is_empty()).then(|| {
        let left_out = by_state(&told.left_out);
        format!("{left_out} left out: what completed is asked, and paid for, again only with --completed")
    });
    if yes && jobs > 0 {
        told.apply(hand(&*wire::open_store(&settings)?), &change).await?;
    }
    told.done = yes;
    let exit = if told.refused.is_empty() { Exit::Ok } else { Exit::Conflict };
    if cx.out.json {
        cx.out.document(&with_lists(&told, false)?)?;
        return Ok(exit);
    }
    if jobs == 0 {
        cx.out.note(format!("no job that can be {done} fits"));
    }
    others.iter().for_each(|others| cx.out.note(others));
    if jobs == 0 {
        return Ok(exit);
    }
    if yes {
        cx.out.line(format!("{} {done}", plural(told.changed, "job")))?;
        for RefusedChange { id, why } in told.refused.iter().take(SAMPLE as usize) {
            cx.out.note(format!("job {id} was not: {why}"));
        }
        return Ok(exit);
    }
    let more = jobs.saturating_sub(told.sample.len() as u64);
    table(cx, &jobs::items(&*queries, told.sample, wire::now()).await?)?;
    let more = if more > 0 { format!(" (and {} more)", count(more)) } else { String::new() };
    cx.out.note(format!(
        "{}{more} would be {done} ({in_words}); nothing was done yet, --yes does it",
        plural(jobs, "job")
    ));
    Ok(exit)
}

fn hand(store: &dyn Store) -> Hand<'_> {
    Hand { store, processes: &LinuxProcessProbe, clock: &SystemClock }
}
