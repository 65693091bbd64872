//! `posse show`: everything about one job.

use posse_app::Code;
use posse_app::jobs::{Beneath, Child, Depth, JobDocument, JobItem, MAX_BENEATH};
use posse_app::waits::Waits;
use posse_core::annotation::{Annotation, CLARIFICATION_NEEDED};
use posse_core::events::Follower;
use posse_core::job::{Job, JobId, JobProgress, JobState};

use super::job_table::{no_such_job, reader_for};
use super::prelude::*;
use crate::live::Renderer;
use crate::live::render::judged;
use crate::output::Out;
use crate::output::text::{ago, count, duration, excerpt, moment, one_line, plural, visible, wrap};

#[derive(Args)]
pub struct ShowArgs {
    /// The job's number
    id: i64,
    /// Show arguments and results whole
    #[arg(long, conflicts_with = "answer")]
    full: bool,
    /// Print the answer alone; the exit code tells whether there is one
    #[arg(long)]
    answer: bool,
}

pub fn answer(cx: &Context, job: &Job) -> Result<Exit> {
    let id = job.id;
    let said = job.output.as_ref().map(|output| output.text.as_str()).filter(|text| !text.trim().is_empty());
    let why = job.reason.as_deref().map(|why| format!(": {}", visible(why))).unwrap_or_default();
    match (job.state, said) {
        (JobState::Completed, said) => {
            let said = said.unwrap_or_default();
            let document = json!({"id": id, "state": job.state, "answer": said});
            cx.out.say(&document, said.trim_end_matches('\n'))
        }
        (state, said) if state.is_final() => {
            let had = said.map(|_| format!("; posse show {id} tells what it had by then")).unwrap_or_default();
            Err(fail(Code::JobUnanswered, format!("job {id} has no answer, it was {state}{why}{had}")))
        }
        (state, _) => Err(fail(
            Code::JobNotEnded,
            format!("job {id} has no answer yet, it is {state}{why}; posse job watch {id} waits for it"),
        )),
    }
}

pub async fn show(cx: &Context, args: ShowArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let id = JobId(args.id);
    let queries = reader_for(&settings, id)?;
    let job = queries.job(id).await?.ok_or_else(|| no_such_job(&settings, id))?;
    if args.answer {
        return answer(cx, &job);
    }
    let depth = if cx.out.json { Depth::Whole } else { Depth::Head };
    let shown = JobDocument::read(&*queries, id, depth, wire::now()).await?;
    if cx.out.json {
        return cx.out.document(&shown);
    }
    let JobDocument { job: JobItem { job, waits }, annotations, questions, children, .. } = &shown;
    let told = job.reason.clone().filter(|_| job.state == JobState::Suspended);
    let renderer = Renderer::new(cx.out.paint, cx.out.width, args.full, wire::free_models(&settings));
    let mut renderer = renderer.below(told);
    let mut follower = Follower::new(queries, id);
    head(&cx.out, job, waits.as_ref(), children, args.full)?;
    relations(&cx.out, &shown)?;
    tree(&cx.out, &shown.beneath)?;
    let events = follower.poll().await?;
    if !events.is_empty() {
        cx.out.line("")?;
    }
    for event in &events {
        for line in renderer.lines(event) {
            cx.out.line(line)?;
        }
    }
    remarks(&cx.out, annotations, &job.role, args.full)?;
    for question in questions {
        // Its words stand above, where it was asked.
        let text = format!("question {}: {}", question.id, one_line(&question.text, 60));
        let ask = format!("posse question answer {} \"<answer>\"", question.id);
        cx.out.line_at(5, format!("  {}  {text}  {}", cx.out.paint.yellow("?"), cx.out.paint.dim(ask)))?;
    }
    Ok(Exit::Ok)
}

/// Lines of a goal, a reason, a remark or a question that are shown unless all are asked for.
const GOAL_LINES: usize = 12;

fn head(out: &Out, job: &Job, waits: Option<&Waits>, children: &[Child], full: bool) -> Result<()> {
    let now = wire::now();
    let paint = out.paint;
    out.line(format!(
        "{}  {}  {}",
        paint.bold(format!("job {}", job.id)),
        paint.cyan(&job.role),
        paint.state(job.state, state_in_words(job, waits))
    ))?;
    let width = out.width.saturating_sub(14);
    let for_what = waits.filter(|_| job.state == JobState::Suspended).and_then(|waits| waits.said.strip_prefix(WAITS));
    let is_told = for_what.is_some() && job.reason.as_deref().is_none_or(|reason| reason.starts_with(WAITS));
    let reason = job.reason.as_deref().filter(|_| job.state != JobState::Completed && !is_told);
    let made: Vec<_> = children.iter().map(|child| child.id).collect();
    let of_its_own = waits.is_some_and(|waits| waits.is_for_some_of(&made));
    let waits = for_what.map(|what| if of_its_own { "for what it made".into() } else { wrap(what, width).join("\n") });
    let ended =
        |at| format!("{} ({}, {} after it was enqueued)", moment(at), ago(at, now), duration(at - job.created_at));
    let crashes = match job.crashes {
        0 => String::new(),
        n => format!(", its worker was lost {}", plural(n.into(), "time")),
    };
    let payload = &job.payload;
    out.fields([
        ("goal", Some(excerpt(&payload.goal, width, GOAL_LINES, full))),
        ("reason", reason.map(|reason| excerpt(reason, width, GOAL_LINES, full))),
        ("waits", waits),
        ("damaged", job.damage.as_deref().map(|why| paint.red(visible(why)))),
        ("enqueued", Some(format!("{} ({})", moment(job.created_at), ago(job.created_at, now)))),
        ("ended", job.finalized_at.map(ended)),
        ("attempts", Some(format!("{} of {}{crashes}", job.attempt, job.max_attempts))),
        ("queue", Some(format!("{}, priority {}", job.queue, job.priority))),
        ("unique", job.unique_key.as_deref().map(visible)),
        ("key", job.concurrency_key.as_deref().map(visible)),
        ("workspace", (!payload.workspace.is_empty()).then(|| visible(&payload.workspace))),
        ("session", payload.session.map(|session| format!("{session} (posse session show {session})"))),
        ("forked", payload.forked_from.map(|from| format!("from job {} at step {}", from.job, from.step))),
        ("model", payload.model.as_deref().map(visible)),
    ])
}

/// How sentences begin that say what a suspended job waits for; those that it was suspended with too.
const WAITS: &str = "waits ";

/// Jobs that it waits for, at most so many of them are named.
const DEPENDENCIES_SHOWN: usize = 20;

fn relations(out: &Out, shown: &JobDocument) -> Result<()> {
    let JobDocument { job: JobItem { job, waits }, dependencies, awaited_groups: groups, children, .. } = shown;
    let progress = |progress: &JobProgress| format!("{:.0} %, {}", progress.share * 100.0, visible(&progress.text));
    let made_by = |parent| {
        let root = job.root.filter(|root| *root != parent).map(|root| format!(", beneath job {root}"));
        format!("job {parent}{}", root.unwrap_or_default())
    };
    // A parent waits for its children in the same way; they have a line of their own, and so has what it waits for now.
    let none = Default::default();
    let (jobs, named) = waits.as_ref().map_or(&none, |waits| &waits.named);
    let others =
        dependencies.iter().filter(|on| children.iter().all(|child| child.id != on.on) && !jobs.contains(&on.on));
    let groups = groups.iter().filter(|wait| !named.contains(&wait.group));
    let mut others: Vec<_> = others.map(|on| in_words(on.on, on.state)).collect();
    if others.len() > DEPENDENCIES_SHOWN {
        let more = others.len() - DEPENDENCIES_SHOWN;
        others.truncate(DEPENDENCIES_SHOWN);
        others.push(format!("{} more", count(more as u64)));
    }
    others.splice(0..0, groups.map(|wait| format!("all of group {}", visible(&wait.group))));
    let made: Vec<_> = children.iter().map(|child| in_words(child.id, Some(child.state))).collect();
    let meta = || visible(&serde_json::Value::Object(job.meta.clone()).to_string());
    out.fields([
        ("progress", job.progress.as_ref().map(progress)),
        ("made by", job.parent.map(made_by)),
        ("after", (!others.is_empty()).then(|| others.join(", "))),
        ("made", (!made.is_empty()).then(|| made.join(", "))),
        ("group", job.group.as_deref().map(visible)),
        ("tags", (!job.tags.is_empty()).then(|| visible(&job.tags.join(", ")))),
        ("meta", (!job.meta.is_empty()).then(meta)),
    ])
}

/// The jobs beneath it, one in each line.
fn tree(out: &Out, beneath: &[Beneath]) -> Result<()> {
    if beneath.is_empty() {
        return Ok(());
    }
    out.line("")?;
    for Beneath { id, depth, role, state, goal, questions, .. } in beneath {
        let paint = out.paint;
        let indent = "  ".repeat(*depth as usize);
        let asks = questions.iter().map(|question| format!("  {} question {question}", paint.yellow("?")));
        let (role, state) = (paint.cyan(visible(role)), paint.state(*state, state.to_string()));
        let asks = asks.collect::<String>();
        out.line(format!("{indent}{id}  {role}  {state}  {}{asks}", one_line(goal, 80)))?;
    }
    if beneath.len() == MAX_BENEATH {
        out.line(
            out.paint.dim(format!("  the first {MAX_BENEATH}; posse show of one of these shows those beneath it")),
        )?;
    }
    Ok(())
}

fn in_words(job: JobId, state: Option<JobState>) -> String {
    format!("{job} ({})", state.map_or("deleted", JobState::as_str))
}

/// The state, and what it means for whoever waits.
fn state_in_words(job: &Job, waits: Option<&Waits>) -> String {
    let state = job.state;
    match state {
        JobState::Scheduled | JobState::Retryable => {
            format!("{state}, due {}", waits.map_or("", |waits| waits.brief.as_str()))
        }
        JobState::Available => match waits {
            Some(waits) if waits.is_by_rule() => format!("{state}, held: {}", waits.text),
            _ => format!("{state}, waiting for a worker"),
        },
        JobState::Running => {
            let stopping = if job.cancel_requested { ", to be cancelled at the next boundary" } else { "" };
            match &job.leased_by {
                Some(worker) => format!("{state}, held by {}{stopping}", visible(worker)),
                None => format!("{state}{stopping}"),
            }
        }
        _ => match job.output.as_ref().and_then(judged) {
            Some(status) => format!("{state} ({})", visible(&status)),
            None => state.to_string(),
        },
    }
}

/// Remarks of people, and that the agent needs an answer; its other remarks stand where it made them.
fn remarks(out: &Out, annotations: &[Annotation], role: &str, full: bool) -> Result<()> {
    let is_told = |note: &&Annotation| note.author != role || note.tags.iter().any(|tag| tag == CLARIFICATION_NEEDED);
    for note in annotations.iter().filter(is_told) {
        let tags = if note.tags.is_empty() { String::new() } else { format!(" [{}]", note.tags.join(", ")) };
        let text = excerpt(&note.text, out.width.saturating_sub(5), GOAL_LINES, full).replace('\n', "\n     ");
        out.line_at(5, format!("  ✎  {}: {text}{}", visible(&note.author), visible(&tags)))?;
    }
    Ok(())
}
