//! `posse schedule`: rules that make jobs at times.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use posse_app::Code;
use posse_app::enqueue::RetryAsked;
use posse_app::json::listed;
use posse_app::schedules::{Made, Run, ScheduleDocument, find, no_such, runs, zone_of};
use posse_app::times;
use posse_core::clock::Millis;
use posse_core::job::enqueue::Ask;
use posse_core::job::{DEFAULT_QUEUE, NewJob};
use posse_core::port::Store;
use posse_core::schedule::{Missed, Overlap, Schedule};
use posse_infra::persona::Loaded;
use serde_json::json;

use super::Context;
use super::enqueue::{TermsArgs, intake, read_goal};
use super::lists::FullArgs;
use crate::catalog;
use crate::exit::{Exit, fail, usage};
use crate::output::table::{plain, render};
use crate::output::text::{ago, moment, one_line, visible};
use crate::settings::Settings;
use crate::{wire, workspace};

const RULE: &str = "\
A rule is five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly,
@monthly, @yearly. A rule that names hours runs once for each local time of day: one that is skipped
when clocks are set forward runs right after the gap, one that comes twice runs the first time. A rule
for every hour (*) runs as time passes.";

/// Schedules: rules that make jobs at times
#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// Add a schedule
    #[command(after_help = RULE)]
    Add(AddArgs),
    /// Put another in the place of a schedule, all of it new; the jobs it made stay with it, and a pause too
    #[command(after_help = RULE)]
    Replace(AddArgs),
    /// Change what is named of a schedule; the rest stays as it is
    #[command(after_help = RULE)]
    Edit(Box<EditArgs>),
    /// Make a job of a schedule now, whatever its rule says; its next run stays where it is
    RunNow(NameArgs),
    /// Schedules, with their next run and last job
    List(FullArgs),
    /// One schedule: its rule, next runs, last jobs
    Show(NameArgs),
    /// Make no jobs until it is resumed
    Pause(NameArgs),
    /// Go on with the next run; what came meanwhile is not made up for
    Resume(NameArgs),
    /// Take a schedule away; the jobs it made stay
    Remove(NameArgs),
    /// When a rule would run, without adding anything
    #[command(after_help = RULE)]
    Preview(PreviewArgs),
}

/// When
#[derive(Args)]
pub struct RuleArgs {
    /// The rule, as '30 2 * * *'
    #[arg(long, value_name = "RULE")]
    cron: String,
    /// The time zone of the rule, as Europe/Oslo
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
}

/// What to add
#[derive(Args)]
pub struct AddArgs {
    /// Its name: lower-case letters, digits, '-' and '_'
    name: String,
    #[command(flatten)]
    rule: RuleArgs,
    /// What becomes of runs that nobody was there to begin: skip, once (one job makes up for all), or all (oldest first, 100 at a time)
    #[arg(long, value_name = "RULE", default_value = "once")]
    missed: Missed,
    /// When the last job is not at its end yet: allow another, or skip the run
    #[arg(long, value_name = "RULE", default_value = "allow")]
    overlap: Overlap,
    /// The queue its jobs wait in
    #[arg(long, default_value = DEFAULT_QUEUE, value_name = "NAME")]
    queue: String,
    /// The role that shall work its jobs (posse persona list)
    #[arg(long, short, value_name = "ROLE", value_parser = super::role)]
    role: String,
    #[command(flatten)]
    terms: TermsArgs,
    #[command(flatten)]
    labels: LabelArgs,
    /// What is to be done, in your words; `-` reads it from standard input
    #[arg(required = true, value_name = "GOAL")]
    goal: Vec<String>,
}

/// What its jobs are found and counted by
#[derive(Args)]
pub struct LabelArgs {
    /// The group its jobs are counted in (posse group show NAME)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// A word to find its jobs by; may be given more than once
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Limits per key count its jobs with those of the same key (posse limit)
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
}

/// What to change of which schedule
#[derive(Args)]
pub struct EditArgs {
    /// Its name
    name: String,
    /// The rule, as '30 2 * * *'
    #[arg(long, value_name = "RULE")]
    cron: Option<String>,
    /// The time zone of the rule, as Europe/Oslo
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// What becomes of runs that nobody was there to begin: skip, once or all
    #[arg(long, value_name = "RULE")]
    missed: Option<Missed>,
    /// When the last job is not at its end yet: allow another, or skip the run
    #[arg(long, value_name = "RULE")]
    overlap: Option<Overlap>,
    /// The queue its jobs wait in
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// The role that shall work its jobs (posse persona list)
    #[arg(long, short, value_name = "ROLE")]
    role: Option<String>,
    /// The folder its tools are confined to
    #[arg(long, short, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// 1 (first) to 9 (last)
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Attempts its jobs get
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// The model to use instead of the persona's; none takes that back
    #[arg(long, short, value_name = "NAME")]
    model: Option<String>,
    /// The group its jobs are counted in; none takes that back
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Words to find its jobs by, in place of those it has; none takes them back
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Limits per key count its jobs with those of the same key; none takes that back
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// What is to be done; `-` reads it from standard input
    #[arg(long, value_name = "GOAL")]
    goal: Option<String>,
}

/// Which schedule
#[derive(Args)]
pub struct NameArgs {
    /// Its name
    name: String,
}

/// What to preview
#[derive(Args)]
pub struct PreviewArgs {
    #[command(flatten)]
    rule: RuleArgs,
    /// From when on; now when absent. Without a zone it is in the rule's
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// So many runs
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

/// Does what was asked.
pub async fn dispatch(cx: &Context, command: ScheduleCommand) -> Result<Exit> {
    match command {
        ScheduleCommand::Add(args) => add(cx, args, false).await,
        ScheduleCommand::Replace(args) => add(cx, args, true).await,
        ScheduleCommand::Edit(args) => edit(cx, *args).await,
        ScheduleCommand::RunNow(args) => run_now(cx, args.name).await,
        ScheduleCommand::List(args) => list(cx, args).await,
        ScheduleCommand::Show(args) => show(cx, &args.name).await,
        ScheduleCommand::Pause(args) => pause(cx, args.name).await,
        ScheduleCommand::Resume(args) => resume(cx, args.name).await,
        ScheduleCommand::Remove(args) => remove(cx, args.name).await,
        ScheduleCommand::Preview(args) => preview(cx, &args),
    }
}

/// The time of a run by the reader's clocks, as everywhere, and by those that the rule goes by.
fn in_words(run: &Run) -> String {
    format!("{} ({} by its rule)", moment(run.at), run.local)
}

async fn add(cx: &Context, args: AddArgs, replaces: bool) -> Result<Exit> {
    let AddArgs { name, rule, missed, overlap, queue, role, terms, labels, goal } = args;
    let settings = cx.plain_settings()?;
    let personas = catalog::personas(&settings, &catalog::Offer::gather(&settings))?;
    let LabelArgs { group, tag: tags, concurrency_key } = labels;
    let ask = Ask { role, goal: read_goal(goal)?, queue, group, tags, concurrency_key, ..terms.ask(&settings)? };
    let (intake, retry) = (intake(&settings, &personas), terms.retry.asked());
    let job = intake.accept(ask.clone(), &retry, &[])?;
    let now = wire::now();
    let schedule = Schedule::new(&name, (&rule.cron, &rule.tz), job, (missed, overlap), now)?;
    if replaces {
        wire::open_reader(&settings)?.ok_or_else(|| no_such(&name))?;
    }
    let store = wire::open_store(&settings)?;
    let schedule = Schedule { job: intake.job(&*store, ask, &retry).await?, ..schedule };
    let is_done = match replaces {
        true => store.replace_schedule(schedule.clone(), false).await?,
        false => store.add_schedule(schedule.clone()).await?,
    };
    if !is_done && replaces {
        return Err(no_such(&name).into());
    }
    if !is_done {
        let way_out = format!("posse schedule replace {name} puts this in its place, edit changes a part of it");
        return Err(fail(Code::ScheduleExists, format!("there is a schedule '{name}' already; {way_out}")));
    }
    told(cx, &schedule, now)
}

/// Tells of a schedule as it is now.
fn told(cx: &Context, schedule: &Schedule, now: Millis) -> Result<Exit> {
    let name = &schedule.name;
    if cx.out.json {
        cx.out.document(schedule)?;
        return Ok(Exit::Ok);
    }
    if schedule.paused_at.is_some() {
        cx.out.line(format!("{}  paused (posse schedule resume {name})", cx.out.paint.bold(name)))?;
        return Ok(Exit::Ok);
    }
    cx.out.line(format!("{}  next run {}", cx.out.paint.bold(name), moment(schedule.next_at)))?;
    for run in runs(&schedule.cron, &schedule.zone, now, 3)? {
        cx.out.line(format!("  {}", in_words(&run)))?;
    }
    cx.out.note(cx.out.note_paint.dim("posse work keeps schedules and works their jobs · posse schedule list"));
    Ok(Exit::Ok)
}

/// A word, or what stands for none.
fn or_none(word: String) -> Option<String> {
    (word != "none").then_some(word)
}

async fn edit(cx: &Context, args: EditArgs) -> Result<Exit> {
    let EditArgs { name, cron, tz, missed, overlap, .. } = &args;
    let settings = cx.plain_settings()?;
    let personas = catalog::personas(&settings, &catalog::Offer::gather(&settings))?;
    let store = wire::open_reader(&settings)?.ok_or_else(|| no_such(name))?;
    let old = find(&*store, name).await?;
    if let Some(why) = &old.damage {
        return Err(fail(
            Code::ScheduleDamaged,
            format!("{name} cannot be edited: {why}; posse schedule replace {name} can"),
        ));
    }
    let job = edited(&args, &settings, &personas, &*store, old.job.clone()).await?;
    let now = wire::now();
    let (cron, zone) = (cron.clone().unwrap_or(old.cron.clone()), tz.clone().unwrap_or(old.zone.clone()));
    let rules = (missed.unwrap_or(old.missed), overlap.unwrap_or(old.overlap));
    let new = Schedule::new(name, (&cron, &zone), job, rules, now)?;
    // A run that is due, or overdue, still is where the rule is the same.
    let keeps_next = new.cron == old.cron && new.zone == old.zone;
    let next_at = if keeps_next { old.next_at } else { new.next_at };
    let new = Schedule { next_at, paused_at: old.paused_at, created_at: old.created_at, last: old.last.clone(), ..new };
    if new == old {
        return Err(usage("nothing is different; say what is to be changed (posse schedule edit --help)"));
    }
    if !wire::open_store(&settings)?.replace_schedule(new.clone(), keeps_next).await? {
        return Err(no_such(name).into());
    }
    told(cx, &new, now)
}

/// The job of a schedule with what was named changed, checked as one that is enqueued.
async fn edited(
    args: &EditArgs,
    settings: &Settings,
    personas: &Loaded,
    store: &dyn Store,
    old: NewJob,
) -> Result<NewJob> {
    let EditArgs { queue, role, workspace, priority, max_attempts, model, group, tag, concurrency_key, goal, .. } =
        args;
    let word = |new: &Option<String>, old: Option<String>| new.clone().map_or(old, or_none);
    let payload = &old.payload;
    let (folder, workspace_id) = match workspace {
        Some(folder) => {
            let (path, id) = workspace::accepted(settings, folder)?;
            (path, Some(id))
        }
        None => (payload.workspace.clone(), payload.workspace_id),
    };
    let ask = Ask {
        role: role.clone().unwrap_or(old.role.clone()),
        goal: goal.clone().map(|goal| read_goal(vec![goal])).transpose()?.unwrap_or(payload.goal.clone()),
        queue: queue.clone().unwrap_or(old.queue.clone()),
        priority: Some(priority.unwrap_or(old.priority)),
        max_attempts: Some(max_attempts.unwrap_or(old.max_attempts)),
        workspace: folder,
        workspace_id,
        model: word(model, payload.model.clone()),
        group: word(group, old.group.clone()),
        tags: match tag.as_slice() {
            [] => old.tags.clone(),
            tags => tags.iter().cloned().filter_map(or_none).collect(),
        },
        concurrency_key: word(concurrency_key, old.concurrency_key.clone()),
        meta: old.meta.clone(),
        ..Ask::default()
    };
    let new = intake(settings, personas).job(store, ask, &RetryAsked::default()).await?;
    // How failures are waited for is taken from a persona when a schedule is added.
    let retry = if new.role == old.role { old.retry } else { new.retry };
    let old_step = if priority.is_some() { new.priority_step_ms } else { old.priority_step_ms };
    Ok(NewJob { retry, priority_step_ms: old_step, ..new })
}

async fn run_now(cx: &Context, name: String) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let look = wire::open_reader(&settings)?.ok_or_else(|| no_such(&name))?;
    let schedule = find(&*look, &name).await?;
    if let Some(why) = &schedule.damage {
        return Err(fail(Code::ScheduleDamaged, format!("{name} makes no jobs: {why}")));
    }
    let made = wire::open_store(&settings)?.run_schedule(name.clone(), schedule.job, wire::now()).await?;
    let made = made.ok_or_else(|| no_such(&name))?;
    if cx.out.json {
        cx.out.document(&json!({"name": name, "job": made.id, "existing": made.existed()}))?;
        return Ok(Exit::Ok);
    }
    let word = if made.existed() { ", which holds its unique key" } else { "" };
    cx.out.line(format!("{}  of {name}{word}", cx.out.paint.bold(format!("job {}", made.id))))?;
    if let Some(last) = schedule.last.filter(|last| !last.state.is_final()) {
        cx.out.note(format!("job {} of the run before is still {}", last.id, last.state));
    }
    cx.out.note(cx.out.note_paint.dim(format!("posse work runs it · posse job watch {} follows it", made.id)));
    Ok(Exit::Ok)
}

async fn list(cx: &Context, args: FullArgs) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let schedules = match wire::open_reader(&settings)? {
        Some(store) => store.schedules().await?,
        None => Vec::new(),
    };
    if cx.out.json {
        cx.out.list("schedules", listed(schedules, args.full)?, None)?;
        return Ok(Exit::Ok);
    }
    if schedules.is_empty() {
        cx.out.note("no schedules; posse schedule add NAME --cron '30 7 * * 1-5' --tz Europe/Oslo --role ROLE \"<goal>\" makes one");
        return Ok(Exit::Ok);
    }
    let now = wire::now();
    let rows = schedules.iter().map(|schedule| {
        let next = if schedule.paused_at.is_some() { "paused".into() } else { ago(schedule.next_at, now) };
        let last = schedule.last.as_ref().map(|last| format!("{} {}", last.id, last.state)).unwrap_or_default();
        vec![
            plain(&schedule.name),
            plain(&schedule.cron),
            plain(&schedule.zone),
            plain(next),
            plain(last),
            plain(&schedule.job.role),
            plain(one_line(&schedule.job.payload.goal, 200)),
        ]
    });
    let titles = ["NAME", "RULE", "ZONE", "NEXT", "LAST JOB", "ROLE", "GOAL"];
    for line in render(&titles, rows.collect(), cx.out.width, |title| cx.out.paint.dim(title)) {
        cx.out.line(line)?;
    }
    Ok(Exit::Ok)
}

async fn show(cx: &Context, name: &str) -> Result<Exit> {
    let store = wire::open_reader(&cx.plain_settings()?)?.ok_or_else(|| no_such(name))?;
    let shown = ScheduleDocument::read(&*store, name).await?;
    if cx.out.json {
        cx.out.document(&shown)?;
        return Ok(Exit::Ok);
    }
    let ScheduleDocument { schedule, next, jobs } = shown;
    let Schedule { cron, zone, job, missed, overlap, paused_at, .. } = &schedule;
    cx.out.line(format!("{}  {cron}  {zone}", cx.out.paint.bold(name)))?;
    cx.out.line(format!("  {}: {}", job.role, one_line(&job.payload.goal, cx.out.width)))?;
    cx.out.line(format!("  missed runs: {}; overlapping runs: {}", missed.as_str(), overlap.as_str()))?;
    if let Some(group) = &job.group {
        cx.out.line(format!("  group {}", visible(group)))?;
    }
    if !job.tags.is_empty() {
        cx.out.line(format!("  tags {}", visible(&job.tags.join(", "))))?;
    }
    if let Some(at) = paused_at {
        cx.out.line(format!("  paused since {}", moment(*at)))?;
    }
    for run in next {
        cx.out.line(format!("  next  {}", in_words(&run)))?;
    }
    for Made { due_at, id, state } in jobs {
        let state = state.map(|state| state.to_string()).unwrap_or_default();
        cx.out.line(format!("  made  job {id}  {state}  for {}", moment(due_at)))?;
    }
    Ok(Exit::Ok)
}

async fn pause(cx: &Context, name: String) -> Result<Exit> {
    changed(cx, name, |_| Ok(None), "paused").await
}

async fn resume(cx: &Context, name: String) -> Result<Exit> {
    changed(cx, name, |schedule| schedule.resume_at(wire::now()).map(Some).map_err(usage), "resumed").await
}

/// Pauses a schedule, or has it go on at the time that `resume_at` gives.
async fn changed(
    cx: &Context,
    name: String,
    resume_at: impl FnOnce(&Schedule) -> Result<Option<Millis>>,
    what: &str,
) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    wire::open_reader(&settings)?.ok_or_else(|| no_such(&name))?;
    let store = wire::open_store(&settings)?;
    let next_at = resume_at(&find(&*store, &name).await?)?;
    if !store.pause_schedule(name.clone(), next_at, wire::now()).await? {
        return Err(no_such(&name).into());
    }
    if cx.out.json {
        cx.out.document(&json!({"name": name, "paused": next_at.is_none(), "next_at": next_at}))?;
    } else {
        let next = next_at.map(|at| format!(", next run {}", moment(at))).unwrap_or_default();
        cx.out.line(format!("{name} is {what}{next}"))?;
    }
    Ok(Exit::Ok)
}

async fn remove(cx: &Context, name: String) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    wire::open_reader(&settings)?.ok_or_else(|| no_such(&name))?;
    if !wire::open_store(&settings)?.remove_schedule(name.clone()).await? {
        return Err(no_such(&name).into());
    }
    if cx.out.json {
        cx.out.document(&json!({"name": name, "removed": true}))?;
    } else {
        cx.out.line(format!("{name} is removed; the jobs it made stay"))?;
    }
    Ok(Exit::Ok)
}

fn preview(cx: &Context, args: &PreviewArgs) -> Result<Exit> {
    let RuleArgs { cron, tz } = &args.rule;
    let from = match &args.from {
        Some(text) => times::moment_in(text, &zone_of(tz)?).map_err(|why| usage(format!("--from '{text}': {why}")))?,
        None => wire::now(),
    };
    // A run at that very moment is one of them.
    let runs = runs(cron, tz, from - 1, usize::from(args.count))?;
    if cx.out.json {
        cx.out.document(&json!({"cron": cron, "zone": tz, "runs": runs}))?;
        return Ok(Exit::Ok);
    }
    for run in runs {
        cx.out.line(format!("{}  {}", run.utc, run.local))?;
    }
    Ok(Exit::Ok)
}
