//! Schedules: adding and changing them, when a rule runs, and as they are shown.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use posse_core::clock::Millis;
use posse_core::job::enqueue::EnqueueRequest;
use posse_core::job::{JobId, JobState, NewJob};
use posse_core::port::{Enqueued, Store};
use posse_core::schedule::{Missed, Overlap, Schedule, Timetable};
use posse_core::workspace::folder::FolderId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::enqueue::{Intake, RetryAsked};
use crate::{Code, Error, Result};

/// A run of a rule.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Run {
    /// Milliseconds since 1970.
    pub at: Millis,
    /// The same in UTC.
    pub utc: String,
    /// The same by the clocks that the rule goes by.
    pub local: String,
}

/// A job that a schedule made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Made {
    /// The run that it was made for.
    pub due_at: Millis,
    /// Its number.
    pub id: JobId,
    /// Where it is in its life; null once it is deleted.
    pub state: Option<JobState>,
}

/// A schedule with its runs: the document of `posse schedule show --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ScheduleDocument {
    /// The schedule.
    pub schedule: Schedule,
    /// Its next runs; none while it is paused.
    pub next: Vec<Run>,
    /// The last jobs that it made, newest first.
    pub jobs: Vec<Made>,
}

/// Runs and jobs of a schedule that are shown.
const SHOWN: (usize, u32) = (5, 10);

impl ScheduleDocument {
    /// Reads it.
    pub async fn read(store: &dyn Store, name: &str) -> Result<ScheduleDocument> {
        let schedule = find(store, name).await?;
        let mut jobs = Vec::new();
        for (due_at, id) in store.schedule_jobs(name.into(), SHOWN.1).await? {
            let state = store.job(id).await?.map(|job| job.state);
            jobs.push(Made { due_at, id, state });
        }
        // The next one is what is stored; what follows is by the rule.
        let next = match schedule.paused_at {
            Some(_) => Vec::new(),
            None => runs(&schedule.cron, &schedule.zone, schedule.next_at - 1, SHOWN.0)?,
        };
        Ok(ScheduleDocument { schedule, next, jobs })
    }
}

/// The schedule of that name.
pub async fn find(store: &dyn Store, name: &str) -> Result<Schedule> {
    let found = store.schedules().await?.into_iter().find(|schedule| schedule.name == name);
    found.ok_or_else(|| no_such(name))
}

/// That there is no schedule of that name.
pub fn no_such(name: &str) -> Error {
    Error::new(Code::ScheduleNotFound, format!("there is no schedule '{name}' (posse schedule list)"))
}

/// The first `count` runs of a rule after `from`.
pub fn runs(cron: &str, zone: &str, from: Millis, count: usize) -> Result<Vec<Run>> {
    let timetable = Timetable::parse(cron, zone).map_err(Error::invalid)?;
    let local = zone_of(zone)?;
    let times = std::iter::successors(timetable.next_after(from), |at| timetable.next_after(*at));
    let run = |at| {
        let moment = Timestamp::from_millisecond(at).map_err(|error| Error::invalid(error.to_string()))?;
        let local = moment.to_zoned(local.clone()).strftime("%a %Y-%m-%d %H:%M %Z").to_string();
        Ok(Run { at, utc: moment.to_string(), local })
    };
    times.take(count).map(run).collect()
}

/// The time zone of that name.
pub fn zone_of(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| Error::invalid(format!("this machine knows no time zone '{name}'")))
}

/// What is to be different of a schedule; what is absent stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// Its rule.
    pub cron: Option<String>,
    /// The zone that this goes by.
    pub zone: Option<String>,
    /// What becomes of runs that nobody was there to begin.
    pub missed: Option<Missed>,
    /// What a run does where the last one's job has not ended.
    pub overlap: Option<Overlap>,
    /// Who works its jobs.
    pub role: Option<String>,
    /// What they are to do.
    pub goal: Option<String>,
    /// The queue they wait in.
    pub queue: Option<String>,
    /// 1 (first) to 9 (last).
    pub priority: Option<u8>,
    /// Attempts they get.
    pub max_attempts: Option<u32>,
    /// The folder their tools are confined to.
    pub workspace: Option<(String, FolderId)>,
    /// The model that is used instead of the persona's, or none.
    pub model: Option<Option<String>>,
    /// The group they are counted in, or none.
    pub group: Option<Option<String>>,
    /// Words to find them by.
    pub tags: Option<Vec<String>>,
    /// The key by which limits count them, or none.
    pub concurrency_key: Option<Option<String>>,
}

impl Edit {
    /// The schedule with what is named changed, checked as one that is new; and whether its next run stays where it is: one
    /// that is due, or overdue, still is where the rule is the same.
    pub async fn of(self, old: &Schedule, intake: &Intake, store: &dyn Store, now: Millis) -> Result<(Schedule, bool)> {
        let cron = self.cron.clone().unwrap_or_else(|| old.cron.clone());
        let zone = self.zone.clone().unwrap_or_else(|| old.zone.clone());
        let rules = (self.missed.unwrap_or(old.missed), self.overlap.unwrap_or(old.overlap));
        let job = self.job(&old.job, intake, store).await?;
        let new = Schedule::new(&old.name, (&cron, &zone), job, rules, now)?;
        let keeps_next = new.cron == old.cron && new.zone == old.zone;
        let next_at = if keeps_next { old.next_at } else { new.next_at };
        let Schedule { paused_at, created_at, ref last, .. } = *old;
        let new = Schedule { next_at, paused_at, created_at, last: last.clone(), ..new };
        if new == *old {
            let what = "nothing is different; say what is to be changed (posse schedule edit --help)";
            return Err(Error::invalid(what));
        }
        Ok((new, keeps_next))
    }

    async fn job(self, old: &NewJob, intake: &Intake, store: &dyn Store) -> Result<NewJob> {
        let Edit { role, goal, queue, priority, max_attempts, workspace, model, group, tags, concurrency_key, .. } =
            self;
        let payload = &old.payload;
        let (workspace, workspace_id) = match workspace {
            Some((path, id)) => (path, Some(id)),
            None => (payload.workspace.clone(), payload.workspace_id),
        };
        let request = EnqueueRequest {
            role: role.unwrap_or_else(|| old.role.clone()),
            goal: goal.unwrap_or_else(|| payload.goal.clone()),
            queue: queue.unwrap_or_else(|| old.queue.clone()),
            priority: Some(priority.unwrap_or(old.priority)),
            max_attempts: Some(max_attempts.unwrap_or(old.max_attempts)),
            workspace,
            workspace_id,
            model: model.unwrap_or_else(|| payload.model.clone()),
            group: group.unwrap_or_else(|| old.group.clone()),
            tags: tags.unwrap_or_else(|| old.tags.clone()),
            concurrency_key: concurrency_key.unwrap_or_else(|| old.concurrency_key.clone()),
            meta: old.meta.clone(),
            ..EnqueueRequest::default()
        };
        let new = intake.job(store, request, &RetryAsked::default()).await?;
        // How failures are waited for is taken from a persona when a schedule is added.
        let retry = if new.role == old.role { old.retry } else { new.retry };
        let priority_step_ms = if priority.is_some() { new.priority_step_ms } else { old.priority_step_ms };
        Ok(NewJob { retry, priority_step_ms, ..new })
    }
}

/// The schedule of that name, to be edited: one that cannot be read can only be replaced.
pub async fn editable(store: &dyn Store, name: &str) -> Result<Schedule> {
    undamaged(store, name, |why| format!("{name} cannot be edited: {why}; posse schedule replace {name} can")).await
}

/// The schedule of that name, to make a job of.
pub async fn runnable(store: &dyn Store, name: &str) -> Result<Schedule> {
    undamaged(store, name, |why| format!("{name} makes no jobs: {why}")).await
}

async fn undamaged(store: &dyn Store, name: &str, in_words: impl FnOnce(&str) -> String) -> Result<Schedule> {
    let schedule = find(store, name).await?;
    match &schedule.damage {
        Some(why) => Err(Error::new(Code::ScheduleDamaged, in_words(why))),
        None => Ok(schedule),
    }
}

/// Adds a schedule; there must be none of its name.
pub async fn add(store: &dyn Store, schedule: &Schedule) -> Result<()> {
    if store.add_schedule(schedule.clone()).await? {
        return Ok(());
    }
    let name = &schedule.name;
    let way_out = format!("posse schedule replace {name} puts this in its place, edit changes a part of it");
    Err(Error::new(Code::ScheduleExists, format!("there is a schedule '{name}' already; {way_out}")))
}

/// Puts a schedule in the place of the one of its name.
pub async fn replace(store: &dyn Store, schedule: &Schedule, keeps_next: bool) -> Result<()> {
    there(store.replace_schedule(schedule.clone(), keeps_next).await?, &schedule.name)
}

/// Makes a job of a schedule now, whatever its rule says.
pub async fn run_now(store: &dyn Store, schedule: &Schedule, now: Millis) -> Result<Enqueued> {
    let Schedule { name, job, .. } = schedule;
    store.run_schedule(name.clone(), job.clone(), now).await?.ok_or_else(|| no_such(name))
}

/// Has a schedule make no jobs until it is resumed.
pub async fn pause(store: &dyn Store, name: &str, now: Millis) -> Result<()> {
    find(store, name).await?;
    there(store.pause_schedule(name.into(), None, now).await?, name)
}

/// Has a schedule go on, and gives its next run.
pub async fn resume(store: &dyn Store, name: &str, now: Millis) -> Result<Millis> {
    let next_at = find(store, name).await?.resume_at(now).map_err(Error::invalid)?;
    there(store.pause_schedule(name.into(), Some(next_at), now).await?, name)?;
    Ok(next_at)
}

/// Takes a schedule away; the jobs it made stay.
pub async fn remove(store: &dyn Store, name: &str) -> Result<()> {
    there(store.remove_schedule(name.into()).await?, name)
}

fn there(is_there: bool, name: &str) -> Result<()> {
    if is_there { Ok(()) } else { Err(no_such(name)) }
}
