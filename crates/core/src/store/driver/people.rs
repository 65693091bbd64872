//! Rows of what people and runs say to each other.

use crate::clock::Millis;
use crate::job::JobId;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of what people and runs say to each other.
pub trait PeopleRows {
    /// Remarks about a job, oldest first.
    fn annotations(&mut self, job: JobId) -> Done<Vec<AnnotationRow>>;
    /// Stores a remark and gives its number.
    fn annotate(&mut self, job: JobId, row: AnnotationInsert<'_>) -> Done<i64>;
}

/// A remark.
#[derive(Debug)]
pub struct AnnotationRow {
    /// Its number.
    pub id: i64,
    /// Who made it.
    pub author: String,
    /// What it says.
    pub text: Sealed,
    /// A list as JSON.
    pub tags: String,
    /// When it was made.
    pub created_at: Millis,
}

/// A remark to be stored.
#[derive(Debug)]
pub struct AnnotationInsert<'a> {
    /// Who made it.
    pub author: &'a str,
    /// What it says.
    pub text: Sealed,
    /// A list as JSON.
    pub tags: String,
    /// When it was made.
    pub created_at: Millis,
}
