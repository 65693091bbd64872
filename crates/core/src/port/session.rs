//! Sessions, and what is remembered of them.

use async_trait::async_trait;

use super::Result;
use crate::clock::Millis;
use crate::job::JobId;
use crate::session::{Exchange, NewSession, Session, SessionId, Stretch};

/// Changes sessions. A job becomes an exchange of the session that its payload names as it is enqueued.
#[async_trait]
pub trait SessionRepository: Send + Sync {
    /// Begins a session that remembers the last of its role; where the name is taken, gives that one, with false.
    async fn begin_session(&self, new: NewSession, now: Millis) -> Result<(Session, bool)>;

    /// Deletes a session with its exchanges, their journals, its summaries and what was archived of it, and gives how many
    /// exchanges it had; none if there is no such session. Refused while one of its exchanges has not ended or is waited for.
    /// The session is nobody's in one transaction; who is interrupted after it leaves jobs that retention deletes next.
    async fn delete_session(&self, id: SessionId, now: Millis) -> Result<Option<u64>>;

    /// Keeps a summary. The first one stays: gives the one that is kept.
    async fn keep_summary(&self, of: Stretch, text: String, now: Millis) -> Result<String>;
}

/// Everything that is asked about sessions.
#[async_trait]
pub trait SessionQueries: Send + Sync {
    /// One session.
    async fn session(&self, id: SessionId) -> Result<Option<Session>>;

    /// The session of that name.
    async fn session_named(&self, name: String) -> Result<Option<Session>>;

    /// At most `limit` sessions, of one role or of all, those used last first.
    async fn sessions(&self, role: Option<String>, limit: u32) -> Result<Vec<Session>>;

    /// What was said in a session, oldest first; only before the job `before`, if there is one.
    async fn exchanges(&self, id: SessionId, before: Option<JobId>) -> Result<Vec<Exchange>>;

    /// The summary that is kept of a part of a session.
    async fn session_summary(&self, of: Stretch) -> Result<Option<String>>;
}
