//! The life of a job, written down once more: what moves it where, and what its state means for others.

use posse_core::clock::Millis;
use posse_core::job::JobState;
use posse_core::job::dependency::OnFailed;
use posse_core::job::transition::{Event, Standing};

/// What a job's state means for one that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Met,
    Waits,
    Cancels,
}

pub fn meaning(state: JobState, rule: OnFailed) -> Meaning {
    match state {
        JobState::Completed => Meaning::Met,
        JobState::Cancelled | JobState::Discarded => match rule {
            OnFailed::Cancel => Meaning::Cancels,
            OnFailed::Run => Meaning::Met,
            OnFailed::Wait => Meaning::Waits,
        },
        _ => Meaning::Waits,
    }
}

/// Where a job goes; nowhere if its state does not allow it.
pub fn moved(from: Standing, event: Event, at: Millis) -> Option<Standing> {
    use JobState::*;
    let mut to = from;
    if from.state != Running {
        if event == Event::Postpone && !from.state.is_final() {
            to.state = if from.state == Available { Scheduled } else { from.state };
            to.run_at = at;
            return Some(to);
        }
        to.state = match (from.state, event) {
            (Scheduled | Retryable, Event::Due) => Available,
            (Available, Event::Claim) => Running,
            (Suspended, Event::Decide) if from.run_at > at => Scheduled,
            (Suspended, Event::Decide) => Available,
            (Scheduled | Available | Retryable | Suspended, Event::Cancel) => Cancelled,
            (Completed | Cancelled | Discarded, Event::Retry) => Available,
            _ => return None,
        };
        match event {
            Event::Claim => to.attempt += 1,
            Event::Retry => (to.attempt, to.crashes, to.cancel_requested, to.run_at) = (0, 0, false, at),
            _ => {}
        }
        return Some(to);
    }
    let is_spent = from.attempt >= from.max_attempts;
    match event {
        Event::Complete => to.state = Completed,
        Event::GiveUp => to.state = Discarded,
        Event::Fail if is_spent => to.state = Discarded,
        Event::Fail => (to.state, to.run_at) = (Retryable, at),
        // These give the attempt back.
        Event::Snooze => (to.state, to.run_at, to.attempt) = (Scheduled, at, from.attempt - 1),
        Event::Interrupt => (to.state, to.attempt) = (Available, from.attempt - 1),
        Event::Suspend => (to.state, to.attempt) = (Suspended, from.attempt - 1),
        Event::LeaseExpired => {
            to.crashes += 1;
            to.state = if is_spent { Discarded } else { Available };
        }
        Event::LostOnTheWay => (to.state, to.crashes, to.attempt) = (Available, from.crashes + 1, from.attempt - 1),
        Event::Deadly => (to.state, to.crashes) = (Discarded, from.crashes + 1),
        Event::Cancel if from.cancel_requested => to.state = Cancelled,
        Event::Cancel => to.cancel_requested = true,
        _ => return None,
    }
    // Whatever ends an attempt whose end was asked for cancels, unless it had completed first.
    if from.cancel_requested && event != Event::Complete {
        to.state = Cancelled;
    }
    Some(to)
}
