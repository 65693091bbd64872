//! Rows of jobs that may be claimed, and the lanes they stand in.

use super::{DataRow, WorkedRow};
use crate::clock::Millis;
use crate::job::JobId;
use crate::store::Done;

/// Rows of jobs that may be claimed. Where rows are locked, what others have locked is left out.
pub trait ClaimRows {
    /// The head of the first of these lanes of a role.
    fn head(&mut self, role: &str, of: Lanes<'_>) -> Done<Option<Head>>;
    /// The jobs of a lane that stand behind one of them, at most `most`.
    fn lane(&mut self, role: &str, queue: &str, key: &str, behind: Front, most: u32) -> Done<Vec<Front>>;
    /// Both rows of jobs that are available.
    fn claimable(&mut self, of: ClaimableOf<'_>) -> Done<Vec<Claimable>>;
}

/// Which jobs are to be claimed.
#[derive(Debug, Clone, Copy)]
pub enum ClaimableOf<'a> {
    /// The first of a lane, in its order.
    First {
        /// The lane's role.
        role: &'a str,
        /// Its queue.
        queue: &'a str,
        /// Its concurrency key.
        key: &'a str,
        /// At most so many.
        most: u32,
    },
    /// These, in no order.
    Ids(&'a [JobId]),
}

/// What a claim needs of an available job's row.
#[derive(Debug)]
pub struct AvailableRow {
    /// What it has in common with that of a running job.
    pub worked: WorkedRow,
    /// Its queue.
    pub queue: String,
    /// 1 to 9.
    pub priority: u8,
    /// When it was enqueued.
    pub created_at: Millis,
    /// Empty where it has none.
    pub concurrency_key: String,
    /// The key that no two live jobs have.
    pub unique_key: Option<String>,
}

/// Both rows of an available job.
pub type Claimable = (AvailableRow, DataRow);

/// Where a job stands in its lane, and among all: its rank and its number.
pub type Front = (i64, JobId);

/// The first job of a lane.
#[derive(Debug)]
pub struct Head {
    /// The lane's queue.
    pub queue: String,
    /// The lane's concurrency key.
    pub key: String,
    /// The job.
    pub front: Front,
}

/// Some of a role's lanes, which stand in the order of queue and concurrency key.
#[derive(Debug, Clone, Copy)]
pub enum Lanes<'a> {
    /// All of them.
    All,
    /// Those of a queue.
    Of(&'a str),
    /// Those of a queue behind that of this key.
    Behind(&'a str, &'a str),
    /// Those of all queues behind this one.
    After(&'a str),
}
