//! Questions that a run puts to people. Its job waits for the answers without a worker.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

use crate::clock::Millis;
use crate::job::JobId;
use crate::text::{check_nul, has_too_many, named};

/// Most bytes of an answer.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A question's number; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct QuestionId(pub i64);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a question is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionState {
    /// It waits for an answer.
    Open,
    /// It has one.
    Answered,
    /// Nobody answered in time.
    Expired,
    /// Its job no longer waits: it was cancelled.
    Closed,
}

named!(QuestionState: Open = "open", Answered = "answered", Expired = "expired", Closed = "closed");

/// A question to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// Its number.
    pub id: QuestionId,
    /// The job that waits for the answer.
    pub job: JobId,
    /// The role of the agent that asks.
    pub role: String,
    /// What it asks.
    pub text: String,
    /// Where it is in its life.
    pub state: QuestionState,
    /// The answer, once there is one.
    pub answer: Option<String>,
    /// Who settled it, where somebody did.
    pub settled_by: Option<String>,
    /// When it was asked.
    pub created_at: Millis,
    /// Until when it can be answered, if not for ever.
    pub expires_at: Option<Millis>,
    /// When it was settled, if it is.
    pub settled_at: Option<Millis>,
    /// The jobs above the one that asks, the root first: where that is a task, for whom it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<Above>,
}

/// A job above another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Above {
    /// Its number.
    pub job: JobId,
    /// Who works it.
    pub role: String,
}

/// Most jobs of a path.
pub const MAX_PATH: usize = 20;

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Answered {
    /// It is saved.
    Accepted {
        /// The job that asked.
        job: JobId,
        /// Questions of the job that are still open; it goes on when there are none.
        open: u32,
    },
    /// The question had been settled before; this answer is dropped.
    Settled {
        /// The question as it is.
        question: Question,
    },
}

/// Most bytes of the name of whoever answers.
pub const MAX_NAME_BYTES: usize = 128;

/// Whether somebody can be called that who answers, and if not, why.
pub fn check_name(name: &str) -> Result<(), String> {
    match name.trim().is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        true => Err(format!("must be a name of 1 to {MAX_NAME_BYTES} bytes without control characters")),
        false => Ok(()),
    }
}

/// Whether a text can be an answer, and if not, why.
pub fn check_answer(answer: &str) -> Result<(), String> {
    if answer.trim().is_empty() {
        return Err("is empty; say what the agent shall go by".into());
    }
    if answer.len() > MAX_ANSWER_BYTES {
        let too_many = has_too_many(answer.len(), "byte", MAX_ANSWER_BYTES);
        return Err(format!("{too_many}. Put the text in a file of the workspace and name it"));
    }
    check_nul(answer)
}
