//! Rows for whoever asks about jobs.

use super::StoredJob;
use crate::clock::Millis;
use crate::job::{GroupUse, JobId, JobState};
use crate::port::{Awaited, JobFilter, StateRow, Waiting};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows for whoever asks about jobs.
pub trait ViewRows {
    /// Both rows of a job.
    fn whole_job(&mut self, id: JobId) -> Done<Option<StoredJob>>;
    /// Both rows of these jobs, by id.
    fn whole_jobs(&mut self, ids: &[JobId]) -> Done<Vec<StoredJob>>;
    /// The newest jobs that fit a filter, of one state or of all; the filter's states, texts and limit aside.
    fn fitting(&mut self, filter: &JobFilter, state: Option<JobState>, most: u32) -> Done<Vec<JobId>>;
    /// Those of these jobs that fit, newest first: with a text in goal, reason or answer, whatever the case of its letters
    /// from A to Z, and with a value of a key in their metadata. What is no JSON has neither.
    fn with_content(&mut self, ids: &[JobId], text: Option<&str>, meta: Option<(&str, &str)>) -> Done<Vec<JobId>>;
    /// What was said of these jobs, newest first.
    fn texts(&mut self, ids: &[JobId]) -> Done<Vec<TextRow>>;
    /// Where these jobs are, by id.
    fn states(&mut self, ids: &[JobId]) -> Done<Vec<StateRow>>;
    /// Where jobs with higher numbers than `after` are, of a group or of all, by id.
    fn states_after(&mut self, after: JobId, group: Option<&str>, most: u32) -> Done<Vec<StateRow>>;
    /// The highest number that a job has, and where those are that have not ended, of a group or of all, by id.
    fn live(&mut self, group: Option<&str>) -> Done<(JobId, Vec<StateRow>)>;
    /// How many jobs of each role are in each state.
    fn counts(&mut self) -> Done<Vec<(String, JobState, u64)>>;
    /// How many jobs of a group, or of each, are in each state.
    fn group_counts(&mut self, group: Option<&str>) -> Done<Vec<(String, JobState, u64)>>;
    /// What the jobs of a group used, by their answers in the clear.
    fn group_use(&mut self, group: &str) -> Done<GroupUse>;
    /// Gives each answer of a group's jobs away, one at a time: there may be many.
    fn each_output(&mut self, group: &str, each: impl FnMut(JobId, Sealed)) -> Done<()>;
    /// How many of the jobs that a job waited for, by number or by group, or has made, are in each state; no state where
    /// they were deleted. Of a group that is not waited for any more those count that have ended.
    fn result_counts(&mut self, of: JobId) -> Done<Vec<(Option<JobState>, u64)>>;
    /// Those with higher numbers than `after`, in order.
    fn results(&mut self, of: JobId, after: JobId, most: u32) -> Done<Vec<JobId>>;
    /// Jobs enqueued before `before` that hold unique keys, have not ended and do not run, by id; without what they wait
    /// for.
    fn key_holders(&mut self, before: Millis, most: u32) -> Done<Vec<Waiting>>;
    /// Those of these jobs that do not run, in the same way.
    fn not_running(&mut self, ids: &[JobId]) -> Done<Vec<Waiting>>;
    /// What a job has open waits for, by number.
    fn awaited(&mut self, id: JobId) -> Done<Vec<Awaited>>;
    /// Since when a job's oldest open question waits for its answer.
    fn asked_since(&mut self, id: JobId) -> Done<Option<Millis>>;
    /// The earliest time at which a waiting job is due.
    fn next_due(&mut self) -> Done<Option<Millis>>;
    /// How many jobs there ever were.
    fn enqueued(&mut self) -> Done<u64>;
    /// How many questions wait for their answers.
    fn count_open_asks(&mut self) -> Done<u64>;
}

/// What was said of a job.
#[derive(Debug)]
pub struct TextRow {
    /// Its number.
    pub id: JobId,
    /// JSON.
    pub payload: Sealed,
    /// JSON.
    pub output: Option<Sealed>,
    /// Why it is where it is.
    pub reason: Option<Sealed>,
}
