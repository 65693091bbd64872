//! `posse status`: what runs, what waits and why, and what needs a person, on one screen.

use std::collections::HashMap;

use anyhow::Result;
use clap::Args;
use posse_app::json::{item_of, listed};
use posse_core::clock::Millis;
use posse_core::job::lease::WorkerId;
use posse_core::job::question::Question;
use posse_core::job::{Job, JobId, JobState};
use posse_core::port::{DueJobs, HeldJob, JobFilter, ProcessProbe as _, QuestionFilter, Store, WorkerRecord};
use posse_core::queue::rate::EndpointState;
use posse_core::queue::rules::Rule;
use posse_infra::process::LinuxProcessProbe;
use serde_json::{Value, json};

use super::Context;
use super::lists::FullArgs;
use super::waits::{Waits, why};
use super::worker::status_of;
use crate::exit::Exit;
use crate::output::Out;
use crate::output::text::{ago, count, one_line, plural, visible};
use crate::wire;

/// How much of it
#[derive(Args)]
pub struct StatusArgs {
    /// At most so many lines of each kind
    #[arg(long, short = 'n', default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    full: FullArgs,
}

/// For how long a job that was discarded is told of.
const LATELY_MS: Millis = 24 * 3_600_000;

/// What there is to tell.
#[derive(Default)]
struct Standing {
    counts: Vec<(JobState, u64)>,
    running: Vec<HeldJob>,
    waiting: Vec<Job>,
    waits: HashMap<JobId, Waits>,
    /// Roles whose due jobs nobody works.
    unserved: Vec<DueJobs>,
    questions: Vec<Question>,
    discarded: Vec<Job>,
    out: Vec<EndpointState>,
    paused: Vec<Rule>,
    workers: Vec<(WorkerRecord, &'static str)>,
}

/// Tells how all of it stands.
pub async fn status(cx: &Context, args: StatusArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let now = wire::now();
    let standing = match wire::open_reader(&settings)? {
        Some(store) => look(&*store, args.limit, now).await?,
        None => Standing::default(),
    };
    if cx.out.json {
        cx.out.document(&standing.as_json(now, args.full.full)?)?;
        return Ok(Exit::Ok);
    }
    standing.show(&cx.out, args.limit as usize, now)?;
    Ok(Exit::Ok)
}

async fn look(store: &dyn Store, limit: u32, now: Millis) -> Result<Standing> {
    let counts = store.counts().await?;
    let of_state = |state| counts.iter().filter(|(_, s, _)| *s == state).map(|(_, _, n)| n).sum::<u64>();
    let workers = store.workers().await?;
    let gone = LinuxProcessProbe.dead(&workers);
    let gone = |worker: &WorkerRecord| gone.contains(&WorkerId(worker.id.clone()));
    let workers: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            let status = status_of(&worker, gone(&worker), now);
            (worker, status)
        })
        .collect();
    let serves = |role: &String| workers.iter().any(|(w, status)| *status == "working" && w.roles.contains(role));
    let states = vec![JobState::Available, JobState::Scheduled, JobState::Retryable, JobState::Suspended];
    let waiting = store.jobs(JobFilter { states, limit, ..JobFilter::default() }).await?;
    let discarded = JobFilter {
        states: vec![JobState::Discarded],
        ended_from: Some(now - LATELY_MS),
        limit,
        ..JobFilter::default()
    };
    Ok(Standing {
        counts: JobState::ALL.into_iter().map(|state| (state, of_state(state))).collect(),
        running: store.held_jobs().await?,
        waits: why(store, &waiting, now).await?,
        waiting,
        unserved: store.due_jobs(now).await?.into_iter().filter(|due| !serves(&due.role)).collect(),
        questions: store.questions(QuestionFilter { limit, ..QuestionFilter::default() }).await?,
        discarded: store.jobs(discarded).await?,
        out: store.failing_endpoints().await?.into_iter().filter(|state| state.breaker.is_out()).collect(),
        paused: store.rules().await?.into_iter().filter(|rule| rule.paused_at.is_some()).collect(),
        workers,
    })
}

impl Standing {
    fn as_json(&self, now: Millis, full: bool) -> Result<Value> {
        let jobs: serde_json::Map<_, _> = self.counts.iter().map(|(state, n)| (state.to_string(), json!(n))).collect();
        let waiting = self.waiting.iter().map(|job| {
            let mut item = item_of(job, full)?;
            item["waits"] = serde_json::to_value(self.waits.get(&job.id))?;
            Ok(item)
        });
        let workers = self.workers.iter().map(|(worker, status)| {
            let mut item = item_of(worker, full)?;
            item["status"] = json!(status);
            Ok(item)
        });
        Ok(json!({
            "at": now,
            "jobs": jobs,
            "running": listed(&self.running, full)?,
            "waiting": waiting.collect::<Result<Vec<_>>>()?,
            "needs_a_person": {
                "questions": listed(&self.questions, full)?,
                "discarded": listed(&self.discarded, full)?,
                "endpoints_out": listed(&self.out, full)?,
                "paused": listed(&self.paused, full)?,
                "unserved": listed(&self.unserved, full)?,
                "workers": self.dead().map(|(worker, status)| json!({"id": worker.id, "status": status})).collect::<Vec<_>>(),
            },
            "workers": workers.collect::<Result<Vec<_>>>()?,
        }))
    }

    /// Worker processes that are on the list and not heard of.
    fn dead(&self) -> impl Iterator<Item = &(WorkerRecord, &'static str)> {
        self.workers.iter().filter(|(_, status)| ["gone", "silent"].contains(status))
    }

    fn show(&self, out: &Out, limit: usize, now: Millis) -> Result<()> {
        let paint = out.paint;
        let there: Vec<_> = self.counts.iter().filter(|(_, n)| *n > 0).collect();
        let words = there.iter().map(|(state, n)| paint.state(*state, format!("{} {state}", count(*n))));
        let words: Vec<_> = words.collect();
        out.line_at(
            9,
            format!("{}     {}", paint.bold("jobs"), if words.is_empty() { "none".into() } else { words.join(", ") }),
        )?;
        let working = self.workers.iter().filter(|(_, status)| *status == "working").count() as u64;
        let draining = self.workers.iter().filter(|(_, status)| *status == "draining").count() as u64;
        let draining = if draining > 0 { format!(", {draining} draining") } else { String::new() };
        out.line_at(9, format!("{}  {} at work{draining}", paint.bold("workers"), count(working)))?;
        self.show_running(out, limit, now)?;
        self.show_waiting(out, now)?;
        self.show_what_needs_a_person(out, now)
    }

    fn show_running(&self, out: &Out, limit: usize, now: Millis) -> Result<()> {
        heading(out, "runs", self.running.len() as u64)?;
        for held in self.running.iter().take(limit) {
            let last = held.last_entry.as_deref().zip(held.last_entry_at);
            let doing =
                last.map_or("begun".into(), |(kind, at)| format!("{} {}", kind.replace('_', " "), ago(at, now)));
            row(out, held.job, &held.role, &format!("for {}, {doing}", since(held.since, now)), "")?;
        }
        more(out, self.running.len() as u64, limit as u64)
    }

    fn show_waiting(&self, out: &Out, now: Millis) -> Result<()> {
        let waiting = |(state, _): &&(JobState, u64)| !state.is_final() && *state != JobState::Running;
        let total = self.counts.iter().filter(waiting).map(|(_, n)| n).sum();
        heading(out, "waits", total)?;
        for job in &self.waiting {
            // What a person can do about it stands below.
            let why = self.waits.get(&job.id).map_or("", |waits| waits.said.as_str());
            let why = if why.is_empty() { ago(job.created_at, now) } else { why.to_owned() };
            row(out, job.id, &job.role, &format!("{}, {why}", job.state), &job.payload.goal)?;
        }
        more(out, total, self.waiting.len() as u64)
    }

    fn show_what_needs_a_person(&self, out: &Out, now: Millis) -> Result<()> {
        let paint = out.paint;
        let mut said = Vec::new();
        for question in &self.questions {
            let (id, job) = (question.id, question.job);
            let text = one_line(&question.text, out.width);
            said.push((
                format!("question {id} of job {job}: {text}"),
                format!("posse question answer {id} \"<answer>\""),
            ));
        }
        for job in &self.discarded {
            let reason = one_line(job.reason.as_deref().unwrap_or("no reason is known"), 200);
            let ended = ago(job.finalized_at.unwrap_or(now), now);
            said.push((
                format!("job {} was discarded {ended}: {reason}", job.id),
                format!("posse job retry {}", job.id),
            ));
        }
        for EndpointState { endpoint, breaker, reason } in &self.out {
            let reason = reason.as_deref().map(|reason| format!(": {}", one_line(reason, 200))).unwrap_or_default();
            let text = format!("endpoint {} is out since {}{reason}", visible(endpoint), ago(breaker.failed_at, now));
            said.push((text, "posse model list".into()));
        }
        for Rule { scope, paused_at, .. } in &self.paused {
            let text =
                format!("{} is paused since {}", visible(&scope.to_string()), ago(paused_at.unwrap_or(now), now));
            said.push((text, "posse resume".into()));
        }
        for DueJobs { role, jobs, .. } in &self.unserved {
            let role = visible(role);
            let text = format!("{} of role {role} due, and no worker serves it", plural(*jobs, "job"));
            said.push((text, format!("posse work --role {role}")));
        }
        for (worker, status) in self.dead() {
            let seen = ago(worker.heartbeat_at, now);
            let text = format!("worker {} is {status}, last heard of {seen}", visible(&worker.id));
            said.push((text, "posse doctor".into()));
        }
        heading(out, "needs a person", said.len() as u64)?;
        for (text, way_out) in said {
            out.line_at(4, format!("  {} {text}", paint.yellow("!")))?;
            out.line_at(4, format!("    {}", paint.dim(way_out)))?;
        }
        Ok(())
    }
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

fn since(at: Millis, now: Millis) -> String {
    posse_core::text::rough_duration((now - at).max(0))
}
