//! Rows of what is known of workers that died, and of the jobs they held.

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::deaths::{Deaths, Trail};
use crate::store::Done;

/// Rows that deaths are weighed by.
pub trait DeathRows {
    /// How many deaths a job may meet, where it has a limit of its own.
    fn death_limit(&mut self, job: JobId) -> Done<Option<u32>>;
    /// How far a job is.
    fn trail(&mut self, job: JobId) -> Done<Trail>;
}

/// What is known of the deaths that a job met.
#[derive(Debug)]
pub struct DeathRow {
    /// The job.
    pub job: JobId,
    /// How many, and where.
    pub met: Deaths,
    /// When the last worker died.
    pub died_at: Millis,
    /// Whether it is worked with nothing beside it.
    pub suspect: bool,
    /// The worker that keeps its hands empty for it.
    pub awaited_by: Option<String>,
}

/// Rows of one or of several jobs.
#[derive(Debug)]
pub enum DeathsOf {
    /// A job's, if it met any.
    Job(JobId),
    /// Those of jobs that are suspected. Nearly always none, and then nearly free.
    Suspects,
}

impl Record for DeathRow {
    type Of<'a> = DeathsOf;
}

/// That of a job.
impl Passing for DeathRow {
    type Which<'a> = JobId;
}
