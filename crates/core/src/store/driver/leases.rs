//! Rows of who works, and of what they hold.

use std::collections::HashMap;

use super::{JobRow, Passing, Record};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::lease::WorkerId;
use crate::port::{Overdue, WorkerRecord};
use crate::store::Done;

/// Rows of who works, and of what they hold.
pub trait LeaseRows {
    /// The lease tokens of those of these jobs that run.
    fn tokens(&mut self, ids: &[JobId]) -> Done<HashMap<JobId, i64>>;
    /// Stores until when the leases of these jobs stand.
    fn set_lease_until(&mut self, ids: &[JobId], until: Millis) -> Done<()>;
    /// Stores until when the lease of a job stands, if it runs.
    fn cut_lease(&mut self, id: JobId, until: Millis) -> Done<()>;
    /// The leases of all jobs that run.
    fn leases(&mut self) -> Done<Vec<LeaseRow>>;
    /// Leases that ended before or at `now`.
    fn overdue(&mut self, now: Millis) -> Done<Vec<Overdue>>;
    /// The earliest time at which a lease ends.
    fn next_lease_end(&mut self) -> Done<Option<Millis>>;
    /// The jobs that a worker holds.
    fn held_by(&mut self, worker: &WorkerId) -> Done<Vec<JobRow>>;
    /// Running jobs whose end was asked for. Nearly always none, and then free.
    fn to_be_cancelled(&mut self) -> Done<Vec<JobId>>;
    /// Stores a worker's last sign of life.
    fn beat(&mut self, worker: &WorkerId, at: Millis) -> Done<()>;
}

/// Who holds a job.
#[derive(Debug)]
pub struct LeaseRow {
    /// The job.
    pub job: JobId,
    /// Until when.
    pub until: Option<Millis>,
    /// The worker.
    pub worker: Option<String>,
}

/// The workers on the list: one, or all by id.
impl Record for WorkerRecord {
    type Of<'a> = Option<&'a str>;
}

/// One.
impl Passing for WorkerRecord {
    type Which<'a> = &'a WorkerId;
}
