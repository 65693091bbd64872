//! The whole state machine of a job, as one pure function.

use JobState::Running;
use posse_core::job::JobState;
use posse_core::job::transition::*;
use proptest::prelude::*;

fn standing(state: JobState) -> Standing {
    Standing { state, attempt: 0, max_attempts: 3, crashes: 0, cancel_requested: false, run_at: 0 }
}

#[test]
fn every_pair_of_state_and_event_is_decided() {
    use Event::*;
    use JobState::*;
    let legal: &[(JobState, Event, JobState)] = &[
        (Scheduled, Due, Available),
        (Scheduled, Cancel, Cancelled),
        (Available, Claim, Running),
        (Available, Cancel, Cancelled),
        (Running, Complete, Completed),
        (Running, Fail, Retryable),
        (Running, GiveUp, Discarded),
        (Running, Snooze, Scheduled),
        (Running, Interrupt, Available),
        (Running, Suspend, Suspended),
        (Running, LeaseExpired, Available),
        (Running, LostOnTheWay, Available),
        (Running, Deadly, Discarded),
        (Running, Cancel, Running),
        (Retryable, Due, Available),
        (Retryable, Cancel, Cancelled),
        (Suspended, Decide, Available),
        (Suspended, Cancel, Cancelled),
        (Completed, Retry, Available),
        (Cancelled, Retry, Available),
        (Discarded, Retry, Available),
        (Scheduled, Postpone, Scheduled),
        (Available, Postpone, Scheduled),
        (Retryable, Postpone, Retryable),
        (Suspended, Postpone, Suspended),
    ];
    for state in JobState::ALL {
        for event in Event::ALL {
            let got = transition(standing(state), event, 7).map(|t| t.to.state);
            let want = legal.iter().find(|(s, e, _)| (*s, *e) == (state, event)).map(|t| t.2);
            assert_eq!(got.ok(), want, "{state} + {event:?}");
        }
    }
}

#[test]
fn a_decision_does_not_come_before_the_time() {
    let from = Standing { run_at: 9, ..standing(JobState::Suspended) };
    assert_eq!(transition(from, Event::Decide, 8).expect("legal").to.state, JobState::Scheduled);
    assert_eq!(transition(from, Event::Decide, 9).expect("legal").to.state, JobState::Available);
}

#[test]
fn a_second_cancel_while_running_is_final() {
    let mut from = standing(Running);
    from.cancel_requested = true;
    assert_eq!(transition(from, Event::Cancel, 0).expect("legal").to.state, JobState::Cancelled);
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(prop::sample::select(&Event::ALL[..]), 0..200)
}

proptest! {
    /// Whatever happens in whatever order: counters stay within their limits, a final job only
    /// moves by hand, and a lease exists exactly while the job runs.
    #[test]
    fn any_history_keeps_the_invariants(events in events(), max_attempts in 1u32..6) {
        let mut now = Standing { max_attempts, ..standing(JobState::Available) };
        for (i, event) in events.into_iter().enumerate() {
            let Ok(t) = transition(now, event, i as i64) else { continue };
            prop_assert_eq!(t.frees_lease, t.to.state != Running);
            prop_assert!(t.to.attempt <= t.to.max_attempts);
            if now.state.is_final() {
                prop_assert_eq!(event, Event::Retry);
            }
            if event == Event::LeaseExpired && t.to.state == JobState::Available {
                prop_assert!(t.to.attempt < max_attempts);
            }
            if matches!(event, Event::Interrupt | Event::Snooze | Event::Suspend | Event::LostOnTheWay) {
                prop_assert_eq!(t.to.attempt + 1, now.attempt, "the attempt is given back");
            }
            if now.cancel_requested && now.state == Running && event != Event::Complete {
                prop_assert_eq!(t.to.state, JobState::Cancelled, "a cancelled job never runs again");
            }
            now = t.to;
        }
    }
}
