//! Unique keys: who holds one, and what becomes of that job when another is enqueued with the same.

use posse_core::clock::Millis;
use posse_core::job::unique::*;
use posse_core::job::{JobState, NewJob};

fn new(if_held: IfHeld, run_at: Option<Millis>) -> NewJob {
    NewJob { unique: Some(Unique { key: "k".into(), for_ms: None, if_held }), run_at, ..NewJob::default() }
}

#[test]
fn only_a_job_that_has_not_begun_is_changed() {
    let debounce = IfHeld::Debounce { at_most_ms: None };
    for state in JobState::ALL {
        for was_claimed in [false, true] {
            let holder = Holder { state, was_claimed, created_at: 0, run_at: 0 };
            let met = |if_held| meet(&new(if_held, Some(9)), &holder, 5).became;
            let want = |became| if was_claimed || state.is_final() { Became::Begun } else { became };
            assert_eq!(met(IfHeld::Keep), want(Became::Kept), "{state}");
            assert_eq!(met(IfHeld::Replace), want(Became::Replaced), "{state}");
            assert_eq!(met(debounce), want(Became::Debounced), "{state}");
        }
    }
}

#[test]
fn times_neither_starve_nor_run_early() {
    let holder = |run_at| Holder { state: JobState::Scheduled, was_claimed: false, created_at: 100, run_at };
    let due = |if_held, asked, was| meet(&new(if_held, asked), &holder(was), 200).due_at;
    assert_eq!(due(IfHeld::Keep, Some(300), 150), None);
    // Due before and now: it keeps its place. Not due before: it is now.
    assert_eq!(due(IfHeld::Replace, None, 150), Some(150));
    assert_eq!(due(IfHeld::Replace, None, 250), Some(200));
    assert_eq!(due(IfHeld::Replace, Some(300), 150), Some(300));
    let debounce = |at_most_ms| IfHeld::Debounce { at_most_ms };
    assert_eq!(due(debounce(None), Some(300), 150), Some(300));
    assert_eq!(due(debounce(Some(120)), Some(300), 150), Some(220));
    // The latest moment counts for the first one too, and may have passed.
    assert_eq!(first_due(&new(debounce(Some(10)), Some(300)), 200, 200), 210);
    assert_eq!(due(debounce(Some(10)), Some(300), 110), Some(110));
}
