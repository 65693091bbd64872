//! `posse schedule`: rules that make jobs at times.

use anyhow::Result;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use posse_core::clock::Millis;
use posse_core::job::DEFAULT_QUEUE;
use posse_core::port::{CareRepository as _, JobQueries as _};
use posse_core::schedule::{Missed, Overlap, Schedule, Timetable};
use posse_core::usecase::enqueue::Ask;
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::enqueue::{TermsArgs, accepted, read_goal};
use crate::exit::{Exit, fail, not_found, usage};
use crate::output::table::{plain, render};
use crate::output::text::{ago, moment, one_line};
use crate::{times, wire};

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
    /// Schedules, with their next run and last job
    List,
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
    /// What becomes of runs that nobody was there to begin: skip, once (one job makes up for all), or all (of the latest 100)
    #[arg(long, value_name = "RULE", default_value = "once")]
    missed: Missed,
    /// When the last job is not at its end yet: allow another, or skip the run
    #[arg(long, value_name = "RULE", default_value = "allow")]
    overlap: Overlap,
    /// The queue its jobs wait in
    #[arg(long, default_value = DEFAULT_QUEUE, value_name = "NAME")]
    queue: String,
    /// The role that shall work its jobs (posse persona list)
    #[arg(long, short, value_name = "ROLE")]
    role: String,
    #[command(flatten)]
    terms: TermsArgs,
    /// What is to be done, in your words; `-` reads it from standard input
    #[arg(required = true, value_name = "GOAL")]
    goal: Vec<String>,
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
        ScheduleCommand::Add(args) => add(cx, args).await,
        ScheduleCommand::List => list(cx).await,
        ScheduleCommand::Show(args) => show(cx, &args.name).await,
        ScheduleCommand::Pause(args) => pause(cx, args.name).await,
        ScheduleCommand::Resume(args) => resume(cx, args.name).await,
        ScheduleCommand::Remove(args) => remove(cx, args.name).await,
        ScheduleCommand::Preview(args) => preview(cx, &args),
    }
}

/// A run as it is printed.
#[derive(Serialize)]
struct Run {
    /// Milliseconds since 1970.
    at: Millis,
    utc: String,
    local: String,
}

fn runs(cron: &str, zone: &str, from: Millis, count: usize) -> Result<Vec<Run>> {
    let timetable = Timetable::parse(cron, zone).map_err(usage)?;
    let local = zone_of(zone)?;
    let times = std::iter::successors(timetable.next_after(from), |at| timetable.next_after(*at));
    let run = |at| {
        let moment = Timestamp::from_millisecond(at)?;
        let local = moment.to_zoned(local.clone()).strftime("%a %Y-%m-%d %H:%M %Z").to_string();
        Ok(Run { at, utc: moment.to_string(), local })
    };
    times.take(count).map(run).collect()
}

fn zone_of(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| usage(format!("this machine knows no time zone '{name}'")))
}

async fn add(cx: &Context, args: AddArgs) -> Result<Exit> {
    let AddArgs { name, rule, missed, overlap, queue, role, terms, goal } = args;
    let settings = cx.plain_settings()?;
    let personas = wire::personas(&settings, &wire::Offer::gather(&settings))?;
    let ask = Ask { role, goal: read_goal(goal)?, queue, ..terms.ask(&settings)? };
    let job = accepted(&settings, &personas, ask, &terms.retry)?;
    let now = wire::now();
    let schedule = Schedule::new(&name, (&rule.cron, &rule.tz), job, (missed, overlap), now)?;
    let store = wire::open_store(&settings)?;
    if !store.add_schedule(schedule.clone()).await? {
        let way_out = format!("posse schedule remove {name} takes it away");
        return Err(fail(Exit::Conflict, format!("there is a schedule '{name}' already; {way_out}")));
    }
    if cx.out.json {
        cx.out.document(&schedule)?;
        return Ok(Exit::Ok);
    }
    cx.out.line(format!("{}  next run {}", cx.out.paint.bold(&name), moment(schedule.next_at)))?;
    for run in runs(&schedule.cron, &schedule.zone, now, 3)? {
        cx.out.line(format!("  {}", run.local))?;
    }
    cx.out.note(cx.out.note_paint.dim("posse work keeps schedules and works their jobs · posse schedule list"));
    Ok(Exit::Ok)
}

async fn list(cx: &Context) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let schedules = match wire::open_to_look(&settings)? {
        Some(store) => store.schedules().await?,
        None => Vec::new(),
    };
    if cx.out.json {
        cx.out.document(&schedules)?;
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
    let store = wire::open_to_look(&cx.plain_settings()?)?.ok_or_else(|| no_such(name))?;
    let schedule = store.schedules().await?.into_iter().find(|schedule| schedule.name == name);
    let schedule = schedule.ok_or_else(|| no_such(name))?;
    let made = store.schedule_jobs(name.into(), 10).await?;
    let mut jobs = Vec::new();
    for (due_at, id) in made {
        let state = store.job(id).await?.map(|job| job.state);
        jobs.push((due_at, id, state));
    }
    // The next one is what is stored; what follows is by the rule.
    let next = match schedule.paused_at {
        Some(_) => Vec::new(),
        None => runs(&schedule.cron, &schedule.zone, schedule.next_at - 1, 5)?,
    };
    if cx.out.json {
        let jobs: Vec<_> =
            jobs.iter().map(|(due_at, id, state)| json!({"due_at": due_at, "id": id, "state": state})).collect();
        cx.out.document(&json!({"schedule": schedule, "next": next, "jobs": jobs}))?;
        return Ok(Exit::Ok);
    }
    let Schedule { cron, zone, job, missed, overlap, paused_at, .. } = &schedule;
    cx.out.line(format!("{}  {cron}  {zone}", cx.out.paint.bold(name)))?;
    cx.out.line(format!("  {}: {}", job.role, one_line(&job.payload.goal, cx.out.width)))?;
    cx.out.line(format!("  missed runs: {}; overlapping runs: {}", missed.as_str(), overlap.as_str()))?;
    if let Some(at) = paused_at {
        cx.out.line(format!("  paused since {}", moment(*at)))?;
    }
    for run in next {
        cx.out.line(format!("  next  {}", run.local))?;
    }
    for (due_at, id, state) in jobs {
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
    wire::open_to_look(&settings)?.ok_or_else(|| no_such(&name))?;
    let store = wire::open_store(&settings)?;
    let schedule = store.schedules().await?.into_iter().find(|schedule| schedule.name == name);
    let next_at = resume_at(&schedule.ok_or_else(|| no_such(&name))?)?;
    if !store.pause_schedule(name.clone(), next_at, wire::now()).await? {
        return Err(no_such(&name));
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
    wire::open_to_look(&settings)?.ok_or_else(|| no_such(&name))?;
    if !wire::open_store(&settings)?.remove_schedule(name.clone()).await? {
        return Err(no_such(&name));
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

fn no_such(name: &str) -> anyhow::Error {
    not_found(format!("there is no schedule '{name}' (posse schedule list)"))
}
