//! Rows of who waits for whom.

use crate::job::JobId;
use crate::job::dependency::{GroupWait, OnFailed};
use crate::store::Done;

/// Rows of who waits for whom.
///
/// A wait is *open* until what is waited for is there.
pub trait WaitRows {
    /// Waits of jobs for others, in the order of those that wait and then of the others.
    fn waits(&mut self, of: WaitsOf) -> Done<Vec<WaitRow>>;
    /// Jobs that wait for groups, in the order of the jobs and then of the groups.
    fn group_waits(&mut self, of: GroupWaitsOf<'_>) -> Done<Vec<(JobId, GroupWait)>>;
    /// Stores that `job` waits for others, and whether each wait is open; in the place of what was stored before.
    fn wait_for(&mut self, job: JobId, others: &[(JobId, bool)], on_failed: OnFailed) -> Done<()>;
    /// Stores that `job` waits for a group, and whether that wait is open.
    fn wait_for_group(&mut self, job: JobId, group: &str, on_failed: OnFailed, open: bool) -> Done<()>;
    /// Has waits of `job` be open no more.
    fn close_waits(&mut self, job: JobId, which: Closing) -> Done<()>;
}

/// Which waits for jobs.
#[derive(Debug, Clone, Copy)]
pub enum WaitsOf {
    /// All of a job, open or not.
    Job(JobId),
    /// Open ones of a job, at most so many. One costs the same however many there are.
    OpenOf(JobId, u32),
    /// Open ones for a job, at most so many.
    OpenOn(JobId, u32),
}

/// A job that waits for another.
#[derive(Debug, Clone, Copy)]
pub struct WaitRow {
    /// Which one waits.
    pub job: JobId,
    /// For which.
    pub on: JobId,
    /// Whether it still does.
    pub open: bool,
    /// What happens if that one does not complete.
    pub on_failed: OnFailed,
}

/// Which waits for groups.
#[derive(Debug, Clone, Copy)]
pub enum GroupWaitsOf<'a> {
    /// All of a job, open or not.
    Job(JobId),
    /// Open ones for a group. Where rows are locked the group's name is: what is not there yet has no row.
    OpenOn(&'a str),
}

/// Which waits of a job are closed.
#[derive(Debug, Clone, Copy)]
pub enum Closing {
    /// That for this job.
    On(JobId),
    /// Those for groups.
    Groups,
    /// All.
    All,
    /// All, and nothing is to tell of them any more.
    Forgotten,
}
