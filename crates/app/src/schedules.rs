//! Schedules as they are shown, and when a rule runs.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState};
use posse_core::port::Store;
use posse_core::schedule::{Schedule, Timetable};
use schemars::JsonSchema;
use serde::Serialize;

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
