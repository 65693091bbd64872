//! For how long what is kept.

use posse_core::job::JobState;
use posse_core::queue::retention::{DEFAULT_KEEP_MS, Kept, Retention};

#[test]
fn what_is_kept_for_ever_has_no_cutoff() {
    let retention = Retention { discarded: None, completed: Some(5), ..Retention::default() };
    let cutoffs = retention.cutoffs(7);
    assert_eq!(cutoffs, [(JobState::Completed, 2), (JobState::Cancelled, 7 - DEFAULT_KEEP_MS)]);
    assert_eq!(Retention { sessions: None, ..retention }.session_cutoff(7), None);
}

#[test]
fn what_is_said_otherwise_is_found() {
    let said = [(Kept::Completed, Some(5)), (Kept::Sessions, None)];
    let stored = Retention::default();
    assert_eq!(stored.unlike(&said), said);
    let stored = stored.with(&said);
    assert_eq!((stored.completed, stored.sessions, stored.cancelled), (Some(5), None, Some(DEFAULT_KEEP_MS)));
    assert_eq!(stored.unlike(&said), []);
}
