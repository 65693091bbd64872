//! Every statement of the hot paths finds its rows by an index made for it, and is prepared once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use diesel::connection::{Instrumentation, InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use posse_core::job::NewJob;
use posse_core::job::transition::Event;
use posse_core::journal::Entry;
use posse_core::lease::WorkerId;
use posse_core::port::{AttemptEnd, ClaimRequest, Ending, JobFilter};

use super::connection::{Access, open};
use super::journal::Sheet;
use super::writer::{Transaction, Verb};
use super::*;

/// What a connection was asked.
#[derive(Default)]
struct Asked {
    /// Statements as they ran, with their binds as a comment.
    ran: Vec<String>,
    /// Statements that were kept prepared.
    kept: BTreeSet<String>,
}

fn listen(connection: &mut SqliteConnection) -> Arc<Mutex<Asked>> {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let ear = Arc::clone(&asked);
    let hear = move |event: InstrumentationEvent<'_>| {
        let mut asked = ear.lock().expect("no panic while it is held");
        match event {
            InstrumentationEvent::StartQuery { query, .. } => asked.ran.push(query.to_string()),
            InstrumentationEvent::CacheQuery { sql, .. } => drop(asked.kept.insert(sql.to_owned())),
            _ => {}
        }
    };
    connection.set_instrumentation(Box::new(hear) as Box<dyn Instrumentation>);
    asked
}

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = diesel::sql_types::Text)]
    detail: String,
}

fn plan(connection: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let steps: Vec<Step> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {sql}")).load(connection).expect("has a plan");
    steps.into_iter().map(|step| step.detail).collect()
}

fn request(queues: Vec<String>) -> ClaimRequest {
    ClaimRequest { worker: WorkerId("w".into()), role: "r".into(), queues, limit: 5, now: 9, lease_until: 99 }
}

fn ending(event: Event) -> Ending {
    Ending { event, due_at: 99, reason: Some("why".into()), output: None, entries: vec![], seq: 0 }
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
fn work(connection: &mut SqliteConnection) {
    let mut rings = false;
    let tx = &mut Transaction::new(connection, &mut rings);
    let new = NewJob { queue: "q".into(), role: "r".into(), ..NewJob::default() };
    let later = NewJob { run_at: Some(99), ..new.clone() };
    let mut jobs = vec![new; 8];
    jobs.push(later);
    let batch = jobs::Batch::new(jobs, 1).expect("is JSON");
    jobs::Enqueue::run(tx, &[&batch]).expect("enqueues");
    let asked = request(vec![]);
    let claimed = claim::claim(tx, &asked).expect("claims").read(&asked);
    claim::claim(tx, &request(vec!["q".into()])).expect("claims");
    let leases: Vec<_> = claimed.iter().map(|claimed| claimed.lease).collect();
    leases::heartbeat(tx, &WorkerId("w".into()), &leases, 100, 10).expect("beats");
    let sheets = Sheet::all(&run()).expect("is JSON");
    finish::append(tx, "i", leases[0], 0, &sheets, 10).expect("appends");
    let end = |lease, event| finish::End::new(&AttemptEnd { lease, ending: ending(event) }, &"i".into(), 10);
    let ends = [end(leases[0], Event::Complete), end(leases[1], Event::Fail)].map(|end| end.expect("is JSON"));
    finish::Finish::run(tx, &ends.each_ref()).expect("finishes");
    people::cancel(tx, leases[2].job, "enough", 10).expect("cancels");
    people::retry(tx, leases[0].job, 10).expect("runs again");
    leases::rescue(tx, &[WorkerId("w".into())], 1000).expect("rescues");
}

fn new_database(folder: &tempfile::TempDir) -> SqliteConnection {
    let path = folder.path().join("jobs.db");
    drop(SqliteStore::open(&path, Options::default()).expect("opens"));
    let mut connection = open(&path, Access::Write(Synchronous::Normal)).expect("opens");
    // Rolled back when the connection goes.
    connection.batch_execute("BEGIN IMMEDIATE").expect("begins");
    connection
}

#[test]
fn no_statement_of_the_hot_paths_walks_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = new_database(&folder);
    let asked = listen(&mut connection);
    work(&mut connection);
    queries::next_deadline(&mut connection).expect("can be read");
    queries::cancel_requested(&mut connection).expect("can be read");
    connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let ran: BTreeSet<_> = std::mem::take(&mut asked.lock().expect("no panic").ran).into_iter().collect();
    assert!(ran.len() > 20, "statements were heard");
    for sql in ran {
        for step in plan(&mut connection, &sql) {
            // These hold no row that does not fit the condition; all of them are wanted.
            let of_wanted =
                ["jobs_cancel", "jobs_lease", "json_each", "sqlite_sequence", "CONSTANT ROW", "VALUES CLAUSE"];
            let is_bounded = !step.starts_with("SCAN") || of_wanted.iter().any(|name| step.contains(name));
            assert!(is_bounded, "{step}\n{sql}");
            assert!(!step.contains("TEMP B-TREE"), "{step}\n{sql}");
        }
    }
}

#[test]
fn lists_and_counts_read_the_index_of_their_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = new_database(&folder);
    for step in plan(&mut connection, queries::COUNTS) {
        assert!(!step.starts_with("SCAN jobs") || step.contains("INDEX jobs_"), "{step}");
    }
    let asked = listen(&mut connection);
    let discarded = vec![posse_core::job::JobState::Discarded];
    queries::list(&mut connection, &JobFilter { states: discarded, limit: 5, ..JobFilter::default() }).expect("lists");
    connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let sql = asked.lock().expect("no panic").ran.remove(0);
    let steps = plan(&mut connection, &sql).join("\n");
    assert!(steps.contains("jobs_final (state=?") && !steps.contains("TEMP B-TREE"), "{steps}\n{sql}");
}

#[test]
fn statements_of_the_hot_paths_are_prepared_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = new_database(&folder);
    let asked = listen(&mut connection);
    work(&mut connection);
    let asked = asked.lock().expect("no panic");
    let texts: BTreeSet<_> = asked.ran.iter().map(|sql| sql.split(" -- binds").next()).collect();
    assert_eq!(texts.len(), asked.kept.len(), "each text has an entry of its own");
    for sql in &asked.ran {
        let text = sql.split(" -- binds").next().unwrap_or(sql);
        assert!(asked.kept.contains(text), "prepared on every use: {sql}");
    }
}
