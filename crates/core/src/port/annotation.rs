//! Remarks on jobs.

use async_trait::async_trait;

use super::Result;
use crate::annotation::NewAnnotation;
use crate::clock::Millis;
use crate::job::JobId;

/// Remarks on jobs; [`JobQueries::annotations`](super::JobQueries::annotations) reads them.
#[async_trait]
pub trait AnnotationRepository: Send + Sync {
    /// Adds a remark; gives its number.
    async fn annotate(&self, job: JobId, author: String, annotation: NewAnnotation, now: Millis) -> Result<i64>;
}
