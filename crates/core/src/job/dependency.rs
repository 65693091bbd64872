//! Jobs that wait for others: where such a job begins, and what the end of another means for it.
//!
//! A job can only wait for jobs that are there already, or that stand before it in the same batch.
//! So those who are enqueued make no cycles. One that becomes another by its unique key could, and is
//! refused. A parent that waits for its children waits for jobs that
//! came after it: one of them may have been told to wait for the parent, or be there already, by its
//! unique key, and wait for it. That is looked for, and such a parent is cancelled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

use super::{JobId, JobState};
use crate::clock::Millis;
use crate::text::named;

/// Most jobs that one job may wait for.
pub const MAX_AFTER: usize = 1000;

/// Most groups that one job may wait for.
pub const MAX_AFTER_GROUPS: usize = 20;

/// Most jobs of a group that have not completed for it to be waited for: they are written down one by one.
pub const MAX_GROUP_AWAITED: usize = 100_000;

/// A job that another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// A job that is there.
    Job(JobId),
    /// The job at this position, from 0, in the same batch; it must stand before this one.
    Earlier(usize),
}

/// What becomes of a waiting job when one that it waits for is cancelled or discarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailed {
    /// It is cancelled too.
    #[default]
    Cancel,
    /// It runs all the same, as if the other had completed.
    Run,
    /// It goes on waiting, until somebody re-runs the other and that completes.
    Wait,
}

named!(OnFailed: Cancel = "cancel", Run = "run", Wait = "wait");

impl FromStr for OnFailed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = OnFailed::ALL.into_iter().find(|rule| rule.as_str() == text);
        found.ok_or_else(|| format!("'{text}' is no rule; rules are cancel, run, wait"))
    }
}

/// What the state of a job means for one that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// It need not be waited for any more.
    Met,
    /// It must still be waited for.
    Waits,
    /// What waits for it is cancelled.
    Cancels,
}

/// What `state` of a job means for one that waits for it by the rule `on_failed`.
pub fn meaning(state: JobState, on_failed: OnFailed) -> Meaning {
    match (state, on_failed) {
        (JobState::Completed, _) => Meaning::Met,
        (state, _) if !state.is_final() => Meaning::Waits,
        (_, OnFailed::Run) => Meaning::Met,
        (_, OnFailed::Wait) => Meaning::Waits,
        (_, OnFailed::Cancel) => Meaning::Cancels,
    }
}

/// Where a new job begins, and why, where that needs saying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// Its first state.
    pub state: JobState,
    /// Why, in words.
    pub reason: Option<String>,
}

/// Where a job begins that is due from `run_at` on and waits for `others` by the rule `on_failed`.
pub fn beginning(run_at: Millis, now: Millis, others: &[(JobId, JobState)], on_failed: OnFailed) -> Beginning {
    let mut waits = Vec::new();
    for &(job, state) in others {
        match meaning(state, on_failed) {
            Meaning::Met => {}
            Meaning::Waits => waits.push(job),
            Meaning::Cancels => {
                return Beginning { state: JobState::Cancelled, reason: Some(cancelled_with(job, state)) };
            }
        }
    }
    if !waits.is_empty() {
        return Beginning { state: JobState::Suspended, reason: Some(waits_for(&waits)) };
    }
    Beginning { state: if run_at > now { JobState::Scheduled } else { JobState::Available }, reason: None }
}

/// Why a job is suspended.
pub fn waits_for(jobs: &[JobId]) -> String {
    const NAMED: usize = 5;
    let named: Vec<_> = jobs.iter().take(NAMED).map(ToString::to_string).collect();
    match jobs.len() {
        0 | 1 => format!("waits for job {}", named.concat()),
        n if n <= NAMED => format!("waits for jobs {}", named.join(", ")),
        n => format!("waits for jobs {} and {} more", named.join(", "), n - NAMED),
    }
}

/// Why a parent was cancelled that was to wait for `child`.
pub fn would_wait_for_itself(child: JobId, parent: JobId) -> String {
    if child == parent {
        return "it made a job with the unique key that it holds itself, for which it would wait for ever".into();
    }
    format!("it was to wait for job {child}, which waits for it; neither would ever end")
}

/// Why `job` cannot become one that waits for `on`.
pub fn would_wait(job: JobId, on: JobId) -> String {
    if job == on {
        return format!("after names job {job}, and job {job} holds this unique key and would wait for itself");
    }
    format!(
        "job {job} holds this unique key and would wait for job {on}, which waits for it; neither would ever end. \
         Leave {on} out of after"
    )
}

/// Why a job cannot wait for a group that has no jobs.
pub fn empty_group(group: &str) -> String {
    // Taken for ended, a name misspelled would let the job run at once: what it was to wait for is the opposite.
    format!("there is no job in group '{group}' to wait for; enqueue its jobs first, or leave it out of after_group")
}

/// Why a job cannot wait for a group that has too many jobs.
pub fn too_large(group: &str) -> String {
    format!(
        "more than {MAX_GROUP_AWAITED} jobs of group '{group}' have not completed, and a job can wait for so many; have \
         it wait for a last job of each part of them"
    )
}

/// Why `job` cannot come to be in `group`.
pub fn would_wait_in_group(group: &str, waiting: JobId) -> String {
    format!(
        "job {waiting} waits for group '{group}', and a job of that group cannot wait for job {waiting}; neither would \
         ever end. Give it another group"
    )
}

/// Why a job was cancelled that waited for `job`, which ended in `state`.
pub fn cancelled_with(job: JobId, state: JobState) -> String {
    format!("job {job}, which it waited for, was {state}")
}

/// Why a job goes on waiting for `job`, which ended in `state`.
pub fn still_waits_for(job: JobId, state: JobState) -> String {
    format!("waits for job {job}, which was {state}; posse job retry {job} runs that again")
}

/// A group that a job waits or waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupWait {
    /// The group.
    pub group: String,
    /// Whether a job that comes to be in it would still be waited for.
    pub open: bool,
    /// What happens if one of its jobs does not complete.
    pub on_failed: OnFailed,
}

/// A job that is or was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dependency {
    /// The job that is waited for.
    pub on: JobId,
    /// Where that is; absent when it was deleted.
    pub state: Option<JobState>,
    /// Whether it is still waited for.
    pub open: bool,
    /// What happens if it does not complete.
    pub on_failed: OnFailed,
}
