//! Rows of jobs as people change them.

use crate::job::JobId;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of jobs as people change them.
pub trait ChangeRows {
    /// What is to be done, of a job that is there.
    fn payload(&mut self, id: JobId) -> Done<Sealed>;
    /// Stores what is to be done.
    fn set_payload(&mut self, id: JobId, payload: Sealed) -> Done<()>;
    /// Stores who works a job, and how.
    fn edit_job(&mut self, id: JobId, to: &Edited<'_>) -> Done<()>;
    /// Any job with an open wait for this one.
    fn any_waiting_for(&mut self, id: JobId) -> Done<Option<JobId>>;
    /// Deletes a job with all that belongs to it but contents.
    fn delete_job_alone(&mut self, id: JobId) -> Done<()>;
}

/// Who works a job, and how.
#[derive(Debug, Clone, Copy)]
pub struct Edited<'a> {
    /// Who works it.
    pub role: &'a str,
    /// Its queue.
    pub queue: &'a str,
    /// 1 to 9.
    pub priority: u8,
    /// How many attempts it has.
    pub max_attempts: u32,
}
