//! Workers that died while they held a job: which of these deaths count, and what follows.
//!
//! What counts is a death without progress. A job that gets further between deaths is not what kills its workers,
//! however often that happens; one that dies again and again at the same place may be. Whoever dies takes all jobs of
//! its process along, so a job that met two such deaths is a **suspect**, and is worked with nothing beside it:
//! then it is told from those that only were there.

use super::JobState;
use super::transition::Event;
use crate::clock::Millis;
use crate::job::JobId;
use crate::text::plural;

/// Deaths in a row without progress after which a job is discarded, unless it asks for another number.
pub const DEFAULT_MAX_CRASHES: u32 = 3;

/// Most that may be asked for.
pub const MOST_CRASHES: u32 = 100;

/// Deaths in a row without progress after which a job is worked alone.
const SUSPECT_AFTER: u32 = 2;

/// How long a suspect waits for idle hands, before a process that has jobs claims nothing more until its hands are.
pub const SUSPECT_PATIENCE_MS: Millis = 60_000;

/// How far a job's work is, as far as its journal and its ledger tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trail {
    /// Entries in its journal.
    pub entries: u64,
    /// Calls that ended, and are known to have.
    pub settled: u64,
    /// Whether a call has begun and not ended.
    pub in_flight: bool,
}

impl Trail {
    /// Whether work got further since it was at `before`. What is written about a call on the way to its start is no
    /// progress while that call is in flight, or a call that kills its worker would make some each time; nor is
    /// the first entry, which only says what is asked for.
    fn is_beyond(self, before: Trail) -> bool {
        self.settled > before.settled || (!self.in_flight && self.entries > before.entries.max(1))
    }
}

/// The deaths that a job met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deaths {
    /// How many in a row came without progress.
    pub in_a_row: u32,
    /// How far its work was at the last one.
    pub trail: Trail,
}

impl Deaths {
    /// One more worker dies, and finds the work at `trail`: the deaths then, and what happens to the job. `limit` is
    /// how many in a row it may meet.
    pub fn meet(self, trail: Trail, limit: u32) -> (Deaths, Event) {
        if trail.is_beyond(self.trail) {
            return (Deaths { in_a_row: 0, trail }, Event::LostOnTheWay);
        }
        let in_a_row = self.in_a_row.saturating_add(1);
        let event = if in_a_row >= limit { Event::Deadly } else { Event::LeaseExpired };
        (Deaths { in_a_row, trail }, event)
    }

    /// Whether it is to be worked with nothing beside it: after the second death, and before the last one.
    pub fn is_suspect(self, limit: u32) -> bool {
        self.in_a_row > 0 && self.in_a_row >= SUSPECT_AFTER.min(limit.saturating_sub(1))
    }
}

/// Why a job was discarded that met `deaths`.
pub fn deadly(job: JobId, deaths: u32) -> String {
    let times = if deaths == 1 { "once".to_owned() } else { plural(deaths.into(), "time") + " in a row" };
    format!(
        "its worker was lost {times} while working on it, without the job getting any further (its limit, max_crashes, is \
         {deaths}); posse show {job} --full tells what it did last, and posse job retry {job} has it go on"
    )
}

/// Why a job was discarded whose last attempt ended with its worker.
pub fn died_in_last_attempt(job: JobId, attempts: u32) -> String {
    let which = match attempts {
        1 => "only attempt".to_owned(),
        attempts => format!("last of {}", plural(attempts.into(), "attempt")),
    };
    format!(
        "its worker was lost in its {which} (max_attempts), without the job getting any further; posse job retry {job} \
         has it go on"
    )
}

/// A suspect that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// The job that met those deaths.
    pub job: JobId,
    /// The role it asks for.
    pub role: String,
    /// The queue it waits in.
    pub queue: String,
    /// Where it is.
    pub state: JobState,
    /// The worker that holds it, while one does.
    pub held_by: Option<String>,
    /// When its worker died.
    pub since: Millis,
    /// The living worker that claims nothing until its hands are empty for this one.
    pub awaited_by: Option<String>,
}

/// What a worker may claim while there are suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimable {
    /// Whatever is next.
    All,
    /// One job: should it be a suspect, then nothing is beside it.
    One,
    /// All but suspects.
    Others,
    /// Nothing: a suspect is at work here.
    Nothing,
}

/// What `worker` may claim, whose hands are empty or not, of a role and queues (all, if none is named).
pub fn claimable(suspects: &[Suspect], worker: &str, has_jobs: bool, role: &str, queues: &[String]) -> Claimable {
    if suspects.iter().any(|suspect| suspect.held_by.as_deref() == Some(worker)) {
        return Claimable::Nothing;
    }
    let is_asked_for = |suspect: &&Suspect| {
        suspect.role == role && (queues.is_empty() || queues.contains(&suspect.queue)) && !suspect.state.is_final()
    };
    match suspects.iter().any(|suspect| is_asked_for(&suspect)) {
        false => Claimable::All,
        true if has_jobs => Claimable::Others,
        true => Claimable::One,
    }
}

impl Suspect {
    /// Whether `worker`, which has other jobs in hand, is to claim nothing more until it can take this one.
    pub fn is_worth_waiting(&self, worker: &str, now: Millis) -> bool {
        let is_free = self.awaited_by.as_deref().is_none_or(|by| by == worker);
        is_free && now.saturating_sub(self.since) >= SUSPECT_PATIENCE_MS
    }
}
