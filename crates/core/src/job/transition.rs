//! The whole state machine of a job, as one pure function.
//!
//! Repositories store the [`Transition`] they are given and decide nothing themselves.

use super::JobState;
use crate::clock::Millis;
use crate::text::named;

/// Something that happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its time came.
    Due,
    /// A worker of its role takes it.
    Claim,
    /// The work is done.
    Complete,
    /// The attempt failed in a way that another attempt may mend.
    Fail,
    /// The attempt failed in a way that another attempt cannot mend, or a limit is spent.
    GiveUp,
    /// The work goes on at a later time.
    Snooze,
    /// The worker shuts down and hands the job back.
    Interrupt,
    /// The work waits for a person, a child job or an event.
    Suspend,
    /// The worker vanished, and the job had got no further since it did so the last time.
    LeaseExpired,
    /// The worker vanished after the job had got further.
    LostOnTheWay,
    /// The worker vanished, once too often without the job getting any further.
    Deadly,
    /// What a suspended job waited for is there.
    Decide,
    /// Somebody asks for its end.
    Cancel,
    /// Somebody re-runs a final job by hand.
    Retry,
    /// Somebody sets another time from which a job that waits is due.
    Postpone,
}

// By its name an attempt remembers what ended it; to people the three ways of losing a worker are one.
named!(
    Event: Due = "due", Claim = "claimed", Complete = "completed", Fail = "failed", GiveUp = "gave_up",
        Snooze = "snoozed", Interrupt = "interrupted", Suspend = "suspended", LeaseExpired = "worker_lost",
        LostOnTheWay = "worker_lost", Deadly = "worker_lost", Decide = "decided", Cancel = "cancelled",
        Retry = "retried", Postpone = "postponed"
);

/// The part of a job that its transitions depend on and change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Where it is.
    pub state: JobState,
    /// Attempts begun so far.
    pub attempt: u32,
    /// Attempts it gets.
    pub max_attempts: u32,
    /// Times a worker died holding it.
    pub crashes: u32,
    /// Whether its end was asked for while it was running.
    pub cancel_requested: bool,
    /// Due from this time on.
    pub run_at: Millis,
}

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The standing after the event.
    pub to: Standing,
    /// Whether the lease ends with it (or none is held).
    pub frees_lease: bool,
}

/// An event that cannot happen to a job in this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {state} cannot be {event}")]
pub struct IllegalTransition {
    /// Where the job is.
    pub state: JobState,
    /// What was tried.
    pub event: Event,
}

/// What becomes of a job in standing `from` when `event` happens. `at` is the time from which it
/// is due next, for the events that have one ([`Event::Fail`], [`Event::Snooze`], [`Event::Postpone`]); for the others
/// it is the current time.
///
/// ```text
/// scheduled, retryable  due            available
/// available             claim          running      attempt + 1
/// running               complete       completed
/// running               fail           retryable, or discarded when attempts are spent
/// running               give up        discarded
/// running               snooze         scheduled    attempt given back
/// running               interrupt      available    attempt given back
/// running               suspend        suspended    attempt given back
/// running               lease expired  available, crash + 1; discarded when attempts are spent
/// running               lost on the way  available, crash + 1, attempt given back
/// running               deadly         discarded, crash + 1
/// suspended             decide         available, or scheduled when its time is yet to come
/// not final             cancel         cancelled; a running job is flagged and its worker ends it
/// final                 retry          available, with attempts and crashes afresh
/// available             postpone       scheduled, be its time over already
/// sched., retr., susp.  postpone       as it was, due from that time on
/// ```
///
/// A running job whose end was asked for becomes `cancelled` with whatever ends its attempt next,
/// except that an attempt which completed first stays completed.
pub fn transition(from: Standing, event: Event, at: Millis) -> Result<Transition, IllegalTransition> {
    use JobState::*;
    let illegal = Err(IllegalTransition { state: from.state, event });
    let running = from.state == Running;
    let mut to = from;
    match event {
        Event::Due if matches!(from.state, Scheduled | Retryable) => to.state = Available,
        Event::Claim if from.state == Available => {
            to.state = Running;
            to.attempt += 1;
        }
        Event::Complete if running => to.state = Completed,
        Event::GiveUp if running => to.state = Discarded,
        Event::Fail if running && from.attempt < from.max_attempts => {
            to.state = Retryable;
            to.run_at = at;
        }
        Event::Fail if running => to.state = Discarded,
        Event::Snooze if running => {
            to.state = Scheduled;
            to.run_at = at;
        }
        Event::Interrupt if running => to.state = Available,
        Event::Suspend if running => to.state = Suspended,
        Event::LeaseExpired if running => {
            to.crashes += 1;
            to.state = if from.attempt >= from.max_attempts { Discarded } else { Available };
        }
        Event::LostOnTheWay if running => {
            to.crashes += 1;
            to.state = Available;
        }
        Event::Deadly if running => {
            to.crashes += 1;
            to.state = Discarded;
        }
        Event::Decide if from.state == Suspended => {
            to.state = if from.run_at > at { Scheduled } else { Available };
        }
        Event::Cancel if running && !from.cancel_requested => to.cancel_requested = true,
        Event::Cancel if !from.state.is_final() => to.state = Cancelled,
        Event::Retry if from.state.is_final() => {
            to = Standing { state: Available, attempt: 0, crashes: 0, cancel_requested: false, run_at: at, ..from };
        }
        Event::Postpone if !running && !from.state.is_final() => {
            to.run_at = at;
            if from.state == Available {
                to.state = Scheduled;
            }
        }
        _ => return illegal,
    }
    if running && matches!(event, Event::Snooze | Event::Interrupt | Event::Suspend | Event::LostOnTheWay) {
        to.attempt = from.attempt.saturating_sub(1);
    }
    if running && from.cancel_requested && !matches!(event, Event::Complete | Event::Cancel) {
        to.state = Cancelled;
    }
    Ok(Transition { to, frees_lease: to.state != Running })
}
