//! Schedules: rules that make jobs at times, kept in the database.
//!
//! A schedule has one next time. Whoever finds it past asks [`Schedule::fall_due`] what follows, and
//! stores that in one transaction which only succeeds while the next time is still the one that was
//! read: of several processes one makes the jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod cron;

pub use cron::Timetable;

use crate::clock::Millis;
use crate::job::enqueue::Refused;
use crate::job::name::check_role;
use crate::job::{JobId, JobState, NewJob};
use crate::text::{named, plural};

/// A run that is later than this was missed. A look at the schedules comes every second.
pub const MISSED_AFTER_MS: Millis = 60_000;

/// Most missed runs that are made up for at once; where there are more, the next look makes the next of them.
pub const MAX_CATCH_UP: usize = 100;

/// What becomes of runs that nobody was there to begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Nothing; the next one comes at its time.
    Skip,
    /// One run makes up for all of them.
    #[default]
    Once,
    /// Each is made up for, oldest first, [`MAX_CATCH_UP`] at a time.
    All,
}

/// What happens when the last job is not at its end yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The next one is made all the same.
    #[default]
    Allow,
    /// The run is left out.
    Skip,
}

named!(Missed, "rule for missed runs": Skip = "skip", Once = "once", All = "all");
named!(Overlap, "rule for overlapping runs": Allow = "allow", Skip = "skip");

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// When, as five fields of cron.
    pub cron: String,
    /// The time zone of the rule, by its IANA name.
    pub zone: String,
    /// The job it makes.
    pub job: NewJob,
    /// What becomes of runs that were missed.
    pub missed: Missed,
    /// What happens while the last job is not at its end.
    pub overlap: Overlap,
    /// The next run.
    pub next_at: Millis,
    /// Since when nothing is made, if it is paused.
    pub paused_at: Option<Millis>,
    /// When it was added.
    pub created_at: Millis,
    /// The last job it made.
    pub last: Option<LastJob>,
    /// Why the job it makes cannot be read from where it is kept; then it makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// The last job that a schedule made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastJob {
    /// The job.
    pub id: JobId,
    /// The run it was made for.
    pub due_at: Millis,
    /// Where it is.
    pub state: JobState,
}

/// What follows when a schedule falls due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The runs that get a job, oldest first.
    pub runs: Vec<Millis>,
    /// Why there are fewer of them than were due, in words.
    pub left_out: Option<String>,
    /// The next run.
    pub next_at: Millis,
}

impl Schedule {
    /// A schedule that begins now, checked. `job` has passed [`crate::job::enqueue::accept`].
    pub fn new(
        name: &str,
        (cron, zone): (&str, &str),
        job: NewJob,
        (missed, overlap): (Missed, Overlap),
        now: Millis,
    ) -> Result<Schedule, Refused> {
        check_role(name).map_err(|message| Refused { field: "name", message })?;
        let timetable = Timetable::parse(cron, zone).map_err(|message| Refused { field: "schedule", message })?;
        let never = || Refused { field: "schedule", message: format!("'{cron}' does not run again") };
        Ok(Schedule {
            name: name.into(),
            cron: cron.trim().into(),
            zone: zone.into(),
            job: NewJob { run_at: None, ..job },
            missed,
            overlap,
            next_at: timetable.next_after(now).ok_or_else(never)?,
            paused_at: None,
            created_at: now,
            last: None,
            damage: None,
        })
    }

    /// Its rule in its zone. Fails only where a later version took a rule that this one does not know.
    pub fn timetable(&self) -> Result<Timetable, String> {
        if let Some(why) = &self.damage {
            return Err(why.clone());
        }
        Timetable::parse(&self.cron, &self.zone)
    }

    /// The next run after `now`, for one that goes on after a pause: what came meanwhile is not made up for.
    pub fn resume_at(&self, now: Millis) -> Result<Millis, String> {
        self.timetable()?.next_after(now).ok_or_else(|| format!("'{}' does not run again", self.cron))
    }

    /// What follows at `now`, where the next run is not ahead any more.
    pub fn fall_due(&self, now: Millis) -> Result<Due, String> {
        let timetable = self.timetable()?;
        let next_at = timetable.next_after(now).ok_or_else(|| format!("'{}' does not run again", self.cron))?;
        let mut runs = self.runs_due(&timetable, now);
        if self.missed == Missed::All && self.overlap == Overlap::Allow && runs.len() > MAX_CATCH_UP {
            // Those that are left are still due then.
            let next_at = runs.split_off(MAX_CATCH_UP)[0];
            return Ok(Due { runs, left_out: None, next_at });
        }
        let due = runs.len();
        if self.overlap == Overlap::Skip {
            if let Some(last) = self.last.as_ref().filter(|last| !last.state.is_final()) {
                let left_out = format!("job {} of the run before is still {}", last.id, last.state);
                return Ok(Due { runs: Vec::new(), left_out: Some(left_out), next_at });
            }
            // Several at once would overlap each other.
            runs = runs.split_off(due.saturating_sub(1));
        }
        let left_out = match runs.len() {
            0 => Some("nobody was there at its time, and missed runs are skipped".into()),
            kept if kept < due => {
                Some(format!("{} were due at once, which must not overlap", plural(due as u64, "run")))
            }
            _ => None,
        };
        Ok(Due { runs, left_out, next_at })
    }

    /// The runs that are due by `now` and shall have a job, oldest first.
    fn runs_due(&self, timetable: &Timetable, now: Millis) -> Vec<Millis> {
        let in_time = timetable.next_after((now - MISSED_AFTER_MS).max(self.next_at - 1));
        let in_time = in_time.filter(|at| *at <= now);
        match self.missed {
            Missed::Skip => in_time.into_iter().collect(),
            Missed::Once => vec![in_time.unwrap_or(self.next_at)],
            Missed::All => {
                let all = std::iter::successors(Some(self.next_at), |at| timetable.next_after(*at));
                let all = all.take_while(|run| *run <= now);
                match self.overlap {
                    // Which of them it is tells the end of all; how many there were is only for words.
                    Overlap::Skip => all.collect(),
                    Overlap::Allow => all.take(MAX_CATCH_UP + 1).collect(),
                }
            }
        }
    }
}
