//! Which jobs there are, and how many.

use crate::clock::Millis;
use crate::job::{JobId, JobState};
use crate::port::{DueJobs, JobFilter, JobsIn, StateRow};
use crate::queue::rules::Running;
use crate::session::SessionId;
use crate::store::Done;
use crate::store::seal::Sealed;

/// Which jobs there are, and how many.
pub trait ViewRows {
    /// The numbers of jobs.
    fn ids(&mut self, of: IdsOf<'_>) -> Done<Vec<JobId>>;
    /// Where jobs are.
    fn states(&mut self, of: StatesOf<'_>) -> Done<Vec<StateRow>>;
    /// How many jobs of each role or group are in each state.
    fn counts(&mut self, of: CountsOf<'_>) -> Done<Vec<(String, JobState, u64)>>;
    /// How many of the jobs that [`IdsOf::Results`] finds are in each state; no state where they were deleted.
    fn result_counts(&mut self, of: JobId) -> Done<Vec<(Option<JobState>, u64)>>;
    /// What the jobs that run count towards.
    fn started(&mut self) -> Done<Vec<Running>>;
    /// How many jobs there are that have not ended, by role, queue and state.
    fn jobs_in(&mut self) -> Done<Vec<JobsIn>>;
    /// Jobs that may be claimed, and then those whose time has come by `now`, each by role.
    fn due_by_role(&mut self, now: Millis) -> Done<Vec<DueJobs>>;
    /// One number that tells of all; none where there is nothing to tell.
    fn number(&mut self, of: Number) -> Done<Option<i64>>;
    /// Gives each answer of a group's jobs away, one at a time: there may be many.
    fn each_output(&mut self, group: &str, each: impl FnMut(JobId, Sealed)) -> Done<()>;
}

/// Which jobs' numbers are read.
#[derive(Debug, Clone, Copy)]
pub enum IdsOf<'a> {
    /// Those that wait for a time that has come by then, the earliest first, at most so many. Where rows are locked,
    /// what others have locked is left out.
    Due(Millis, u32),
    /// Those that run and whose end was asked for. Nearly always none, and then free.
    ToBeCancelled,
    /// Those that a job has made, oldest first.
    Children(JobId),
    /// Exchanges of a session before this one, oldest first, at most so many.
    Exchanges(SessionId, JobId, u32),
    /// The last exchange of a session.
    LastExchange(SessionId),
    /// The newest that fit a filter, of one state or of all, at most so many; the filter's states, texts and limit aside.
    Fitting(&'a JobFilter, Option<JobState>, u32),
    /// Those that a job waited for, by number or by group, or has made: with higher numbers than `after`, in order. Of a
    /// group that is not waited for any more those count that have ended.
    Results {
        /// The job.
        of: JobId,
        /// The last one that is known.
        after: JobId,
        /// At most so many.
        most: u32,
    },
    /// The oldest that ended so, at most so many: but those that somebody waits for, exchanges of sessions, and those that
    /// hold their unique keys at this time.
    Ended(Ended<'a>, Millis, u32),
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

/// Which jobs' states are read, in the order of the jobs.
#[derive(Debug, Clone, Copy)]
pub enum StatesOf<'a> {
    /// These.
    Ids(&'a [JobId]),
    /// Those with higher numbers than that, of a group or of all, at most so many.
    After(JobId, Option<&'a str>, u32),
    /// Those that have not ended, of a group or of all.
    Live(Option<&'a str>),
    /// Those of a group that have not completed, at most so many. Where rows are locked the group's name is.
    Incomplete(&'a str, u32),
    /// Those of a group, at most so many.
    Members(&'a str, u32),
}

/// Which jobs are counted.
#[derive(Debug, Clone, Copy)]
pub enum CountsOf<'a> {
    /// Those of each role.
    Roles,
    /// Those of a group, or of each.
    Groups(Option<&'a str>),
}

/// One number.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// The earliest time at which a waiting job is due.
    NextDue,
    /// The earliest time at which a lease ends.
    NextLeaseEnd,
    /// The earliest time at which an open question expires.
    NextExpiry,
    /// The highest number that a job has.
    Newest,
    /// How many jobs there ever were.
    Enqueued,
    /// How many questions wait for their answers.
    OpenAsks,
}
