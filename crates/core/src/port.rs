//! What the core needs of the world. Ports speak of jobs, never of databases.
//!
//! Each entity has a file: what is stored of it, what changes it, and what is asked about it. A `Repository` changes,
//! `Queries` read and never wait for writes; each change is one transaction, durable when its method returns.

use crate::job::JobId;
use crate::job::dependency::empty_group;
use crate::job::transition::IllegalTransition;

mod agents;
mod annotation;
mod care;
mod fork;
mod job;
mod memory;
mod metrics;
mod question;
mod queue;
mod relations;
mod session;
mod store;
mod task;
mod upkeep;
mod worker;

pub use agents::{PersonaRepository, SkillRepository};
pub use annotation::{AnnotationQueries, AnnotationRepository};
pub use care::{Awaited, CareRepository, ClockJump, DueJobs, Firing, HeldJob, Pruned, Storage, Waiting};
pub use fork::ForkRepository;
pub use job::{
    Appended, AttemptEnd, Cancelled, ClaimRequest, Claimed, Ending, Enqueued, JobFilter, JobQueries, JobRepository,
    SEARCHED_AT_MOST,
};
pub use memory::{MemoryQueries, MemoryRepository};
pub use metrics::{JobsIn, MetricsQueries, Standing, Written};
pub use question::{QuestionFilter, QuestionRepository};
pub use queue::{QueueRepository, RateLimiter, Rules};
pub use relations::{BatchMark, BatchStanding, Chunk, JobRelations, JobSearch, Reach, StateRow};
pub use session::{SessionQueries, SessionRepository};
pub use store::Store;
pub use task::TaskRepository;
pub use upkeep::{Backup, Compacted, Database, Resealed, Restored, SchemaSteps, Upkeep};
pub use worker::{Forfeit, Heartbeat, Overdue, ProcessProbe, Rescued, WorkerRecord};

/// What a repository gives.
pub type Result<T, E = RepositoryError> = std::result::Result<T, E>;

/// A repository call that did not do what was asked, by what the caller should do about it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RepositoryError {
    /// The lease is no longer ours: drop everything about this job. Nothing was changed.
    #[error("the lease on job {0} is lost")]
    LeaseLost(JobId),
    /// There is no such job.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// A job cannot wait for a group in which there is none. Nothing was changed.
    #[error("{}", empty_group(.0))]
    EmptyGroup(String),
    /// The job's state does not allow it. Nothing was changed.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    /// What was asked cannot be, for a reason the caller can mend; in words. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The job would need a unique key that another job holds. Nothing was changed.
    #[error(
        "job {job} cannot run again: its unique key '{key}' is held by job {holder}; wait until that one ends, or \
         cancel it (posse job cancel {holder})"
    )]
    KeyHeld {
        /// The job that would run again.
        job: JobId,
        /// The key that it would hold.
        key: String,
        /// The job that holds it.
        holder: JobId,
    },
    /// The database cannot take writes now (full disk, read-only, locked); later it may. In words, with the way out.
    #[error("{0}")]
    Unavailable(String),
    /// The database's file was deleted, moved or replaced, and what was asked for may be lost. In words, with the way out.
    #[error("{0}")]
    Gone(String),
    /// The database cannot be used at all (newer schema, damage). In words, with the way out.
    #[error("{0}")]
    Unusable(String),
    /// A fault of the caller: an entry out of place, a value out of range. Nothing was changed.
    #[error("{0}")]
    Misused(String),
}
