//! Remarks that agents and people attach to jobs.

use crate::clock::Millis;
use crate::id::JobId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most bytes of a remark.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Most bytes of a remark's tag.
pub const MAX_TAG_BYTES: usize = 128;

/// Whether a text can be a remark, whoever makes it, and if not, why.
pub fn check_text(text: &str) -> Result<(), String> {
    match text.trim().is_empty() || text.len() > MAX_TEXT_BYTES || text.contains('\0') {
        true => Err(format!("must be text of 1 to {MAX_TEXT_BYTES} bytes, without NUL")),
        false => Ok(()),
    }
}

/// Whether a word can be a remark's tag, and if not, why.
pub fn check_tag(tag: &str) -> Result<(), String> {
    match tag.trim().is_empty() || tag.len() > MAX_TAG_BYTES || tag.chars().any(char::is_control) {
        true => Err(format!("must be 1 to {MAX_TAG_BYTES} bytes without control characters")),
        false => Ok(()),
    }
}

/// A remark about to be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewAnnotation {
    /// What it says; never empty.
    pub text: String,
    /// Words to find it by, `clarification_needed` for instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl NewAnnotation {
    /// The remark that a job waits for answers to these questions.
    pub fn clarification(job: JobId, questions: &[String]) -> NewAnnotation {
        NewAnnotation { text: questions.join("\n"), tags: vec!["clarification_needed".into(), format!("job:{job}")] }
    }
}

/// A saved remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Annotation {
    /// Its number.
    pub id: i64,
    /// The job it is about.
    pub job: JobId,
    /// Who wrote it: a persona's role, or `person`.
    pub author: String,
    /// What it says.
    pub text: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// When it was saved.
    pub created_at: Millis,
}
