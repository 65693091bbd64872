//! Everything that is kept, behind one name.

use super::{
    CareRepository, JobQueries, JobRelations, JobRepository, JobSearch, MemoryQueries, MetricsQueries, QueueRepository,
    RateLimiter, Rules, TaskRepository, Upkeep,
};

/// A store: all that an application asks of one database. Nothing is to be implemented for it; whatever implements the
/// ports is one.
pub trait Store:
    JobRepository
    + JobQueries
    + JobRelations
    + JobSearch
    + MemoryQueries
    + CareRepository
    + Rules
    + QueueRepository
    + RateLimiter
    + MetricsQueries
    + TaskRepository
    + Upkeep
{
}

impl<T> Store for T where
    T: JobRepository
        + JobQueries
        + JobRelations
        + JobSearch
        + MemoryQueries
        + CareRepository
        + Rules
        + QueueRepository
        + RateLimiter
        + MetricsQueries
        + TaskRepository
        + Upkeep
{
}
