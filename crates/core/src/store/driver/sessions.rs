//! Rows of sessions, of their exchanges, and of what is remembered of them.

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::{JobId, JobState};
use crate::session::{Session, SessionId, Stretch};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of sessions, of their exchanges, and of what is remembered of them.
pub trait SessionRows {
    /// A session, unless it was deleted.
    fn session(&mut self, id: SessionId) -> Done<Option<Session>>;
    /// The session of that name. Case tells sessions apart only where there are two already.
    fn session_named(&mut self, name: &str) -> Done<Option<Session>>;
    /// Sessions of one role or of all, those used last first.
    fn sessions(&mut self, role: Option<&str>, most: u32) -> Done<Vec<Session>>;
    /// Stores a session that remembers another one, and gives its number.
    fn begin_session(
        &mut self,
        name: Option<&str>,
        role: &str,
        remembers: Option<Stretch>,
        at: Millis,
    ) -> Done<SessionId>;
    /// Stores that a session is nobody's any more: it has no name, nobody remembers it, and of it no summary is left.
    fn delete_session(&mut self, id: SessionId, at: Millis) -> Done<()>;
    /// Deletes the rows of sessions that are nobody's and have no exchanges any more.
    fn drop_empty_sessions(&mut self) -> Done<()>;
    /// A session's last exchange.
    fn last_exchange(&mut self, id: SessionId) -> Done<Option<JobId>>;
    /// Any exchange of a session that has not ended.
    fn open_exchange(&mut self, id: SessionId) -> Done<Option<JobId>>;
    /// Any exchange of a session that somebody waits for.
    fn awaited_exchange(&mut self, id: SessionId) -> Done<Option<JobId>>;
    /// Exchanges of a session that have not ended and were not asked to, nor are planned for later, but `but`.
    fn open_exchanges(&mut self, id: SessionId, but: JobId) -> Done<Vec<JobId>>;
    /// Whether a job is planned for later and was never claimed.
    fn is_planned(&mut self, job: JobId) -> Done<bool>;
    /// What was said in a session before an exchange or until now, in order.
    fn exchanges(&mut self, id: SessionId, before: Option<JobId>) -> Done<Vec<ExchangeRow>>;
    /// Stores that a job is an exchange, and when its session was used last.
    fn join_session(&mut self, id: SessionId, job: JobId, at: Millis) -> Done<()>;
}

/// An exchange.
#[derive(Debug)]
pub struct ExchangeRow {
    /// Its job.
    pub job: JobId,
    /// Where that is.
    pub state: JobState,
    /// When it was said.
    pub said_at: Millis,
    /// When it was answered.
    pub ended_at: Option<Millis>,
    /// JSON.
    pub payload: Sealed,
    /// JSON.
    pub output: Option<Sealed>,
    /// Why the job is where it is.
    pub reason: Option<Sealed>,
}

/// What is remembered of a part of a session. The first one stays.
#[derive(Debug)]
pub struct SummaryRow {
    /// The part.
    pub of: Stretch,
    /// What it says.
    pub text: Sealed,
    /// When it was made.
    pub created_at: Millis,
}

impl Record for SummaryRow {
    type Of<'a> = Stretch;
}

/// Those that tell of an exchange.
impl Passing for SummaryRow {
    type Which<'a> = JobId;
}

/// What left a job's conversation; what left it first with an entry stays. Found by the job, in the order of entries.
#[derive(Debug)]
pub struct ArchivedRow {
    /// The job.
    pub job: JobId,
    /// The job's role.
    pub role: String,
    /// The entry with which it left.
    pub seq: i64,
    /// What it was.
    pub content: Sealed,
    /// When it left.
    pub created_at: Millis,
}

impl Record for ArchivedRow {
    type Of<'a> = JobId;
}

/// Those of all exchanges of a session.
impl Passing for ArchivedRow {
    type Which<'a> = SessionId;
}
