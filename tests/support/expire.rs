//! Leases that are over at once, where nobody watches for how long they are.

use posse_core::clock::Millis;
use posse_core::job::lease::WorkerId;
use posse_core::port::{Forfeit, JobQueries, JobRepository, RepositoryError, Rescued};

/// For whatever has leases.
#[allow(async_fn_in_trait)]
pub trait Expire {
    /// Takes back all jobs whose leases are over, as from workers that died, and those of workers in `dead`; by job.
    async fn rescue(&self, dead: Vec<WorkerId>, now: Millis) -> Result<Vec<Rescued>, RepositoryError>;
}

impl<T: JobRepository + JobQueries + ?Sized> Expire for T {
    async fn rescue(&self, dead: Vec<WorkerId>, now: Millis) -> Result<Vec<Rescued>, RepositoryError> {
        let overdue = self.overdue(now).await?;
        let forfeits = overdue.into_iter().map(|overdue| Forfeit { overdue, is_alive: false }).collect();
        let mut rescued = self.take_back(forfeits, now).await?;
        rescued.extend(self.rescue_from(dead, now).await?);
        rescued.sort_by_key(|rescued| rescued.job);
        Ok(rescued)
    }
}
