//! Every statement of the hot paths finds its rows by an index made for it, and is prepared once; and what is written
//! waits for no more than it must.

use std::sync::Arc;

use posse_core::job::dependency::After;
use posse_core::job::lease::{Lease, WorkerId};
use posse_core::job::transition::Event;
use posse_core::job::{JobId, JobProgress, JobState, NewJob, Unique};
use posse_core::port::{
    AttemptEnd, CareRepository, ClaimRequest, Ending, JobFilter, JobQueries, JobRelations, JobRepository, JobSearch,
    QueueRepository, Reach, RepositoryError, Rules, SessionQueries, SessionRepository,
};
use posse_core::queue::rules::{Limits, Scope};
use posse_core::run::journal::Entry;
use posse_core::session::NewSession;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};

use super::behaviour::{Expire as _, ending};
use super::statements::{Noted, Sent};

fn store(folder: &Noted, synchronous: Synchronous) -> Arc<SqliteStore> {
    let options = Options { synchronous, ..Options::default() };
    let store = SqliteStore::open(&folder.database(), options).expect("opens");
    folder.sent();
    Arc::new(store)
}

fn request(role: &str, queues: &[&str]) -> ClaimRequest {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    ClaimRequest { worker: WorkerId("w".into()), role: role.into(), queues, limit: 5, now: 9, lease_until: 99 }
}

/// A call with a long result and a remark, from its turn to its end.
fn run() -> Vec<Entry> {
    let turn = serde_json::json!({
        "kind": "turn", "finish": "tool_calls", "usage": {"input": 1, "output": 1}, "model": "m", "ms": 1,
        "calls": [{"id": "a", "name": "t", "arguments": "{}", "effect": "once"}],
    });
    let ended = serde_json::json!({
        "kind": "call_ended", "call_id": "a", "outcome": "done", "text": "x".repeat(5000), "ms": 1,
        "annotations": [{"text": "t"}],
    });
    let started = serde_json::json!({"kind": "call_started", "call_id": "a"});
    let end = serde_json::json!({"kind": "ended", "status": "completed", "text": "t"});
    [turn, started, ended, end].map(|entry| serde_json::from_value(entry).expect("is an entry")).into()
}

/// Everything a worker does, and what people do to single jobs.
async fn work(folder: &Noted, store: &SqliteStore) -> Result<(), RepositoryError> {
    let new = NewJob { queue: "q".into(), role: "r".into(), ..NewJob::default() };
    let later = NewJob { run_at: Some(99), ..new.clone() };
    let mut jobs = vec![new.clone(); 8];
    jobs.push(later);
    store.enqueue(jobs, 1).await?;
    let leases: Vec<_> = store.claim(request("r", &[])).await?.iter().map(|claimed| claimed.lease).collect();
    store.claim(request("r", &["q"])).await?;
    store.heartbeat(WorkerId("w".into()), leases.clone(), 100, 10).await?;
    store.append(leases[0], 0, run(), 10).await?;
    store.finish(leases[0], ending(Event::Complete, 99), 10).await?;
    store.finish(leases[1], Ending { reason: Some("why".into()), ..ending(Event::Fail, 99) }, 10).await?;
    store.report_progress(leases[3], JobProgress::new(0.5, "half", 10)).await?;
    let child = NewJob { after: vec![After::Job(leases[3].job)], ..new };
    store.finish(leases[4], Ending { children: vec![child], ..ending(Event::Suspend, 99) }, 10).await?;
    store.finish(leases[3], ending(Event::GiveUp, 99), 10).await?;
    store.cancel(leases[2].job, "enough".into(), 10).await?;
    grouped(store, leases[2].job).await?;
    store.retry(leases[0].job, 10).await?;
    store.rescue(vec![WorkerId("w".into())], 1000).await?;
    ruled(folder, store).await
}

/// Jobs that wait for a group, come to be in it, and end in it; `ended` has ended.
async fn grouped(store: &SqliteStore, ended: JobId) -> Result<(), RepositoryError> {
    let member = || NewJob { role: "g".into(), group: Some("g".into()), ..NewJob::default() };
    let waits = || NewJob { role: "r".into(), after_groups: vec!["g".into()], ..NewJob::default() };
    let all = (0..40).map(|_| member()).chain([waits(), waits(), member()]).collect();
    let made = store.enqueue(all, 10).await?;
    store.cancel_within(made[40].id, Reach::Beneath, "enough".into(), 10).await?;
    let claimed = store.claim(ClaimRequest { limit: 1, ..request("g", &[]) }).await?;
    store.finish(claimed[0].lease, ending(Event::Complete, 99), 10).await?;
    store.retry(claimed[0].job.id, 10).await?;
    store.enqueue(vec![NewJob { after: vec![After::Job(ended)], ..member() }], 10).await?;
    Ok(())
}

/// The same where there are rules, unique keys and several lanes.
async fn ruled(folder: &Noted, store: &SqliteStore) -> Result<(), RepositoryError> {
    let limits = Limits { running: Some(100), running_per_key: Some(50), per_minute: Some(6000), fair: false };
    for scope in [Scope::All, Scope::Queue("q".into())] {
        store.set_limits(scope, limits, 1).await?;
    }
    let with_key = |n: usize| NewJob {
        queue: "q".into(),
        role: "s".into(),
        concurrency_key: Some(format!("k{}", n % 3)),
        unique: Some(Unique { key: format!("u{n}"), for_ms: Some(1), ..Unique::default() }),
        ..NewJob::default()
    };
    let batch = || (0..60).map(with_key).collect();
    let made = store.enqueue(batch(), 2000).await?;
    store.enqueue(batch(), 2000).await?;
    // One that nobody can read is given up by its claim.
    let damaged = rusqlite::Connection::open(folder.database()).expect("opens");
    damaged.execute("UPDATE job_data SET payload = '{' WHERE job_id = ?", [made[1].id.0]).expect("may");
    let many = ClaimRequest { limit: 40, now: 2000, lease_until: 3000, ..request("s", &[]) };
    let claimed = store.claim(many.clone()).await?;
    let given_up = store.states(vec![made[1].id]).await?;
    assert_eq!(given_up.iter().map(|row| row.state).collect::<Vec<_>>(), [JobState::Discarded]);
    store.claim(ClaimRequest { limit: 5, queues: vec!["q".into()], ..many.clone() }).await?;
    // And where keys are served in rotation, in a queue and over all of them.
    for scope in [Scope::Queue("q".into()), Scope::Role("s".into())] {
        store.set_limits(scope, Limits { fair: true, ..limits }, 1).await?;
        store.claim(ClaimRequest { limit: 5, ..many.clone() }).await?;
    }
    store.finish(claimed[0].lease, ending(Event::Complete, 2000), 2000).await?;
    // The time of a key is over.
    store.enqueue(batch(), 9000).await?;
    Ok(())
}

/// Panics where a step of a statement's plan looks at rows that are not wanted.
fn finds_its_rows(folder: &Noted, sent: &Sent, of_wanted: &[&str]) {
    for sql in sent.about_rows() {
        for step in folder.plan(sql) {
            let is_bounded = !step.starts_with("SCAN") || of_wanted.iter().any(|name| step.contains(name));
            assert!(is_bounded && !step.contains("TEMP B-TREE"), "{step}\n{sql}");
            // Rows that are equal in both columns would all be walked; see `after_rank`.
            assert!(!step.contains(")>(") || step.contains("(rank,id)>("), "{step}\n{sql}");
            // What runs is counted at every claim where there are rules, without a look at the rows.
            let counts_running = step.starts_with("SCAN jobs") && sql.contains("concurrency_key");
            assert!(!counts_running || step.contains("COVERING"), "{step}\n{sql}");
        }
    }
}

#[tokio::test]
async fn no_statement_of_the_hot_paths_walks_a_table() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    work(&folder, &store).await.expect("works");
    store.next_deadline(0).await.expect("can be read");
    store.cancel_requested().await.expect("can be read");
    // What every process asks once a second, and what finds jobs to delete.
    store.due_schedules(99).await.expect("can be read");
    store.drain_requested(WorkerId("w".into())).await.expect("can be read");
    store.has_prunable(i64::MAX).await.expect("can be read");
    let sent = folder.sent();
    assert!(sent.about_rows().len() > 20, "statements were noted");
    // These hold no row that does not fit the condition; all of them are wanted.
    let of_wanted = [
        "jobs_cancel",
        "jobs_lease",
        "json_each",
        "sqlite_sequence",
        "CONSTANT ROW",
        "VALUES CLAUSE",
        "rules",
        "queues",
        "deaths_suspect",
        "sessions_deleted",
        "retention",
    ];
    finds_its_rows(&folder, &sent, &of_wanted);
}

#[tokio::test]
async fn a_rotation_costs_the_same_however_many_keys_and_jobs_there_are() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    store.set_limits(Scope::All, Limits { fair: true, ..Limits::default() }, 1).await.expect("is set");
    let statements = async |with_key: &dyn Fn(usize) -> String, jobs: usize| {
        let new = |n| NewJob { role: "r".into(), concurrency_key: Some(with_key(n)), ..NewJob::default() };
        store.enqueue((0..jobs).map(new).collect(), 1).await.expect("is stored");
        folder.sent();
        let claimed = store.claim(ClaimRequest { limit: 20, ..request("r", &[]) }).await.expect("claims");
        assert_eq!(claimed.len(), 20);
        let is_of_claim = |sql: &str| !["PRAGMA", "BEGIN", "COMMIT"].iter().any(|other| sql.starts_with(other));
        folder.sent().ran.iter().filter(|ran| is_of_claim(&ran.sql)).count()
    };
    let few = statements(&|n| format!("k{:02}", n % 40), 400).await;
    let many = statements(&|n| if n < 20_000 { "k00".into() } else { format!("k{n}") }, 21_000).await;
    assert_eq!(few, many, "one for each job that is taken, and those of every claim");
    assert!(few <= 20 + 7, "{few}");
}

#[tokio::test]
async fn lists_and_counts_read_the_index_of_their_state() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    store.counts().await.expect("counts");
    store.live(None).await.expect("can be read");
    store.queue_states().await.expect("counts");
    let sent = folder.sent();
    assert!(sent.about_rows().len() >= 3, "statements were noted");
    for step in sent.about_rows().iter().flat_map(|sql| folder.plan(sql)) {
        assert!(!step.starts_with("SCAN jobs") || step.contains("INDEX jobs_"), "{step}");
    }
    let states = vec![JobState::Discarded];
    store.jobs(JobFilter { states, limit: 5, ..JobFilter::default() }).await.expect("lists");
    let sent = folder.sent();
    let sql = sent.about_rows().into_iter().next().expect("one was noted");
    let steps = folder.plan(sql).join("\n");
    assert!(steps.contains("jobs_final (state=?") && !steps.contains("TEMP B-TREE"), "{steps}\n{sql}");
}

#[tokio::test]
async fn statements_of_the_hot_paths_are_prepared_once() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    work(&folder, &store).await.expect("works");
    let sent = folder.sent();
    for sql in sent.about_rows() {
        assert!(sent.kept.contains(sql), "prepared on every use: {sql}");
    }
}

#[tokio::test]
async fn exchanges_of_a_session_are_found_by_their_index() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    let (session, _) = store.begin_session(NewSession { name: None, role: "r".into() }, 1).await.expect("begins");
    folder.sent();
    let mut said = NewJob { role: "r".into(), ..NewJob::default() };
    said.payload.session = Some(session.id);
    store.enqueue(vec![said], 1).await.expect("is stored");
    store.exchanges(session.id, None).await.expect("reads");
    store.sessions(Some("r".into()), 5).await.expect("reads");
    store.sessions(None, 5).await.expect("reads");
    let sent = folder.sent();
    assert!(sent.about_rows().len() > 5, "statements were noted");
    finds_its_rows(&folder, &sent, &["sessions_used", "sqlite_sequence", "CONSTANT ROW", "json_each"]);
}

#[tokio::test]
async fn a_verb_takes_as_many_statements_as_it_needs() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    let sent = |wanted: &[&str]| {
        let sent = folder.sent();
        let verb = |sql: &str| sql.split_whitespace().next().unwrap_or_default().to_owned();
        let about_rows = sent.ran.iter().filter(|ran| sent.about_rows().contains(&*ran.sql));
        assert_eq!(about_rows.map(|ran| verb(&ran.sql)).collect::<Vec<_>>(), wanted);
    };
    let jobs = |n| vec![NewJob { role: "r".into(), ..NewJob::default() }; n];
    store.enqueue(jobs(1), 1).await.expect("is stored");
    sent(&["SELECT", "INSERT", "INSERT"]);
    // In blocks of 32, 4 and 1.
    store.enqueue(jobs(32), 1).await.expect("are stored");
    sent(&["SELECT", "INSERT", "INSERT"]);
    store.enqueue(jobs(37), 1).await.expect("are stored");
    sent(&["SELECT", "INSERT", "INSERT", "INSERT", "INSERT", "INSERT", "INSERT"]);
    // What is due, suspects, rules; the head of the only lane and two looks for others; its first jobs.
    let claimed = store.claim(request("r", &[])).await.expect("claims");
    sent(&["SELECT", "SELECT", "SELECT", "SELECT", "SELECT", "SELECT", "SELECT", "UPDATE"]);
    let leases: Vec<_> = claimed.iter().map(|claimed| claimed.lease).collect();
    // The job, rules that count what runs, suspects.
    store.finish(leases[0], ending(Event::Complete, 99), 10).await.expect("ends");
    sent(&["SELECT", "SELECT", "SELECT", "UPDATE"]);
    // As many for ends that are alike.
    let alike = |lease: &Lease| AttemptEnd { lease: *lease, ending: ending(Event::Complete, 99) };
    store.finish_all(&leases[1..3].iter().map(alike).collect::<Vec<_>>(), 10).await.expect("end");
    sent(&["SELECT", "SELECT", "SELECT", "UPDATE"]);
    // And one for an attempt that did not complete its job.
    store.finish(leases[3], ending(Event::Fail, 99), 10).await.expect("ends");
    sent(&["SELECT", "SELECT", "SELECT", "INSERT", "UPDATE"]);
    // The worker, its jobs, and those whose end was asked for.
    store.heartbeat(WorkerId("w".into()), vec![leases[4]], 100, 10).await.expect("beats");
    sent(&["UPDATE", "SELECT", "UPDATE", "SELECT"]);
    // The job, the last entry; the entry and the call that it asks for.
    store.append(leases[4], 0, run()[..1].to_vec(), 10).await.expect("is saved");
    sent(&["SELECT", "SELECT", "INSERT", "INSERT"]);
}

/// How the connection that writes was set for each commit since the last look, and whether its own thread made it.
fn commits(folder: &Noted, set_to: &mut String) -> Vec<(String, bool)> {
    let mut made = Vec::new();
    for ran in folder.sent().ran {
        if let Some(now) = ran.sql.strip_prefix("PRAGMA synchronous = ") {
            now.clone_into(set_to);
        } else if &*ran.sql == "COMMIT" {
            made.push((set_to.clone(), ran.by_writer));
        }
    }
    made
}

#[tokio::test]
async fn only_what_passes_is_written_without_waiting_for_the_disk() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Full);
    let beat = async || store.heartbeat(WorkerId("w".into()), vec![], 2, 1).await.expect("works");
    let job = || NewJob { role: "r".into(), ..NewJob::default() };
    let mut set_to = "FULL".to_owned();
    let (full, normal) = ("FULL".to_owned(), "NORMAL".to_owned());
    // So many, one by one, that callers are taken to come alone.
    for _ in 0..10 {
        beat().await;
    }
    commits(&folder, &mut set_to);
    beat().await;
    assert_eq!(commits(&folder, &mut set_to), [(normal, false)], "it waits for nothing, so its caller writes it");
    store.enqueue(vec![job()], 1).await.expect("is stored");
    assert_eq!(commits(&folder, &mut set_to), [(full.clone(), true)], "it would keep its caller's thread");
    // Together with what lasts, it is synced too.
    let lock = rusqlite::Connection::open(folder.database()).expect("opens");
    lock.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let first = store.enqueue(vec![job()], 1);
    let both = async { tokio::join!(store.enqueue(vec![job()], 1), beat()) };
    let (first, (second, _), ()) = tokio::join!(first, both, async { lock.execute_batch("COMMIT").expect("lets go") });
    first.and(second).expect("are stored");
    assert!(commits(&folder, &mut set_to).iter().all(|commit| *commit == (full.clone(), true)));
}

#[tokio::test]
async fn what_cannot_be_done_at_once_has_done_nothing() {
    let folder = Noted::folder();
    let store = store(&folder, Synchronous::Normal);
    for _ in 0..10 {
        store.heartbeat(WorkerId("w".into()), vec![], 2, 1).await.expect("works");
    }
    folder.sent();
    // The second row is refused after the first was written.
    let new = NewJob { role: "r".into(), ..NewJob::default() };
    let refused = store.enqueue(vec![new.clone(), NewJob { priority: 99, ..new }], 1).await;
    assert!(matches!(refused, Err(RepositoryError::Misused(_))), "{refused:?}");
    let ran = folder.sent().ran;
    let by_caller = ran.iter().take_while(|ran| !ran.by_writer);
    assert_eq!(by_caller.last().map(|ran| &*ran.sql), Some("ROLLBACK"), "its caller tried, and undid it");
    assert!(ran.iter().any(|ran| ran.by_writer && &*ran.sql == "RELEASE command"), "then its own thread did it apart");
    assert!(store.jobs(JobFilter { limit: 9, ..JobFilter::default() }).await.expect("can be read").is_empty());
}
