//! Jobs that go on from the middle of others.

use std::sync::Arc;

use super::*;
use posse_core::job::question::QuestionState;
use posse_core::port::QuestionFilter;
use posse_core::run::fork::{Cut, fork};
use posse_core::run::journal::{CallState, LedgerChange, Opening, ledger_changes};

fn entry(json: serde_json::Value) -> Entry {
    serde_json::from_value(json).expect("is an entry")
}

/// A run with two calls, the result of one too long to stand in its row.
fn entries() -> Vec<Entry> {
    let turn = |id: &str| {
        entry(serde_json::json!({
            "kind": "turn", "finish": "tool_calls", "usage": {"input": 1, "output": 1}, "model": "m", "ms": 1,
            "calls": [{"id": id, "name": "t", "arguments": "{}", "effect": "once"}],
        }))
    };
    let started = |id: &str| entry(serde_json::json!({"kind": "call_started", "call_id": id}));
    let ended = |id: &str, text: String| {
        entry(serde_json::json!({"kind": "call_ended", "call_id": id, "outcome": "done", "text": text, "ms": 1}))
    };
    vec![
        Entry::Began { goal: "the goal".into(), opening: Arc::new(Opening::default()) },
        turn("a"),
        started("a"),
        ended("a", "long ".repeat(2000)),
        turn("b"),
        started("b"),
        ended("b", "short".into()),
    ]
}

async fn source(store: &dyn Store) -> Lease {
    let lease = running(store, "r", T0).await;
    for (seq, entry) in (0..).zip(entries()) {
        store.append(lease, seq, vec![entry], T0 + 100 * seq as Millis).await.expect("is saved");
    }
    lease
}

async fn fork_at(store: &dyn Store, id: JobId, cut: Cut) -> JobId {
    let journal = store.journal(id, 0).await.expect("can be read");
    let fork = fork(&get(store, id).await, journal, cut).expect("can be forked");
    store.fork(fork, T0 + 5000).await.expect("is stored")
}

pub async fn a_fork_has_the_same_beginning_and_keys_of_its_own(store: Arc<dyn Store>) {
    let lease = source(&*store).await;
    let before = everything(&*store, lease.job).await;
    let journal = store.journal(lease.job, 0).await.expect("can be read");
    let theirs: Vec<_> = store.ledger(lease.job).await.expect("can be read");
    for at_step in 0..journal.len() as u64 {
        let id = fork_at(&*store, lease.job, Cut { at_step, ..Cut::default() }).await;
        let copied = store.journal(id, 0).await.expect("can be read");
        assert_eq!(copied, journal[..=at_step as usize], "same entries, places and times");
        let job = get(&*store, id).await;
        let from = job.payload.forked_from.expect("is a fork");
        assert_eq!((from.job, from.step, job.state), (lease.job, at_step, JobState::Available));
        let mut states = std::collections::BTreeMap::new();
        for change in copied.iter().flat_map(|recorded| ledger_changes(&recorded.entry)) {
            let (LedgerChange::Propose { call_id, .. } | LedgerChange::Move { call_id, .. }) = &change;
            let to = if let LedgerChange::Move { to, .. } = &change { *to } else { CallState::Proposed };
            states.insert(call_id.clone(), to);
        }
        let ledger = store.ledger(id).await.expect("can be read");
        let ours: std::collections::BTreeMap<_, _> =
            ledger.iter().map(|row| (row.call_id.clone(), row.state)).collect();
        assert_eq!(ours, states, "the ledger is the journal's");
        let is_theirs = |key: &String| theirs.iter().any(|row| row.effect_key == *key);
        assert!(!ledger.iter().any(|row| is_theirs(&row.effect_key)), "effect keys are its own");
        // It can be worked like any other.
        let claimed = claim(&*store, "r", 1, T0 + 5000).await.remove(0);
        assert_eq!(claimed.job.id, id);
        store.append(claimed.lease, at_step + 1, vec![note("on")], T0 + 5001).await.expect("is saved");
        finish(&*store, claimed.lease, Event::Complete, T0 + 5002).await;
    }
    assert_eq!(everything(&*store, lease.job).await, before, "the source is as it was");
}

pub async fn an_edit_changes_one_entry_of_the_fork(store: Arc<dyn Store>) {
    let lease = source(&*store).await;
    let journal = store.journal(lease.job, 0).await.expect("can be read");
    for (at_step, new) in [(3_u64, "short now".to_owned()), (6, "and this one long ".repeat(1000))] {
        let cut = Cut { at_step, edit: Some(new.clone()), goal: Some("another goal".into()) };
        let id = fork_at(&*store, lease.job, cut).await;
        let copied = store.journal(id, 0).await.expect("can be read");
        assert_eq!(get(&*store, id).await.payload.goal, "another goal");
        let last = copied.last().expect("an entry");
        assert!(matches!(&last.entry, Entry::CallEnded { text, .. } if *text == new), "{last:?}");
        assert_eq!(last.at, journal[at_step as usize].at);
        assert!(matches!(&copied[0].entry, Entry::Began { goal, .. } if goal == "another goal"));
        assert_eq!(copied[1..at_step as usize], journal[1..at_step as usize]);
    }
    assert_eq!(store.journal(lease.job, 0).await.expect("can be read"), journal);
}

pub async fn questions_of_a_fork_wait_until_it_does(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let asked = Entry::Asked { call_id: "a".into(), questions: vec!["one?".into(), "two?".into()], open_ms: Some(10) };
    let began = entries().remove(0);
    let end = Ending { entries: vec![began, asked], ..ending(Event::Suspend, T0) };
    store.finish(lease, end, T0).await.expect("waits");
    let all = |job| store.questions(QuestionFilter { settled: true, job: Some(job), limit: 9 });
    let first = all(lease.job).await.expect("can be read")[0].id;
    store.answer(first, "yes".into(), "ada".into(), T0 + 1).await.expect("is saved");
    // Once at the question, once after the first answer.
    for (at_step, wanted) in
        [(1, [QuestionState::Closed, QuestionState::Closed]), (2, [QuestionState::Answered, QuestionState::Closed])]
    {
        let id = fork_at(&*store, lease.job, Cut { at_step, ..Cut::default() }).await;
        let states = || async { all(id).await.expect("can be read").iter().map(|q| q.state).collect::<Vec<_>>() };
        assert_eq!(states().await, wanted);
        let claimed = claim(&*store, "r", 1, T0 + 5000).await.remove(0);
        assert_eq!(claimed.job.id, id);
        assert_eq!(finish(&*store, claimed.lease, Event::Suspend, T0 + 5000).await, JobState::Suspended);
        let opened = states().await.into_iter().filter(|state| *state == QuestionState::Open).count();
        assert_eq!(opened, 3 - at_step as usize, "open again now that it waits");
        let questions = all(id).await.expect("can be read");
        assert_eq!(questions[1].expires_at, Some(T0 + 5010), "the time to answer begins anew");
    }
    let edited = fork_at(&*store, lease.job, Cut { at_step: 2, edit: Some("no".into()), goal: None }).await;
    assert_eq!(all(edited).await.expect("can be read")[0].answer.as_deref(), Some("no"));
}

pub async fn the_source_may_go_on_meanwhile(store: Arc<dyn Store>) {
    let lease = source(&*store).await;
    let journal = store.journal(lease.job, 0).await.expect("can be read");
    let job = get(&*store, lease.job).await;
    let fork = fork(&job, journal, Cut { at_step: 4, ..Cut::default() }).expect("can be forked");
    store.append(lease, 7, vec![note("more")], T0).await.expect("is saved");
    finish(&*store, lease, Event::Complete, T0).await;
    let id = store.fork(fork.clone(), T0).await.expect("is stored");
    assert_eq!(store.journal(id, 0).await.expect("can be read").len(), 5);
    let gone = posse_core::run::fork::Fork { source: JobId(99), ..fork };
    let error = store.fork(gone, T0).await.expect_err("has no journal");
    assert!(error.to_string().contains("nothing was saved"), "{error}");
    assert!(store.job(JobId(id.0 + 1)).await.expect("can be read").is_none(), "all or nothing");
}
