//! Storing jobs and handing them out.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use posse_core::job::Unique;
use posse_core::job::retry::{RetryPolicy, Strategy};
use posse_core::port::JobFilter;

pub async fn ids_come_in_the_order_of_the_jobs(store: Arc<dyn Store>) {
    let jobs: Vec<_> = (0..100).map(|n| NewJob { queue: format!("q{n}"), ..job("r") }).collect();
    let ids = enqueue_all(&*store, jobs, T0).await;
    assert!(ids.is_sorted());
    for (n, id) in ids.into_iter().enumerate() {
        assert_eq!(get(&*store, id).await.queue, format!("q{n}"));
    }
    assert_eq!(store.enqueue(Vec::new(), T0).await.expect("nothing is fine"), []);
}

pub async fn a_batch_is_stored_whole_or_not_at_all(store: Arc<dyn Store>) {
    let first = enqueue(&*store, "r", T0).await;
    let impossible = NewJob { priority: 200, ..job("r") };
    let error = store.enqueue(vec![job("r"), impossible, job("r")], T0).await.expect_err("is refused");
    assert!(matches!(error, RepositoryError::Misused(_)), "{error:?}");
    assert_eq!(claim(&*store, "r", 10, T0).await.len(), 1);
    assert!(enqueue(&*store, "r", T0).await > first, "and the store goes on");
}

pub async fn what_is_enqueued_is_what_is_claimed(store: Arc<dyn Store>) {
    let new = NewJob {
        queue: "slow".into(),
        role: "r".into(),
        priority: 2,
        run_at: Some(T0 - 5),
        priority_step_ms: 7,
        max_attempts: 7,
        retry: Some(RetryPolicy { strategy: Strategy::Fixed, jitter: 0.1, ..RetryPolicy::default() }),
        unique: Some(Unique { key: "u".into(), for_ms: Some(9), ..Unique::default() }),
        concurrency_key: Some("k".into()),
        payload: Payload { goal: "g".into(), workspace: "/w".into(), model: Some("m".into()), ..Payload::default() },
        group: Some("g".into()),
        tags: vec!["a".into(), "b".into()],
        meta: Meta::from_iter([("k".to_owned(), 1.into())]),
        ..NewJob::default()
    };
    let id = enqueue_all(&*store, vec![new.clone()], T0).await[0];
    let claimed = claim(&*store, "r", 1, T0 + 1).await.remove(0);
    let want = Job {
        id,
        queue: new.queue,
        role: new.role,
        state: JobState::Running,
        priority: 2,
        run_at: T0 - 5,
        attempt: 1,
        max_attempts: 7,
        crashes: 0,
        retry: new.retry,
        unique_key: Some("u".into()),
        concurrency_key: Some("k".into()),
        leased_by: Some("w1".into()),
        lease_until: Some(T0 + 1 + LEASE),
        cancel_requested: false,
        payload: new.payload,
        output: None,
        reason: None,
        created_at: T0,
        finalized_at: None,
        parent: None,
        root: None,
        group: new.group,
        tags: new.tags,
        meta: new.meta,
        progress: None,
        damage: None,
    };
    assert_eq!(claimed.job, want);
    assert_eq!(claimed.lease.job, id);
    assert_eq!(get(&*store, id).await, want);
}

pub async fn urgent_jobs_come_first_then_due_ones_then_older_ones(store: Arc<dyn Store>) {
    let with = |priority, run_at| NewJob { priority, run_at: Some(run_at), ..job("r") };
    let jobs = vec![with(5, T0), with(9, T0 - 9), with(5, T0 - 1), with(1, T0), with(5, T0)];
    let ids = enqueue_all(&*store, jobs, T0).await;
    let got: Vec<_> = claim(&*store, "r", 10, T0).await.into_iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(got, [ids[3], ids[2], ids[0], ids[4], ids[1]]);
}

pub async fn a_job_is_claimed_by_its_role_and_queue_only(store: Arc<dyn Store>) {
    let queued = |queue: &str| NewJob { queue: queue.into(), ..job("r") };
    let ids = enqueue_all(&*store, vec![queued("a"), queued("b"), queued("c"), job("other")], T0).await;
    let from = |queues: &[&str]| ClaimRequest {
        queues: queues.iter().map(ToString::to_string).collect(),
        ..request("r", 10, T0)
    };
    let claimed = |jobs: Vec<Claimed>| jobs.into_iter().map(|claimed| claimed.job.id).collect::<Vec<_>>();
    assert_eq!(claimed(store.claim(from(&["nowhere", "'"])).await.expect("works")), []);
    assert_eq!(claimed(store.claim(from(&["b", "c"])).await.expect("works")), [ids[1], ids[2]]);
    assert_eq!(claimed(store.claim(from(&[])).await.expect("works")), [ids[0]]);
    assert_eq!(claimed(claim(&*store, "other", 10, T0).await), [ids[3]]);
    assert_eq!(claimed(claim(&*store, "other", 0, T0).await), []);
}

pub async fn a_scheduled_job_waits_for_its_time(store: Arc<dyn Store>) {
    let later = NewJob { run_at: Some(T0 + 1000), ..job("r") };
    let id = enqueue_all(&*store, vec![later], T0).await[0];
    assert_eq!(get(&*store, id).await.state, JobState::Scheduled);
    assert!(claim(&*store, "r", 1, T0 + 999).await.is_empty());
    assert_eq!(get(&*store, id).await.state, JobState::Scheduled);
    assert_eq!(claim(&*store, "r", 1, T0 + 1000).await[0].job.id, id);

    // Its time is made known to those who serve its role, whoever noticed it.
    store.enqueue(vec![NewJob { run_at: Some(T0 + 2000), ..job("other") }], T0).await.expect("is stored");
    let mut wakes = store.wakes();
    wakes.mark_unchanged();
    assert!(claim(&*store, "r", 1, T0 + 2000).await.is_empty());
    assert!(wakes.has_changed().expect("the store is open"));
    assert_eq!(claim(&*store, "other", 1, T0 + 2000).await.len(), 1);
}

pub async fn the_next_deadline_is_the_earliest_of_all(store: Arc<dyn Store>) {
    let next = || async { store.next_deadline(T0).await.expect("can be read") };
    assert_eq!(next().await, None);
    store.enqueue(vec![NewJob { run_at: Some(T0 + 90_000), ..job("r") }], T0).await.expect("is stored");
    assert_eq!(next().await, Some(T0 + 90_000));
    let lease = running(&*store, "r", T0).await;
    assert_eq!(next().await, Some(T0 + LEASE));
    store.finish(lease, ending(Event::Fail, T0 + 7), T0).await.expect("finishes");
    assert_eq!(next().await, Some(T0 + 7));
    let lease = claim(&*store, "r", 1, T0 + 7).await[0].lease;
    finish(&*store, lease, Event::Complete, T0 + 8).await;
    assert_eq!(next().await, Some(T0 + 90_000));
}

pub async fn tokens_rise_with_every_claim(store: Arc<dyn Store>) {
    let mut lease = running(&*store, "r", T0).await;
    for event in [Event::Interrupt, Event::Snooze, Event::Complete, Event::Interrupt, Event::Fail] {
        let state = finish(&*store, lease, event, T0).await;
        if state.is_final() {
            store.retry(lease.job, T0).await.expect("runs again");
        }
        let again = claim(&*store, "r", 1, T0).await[0].lease;
        assert!(again.token > lease.token, "{event:?}");
        lease = again;
    }
}

pub async fn the_attempt_is_written_before_the_work(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let attempts = store.attempts(lease.job).await.expect("can be read");
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].worker.as_str(), attempts[0].started_at), (1, "w1", T0));
    assert_eq!((attempts[0].ended_at, &attempts[0].outcome), (None, &None));
    let end = Ending { reason: Some("no luck".into()), ..ending(Event::Fail, T0 + 1) };
    store.finish(lease, end, T0 + 1).await.expect("finishes");
    claim(&*store, "r", 1, T0 + 2).await;
    let attempts = store.attempts(lease.job).await.expect("can be read");
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].ended_at, Some(T0 + 1));
    assert_eq!(attempts[0].outcome.as_deref(), Some("failed"));
    assert_eq!(attempts[0].reason.as_deref(), Some("no luck"));
    assert_eq!((attempts[1].number, attempts[1].ended_at), (2, None));
}

pub async fn fifty_claimers_never_share_a_job(store: Arc<dyn Store>) {
    store.enqueue(vec![job("r"); 500], T0).await.expect("is stored");
    let claimers: Vec<_> = (0..50)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let ask = ClaimRequest { worker: WorkerId(format!("w{n}")), ..request("r", 1 + n % 5, T0) };
                    let claimed = store.claim(ask).await.expect("a claim works");
                    if claimed.is_empty() {
                        return got;
                    }
                    got.extend(claimed.into_iter().map(|claimed| claimed.job.id));
                }
            })
        })
        .collect();
    let mut all = HashSet::new();
    for claimer in claimers {
        for id in claimer.await.expect("ends") {
            assert!(all.insert(id), "job {id} was claimed twice");
        }
    }
    assert_eq!(all.len(), 500);
}

pub async fn strings_come_back_unchanged(store: Arc<dyn Store>) {
    let odd = [
        "a\\u0000b",
        "e\u{301} vs \u{e9} \u{1F986} \u{202E}gpj.exe",
        "\u{FFFF}\u{10FFFF}\u{FEFF}\u{200D}",
        "'; DROP TABLE jobs; -- \" ` \\ %s {} $1 ?1 :a @b",
        "tab\tnew\nline\r\n\u{1}\u{1F}\u{7F}\u{85}\u{2028}",
        "",
        " ",
        &"\u{df}".repeat(200),
    ];
    for text in odd {
        let payload =
            Payload { goal: text.into(), workspace: text.into(), model: Some(text.into()), ..Payload::default() };
        let new = NewJob { queue: text.into(), role: text.into(), payload, ..job("r") };
        let id = enqueue_all(&*store, vec![new.clone()], T0).await[0];
        let claimed = claim(&*store, text, 1, T0).await.remove(0);
        assert_eq!((claimed.job.id, &claimed.job.payload), (id, &new.payload));
        let entries = vec![note(text)];
        store.append(claimed.lease, 0, entries.clone(), T0).await.expect("is saved");
        assert_eq!(store.journal(id, 0).await.expect("can be read")[0].entry, entries[0]);
        let end = Ending { output: Some(output(text)), reason: Some(text.into()), ..ending(Event::Complete, T0) };
        store.finish(claimed.lease, end, T0).await.expect("finishes");
        let stored = get(&*store, id).await;
        assert_eq!((stored.queue, stored.role, stored.output), (new.queue, new.role, Some(output(text))));
        assert_eq!(stored.reason.as_deref(), Some(text));
    }
}

pub async fn lists_come_newest_first_by_page(store: Arc<dyn Store>) {
    let mut ids = Vec::new();
    for state in JobState::ALL {
        for role in ["a", "b"] {
            ids.push((in_state(&*store, state, &format!("{role}-{state}")).await, state, role));
        }
    }
    let list = |filter: JobFilter| async {
        let jobs = store.jobs(filter).await.expect("can be read");
        jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let mut newest: Vec<_> = ids.iter().map(|(id, ..)| *id).collect();
    newest.sort_by(|a, b| b.cmp(a));
    assert_eq!(list(JobFilter { limit: 100, ..JobFilter::default() }).await, newest);
    let page = list(JobFilter { limit: 5, before: Some(newest[4]), ..JobFilter::default() }).await;
    assert_eq!(page, newest[5..10]);
    for state in JobState::ALL {
        let got = list(JobFilter { states: vec![state], limit: 100, ..JobFilter::default() }).await;
        assert_eq!(got.len(), 2, "{state}");
        let role = Some(format!("b-{state}"));
        let got = list(JobFilter { states: vec![state], role, limit: 100, ..JobFilter::default() }).await;
        assert_eq!(got.len(), 1, "{state}");
    }
    let two = vec![JobState::Completed, JobState::Running];
    let got = list(JobFilter { states: two.clone(), limit: 3, ..JobFilter::default() }).await;
    let want: Vec<_> = newest.iter().filter(|id| ids.iter().any(|(i, s, _)| i == *id && two.contains(s))).collect();
    assert_eq!(got.iter().collect::<Vec<_>>(), want[..3]);
}

pub async fn counts_tell_each_role_and_state(store: Arc<dyn Store>) {
    let mut want = Vec::new();
    for (n, state) in JobState::ALL.into_iter().enumerate() {
        for _ in 0..=n {
            in_state(&*store, state, &format!("r{n}")).await;
        }
        want.push((format!("r{n}"), state, n as u64 + 1));
    }
    assert_eq!(store.counts().await.expect("can be read"), want);
}

pub async fn a_commit_of_interest_wakes(store: Arc<dyn Store>) {
    let mut wakes = store.wakes();
    let mut woken = async |expected: bool, what: &str| {
        let changed = tokio::time::timeout(Duration::from_millis(if expected { 1000 } else { 0 }), wakes.changed());
        assert_eq!(changed.await.is_ok(), expected, "{what}");
        wakes.mark_unchanged();
    };
    let id = enqueue(&*store, "r", T0).await;
    woken(true, "enqueue").await;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    woken(false, "claim").await;
    store.append(lease, 0, vec![note("n")], T0).await.expect("is saved");
    woken(false, "append").await;
    store.cancel(id, "enough".into(), T0).await.expect("is asked for");
    woken(true, "cancel of a running job").await;
    finish(&*store, lease, Event::Cancel, T0).await;
    woken(false, "a final state").await;
    store.retry(id, T0).await.expect("runs again");
    woken(true, "retry").await;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    finish(&*store, lease, Event::Interrupt, T0).await;
    woken(true, "interrupt").await;
    claim(&*store, "r", 1, T0).await;
    store.rescue(Vec::new(), T0 + LEASE).await.expect("works");
    woken(true, "rescue").await;
}
