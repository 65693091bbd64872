//! What people change about jobs that are there, and which states allow it.

use super::JobState;
use super::transition::Standing;
use crate::clock::Millis;

/// Most bytes of the reason why a job is cancelled.
pub const MAX_REASON_BYTES: usize = 4096;

/// Whether a text can be the reason why a job is cancelled, and if not, why.
pub fn check_reason(reason: &str) -> Result<(), String> {
    match reason.len() > MAX_REASON_BYTES || reason.contains('\0') {
        true => Err(format!("must be text of at most {MAX_REASON_BYTES} bytes, without NUL")),
        false => Ok(()),
    }
}

/// Something done to one job or to many.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Its end is asked for, and that of everything beneath it.
    Cancel {
        /// Why, in words.
        reason: String,
    },
    /// It runs again.
    Retry,
    /// It is deleted, with everything that is known of it.
    Delete,
    /// It is asked for differently.
    Edit(Edit),
}

/// What is asked for differently. Absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// The goal. A run that has begun begins again, with its journal kept and its questions dropped.
    pub goal: Option<String>,
    /// The role that must work it. A run that has begun begins again, with its journal kept.
    pub role: Option<String>,
    /// 1 (first) to 9 (last).
    pub priority: Option<u8>,
    /// Attempts it gets.
    pub max_attempts: Option<u32>,
    /// The queue it waits in.
    pub queue: Option<String>,
    /// Not before this time. Only for a job that has not ended: a re-run is due at once.
    pub run_at: Option<Millis>,
}

impl Edit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Edit::default()
    }

    /// Whether a run that has begun must begin again for it: goal and persona are fixed for a run's life.
    pub fn restarts(&self) -> bool {
        self.goal.is_some() || self.role.is_some()
    }
}

/// What became of a change of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The job that it was for.
    pub job: super::JobId,
    /// Why nothing was changed, in words.
    pub refused: Option<String>,
}

impl Change {
    /// The states in which a job allows it.
    ///
    /// | change | states |
    /// |---|---|
    /// | cancel | all that are not final |
    /// | retry, delete | the final ones |
    /// | edit | all but running (its worker works with what it was given) and completed |
    pub fn states(&self) -> Vec<JobState> {
        let allows = |state: &JobState| match self {
            Change::Cancel { .. } => !state.is_final(),
            Change::Retry | Change::Delete => state.is_final(),
            Change::Edit(_) => !matches!(state, JobState::Running | JobState::Completed),
        };
        JobState::ALL.into_iter().filter(allows).collect()
    }

    /// The states that are meant where many jobs are named otherwise: what completed is retried only if that is said.
    pub fn usual_states(&self) -> Vec<JobState> {
        let mut states = self.states();
        if *self == Change::Retry {
            states.retain(|state| *state != JobState::Completed);
        }
        states
    }

    /// Why a job in this standing does not allow it, with the way out.
    pub fn refusal(&self, standing: &Standing) -> Option<String> {
        let state = standing.state;
        if !self.states().contains(&state) {
            return Some(match self {
                Change::Cancel { .. } => format!("it is {state} already"),
                Change::Retry => format!("it is {state}; only a job that ended can be re-run"),
                Change::Delete => format!("it is {state}; only a job that ended can be deleted, cancel it first"),
                Change::Edit(_) if state == JobState::Running => {
                    "it is running; cancel it first, edit it then, and retry it".into()
                }
                Change::Edit(_) => format!("it is {state}; enqueue another job"),
            });
        }
        match self {
            Change::Edit(Edit { max_attempts: Some(max), .. }) if *max < standing.attempt => {
                Some(format!("it has begun attempt {}; max_attempts cannot be {max}", standing.attempt))
            }
            Change::Edit(Edit { run_at: Some(_), .. }) if state.is_final() => {
                Some(format!("it is {state}, so it is due at once when it is re-run; retry it first"))
            }
            _ => None,
        }
    }

    /// The verb for people, as in "job 7 was cancelled".
    pub fn done(&self) -> &'static str {
        match self {
            Change::Cancel { .. } => "cancelled",
            Change::Retry => "re-run",
            Change::Delete => "deleted",
            Change::Edit(_) => "changed",
        }
    }
}
