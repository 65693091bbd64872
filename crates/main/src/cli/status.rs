//! `posse status`: what runs, what waits and why, and what needs a person, on one screen.

use posse_app::jobs::JobItem;
use posse_app::json::with_lists;
use posse_app::status::{LostWorker, Standing};
use posse_app::workers::WorkerStatus;
use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState};
use posse_core::port::DueJobs;
use posse_core::queue::rate::EndpointState;
use posse_core::queue::rules::Rule;
use posse_core::text::rough_duration;
use posse_infra::process::LinuxProcessProbe;

use super::lists::FullArgs;
use super::prelude::*;
use crate::output::Out;
use crate::output::text::{ago, count, one_line, plural, visible};

#[derive(Args)]
pub struct StatusArgs {
    /// At most so many lines of each kind
    #[arg(long, short = 'n', default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    full: FullArgs,
}

pub async fn status(cx: &Context, args: StatusArgs) -> Result<Exit> {
    let now = wire::now();
    let standing = match wire::open_reader(&cx.plain_settings()?)? {
        Some(store) => Standing::read(&*store, &LinuxProcessProbe, args.limit, now).await?,
        None => Standing { at: now, ..Standing::default() },
    };
    if cx.out.json {
        return cx.out.document(&with_lists(&standing, args.full.full)?);
    }
    show(&standing, &cx.out, args.limit as usize, now)?;
    Ok(Exit::Ok)
}

fn show(standing: &Standing, out: &Out, limit: usize, now: Millis) -> Result<()> {
    let paint = out.paint;
    let there = JobState::ALL.map(|state| (state, standing.count(state)));
    let there = there.iter().filter(|(_, n)| *n > 0);
    let words = there.map(|(state, n)| paint.state(*state, format!("{} {state}", count(*n))));
    let words: Vec<_> = words.collect();
    out.line_at(
        9,
        format!("{}     {}", paint.bold("jobs"), if words.is_empty() { "none".into() } else { words.join(", ") }),
    )?;
    let are = |status| standing.workers.iter().filter(|worker| worker.status == status).count() as u64;
    let (working, draining) = (are(WorkerStatus::Working), are(WorkerStatus::Draining));
    let draining = if draining > 0 { format!(", {draining} draining") } else { String::new() };
    out.line_at(9, format!("{}  {} at work{draining}", paint.bold("workers"), count(working)))?;
    show_running(standing, out, limit, now)?;
    show_waiting(standing, out, now)?;
    show_what_needs_a_person(standing, out, now)
}

fn show_running(standing: &Standing, out: &Out, limit: usize, now: Millis) -> Result<()> {
    heading(out, "runs", standing.running.len() as u64)?;
    for held in standing.running.iter().take(limit) {
        let last = held.last_entry.as_deref().zip(held.last_entry_at);
        let doing = last.map_or("begun".into(), |(kind, at)| format!("{} {}", kind.replace('_', " "), ago(at, now)));
        let time = rough_duration((now - held.since).max(0));
        row(out, held.job, &held.role, &format!("for {time}, {doing}"), "")?;
    }
    more(out, standing.running.len() as u64, limit as u64)
}

fn show_waiting(standing: &Standing, out: &Out, now: Millis) -> Result<()> {
    let waiting = |state: &JobState| !state.is_final() && *state != JobState::Running;
    let total = JobState::ALL.into_iter().filter(waiting).map(|state| standing.count(state)).sum();
    heading(out, "waits", total)?;
    for JobItem { job, waits } in &standing.waiting {
        // What a person can do about it stands below.
        let why = waits.as_ref().map_or("", |waits| waits.said.as_str());
        let why = if why.is_empty() { ago(job.created_at, now) } else { why.to_owned() };
        row(out, job.id, &job.role, &format!("{}, {why}", job.state), &job.payload.goal)?;
    }
    more(out, total, standing.waiting.len() as u64)
}

fn show_what_needs_a_person(standing: &Standing, out: &Out, now: Millis) -> Result<()> {
    let paint = out.paint;
    let mut said = Vec::new();
    for question in &standing.needs_a_person.questions {
        let (id, job) = (question.id, question.job);
        let text = one_line(&question.text, out.width);
        said.push((format!("question {id} of job {job}: {text}"), format!("posse question answer {id} \"<answer>\"")));
    }
    for job in &standing.needs_a_person.discarded {
        let reason = one_line(job.reason.as_deref().unwrap_or("no reason is known"), 200);
        let ended = ago(job.finalized_at.unwrap_or(now), now);
        said.push((format!("job {} was discarded {ended}: {reason}", job.id), format!("posse job retry {}", job.id)));
    }
    for EndpointState { endpoint, breaker, reason } in &standing.needs_a_person.endpoints_out {
        let reason = reason.as_deref().map(|reason| format!(": {}", one_line(reason, 200))).unwrap_or_default();
        let text = format!("endpoint {} is out since {}{reason}", visible(endpoint), ago(breaker.failed_at, now));
        said.push((text, "posse model list".into()));
    }
    for Rule { scope, paused_at, .. } in &standing.needs_a_person.paused {
        let text = format!("{} is paused since {}", visible(&scope.to_string()), ago(paused_at.unwrap_or(now), now));
        said.push((text, "posse resume".into()));
    }
    for DueJobs { role, jobs, .. } in &standing.needs_a_person.unserved {
        let role = visible(role);
        let text = format!("{} of role {role} due, and no worker serves it", plural(*jobs, "job"));
        said.push((text, format!("posse work --role {role}")));
    }
    for LostWorker { id, status, heartbeat_at } in &standing.needs_a_person.workers {
        let (seen, status) = (ago(*heartbeat_at, now), status.as_str());
        let text = format!("worker {} is {status}, last heard of {seen}", visible(id));
        said.push((text, "posse doctor".into()));
    }
    heading(out, "needs a person", said.len() as u64)?;
    for (text, way_out) in said {
        out.line_at(4, format!("  {} {text}", paint.yellow("!")))?;
        out.line_at(4, format!("    {}", paint.dim(way_out)))?;
    }
    Ok(())
}

fn heading(out: &Out, name: &str, n: u64) -> Result<()> {
    let number = if n == 0 { out.paint.dim("nothing") } else { count(n) };
    out.line(format!("\n{}  {number}", out.paint.bold(name)))
}

fn row(out: &Out, job: JobId, role: &str, what: &str, goal: &str) -> Result<()> {
    let goal = if goal.is_empty() { String::new() } else { format!("  {}", out.paint.dim(one_line(goal, 60))) };
    out.line_at(
        4,
        format!("  {}  {}  {what}{goal}", out.paint.bold(format!("job {job}")), out.paint.cyan(visible(role))),
    )
}

fn more(out: &Out, total: u64, shown: u64) -> Result<()> {
    match total.saturating_sub(shown) {
        0 => Ok(()),
        left => out.line(out.paint.dim(format!("  … {} more (-n shows them)", count(left)))),
    }
}
