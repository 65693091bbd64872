//! Remarks on jobs.

use async_trait::async_trait;

use super::Result;
use crate::annotation::{Annotation, AnnotationFilter, NewAnnotation, Tagging};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::lease::Lease;

/// Changes remarks on jobs.
#[async_trait]
pub trait AnnotationRepository: Send + Sync {
    /// Adds a remark; gives its number.
    async fn annotate(&self, job: JobId, author: String, annotation: NewAnnotation, now: Millis) -> Result<i64>;

    /// Changes the tags of a remark, and gives it as it is then; none where there is none of that number. Doing it twice is
    /// as good as once.
    async fn tag_annotation(&self, id: i64, tagging: Tagging, by: Option<Lease>) -> Result<Option<Annotation>>;
}

/// Reads remarks on jobs.
#[async_trait]
pub trait AnnotationQueries: Send + Sync {
    /// All about one job, oldest first.
    async fn annotations(&self, job: JobId) -> Result<Vec<Annotation>>;

    /// Those that fit. Costs what a page has, with words as many as
    /// [`SEARCHED_AT_MOST`](crate::annotation::SEARCHED_AT_MOST) remarks.
    async fn find_annotations(&self, filter: AnnotationFilter) -> Result<Vec<Annotation>>;
}
