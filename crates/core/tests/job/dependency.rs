//! Jobs that wait for others: where such a job begins, and what the end of another means for it.

use posse_core::job::dependency::*;
use posse_core::job::{JobId, JobState};

#[test]
fn every_state_means_something_by_every_rule() {
    for state in JobState::ALL {
        for rule in OnFailed::ALL {
            let want = match (state, rule) {
                (JobState::Completed, _) => Meaning::Met,
                (JobState::Cancelled | JobState::Discarded, OnFailed::Cancel) => Meaning::Cancels,
                (JobState::Cancelled | JobState::Discarded, OnFailed::Run) => Meaning::Met,
                _ => Meaning::Waits,
            };
            assert_eq!(meaning(state, rule), want, "{state} {rule}");
            assert_eq!(rule.as_str().parse(), Ok(rule));
        }
    }
    assert!("never".parse::<OnFailed>().is_err());
}

#[test]
fn a_job_begins_where_those_it_waits_for_put_it() {
    let begins = |others: &[(i64, JobState)], rule| {
        let others: Vec<_> = others.iter().map(|(id, state)| (JobId(*id), *state)).collect();
        let Beginning { state, reason } = beginning(7, 7, &others, rule);
        (state, reason.unwrap_or_default())
    };
    use JobState::*;
    assert_eq!(begins(&[], OnFailed::Cancel), (Available, String::new()));
    assert_eq!(begins(&[(1, Completed)], OnFailed::Cancel), (Available, String::new()));
    assert_eq!(begins(&[(1, Running)], OnFailed::Cancel), (Suspended, "waits for job 1".into()));
    assert_eq!(
        begins(&[(1, Running), (2, Completed), (3, Retryable)], OnFailed::Run),
        (Suspended, "waits for jobs 1, 3".into())
    );
    assert_eq!(
        begins(&[(1, Running), (2, Discarded)], OnFailed::Cancel),
        (Cancelled, "job 2, which it waited for, was discarded".into())
    );
    let many: Vec<_> = (1..=8).map(JobId).collect();
    assert_eq!(waits_for(&many), "waits for jobs 1, 2, 3, 4, 5 and 3 more");
    assert_eq!(beginning(8, 7, &[], OnFailed::Cancel).state, Scheduled);
}
