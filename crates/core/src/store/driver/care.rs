//! Rows that a database is cared for by.

use std::time::Duration;

use super::{Passing, Record};
use crate::clock::Millis;
use crate::job::lease::WorkerId;
use crate::job::{JobId, JobState};
use crate::port::{ClockJump, DueJobs, HeldJob};
use crate::session::SessionId;
use crate::store::Done;

/// Rows that a database is cared for by.
pub trait CareRows {
    /// Time since a moment that stays the same while the process lives.
    fn elapsed(&self) -> Duration;
    /// Jobs in workers' hands, by worker and job.
    fn held_jobs(&mut self) -> Done<Vec<HeldJob>>;
    /// Jobs that may be claimed, and then those whose time has come by `now`, each by role.
    fn due_by_role(&mut self, now: Millis) -> Done<Vec<DueJobs>>;
    /// The oldest jobs that ended so, at most `most`: but those that somebody waits for, exchanges of sessions, and those that
    /// hold their unique keys at `now`.
    fn ended(&mut self, how: Ended<'_>, now: Millis, most: usize) -> Done<Vec<JobId>>;
    /// Sessions that nobody used since `since`, longest unused first: nothing was said in them or answered, nobody waits
    /// for an exchange, and no session that was used since remembers them.
    fn unused_sessions(&mut self, since: Millis, most: usize) -> Done<Vec<SessionId>>;
    /// Sessions that were deleted and have rows left.
    fn deleted_sessions(&mut self, most: usize) -> Done<Vec<SessionId>>;
    /// The first exchanges of a session, whatever became of them.
    fn exchanges_left(&mut self, session: SessionId, most: usize) -> Done<Vec<ExchangeLeft>>;
    /// Deletes a job with all that belongs to it, and contents that nothing refers to any more; gives how many of these.
    fn delete_job(&mut self, id: JobId) -> Done<u64>;
}

/// Which jobs that have ended are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// Of these alone, where they are named.
    pub among: Option<&'a [JobId]>,
    /// Where they waited.
    pub queues: Queues<'a>,
    /// Where they are now.
    pub state: JobState,
    /// They ended before this time.
    pub before: Millis,
}

/// Some of the queues.
#[derive(Debug, Clone, Copy)]
pub enum Queues<'a> {
    /// All but these.
    AllBut(&'a [String]),
    /// This one.
    Only(&'a str),
}

/// What decides whether an exchange of a deleted session may be deleted.
#[derive(Debug)]
pub struct ExchangeLeft {
    /// Its job.
    pub job: JobId,
    /// Where that is.
    pub state: JobState,
    /// When it ended.
    pub finalized_at: Option<Millis>,
    /// Whether somebody waits for it.
    pub awaited: bool,
    /// For how long it holds its unique key once it is completed.
    pub unique_ms: Option<Millis>,
}

/// What one worker does at a time. Found by its name.
#[derive(Debug)]
pub struct Duty {
    /// What it is.
    pub name: String,
    /// Who has it.
    pub worker: WorkerId,
    /// Until when.
    pub until: Millis,
}

impl Record for Duty {
    type Of<'a> = &'a str;
}

/// For how long a kind is kept.
#[derive(Debug)]
pub struct KeepFor {
    /// The kind's name, which only a later version may know.
    pub kind: String,
    /// For how long, in milliseconds; for ever where that is absent.
    pub keep: Option<Millis>,
}

impl Record for KeepFor {
    type Of<'a> = ();
}

/// Each is kept beside the others. Newest first.
impl Record for ClockJump {
    type Of<'a> = ();
}

/// All but the last so many.
impl Passing for ClockJump {
    type Which<'a> = i64;
}
