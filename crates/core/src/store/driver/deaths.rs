//! Rows of what is known of workers that died, and of the jobs they held.

use crate::clock::Millis;
use crate::job::JobId;
use crate::job::deaths::{Deaths, Suspect, Trail};
use crate::store::Done;

/// Rows of what is known of workers that died, and of the jobs they held.
pub trait DeathRows {
    /// How many deaths a job may meet, where it has a limit of its own.
    fn death_limit(&mut self, job: JobId) -> Done<Option<u32>>;
    /// What is known of the deaths that a job met.
    fn deaths(&mut self, job: JobId) -> Done<Option<Deaths>>;
    /// How far a job is.
    fn trail(&mut self, job: JobId) -> Done<Trail>;
    /// Stores what is known of them now, and that no worker keeps its hands empty for the job.
    fn set_deaths(&mut self, job: JobId, met: &Deaths, died_at: Millis, suspect: bool) -> Done<()>;
    /// The jobs that are suspected. Nearly always none, and then nearly free.
    fn suspects(&mut self) -> Done<Vec<Suspect>>;
    /// Whether a worker is listed.
    fn is_listed(&mut self, worker: &str) -> Done<bool>;
    /// Whether a worker has any job.
    fn has_jobs(&mut self, worker: &str) -> Done<bool>;
    /// Stores that a worker keeps its hands empty for a suspect.
    fn await_empty_hands(&mut self, job: JobId, worker: &str) -> Done<()>;
    /// Stores that a job is suspected no more.
    fn clear_suspect(&mut self, job: JobId) -> Done<()>;
    /// Deletes what is known of its deaths.
    fn forget_deaths(&mut self, job: JobId) -> Done<()>;
}
