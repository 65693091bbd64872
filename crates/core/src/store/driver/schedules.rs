//! Rows of schedules, and of batches that remember how far they are.

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::JobId;
use crate::port::BatchMark;
use crate::schedule::Schedule;
use crate::store::seal::Sealed;

/// A schedule.
#[derive(Debug)]
pub struct ScheduleRow {
    /// All of it but the job it makes and the last one it made.
    pub schedule: Schedule,
    /// The job it makes, as JSON.
    pub job: Sealed,
}

/// Some schedules.
#[derive(Debug)]
pub enum SchedulesOf<'a> {
    /// That of a name.
    Name(&'a str),
    /// All, by name.
    All,
    /// Those that are not paused and whose next run is not ahead of this time, the most overdue first.
    Due(Millis),
}

impl Record for ScheduleRow {
    type Of<'a> = SchedulesOf<'a>;
}

/// That of a name, with what is known of its runs.
impl Passing for ScheduleRow {
    type Which<'a> = &'a str;
}

/// A job that a schedule made. The last so many are found by its name, newest first.
#[derive(Debug)]
pub struct Run {
    /// The schedule.
    pub schedule: String,
    /// The time it was made for.
    pub due_at: Millis,
    /// The job.
    pub job: JobId,
}

impl Record for Run {
    type Of<'a> = (&'a str, u32);
}

/// A batch. Found by its name.
#[derive(Debug)]
pub struct BatchRow {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub mark: BatchMark,
    /// How many jobs it stored.
    pub jobs: u64,
    /// When it was begun.
    pub created_at: Millis,
    /// When it last went on.
    pub changed_at: Millis,
}

impl Record for BatchRow {
    type Of<'a> = &'a str;
}

/// A name that a batch gave a job. Found by the batch.
#[derive(Debug)]
pub struct BatchName {
    /// The batch.
    pub batch: String,
    /// The name.
    pub name: String,
    /// The job.
    pub job: JobId,
}

impl Record for BatchName {
    type Of<'a> = &'a str;
}
