//! Rows of who waits for whom, and of who is beneath whom.

use crate::job::dependency::{Dependency, GroupWait, OnFailed};
use crate::job::{JobId, JobState};
use crate::store::Done;

/// Rows of who waits for whom, and of who is beneath whom.
///
/// A wait is *open* until what is waited for is there. Where rows are locked, [`WaitRows::members`] and
/// [`WaitRows::waiting_for_group`] lock the group's name: what is not there yet has no row.
pub trait WaitRows {
    /// The jobs with an open wait for `on`, each with its rule.
    fn waiting_for(&mut self, on: JobId) -> Done<Vec<(JobId, OnFailed)>>;
    /// The jobs that `job` has an open wait for.
    fn waits_on(&mut self, job: JobId) -> Done<Vec<JobId>>;
    /// Whether `job` has any open wait for another. Costs the same however many it has.
    fn is_waiting(&mut self, job: JobId) -> Done<bool>;
    /// The jobs that `job` waits for or waited for, in order.
    fn dependencies(&mut self, job: JobId) -> Done<Vec<Dependency>>;
    /// Stores that `job` waits for others, and whether each wait is open; in the place of what was stored before.
    fn wait_for(&mut self, job: JobId, others: &[(JobId, bool)], on_failed: OnFailed) -> Done<()>;
    /// Closes one wait.
    fn close_wait(&mut self, job: JobId, on: JobId) -> Done<()>;
    /// Closes all waits of a job for others.
    fn close_waits(&mut self, job: JobId) -> Done<()>;
    /// Closes all waits of a job for groups.
    fn close_group_waits(&mut self, job: JobId) -> Done<()>;
    /// Deletes all waits of a job, for others and for groups.
    fn forget_waits(&mut self, job: JobId) -> Done<()>;
    /// Jobs of a group that have not completed, by id, at most `most` of them.
    fn members(&mut self, group: &str, most: i64) -> Done<Vec<(JobId, JobState)>>;
    /// Whether there is any job in a group.
    fn has_members(&mut self, group: &str) -> Done<bool>;
    /// The jobs with an open wait for a group, each with its rule.
    fn waiting_for_group(&mut self, group: &str) -> Done<Vec<(JobId, OnFailed)>>;
    /// The groups that a job waits for or waited for, by name.
    fn awaited_groups(&mut self, job: JobId) -> Done<Vec<GroupWait>>;
    /// Stores that a job waits for a group, and whether that wait is open.
    fn wait_for_group(&mut self, job: JobId, group: &str, on_failed: OnFailed, open: bool) -> Done<()>;
    /// The group of a job and the topmost job above it, if there is such a job.
    fn family(&mut self, job: JobId) -> Done<Option<Family>>;
    /// The jobs that a job has made, oldest first.
    fn children(&mut self, parent: JobId) -> Done<Vec<JobId>>;
}

/// To whom a job belongs.
#[derive(Debug)]
pub struct Family {
    /// Its group.
    pub group: Option<String>,
    /// The topmost job above it, if there is one above it.
    pub root: Option<JobId>,
}
