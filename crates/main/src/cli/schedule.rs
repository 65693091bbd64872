//! `posse schedule`: rules that make jobs at times.

use std::path::PathBuf;
use std::sync::Arc;

use posse_app::schedules::{self, Edit, Made, Run, ScheduleDocument, no_such, runs, zone_of};
use posse_app::times;
use posse_core::clock::Millis;
use posse_core::job::DEFAULT_QUEUE;
use posse_core::job::enqueue::EnqueueRequest;
use posse_core::port::Store;
use posse_core::schedule::{Missed, Overlap, Schedule};

use super::enqueue::{TermsArgs, intake, read_goal};
use super::lists::FullArgs;
use super::prelude::*;
use crate::output::table::plain;
use crate::output::text::{ago, moment, one_line, visible};
use crate::settings::Settings;
use crate::{wire, workspace};

const RULE: &str = "\
A rule is five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly,
@monthly, @yearly. A rule that names hours runs once for each local time of day: one that is skipped
when clocks are set forward runs right after the gap, one that comes twice runs the first time. A rule
for every hour (*) runs as time passes.";

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
    /// The group its jobs are counted in (posse group show NAME)
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// A word to find its jobs by; may be given more than once
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Limits per key count its jobs with those of the same key (posse limit)
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// What is to be done, in your words; `-` reads it from standard input
    #[arg(required = true, value_name = "GOAL")]
    goal: Vec<String>,
}

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

#[derive(Args)]
pub struct NameArgs {
    /// Its name
    name: String,
}

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

fn in_words(run: &Run) -> String {
    format!("{} ({} by its rule)", moment(run.at), run.local)
}

async fn add(cx: &Context, args: AddArgs, replaces: bool) -> Result<Exit> {
    let AddArgs { name, rule, missed, overlap, queue, role, terms, group, tag: tags, concurrency_key, goal } = args;
    let settings = cx.plain_settings()?;
    let intake = intake(&settings, wire::sources(&settings).look()?.1);
    let request = EnqueueRequest {
        role,
        goal: read_goal(goal)?,
        queue,
        group,
        tags,
        concurrency_key,
        ..terms.request(&settings)?
    };
    let retry = terms.retry();
    let job = intake.accept(request.clone(), &retry, &[])?;
    let now = wire::now();
    let schedule = Schedule::new(&name, (&rule.cron, &rule.tz), job, (missed, overlap), now)?;
    let store = if replaces { open(&settings, &name)? } else { wire::open_store(&settings)? };
    let schedule = Schedule { job: intake.job(&*store, request, &retry).await?, ..schedule };
    match replaces {
        true => schedules::replace(&*store, &schedule, false).await?,
        false => schedules::add(&*store, &schedule).await?,
    }
    told(cx, &schedule, now)
}

/// Opens the database to change a schedule that is there.
fn open(settings: &Settings, name: &str) -> Result<Arc<dyn Store>> {
    wire::open_existing(settings, || no_such(name))
}

fn told(cx: &Context, schedule: &Schedule, now: Millis) -> Result<Exit> {
    let name = &schedule.name;
    if cx.out.json {
        return cx.out.document(schedule);
    }
    if schedule.paused_at.is_some() {
        cx.out.line(format!("{}  paused (posse schedule resume {name})", cx.out.paint.bold(name)))?;
        return Ok(Exit::Ok);
    }
    cx.out.line(format!("{}  next run {}", cx.out.paint.bold(name), moment(schedule.next_at)))?;
    for run in runs(&schedule.cron, &schedule.zone, now, 3)? {
        cx.out.line(format!("  {}", in_words(&run)))?;
    }
    cx.out.hint("posse work keeps schedules and works their jobs · posse schedule list");
    Ok(Exit::Ok)
}

fn or_none(word: String) -> Option<String> {
    (word != "none").then_some(word)
}

async fn edit(cx: &Context, args: EditArgs) -> Result<Exit> {
    let EditArgs { name, cron, tz: zone, missed, overlap, queue, role, priority, max_attempts, .. } = args;
    let settings = cx.plain_settings()?;
    let intake = intake(&settings, wire::sources(&settings).look()?.1);
    let store = wire::open_reader(&settings)?.ok_or_else(|| no_such(&name))?;
    let old = schedules::editable(&*store, &name).await?;
    let word = |new: Option<String>| new.map(or_none);
    let tags = (!args.tag.is_empty()).then(|| args.tag.into_iter().filter_map(or_none).collect());
    let (model, group, concurrency_key) = (word(args.model), word(args.group), word(args.concurrency_key));
    let workspace = args.workspace.map(|folder| workspace::accepted(&settings, &folder)).transpose()?;
    let goal = args.goal.map(|goal| read_goal(vec![goal])).transpose()?;
    let edit = Edit {
        cron,
        zone,
        missed,
        overlap,
        role,
        goal,
        queue,
        priority,
        max_attempts,
        workspace,
        model,
        group,
        tags,
        concurrency_key,
    };
    let now = wire::now();
    let (new, keeps_next) = edit.of(&old, &intake, &*store, now).await?;
    schedules::replace(&*wire::open_store(&settings)?, &new, keeps_next).await?;
    told(cx, &new, now)
}

async fn run_now(cx: &Context, name: String) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let look = wire::open_reader(&settings)?.ok_or_else(|| no_such(&name))?;
    let schedule = schedules::runnable(&*look, &name).await?;
    let made = schedules::run_now(&*wire::open_store(&settings)?, &schedule, wire::now()).await?;
    if cx.out.json {
        return cx.out.document(&json!({"name": name, "job": made.id, "existing": made.existed()}));
    }
    let word = if made.existed() { ", which holds its unique key" } else { "" };
    cx.out.line(format!("{}  of {name}{word}", cx.out.paint.bold(format!("job {}", made.id))))?;
    if let Some(last) = schedule.last.filter(|last| !last.state.is_final()) {
        cx.out.note(format!("job {} of the run before is still {}", last.id, last.state));
    }
    cx.out.hint(format!("posse work runs it · posse job watch {} follows it", made.id));
    Ok(Exit::Ok)
}

async fn list(cx: &Context, args: FullArgs) -> Result<Exit> {
    let schedules = cx.read(async |store| store.schedules().await).await?;
    let none =
        "no schedules; posse schedule add NAME --cron '30 7 * * 1-5' --tz Europe/Oslo --role ROLE \"<goal>\" makes one";
    let titles = ["NAME", "RULE", "ZONE", "NEXT", "LAST JOB", "ROLE", "GOAL"];
    let now = wire::now();
    cx.out.list_or_table(("schedules", args.full), &schedules, none, &titles, |schedule| {
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
    })
}

async fn show(cx: &Context, name: &str) -> Result<Exit> {
    let store = wire::open_reader(&cx.plain_settings()?)?.ok_or_else(|| no_such(name))?;
    let shown = ScheduleDocument::read(&*store, name).await?;
    if cx.out.json {
        return cx.out.document(&shown);
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
    schedules::pause(&*open(&cx.plain_settings()?, &name)?, &name, wire::now()).await?;
    cx.out.say(&json!({"name": name, "paused": true, "next_at": null}), format!("{name} is paused"))
}

async fn resume(cx: &Context, name: String) -> Result<Exit> {
    let next_at = schedules::resume(&*open(&cx.plain_settings()?, &name)?, &name, wire::now()).await?;
    let line = format!("{name} is resumed, next run {}", moment(next_at));
    cx.out.say(&json!({"name": name, "paused": false, "next_at": next_at}), line)
}

async fn remove(cx: &Context, name: String) -> Result<Exit> {
    schedules::remove(&*open(&cx.plain_settings()?, &name)?, &name).await?;
    cx.out.say(&json!({"name": name, "removed": true}), format!("{name} is removed; the jobs it made stay"))
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
        return cx.out.document(&json!({"cron": cron, "zone": tz, "runs": runs}));
    }
    for run in runs {
        cx.out.line(format!("{}  {}", run.utc, run.local))?;
    }
    Ok(Exit::Ok)
}
