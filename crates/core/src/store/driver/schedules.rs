//! Rows of schedules, and of batches that remember how far they are.

use crate::clock::Millis;
use crate::job::JobId;
use crate::port::BatchMark;
use crate::schedule::{LastJob, Missed, Overlap, Schedule};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of schedules, and of batches that remember how far they are.
pub trait ScheduleRows {
    /// Stores a schedule, and the job it makes; false if there is one of its name.
    fn add_schedule(&mut self, schedule: &Schedule, job: Sealed) -> Done<bool>;
    /// Stores it in the place of the one of its name, whose pause stays, and its next run too where `keeps_next` says so;
    /// false if there is none.
    fn replace_schedule(&mut self, schedule: &Schedule, job: Sealed, keeps_next: bool) -> Done<bool>;
    /// Deletes a schedule; false if there is none.
    fn forget_schedule(&mut self, name: &str) -> Done<bool>;
    /// Whether there is a schedule.
    fn has_schedule(&mut self, name: &str) -> Done<bool>;
    /// Stores that a schedule is paused; false if it was, or there is none.
    fn pause_schedule(&mut self, name: &str, at: Millis) -> Done<bool>;
    /// Stores that a schedule is not paused, and its next run; false if there is none.
    fn resume_schedule(&mut self, name: &str, next_at: Millis) -> Done<bool>;
    /// Stores a schedule's next run if it is not paused and that is `expected` so far; whether it was.
    fn set_next_run(&mut self, name: &str, expected: Millis, next_at: Millis) -> Done<bool>;
    /// Stores that a schedule made a job.
    fn add_run(&mut self, schedule: &str, due_at: Millis, job: JobId) -> Done<()>;
    /// All schedules, by name.
    fn schedules(&mut self) -> Done<Vec<ScheduleRow>>;
    /// Those that are not paused and whose next run is not ahead, the most overdue first.
    fn due_schedules(&mut self, now: Millis) -> Done<Vec<ScheduleRow>>;
    /// The jobs that a schedule made, newest first, each with the time it was made for.
    fn runs(&mut self, name: &str, most: u32) -> Done<Vec<(Millis, JobId)>>;
    /// How far a batch is, and how many jobs it stored; none where nothing is known of it.
    fn batch(&mut self, name: &str) -> Done<Option<(BatchMark, u64)>>;
    /// Stores how far a batch is, and that it stored so many jobs more.
    fn set_batch(&mut self, name: &str, mark: &BatchMark, jobs: u64, at: Millis) -> Done<()>;
    /// The names that a batch gave its jobs.
    fn batch_names(&mut self, batch: &str) -> Done<Vec<(String, JobId)>>;
    /// Stores a name that a batch gave a job.
    fn name_in_batch(&mut self, batch: &str, name: &str, job: JobId) -> Done<()>;
}

/// A schedule.
#[derive(Debug)]
pub struct ScheduleRow {
    /// Its name.
    pub name: String,
    /// When it is due.
    pub cron: String,
    /// Where.
    pub zone: String,
    /// The job it makes, as JSON.
    pub job: Sealed,
    /// What becomes of missed runs.
    pub missed: Missed,
    /// What becomes of runs while the last one's job goes on.
    pub overlap: Overlap,
    /// Its next run.
    pub next_at: Millis,
    /// Since when it is paused.
    pub paused_at: Option<Millis>,
    /// When it was added.
    pub created_at: Millis,
    /// The last job it made.
    pub last: Option<LastJob>,
}
