//! Remarks that agents and people attach to jobs.

use crate::clock::Millis;
use crate::id::JobId;
use serde::{Deserialize, Serialize};

/// A remark about to be saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
