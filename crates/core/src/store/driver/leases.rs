//! Rows of who works.

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::port::WorkerRecord;
use crate::store::Done;

/// Rows of who works.
pub trait LeaseRows {
    /// Stores a worker's last sign of life.
    fn beat(&mut self, worker: &WorkerId, at: Millis) -> Done<()>;
}

/// The workers on the list: one, or all by id.
impl Record for WorkerRecord {
    type Of<'a> = Option<&'a str>;
}

/// One.
impl Passing for WorkerRecord {
    type Which<'a> = &'a WorkerId;
}
