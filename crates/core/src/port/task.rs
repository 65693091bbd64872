//! Tasks: jobs that a run gives to others.

use async_trait::async_trait;

#[cfg(doc)]
use super::RepositoryError;
use super::{Cancelled, Result};
use crate::clock::Millis;
use crate::job::lease::Lease;
use crate::job::task::Given;
use crate::job::{JobId, NewJob};

/// What the holder of a job's lease does about its tasks.
#[async_trait]
pub trait TaskRepository: Send + Sync {
    /// Makes `job`, whose payload says [of what task](crate::job::Payload::task), beneath the leased one, if there is room
    /// for it by the rows that are there in the same transaction; or finds the one that its effect key made before.
    /// Costs a read of each task of the leased job, and of the tree beneath its root.
    async fn give_task(&self, lease: Lease, job: NewJob, now: Millis) -> Result<Given>;

    /// Asks for the end of a task of the leased job and of those beneath it; [`RepositoryError::NoSuchJob`] where it is
    /// none of its tasks.
    async fn cancel_task(&self, lease: Lease, task: JobId, reason: String, now: Millis) -> Result<Cancelled>;
}
