//! Many jobs: finding, counting and changing them, groups, batches, progress.

use std::sync::Arc;

use super::*;
use posse_core::job::JobProgress;
use posse_core::job::change::{Change, Edit};
use posse_core::port::{BatchMark, Chunk, JobFilter, Reach};
use posse_core::run::journal::{CallOutcome, EndStatus};

fn asked(goal: &str) -> NewJob {
    NewJob { payload: Payload { goal: goal.into(), ..Payload::default() }, ..job("r") }
}

async fn found(store: &dyn Store, filter: JobFilter) -> Vec<i64> {
    let filter = JobFilter { limit: 100, ..filter };
    let ids: Vec<_> = store.jobs(filter.clone()).await.expect("can be read").iter().map(|job| job.id).collect();
    assert_eq!(store.ids(filter).await.expect("can be read"), ids);
    ids.into_iter().map(|id| id.0).collect()
}

pub async fn jobs_are_found_by_what_they_are(store: Arc<dyn Store>) {
    let all = vec![
        NewJob { group: Some("night".into()), tags: vec!["a".into(), "b".into()], ..asked("sort the mail") },
        NewJob { group: Some("night".into()), tags: vec!["a".into()], queue: "q".into(), ..asked("water 100% of it") },
        NewJob { tags: vec!["ab".into()], ..asked("Water the plants") },
        NewJob { run_at: Some(T0 + 9), ..asked("under_score") },
    ];
    enqueue_all(&*store, all, T0).await;
    enqueue_all(&*store, vec![job("other")], T0 + 50).await;
    let with = |change: fn(&mut JobFilter)| {
        let store = Arc::clone(&store);
        let mut filter = JobFilter::default();
        change(&mut filter);
        async move { found(&*store, filter).await }
    };
    assert_eq!(with(|f| f.group = Some("night".into())).await, [2, 1]);
    assert_eq!(with(|f| f.tag = Some("a".into())).await, [2, 1]);
    assert_eq!(with(|f| f.tag = Some("b".into())).await, [1]);
    assert_eq!(with(|f| f.queue = Some("q".into())).await, [2]);
    assert_eq!(with(|f| f.text = Some("wAtEr".into())).await, [3, 2]);
    assert_eq!(with(|f| f.text = Some("0%".into())).await, [2], "no wildcards");
    assert_eq!(with(|f| f.text = Some("r_s".into())).await, [4]);
    assert_eq!(with(|f| f.created_from = Some(T0 + 1)).await, [5]);
    assert_eq!(with(|f| f.created_before = Some(T0 + 1)).await, [4, 3, 2, 1]);
    assert_eq!(with(|f| f.states = vec![JobState::Scheduled]).await, [4]);
    assert_eq!(with(|f| (f.group, f.tag) = (Some("night".into()), Some("b".into()))).await, [1]);
    assert!(with(|f| f.group = Some("day".into())).await.is_empty());

    // Reasons and answers are texts too, and ends are times.
    store.cancel(JobId(3), "too dry".into(), T0 + 100).await.expect("works");
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let end = Ending { output: Some(output("forty-two")), ..ending(Event::Complete, T0) };
    store.finish(lease, end, T0 + 200).await.expect("finishes");
    assert_eq!(with(|f| f.text = Some("DRY".into())).await, [3]);
    assert_eq!(with(|f| f.text = Some("two".into())).await, [1]);
    assert_eq!(with(|f| f.ended_from = Some(T0 + 150)).await, [1]);
    assert_eq!(with(|f| f.ended_before = Some(T0 + 150)).await, [3]);
    assert_eq!(with(|f| (f.text, f.states) = (Some("t".into()), vec![JobState::Cancelled])).await, [3]);

    // By pages, with a text as without.
    let page = |before: Option<i64>, text: Option<&str>| {
        let filter =
            JobFilter { limit: 1, before: before.map(JobId), text: text.map(Into::into), ..JobFilter::default() };
        let store = Arc::clone(&store);
        async move { store.jobs(filter).await.expect("can be read").iter().map(|job| job.id.0).collect::<Vec<_>>() }
    };
    assert_eq!((page(None, None).await, page(Some(5), None).await), (vec![5], vec![4]));
    assert_eq!((page(None, Some("water")).await, page(Some(3), Some("water")).await), (vec![3], vec![2]));

    // By what their owners keep with them.
    let meta = serde_json::json!({"customer": "ann", "n": 7, "new": true, "a.b\"c": "x"});
    let meta = meta.as_object().expect("an object").clone();
    enqueue_all(&*store, vec![NewJob { meta, ..job("meta") }], T0 + 50).await;
    let having = |key: &str, value: &str| {
        let filter = JobFilter { meta: Some((key.into(), value.into())), ..JobFilter::default() };
        let store = Arc::clone(&store);
        async move { found(&*store, filter).await }
    };
    for (key, value) in [("customer", "ann"), ("n", "7"), ("new", "true"), ("a.b\"c", "x")] {
        assert_eq!(having(key, value).await, [6], "{key}");
    }
    for (key, value) in [("customer", "an"), ("n", "8"), ("new", "1"), ("ann", "customer")] {
        assert!(having(key, value).await.is_empty(), "{key}");
    }
    let both = JobFilter { meta: Some(("n".into(), "7".into())), text: Some("mail".into()), ..JobFilter::default() };
    assert!(found(&*store, both).await.is_empty(), "all must hold");
}

pub async fn a_group_tells_how_it_stands(store: Arc<dyn Store>) {
    let member = |group: &str| NewJob { group: Some(group.into()), ..job("r") };
    enqueue_all(&*store, vec![member("a"), member("a"), member("a"), member("b"), job("r")], T0).await;
    let claimed = claim(&*store, "r", 2, T0).await;
    for (n, claimed) in claimed.iter().enumerate() {
        let mut used = output("done");
        (used.turns, used.usage.input, used.usage.output) = (2, 100, 10);
        used.cost_microusd = (n == 0).then_some(7);
        let event = if n == 0 { Event::Complete } else { Event::GiveUp };
        let end = Ending { output: Some(used), ..ending(event, T0) };
        store.finish(claimed.lease, end, T0).await.expect("finishes");
    }
    let (standing, used) = store.group("a".into()).await.expect("can be read").expect("is there");
    let states = [(JobState::Available, 1), (JobState::Completed, 1), (JobState::Discarded, 1)];
    assert_eq!((standing.states.as_slice(), standing.jobs(), standing.ended()), (&states[..], 3, 2));
    assert!((standing.share() - 2.0 / 3.0).abs() < 1e-9);
    assert_eq!((used.turns, used.input_tokens, used.output_tokens, used.cost_microusd), (4, 200, 20, 7));
    let names: Vec<_> = store.groups().await.expect("can be read").into_iter().map(|group| group.group).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(store.group("c".into()).await.expect("can be read"), None);
}

fn chunk(batch: Option<&str>, from: u64, to: u64, goals: &[&str]) -> Chunk {
    let mark = |lines: u64| match lines {
        0 => BatchMark::default(),
        _ => BatchMark { lines, digest: vec![lines as u8; 32] },
    };
    Chunk {
        batch: batch.map(Into::into),
        from: mark(from),
        to: mark(to),
        jobs: goals.iter().map(|goal| asked(goal)).collect(),
        names: Vec::new(),
    }
}

pub async fn a_batch_remembers_how_far_it_is(store: Arc<dyn Store>) {
    assert_eq!(store.batch("b".into()).await.expect("can be read"), Default::default());
    let first = Chunk { names: vec![("x".into(), 1)], ..chunk(Some("b"), 0, 3, &["one", "two"]) };
    let ids: Vec<_> =
        store.enqueue_chunk(first.clone(), T0).await.expect("is stored").into_iter().map(|one| one.id).collect();
    let standing = store.batch("b".into()).await.expect("can be read");
    assert_eq!((standing.mark, standing.jobs), (first.to.clone(), 2));
    assert_eq!(standing.names, [("x".to_owned(), ids[1])]);

    // The same again, as after a crash that hid the answer, and one that leaves lines out.
    for wrong in [first, chunk(Some("b"), 5, 6, &["six"])] {
        let refused = store.enqueue_chunk(wrong, T0).await;
        assert!(matches!(refused, Err(RepositoryError::Refused(_))), "{refused:?}");
    }
    // A chunk that cannot be stored takes the batch nowhere.
    let mut bad = chunk(Some("b"), 3, 4, &["four"]);
    bad.jobs[0].priority = 99;
    store.enqueue_chunk(bad, T0).await.expect_err("no such priority");
    store.enqueue_chunk(chunk(Some("b"), 3, 4, &["four"]), T0).await.expect("goes on");
    let standing = store.batch("b".into()).await.expect("can be read");
    assert_eq!((standing.mark.lines, standing.jobs), (4, 3));
    store.enqueue_chunk(chunk(None, 0, 1, &["nameless"]), T0).await.expect("is stored");
    assert_eq!(found(&*store, JobFilter::default()).await.len(), 4, "and none was made twice");
}

pub async fn a_held_unique_key_refuses_a_retry_among_many(store: Arc<dyn Store>) {
    use posse_core::job::Unique;
    let unique = || NewJob { unique: Some(Unique { key: "k".into(), for_ms: None, ..Unique::default() }), ..job("r") };
    let first = enqueue_all(&*store, vec![unique()], T0).await[0];
    store.cancel(first, "enough".into(), T0).await.expect("works");
    let holder = enqueue_all(&*store, vec![unique()], T0).await[0];
    let other = in_state(&*store, JobState::Cancelled, "o").await;
    let told = store.change(vec![first, other], Change::Retry, T0).await.expect("works");
    assert!(told[0].refused.as_ref().is_some_and(|why| why.contains(&format!("held by job {holder}"))), "{told:?}");
    assert_eq!((told[1].refused.clone(), get(&*store, other).await.state), (None, JobState::Available));
    // Nor does a batch count what it did not store.
    let held = Chunk { jobs: vec![unique(), job("r")], ..chunk(Some("u"), 0, 2, &[]) };
    let enqueued = store.enqueue_chunk(held, T0).await.expect("is stored");
    assert_eq!((enqueued[0].id, enqueued[0].existed(), enqueued[1].existed()), (holder, true, false));
    assert_eq!(store.batch("u".into()).await.expect("can be read").jobs, 1);
}

pub async fn only_one_of_two_processes_gets_a_chunk_in(store: Arc<dyn Store>) {
    let all: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enqueue_chunk(chunk(Some("b"), 0, 2, &["one", "two"]), T0).await.is_ok() })
        })
        .collect();
    let mut won = 0;
    for one in all {
        won += usize::from(one.await.expect("ends"));
    }
    assert_eq!((won, found(&*store, JobFilter::default()).await.len()), (1, 2));
}

async fn change(store: &dyn Store, id: JobId, change: Change) -> Option<String> {
    store.change(vec![id], change, T0 + 5).await.expect("works").remove(0).refused
}

pub async fn many_jobs_are_changed_where_their_state_allows_it(store: Arc<dyn Store>) {
    let changes = [
        Change::Cancel { reason: "enough".into() },
        Change::Retry,
        Change::Delete,
        Change::Edit(Edit { priority: Some(2), ..Edit::default() }),
    ];
    for what in changes {
        let mut ids = Vec::new();
        for state in JobState::ALL {
            ids.push(in_state(&*store, state, &format!("{state}-{}", what.done())).await);
        }
        let mut before = Vec::new();
        for id in &ids {
            before.push(everything(&*store, *id).await);
        }
        let mut asked = ids.clone();
        asked.push(JobId(9_999));
        let told = store.change(asked, what.clone(), T0 + 5).await.expect("works");
        assert_eq!(told.len(), ids.len(), "one that is not there is left out");
        for ((state, told), before) in JobState::ALL.into_iter().zip(told).zip(before) {
            let allowed = what.states().contains(&state);
            assert_eq!(told.refused.is_none(), allowed, "{state} {what:?}");
            let job = store.job(told.job).await.expect("can be read");
            if !allowed {
                assert_eq!(everything(&*store, told.job).await, before, "{state} {what:?}");
                continue;
            }
            match &what {
                Change::Cancel { .. } => {
                    let job = job.expect("is there");
                    assert!(job.state == JobState::Cancelled || job.cancel_requested);
                }
                Change::Retry => assert_eq!(job.expect("is there").state, JobState::Available),
                Change::Delete => assert_eq!(job, None),
                Change::Edit(_) => {
                    let job = job.expect("is there");
                    assert_eq!((job.state, job.priority), (state, 2));
                }
            }
        }
    }
}

pub async fn what_somebody_waits_for_is_not_deleted(store: Arc<dyn Store>) {
    use posse_core::job::dependency::{After, OnFailed};
    let lost = in_state(&*store, JobState::Discarded, "r").await;
    let waits = NewJob { after: vec![After::Job(lost)], on_failed: OnFailed::Wait, ..job("r") };
    let waits = enqueue_all(&*store, vec![waits], T0).await[0];
    let refused = change(&*store, lost, Change::Delete).await.expect("is refused");
    assert!(refused.contains(&format!("job {waits} waits for it")), "{refused}");
    store.cancel_within(waits, Reach::Alone, "enough".into(), T0).await.expect("works");
    assert_eq!(change(&*store, lost, Change::Delete).await, None);
    assert_eq!(store.dependencies(waits).await.expect("can be read")[0].state, None, "it is told that it is gone");
}

pub async fn an_edited_job_is_worked_as_it_is_then(store: Arc<dyn Store>) {
    let id = enqueue(&*store, "r", T0).await;
    let edit = Edit {
        goal: Some("another goal".into()),
        role: Some("s".into()),
        priority: Some(1),
        max_attempts: Some(9),
        queue: Some("q".into()),
        run_at: Some(T0 + 5),
    };
    assert_eq!(change(&*store, id, Change::Edit(edit)).await, None);
    assert!(claim(&*store, "r", 1, T0 + 4).await.is_empty());
    assert!(claim(&*store, "s", 1, T0 + 4).await.is_empty());
    let job = claim(&*store, "s", 1, T0 + 5).await.remove(0).job;
    assert_eq!((job.payload.goal.as_str(), job.priority, job.max_attempts), ("another goal", 1, 9));
    assert_eq!(job.queue, "q");
    assert!(store.journal(id, 0).await.expect("can be read").is_empty(), "no run had begun");
}

pub async fn a_run_begins_again_when_its_goal_is_edited(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let turn = serde_json::json!({
        "kind": "turn", "finish": "tool_calls", "usage": {"input": 1, "output": 1}, "model": "m", "ms": 1,
        "calls": [
            {"id": "a", "name": "t", "arguments": "{}", "effect": "once"},
            {"id": "b", "name": "t", "arguments": "{}", "effect": "once"},
        ],
    });
    let turn: Entry = serde_json::from_value(turn).expect("is an entry");
    store.append(lease, 0, vec![turn, Entry::CallStarted { call_id: "a".into() }], T0).await.expect("is saved");
    finish(&*store, lease, Event::GiveUp, T0).await;
    let edit = Edit { goal: Some("anew".into()), ..Edit::default() };
    assert_eq!(change(&*store, lease.job, Change::Edit(edit.clone())).await, None);
    let journal = store.journal(lease.job, 2).await.expect("can be read");
    let outcomes: Vec<_> = journal
        .iter()
        .filter_map(|recorded| match &recorded.entry {
            Entry::CallEnded { call_id, outcome, .. } => Some((call_id.as_str(), *outcome)),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [("a", CallOutcome::Unknown), ("b", CallOutcome::Refused)], "what is known of each call");
    assert_eq!(journal.last().map(|recorded| &recorded.entry), Some(&Entry::Restarted));

    // An ended run too, and re-running it adds nothing more.
    store.retry(lease.job, T0).await.expect("runs again");
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let seq = 2 + journal.len() as u64;
    let ended = Entry::Ended { status: EndStatus::Failed, text: "t".into(), reason: None };
    let end = Ending { entries: vec![ended], seq, ..ending(Event::GiveUp, T0) };
    store.finish(lease, end, T0).await.expect("finishes");
    assert_eq!(change(&*store, lease.job, Change::Edit(edit)).await, None);
    store.retry(lease.job, T0).await.expect("runs again");
    let kinds: Vec<_> =
        store.journal(lease.job, seq).await.expect("can be read").iter().map(|r| r.entry.kind()).collect();
    assert_eq!(kinds, ["ended", "restarted"]);
}

pub async fn a_job_that_asked_goes_on_when_its_goal_is_edited(store: Arc<dyn Store>) {
    use posse_core::job::question::QuestionState;
    use posse_core::port::QuestionFilter;
    let asked = || Entry::Asked { call_id: "a".into(), questions: vec!["why?".into()], open_ms: None };
    let lease = running(&*store, "r", T0).await;
    let end = Ending { entries: vec![asked()], ..ending(Event::Suspend, T0) };
    assert_eq!(store.finish(lease, end, T0).await.expect("finishes"), JobState::Suspended);
    let states = || async {
        let all = QuestionFilter { settled: true, job: Some(lease.job), limit: 9 };
        store.questions(all).await.expect("can be read").into_iter().map(|q| q.state).collect::<Vec<_>>()
    };
    let edit = Edit { goal: Some("anew".into()), ..Edit::default() };
    assert_eq!(change(&*store, lease.job, Change::Edit(edit)).await, None);
    let job = get(&*store, lease.job).await;
    assert_eq!((job.state, job.reason, states().await), (JobState::Available, None, vec![QuestionState::Expired]));
    // The run that begins again asks for itself, and what was asked before stays out of it.
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    let end = Ending { entries: vec![asked()], seq: 2, ..ending(Event::Suspend, T0) };
    assert_eq!(store.finish(lease, end, T0).await.expect("finishes"), JobState::Suspended);
    assert_eq!(states().await, [QuestionState::Expired, QuestionState::Open]);
}

pub async fn progress_is_kept_while_a_job_runs(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    assert_eq!(get(&*store, lease.job).await.progress, None);
    let told = |share, at| JobProgress::new(share, "reading", at);
    store.report_progress(lease, told(0.25, T0)).await.expect("is kept");
    store.report_progress(lease, told(2.0, T0 + 1)).await.expect("is kept");
    let kept = get(&*store, lease.job).await.progress.expect("is kept");
    assert_eq!((kept.share, kept.text.as_str(), kept.at), (1.0, "reading", T0 + 1));
    let listed = store.jobs(JobFilter { limit: 9, ..JobFilter::default() }).await.expect("can be read");
    assert_eq!(listed[0].progress, Some(kept));
    let stale = Lease { token: lease.token + 1, ..lease };
    assert!(is_lost(store.report_progress(stale, told(0.5, T0)).await, lease.job));
    finish(&*store, lease, Event::Complete, T0).await;
    assert_eq!(get(&*store, lease.job).await.progress, None, "it is done, and that is its state");
}
