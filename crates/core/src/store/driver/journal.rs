//! Rows of journals, their large parts and the ledger of calls.

use std::borrow::Cow;

use crate::clock::Millis;
use crate::job::JobId;
use crate::job::deaths::Trail;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of journals, their large parts and the ledger of calls.
pub trait JournalRows {
    /// The last entry of a job's journal.
    fn last_step(&mut self, job: JobId) -> Done<Option<LastStep>>;
    /// A job's entries from place `from` on, in order.
    fn journal(&mut self, job: JobId, from: i64) -> Done<Vec<StepRow>>;
    /// How far a job is, as deaths are weighed by.
    fn trail(&mut self, job: JobId) -> Done<Trail>;
    /// Stores an entry, and its large part unless that is there.
    fn append(&mut self, job: JobId, step: StepInsert<'_>) -> Done<()>;
    /// Stores the entries of `from` before place `end` for `to` too, all but those at the places `but`.
    fn copy_steps(&mut self, from: JobId, to: JobId, end: i64, but: &[i64]) -> Done<()>;
    /// A job's calls, or the one of that name, in the order they were asked for.
    fn calls(&mut self, job: JobId, id: Option<&str>) -> Done<Vec<CallRow>>;
    /// Stores a call, unless the job has one of that name; tells whether it did.
    fn propose(&mut self, job: JobId, row: &CallRow) -> Done<bool>;
    /// Stores that a call came to another state.
    fn move_call(&mut self, job: JobId, id: &str, to: &str, at: Millis) -> Done<()>;
}

/// The end of a journal.
#[derive(Debug)]
pub struct LastStep {
    /// Its place.
    pub seq: i64,
    /// Its kind.
    pub kind: String,
    /// When it was appended.
    pub at: Millis,
}

/// An entry of a journal.
#[derive(Debug)]
pub struct StepRow {
    /// Its place.
    pub seq: i64,
    /// Its kind.
    pub kind: String,
    /// The rest of it as JSON.
    pub data: Sealed,
    /// When it was appended.
    pub at: Millis,
    /// The hash and the content of its large part, which is sealed.
    pub blob: Option<(Vec<u8>, Vec<u8>)>,
}

/// An entry to be stored.
#[derive(Debug)]
pub struct StepInsert<'a> {
    /// Its place.
    pub seq: i64,
    /// Its kind.
    pub kind: &'a str,
    /// The rest of it as JSON.
    pub data: Sealed,
    /// The hash and the content of its large part, which is sealed.
    pub blob: Option<(&'a [u8], Cow<'a, [u8]>)>,
    /// When it is appended.
    pub at: Millis,
}

/// A call of a tool.
#[derive(Debug)]
pub struct CallRow {
    /// Its name within the job.
    pub id: String,
    /// The place of the entry that asked for it.
    pub seq: i64,
    /// Its place among the calls of that entry.
    pub position: i32,
    /// What is called.
    pub tool: String,
    /// What class of effect it has.
    pub effect: String,
    /// Where it is.
    pub state: String,
    /// Since when.
    pub at: Millis,
}
