//! What people do: end jobs, run them again.

use std::sync::Arc;

use super::*;
use posse_core::port::{Appended, Cancelled};
use posse_core::run::journal::EndStatus;

pub async fn cancelling_works_in_every_state(store: Arc<dyn Store>) {
    for state in JobState::ALL {
        let id = in_state(&*store, state, state.as_str()).await;
        let (want, then) = match state {
            JobState::Running => (Cancelled::Requested, Cancelled::Requested),
            JobState::Cancelled => (Cancelled::Already, Cancelled::Already),
            state if state.is_final() => (Cancelled::TooLate(state), Cancelled::TooLate(state)),
            _ => (Cancelled::Now, Cancelled::Already),
        };
        let before = everything(&*store, id).await;
        assert_eq!(store.cancel(id, "enough".into(), T0 + 9).await.expect("works"), want, "{state}");
        let job = get(&*store, id).await;
        match want {
            Cancelled::Now => {
                assert_eq!((job.state, job.finalized_at), (JobState::Cancelled, Some(T0 + 9)), "{state}");
                assert_eq!(job.reason.as_deref(), Some("enough"));
            }
            Cancelled::Requested => {
                assert!(job.cancel_requested && job.leased_by.is_some(), "its worker still holds it");
            }
            _ => assert_eq!(everything(&*store, id).await, before, "{state}"),
        }
        let before = everything(&*store, id).await;
        assert_eq!(store.cancel(id, "again".into(), T0 + 10).await.expect("works"), then, "{state}");
        assert_eq!(everything(&*store, id).await, before, "a second time changes nothing: {state}");
    }
    for state in JobState::ALL {
        assert!(claim(&*store, state.as_str(), 9, T0 + 9_000_000).await.is_empty(), "none of them runs: {state}");
    }
}

pub async fn a_running_job_ends_as_cancelled_whatever_ends_it(store: Arc<dyn Store>) {
    for event in [Event::Cancel, Event::Fail, Event::Interrupt, Event::Snooze, Event::Suspend, Event::GiveUp] {
        let lease = running(&*store, "r", T0).await;
        store.cancel(lease.job, "enough".into(), T0).await.expect("is asked for");
        let end = Ending { reason: Some("as it happened".into()), ..ending(event, T0 + 5) };
        assert_eq!(store.finish(lease, end, T0 + 5).await.expect("finishes"), JobState::Cancelled, "{event:?}");
        let job = get(&*store, lease.job).await;
        assert_eq!(job.reason.as_deref(), Some("enough"), "{event:?}: a person's reason stays");
        let attempt = store.attempts(lease.job).await.expect("can be read").remove(0);
        assert_eq!(attempt.outcome.as_deref(), Some(event.as_str()));
        assert_eq!(attempt.reason.as_deref(), Some("as it happened"));
    }
    // A worker may end a job as cancelled without being asked to.
    let lease = running(&*store, "r", T0).await;
    assert_eq!(finish(&*store, lease, Event::Cancel, T0).await, JobState::Cancelled);
}

pub async fn a_job_that_completed_first_stays_completed(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    store.cancel(lease.job, "enough".into(), T0).await.expect("is asked for");
    let end = Ending { output: Some(output("the answer")), ..ending(Event::Complete, T0) };
    assert_eq!(store.finish(lease, end, T0).await.expect("finishes"), JobState::Completed);
    let job = get(&*store, lease.job).await;
    assert_eq!((job.output, job.reason), (Some(output("the answer")), None));
    let late = store.cancel(lease.job, "enough".into(), T0).await.expect("works");
    assert_eq!(late, Cancelled::TooLate(JobState::Completed));
}

pub async fn a_flagged_job_is_cancelled_when_its_worker_dies(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    store.cancel(lease.job, "enough".into(), T0).await.expect("is asked for");
    let rescued = store.rescue(vec![WorkerId("w1".into())], T0 + 1).await.expect("works");
    assert_eq!(rescued[0].state, JobState::Cancelled);
    assert_eq!(get(&*store, lease.job).await.reason.as_deref(), Some("enough"));
    assert!(claim(&*store, "r", 1, T0 + 1).await.is_empty());
}

pub async fn no_call_is_started_once_the_end_was_asked_for(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let turn = serde_json::json!({
        "kind": "turn", "finish": "tool_calls", "usage": {"input": 1, "output": 1}, "model": "m", "ms": 1,
        "calls": [
            {"id": "a", "name": "t", "arguments": "{}", "effect": "once"},
            {"id": "b", "name": "t", "arguments": "{}", "effect": "once"},
        ],
    });
    let turn: Entry = serde_json::from_value(turn).expect("is an entry");
    let start = |id: &str| Entry::CallStarted { call_id: id.into() };
    let ended = serde_json::json!({"kind": "call_ended", "call_id": "a", "outcome": "done", "text": "t", "ms": 1});
    let ended: Entry = serde_json::from_value(ended).expect("is an entry");
    let begun = store.append(lease, 0, vec![turn, start("a")], T0).await.expect("is saved");
    assert_eq!(begun, Appended::Whole);
    store.cancel(lease.job, "enough".into(), T0).await.expect("is asked for");
    // What was begun before may end, with what that gave.
    let last = store.append(lease, 2, vec![ended, start("b"), note("behind")], T0).await.expect("is saved");
    assert_eq!(last, Appended::UpToCancellation);
    let none = store.append(lease, 3, vec![start("b")], T0).await.expect("is understood");
    assert_eq!(none, Appended::UpToCancellation);
    assert_eq!(store.append(lease, 3, vec![note("n")], T0).await.expect("is saved"), Appended::Whole);
    let kinds: Vec<_> =
        store.journal(lease.job, 0).await.expect("can be read").iter().map(|r| r.entry.kind()).collect();
    assert_eq!(kinds, ["turn", "call_started", "call_ended", "note"]);
    let states: Vec<_> =
        store.ledger(lease.job).await.expect("can be read").iter().map(|row| row.state.as_str()).collect();
    assert_eq!(states, ["done", "proposed"]);
    assert_eq!(finish(&*store, lease, Event::Cancel, T0).await, JobState::Cancelled);
}

pub async fn a_retry_begins_afresh_and_reopens_the_journal(store: Arc<dyn Store>) {
    let ended = || Entry::Ended { status: EndStatus::Completed, text: "the answer".into(), reason: None };
    let mut lease = running(&*store, "r", T0).await;
    store.append(lease, 0, vec![note("n")], T0).await.expect("is saved");
    for round in 0..2_usize {
        let seq = 1 + 2 * round as u64;
        let end = Ending { entries: vec![ended()], seq, ..ending(Event::Complete, T0) };
        store.finish(lease, end, T0).await.expect("finishes");
        store.retry(lease.job, T0 + 5).await.expect("runs again");
        let job = get(&*store, lease.job).await;
        assert_eq!((job.state, job.attempt, job.crashes, job.run_at), (JobState::Available, 0, 0, T0 + 5));
        assert_eq!((job.finalized_at, job.reason, job.cancel_requested), (None, None, false));
        let kinds: Vec<_> =
            store.journal(lease.job, seq).await.expect("can be read").iter().map(|r| r.entry.kind()).collect();
        assert_eq!(kinds, ["ended", "reopened"]);
        lease = claim(&*store, "r", 1, T0 + 5).await[0].lease;
    }
    // A run that had not ended goes on where it was.
    finish(&*store, lease, Event::GiveUp, T0 + 5).await;
    let before = store.journal(lease.job, 0).await.expect("can be read");
    store.retry(lease.job, T0 + 5).await.expect("runs again");
    assert_eq!(store.journal(lease.job, 0).await.expect("can be read"), before);
    let error = store.retry(lease.job, T0 + 5).await.expect_err("is available already");
    assert!(matches!(error, RepositoryError::Illegal(_)), "{error:?}");
}

pub async fn cancel_and_finish_race_to_one_outcome(store: Arc<dyn Store>) {
    for round in 0..200_u32 {
        let lease = running(&*store, "r", T0).await;
        let event = if round % 2 == 0 { Event::Complete } else { Event::Fail };
        let (asked, finished) = {
            let (canceller, worker) = (Arc::clone(&store), Arc::clone(&store));
            let cancel = tokio::spawn(async move { canceller.cancel(lease.job, "enough".into(), T0).await });
            let finish = tokio::spawn(async move { worker.finish(lease, ending(event, T0 + 9_000_000), T0).await });
            (cancel.await.expect("ends").expect("works"), finish.await.expect("ends").expect("the lease stands"))
        };
        let state = get(&*store, lease.job).await.state;
        let want: &[_] = match event {
            Event::Complete => &[
                (Cancelled::Requested, JobState::Completed),
                (Cancelled::TooLate(JobState::Completed), JobState::Completed),
            ],
            _ => &[(Cancelled::Requested, JobState::Cancelled), (Cancelled::Now, JobState::Cancelled)],
        };
        assert!(want.contains(&(asked, state)), "{event:?}: {asked:?} {finished} {state}");
    }
    assert!(claim(&*store, "r", 1000, T0 + 10_000_000).await.is_empty(), "no cancelled job runs again");
}

pub async fn there_is_no_such_job(store: Arc<dyn Store>) {
    use posse_core::annotation::NewAnnotation;
    let id = JobId(77);
    let unknown = |error: RepositoryError| matches!(error, RepositoryError::NoSuchJob(named) if named == id);
    assert!(unknown(store.cancel(id, "x".into(), T0).await.expect_err("is not there")));
    assert!(unknown(store.retry(id, T0).await.expect_err("is not there")));
    let remark = NewAnnotation { text: "x".into(), tags: vec![] };
    assert!(unknown(store.annotate(id, "person".into(), remark, T0).await.expect_err("is not there")));
    assert_eq!(store.job(id).await.expect("can be read"), None);
    assert!(store.journal(id, 0).await.expect("can be read").is_empty());
}
