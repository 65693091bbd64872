//! Rows of sessions, of their exchanges, and of what is remembered of them.

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::JobId;
use crate::session::{Session, SessionId, Stretch};
use crate::store::Done;
use crate::store::seal::Sealed;

/// Rows of sessions, of their exchanges, and of what is remembered of them.
pub trait SessionRows {
    /// Sessions, in no order unless one is named.
    fn sessions(&mut self, of: SessionsOf<'_>) -> Done<Vec<Session>>;
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
    /// Stores that a job is an exchange, and when its session was used last.
    fn join_session(&mut self, id: SessionId, job: JobId, at: Millis) -> Done<()>;
}

/// Which sessions. But for the last kind, those that were not deleted.
#[derive(Debug, Clone, Copy)]
pub enum SessionsOf<'a> {
    /// One.
    One(SessionId),
    /// The one of that name.
    Named(&'a str),
    /// The first of that name whatever its case.
    Alike(&'a str),
    /// The one that this job is an exchange of.
    With(JobId),
    /// Those of one role or of all that were used last, the latest first, at most so many.
    Latest(Option<&'a str>, u32),
    /// Those that nobody used since then, longest unused first, at most so many: nothing was said in them or answered,
    /// nobody waits for an exchange, and no session that was used since remembers them.
    Unused(Millis, u32),
    /// Those that were deleted and have rows left, by number, at most so many.
    Deleted(u32),
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
