//! `posse job`: jobs and what is done with them.

use posse_app::jobs;
use posse_app::json::item_of;
use posse_core::annotation::{MAX_TEXT_BYTES, NewAnnotation, check_tag, check_text};
use posse_core::events::Follower;
use posse_core::job::JobId;
use posse_core::port::{JobFilter, SEARCHED_AT_MOST};
use posse_core::run::fork::{self, Cut, MAX_EDIT_BYTES};

use super::enqueue::{read_goal, read_words};
use super::filter::FilterArgs;
use super::job_table::{cells, no_such_job, open_for, print, reader_for};
use super::lists::FullArgs;
use super::prelude::*;
use super::{Context, change, enqueue, job_events, job_show};
use crate::live::{Renderer, follow};
use crate::output::text::count;
use crate::process::Signals;

#[derive(Subcommand)]
pub enum JobCommand {
    /// Put a goal into the queue, or many
    Enqueue(Box<enqueue::EnqueueArgs>),
    /// Jobs, newest first
    List(ListArgs),
    /// One job: state, steps, answer, cost
    Show(job_show::ShowArgs),
    /// Follow a job live, whoever works it; ends with it, and with its outcome as exit code
    Watch {
        /// The job's number
        id: i64,
        /// Show arguments and results whole
        #[arg(long)]
        full: bool,
    },
    /// What happened to a job, one JSON line for each event
    Events(job_events::EventsArgs),
    /// Show a run again from its journal, asking no model and running no tool
    Replay(job_events::ReplayArgs),
    /// Write a run's events and a checkpoint of its state into files
    Export(job_events::ExportArgs),
    /// Make a new job that goes on from the middle of another one's run
    Fork(ForkArgs),
    /// Ask for a job's end, and that of the jobs it made; a running one ends at its next boundary
    Cancel(change::CancelArgs),
    /// Make a job that ended available again; its run goes on from where it was
    Retry(change::RetryArgs),
    /// Ask for something else in a job that is neither running nor completed
    Edit(change::EditArgs),
    /// Say how urgent a job is
    SetPriority(change::SetPriorityArgs),
    /// Put a job into another queue
    Move(change::MoveArgs),
    /// Delete a job that ended, with everything that is known of it; a unique key it still holds is free then
    Delete(change::Which),
    /// Attach a remark to a job
    Annotate(AnnotateArgs),
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only with numbers below this one: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    #[command(flatten)]
    full: FullArgs,
}

#[derive(Args)]
pub struct ForkArgs {
    /// The job's number
    id: i64,
    /// The last step that the fork keeps; posse job events ID tells their numbers (seq)
    #[arg(long, value_name = "STEP")]
    at_step: u64,
    /// What that step shall say instead: a tool's result, an answer or a note; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    edit: Option<String>,
    /// What shall be done instead; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
}

#[derive(Args)]
pub struct AnnotateArgs {
    /// The job's number
    id: i64,
    /// A word to find it by; may be given more than once
    #[arg(long, short, value_name = "TAG")]
    tag: Vec<String>,
    /// What to say; `-` reads it from standard input
    #[arg(required = true)]
    text: Vec<String>,
}

pub async fn dispatch(cx: &Context, command: JobCommand) -> Result<Exit> {
    match command {
        JobCommand::Enqueue(args) => enqueue::enqueue(cx, *args).await,
        JobCommand::List(args) => list(cx, args).await,
        JobCommand::Show(args) => job_show::show(cx, args).await,
        JobCommand::Watch { id, full } => watch(cx, id, full).await,
        JobCommand::Events(args) => job_events::events(cx, args).await,
        JobCommand::Replay(args) => job_events::replay(cx, args).await,
        JobCommand::Export(args) => job_events::export(cx, args).await,
        JobCommand::Fork(args) => fork(cx, args).await,
        JobCommand::Cancel(args) => change::cancel(cx, args).await,
        JobCommand::Retry(args) => change::retry(cx, args).await,
        JobCommand::Edit(args) => change::edit(cx, args).await,
        JobCommand::SetPriority(args) => change::set_priority(cx, args).await,
        JobCommand::Move(args) => change::move_to(cx, args).await,
        JobCommand::Delete(args) => change::delete(cx, args).await,
        JobCommand::Annotate(args) => annotate(cx, args).await,
    }
}

pub async fn list(cx: &Context, args: ListArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let filter =
        JobFilter { before: args.before.map(JobId), limit: args.limit, ..args.filter.filter().map_err(usage)? };
    let searched = jobs::is_searched(&filter);
    let is_filtered = args.filter.is_given();
    let now = wire::now();
    let (mut rows, mut items, mut next) = (Vec::new(), Vec::new(), None);
    if let Some(store) = wire::open_reader(&settings)? {
        next = jobs::each(&*store, filter, now, &mut |item| {
            match cx.out.json {
                true => items.push(item_of(&item, args.full.full)?),
                false => rows.push(cells(cx, &item, now)),
            }
            Ok(())
        })
        .await?;
    }
    if cx.out.json {
        // Pass `next` to --before for the next page; it is null on the last one.
        return cx.out.list("jobs", items, next.map(|id| id.0));
    }
    if searched {
        let most = count(u64::from(SEARCHED_AT_MOST));
        cx.out.hint(format!("the newest {most} that fit otherwise were searched"));
    }
    if rows.is_empty() {
        let hint =
            if is_filtered { "no such jobs" } else { "no jobs; posse enqueue --role researcher \"<goal>\" makes one" };
        cx.out.note(hint);
        return Ok(Exit::Ok);
    }
    print(cx, rows)?;
    if let Some(next) = next {
        cx.out.hint(format!("more: --before {next}"));
    }
    Ok(Exit::Ok)
}

async fn watch(cx: &Context, id: i64, full: bool) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let queries = reader_for(&settings, JobId(id))?;
    let renderer = Renderer::new(cx.out.paint, cx.out.width, full, wire::free_models(&settings));
    let mut signals = Signals::listen()?;
    // In a task of its own: a reader who stops reading keeps nobody from hearing signals.
    let mut following = tokio::spawn(follow(cx.out, Follower::new(queries, JobId(id)), renderer, None));
    tokio::select! {
        ended = &mut following => Ok(Exit::of(&ended??.0)),
        () = signals.next() => {
            following.abort();
            cx.out.note(format!("no longer watching; job {id} goes on"));
            Ok(Exit::Interrupted)
        }
    }
}

async fn annotate(cx: &Context, args: AnnotateArgs) -> Result<Exit> {
    let text = read_words("remark", args.text, MAX_TEXT_BYTES)?;
    check_text(&text).map_err(|why| usage(format!("a remark {why}")))?;
    for tag in &args.tag {
        check_tag(tag).map_err(|why| usage(format!("tag '{}' {why}", tag.escape_debug())))?;
    }
    let (job, note) = (JobId(args.id), NewAnnotation { text, tags: args.tag });
    let id = open_for(&cx.plain_settings()?, job)?.annotate(job, "person".into(), note, wire::now()).await?;
    cx.out.say(&json!({"id": id, "job": args.id}), format!("noted on job {}", args.id))
}

async fn fork(cx: &Context, args: ForkArgs) -> Result<Exit> {
    let ForkArgs { id, at_step, edit, goal } = args;
    if edit.as_deref() == Some("-") && goal.as_deref() == Some("-") {
        return Err(usage("--edit and --goal cannot both be read from standard input"));
    }
    let edit = edit.map(|text| read_words("edit", vec![text], MAX_EDIT_BYTES)).transpose()?;
    let goal = goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let settings = cx.plain_settings()?;
    let id = JobId(id);
    let store = open_for(&settings, id)?;
    let source = store.job(id).await?.ok_or_else(|| no_such_job(&settings, id))?;
    let journal = store.journal(id, 0).await?;
    let fork = fork::fork(&source, journal, Cut { at_step, edit, goal })?;
    let new = store.fork(fork, wire::now()).await?;
    let line = format!("job {new} goes on from job {id} at step {at_step}; posse work runs it");
    cx.out.say(&json!({"id": new, "forked_from": {"job": id, "step": at_step}}), line)
}
