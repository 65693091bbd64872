//! Rows of who works, and of what they hold.

use std::collections::HashMap;

use super::JobRow;
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
    /// The list of workers, by id.
    fn workers(&mut self) -> Done<Vec<WorkerRecord>>;
    /// How long the leases of each worker on the list stand.
    fn lease_times(&mut self) -> Done<HashMap<String, Millis>>;
    /// Puts a worker on the list, in place of what was known of it.
    fn register(&mut self, worker: &WorkerRecord) -> Done<()>;
    /// Takes a worker off the list.
    fn unregister(&mut self, worker: &WorkerId) -> Done<()>;
    /// Stores a worker's last sign of life.
    fn beat(&mut self, worker: &WorkerId, at: Millis) -> Done<()>;
    /// The ids of the workers on the list, in order.
    fn listed(&mut self) -> Done<Vec<String>>;
    /// Stores when a worker was asked to end, unless it was before.
    fn ask_to_end(&mut self, worker: &str, at: Millis) -> Done<()>;
    /// When a worker was asked to end, if it was.
    fn asked_to_end(&mut self, worker: &WorkerId) -> Done<Option<Millis>>;
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
