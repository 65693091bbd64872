//! Questions to people.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::question::{Answered, QuestionId};

/// Which questions to list: oldest first.
#[derive(Debug, Clone, Default)]
pub struct QuestionFilter {
    /// Settled ones too.
    pub settled: bool,
    /// Only of this job.
    pub job: Option<JobId>,
    /// At most so many.
    pub limit: u32,
}

/// Settles questions.
#[async_trait]
pub trait QuestionRepository: Send + Sync {
    /// Saves an answer; the job goes on once all its questions are settled. `None` if there is no such question.
    async fn answer(&self, question: QuestionId, answer: String, by: String, now: Millis) -> Result<Option<Answered>>;

    /// Settles questions whose time is over and gives how many there were.
    async fn expire_questions(&self, now: Millis) -> Result<u32>;
}
