//! What people change about jobs that are there, and which states allow it.

use posse_core::job::JobState;
use posse_core::job::change::*;
use posse_core::job::transition::Standing;

#[test]
fn states_allow_what_they_allow() {
    let standing =
        |state| Standing { state, attempt: 2, max_attempts: 5, crashes: 0, cancel_requested: false, run_at: 0 };
    let allowed = |change: &Change| {
        let states: Vec<_> =
            JobState::ALL.into_iter().filter(|state| change.refusal(&standing(*state)).is_none()).collect();
        assert_eq!(states, change.states());
        states
    };
    use JobState::*;
    let cancel = Change::Cancel { reason: "enough".into() };
    assert_eq!(allowed(&cancel), [Scheduled, Available, Running, Retryable, Suspended]);
    assert_eq!(allowed(&Change::Retry), [Completed, Cancelled, Discarded]);
    assert_eq!(allowed(&Change::Delete), [Completed, Cancelled, Discarded]);
    let edit = Edit { priority: Some(1), ..Edit::default() };
    assert_eq!(allowed(&Change::Edit(edit)), [Scheduled, Available, Retryable, Suspended, Cancelled, Discarded]);
    let fewer = Change::Edit(Edit { max_attempts: Some(1), ..Edit::default() });
    assert!(fewer.refusal(&standing(Retryable)).expect("is refused").contains("attempt 2"));
    let later = Change::Edit(Edit { run_at: Some(9), ..Edit::default() });
    assert!(later.refusal(&standing(Cancelled)).expect("is refused").contains("retry it first"));
    assert_eq!(later.refusal(&standing(Available)), None);
}
