//! Every statement of the hot paths finds its rows by an index made for it, and is prepared once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use diesel::connection::{Instrumentation, InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use posse_core::job::dependency::After;
use posse_core::job::lease::WorkerId;
use posse_core::job::transition::Event;
use posse_core::job::{JobProgress, NewJob};
use posse_core::port::{AttemptEnd, ClaimRequest, Ending, JobFilter};
use posse_core::run::journal::Entry;
use posse_core::store::claim::Places;
use posse_core::store::driver::{LeaseRows as _, SessionRows as _};
use posse_core::store::enqueue::{Batch, Enqueue, enqueue};
use posse_core::store::finish::{End, Finish};
use posse_core::store::journal::Sheet;
use posse_core::store::{
    Verb as _, cancel, claim, find, finish, leases, limits, memory, quarantine, retry, schedules, sessions,
};

use super::connection::{Access, open};
use super::rows::Rows;
use super::writer::Transaction;
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
    let listener = Arc::clone(&asked);
    let hear = move |event: InstrumentationEvent<'_>| {
        let mut asked = listener.lock().expect("no panic while it is held");
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
    Ending { event, due_at: 99, reason: Some("why".into()), output: None, entries: vec![], seq: 0, children: vec![] }
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
    let (mut notifies, mut places, keys) = (false, Places::default(), Keys::default());
    let tx = &mut Transaction::new(Rows::of(connection), &keys, &mut places, &mut notifies);
    let new = NewJob { queue: "q".into(), role: "r".into(), ..NewJob::default() };
    let later = NewJob { run_at: Some(99), ..new.clone() };
    let beneath = new.clone();
    let mut jobs = vec![new; 8];
    jobs.push(later);
    let batch = Batch::new(jobs, 1).expect("is JSON");
    Enqueue::run(tx, &[&batch]).expect("enqueues");
    let asked = request(vec![]);
    let claimed = claim::claim(tx, &asked).expect("claims").read(&keys, &asked).0;
    claim::claim(tx, &request(vec!["q".into()])).expect("claims");
    let leases: Vec<_> = claimed.iter().map(|claimed| claimed.lease).collect();
    leases::heartbeat(tx, &WorkerId("w".into()), &leases, 100, 10).expect("beats");
    let sheets = Sheet::all(&run()).expect("is JSON");
    finish::append(tx, leases[0], 0, &sheets, 10).expect("appends");
    let end = |lease, ending| End::new(&AttemptEnd { lease, ending }, 10).expect("is JSON");
    let ends = [end(leases[0], ending(Event::Complete)), end(leases[1], ending(Event::Fail))];
    Finish::run(tx, &ends.each_ref()).expect("finishes");
    let told = JobProgress::new(0.5, "half", 10);
    memory::report(tx, leases[3], &told).expect("is kept");
    let child = NewJob { after: vec![After::Job(leases[3].job)], ..beneath };
    let suspended = Ending { children: vec![child], ..ending(Event::Suspend) };
    Finish::run(tx, &[&end(leases[4], suspended)]).expect("finishes");
    Finish::run(tx, &[&end(leases[3], ending(Event::GiveUp))]).expect("finishes");
    cancel::cancel_within(tx, leases[2].job, posse_core::port::Reach::Alone, "enough", 10).expect("cancels");
    grouped(tx, leases[2].job);
    retry::retry(tx, leases[0].job, 10).expect("runs again");
    leases::overdue(tx.db, 1000).expect("looks");
    leases::rescue(tx, &[(false, WorkerId("w".into()))], 1000).expect("rescues");
    ruled(tx);
}

/// Jobs that wait for a group, come to be in it, and end in it; `ended` has ended.
fn grouped(tx: &mut Transaction<'_>, ended: posse_core::job::JobId) {
    let member = || NewJob { role: "g".into(), group: Some("g".into()), ..NewJob::default() };
    let waits = || NewJob { role: "r".into(), after_groups: vec!["g".into()], ..NewJob::default() };
    let cancelled = NewJob { after: vec![After::Job(ended)], ..member() };
    let all: Vec<_> = (0..40).map(|_| member()).chain([waits(), waits(), member()]).collect();
    let made = enqueue(tx, &Batch::new(all, 10).expect("is JSON"), None).expect("enqueues");
    cancel::cancel_within(tx, made[40].id, posse_core::port::Reach::Beneath, "enough", 10).expect("cancels");
    let ask = ClaimRequest { role: "g".into(), limit: 1, ..request(vec![]) };
    let (claimed, _) = claim::claim(tx, &ask).expect("claims").read(tx.keys, &ask);
    let end = AttemptEnd { lease: claimed[0].lease, ending: ending(Event::Complete) };
    Finish::run(tx, &[&End::new(&end, 10).expect("is JSON")]).expect("finishes");
    retry::retry(tx, claimed[0].job.id, 10).expect("runs again");
    enqueue(tx, &Batch::new(vec![cancelled], 10).expect("is JSON"), None).expect("enqueues");
}

/// The same where there are rules, unique keys and several lines.
fn ruled(tx: &mut Transaction<'_>) {
    use posse_core::job::Unique;
    use posse_core::queue::rules::{Limits, Scope};
    let limits = Limits { running: Some(100), running_per_key: Some(50), per_minute: Some(6000), fair: false };
    for scope in [Scope::All, Scope::Queue("q".into())] {
        limits::change(tx, &scope, |rule| rule.limits = limits).expect("is set");
    }
    let with_key = |n: usize| NewJob {
        queue: "q".into(),
        role: "s".into(),
        concurrency_key: Some(format!("k{}", n % 3)),
        unique: Some(Unique { key: format!("u{n}"), for_ms: Some(1), ..Unique::default() }),
        ..NewJob::default()
    };
    let batch = |now| Batch::new((0..60).map(with_key).collect(), now).expect("is JSON");
    enqueue(tx, &batch(2000), None).expect("enqueues");
    enqueue(tx, &batch(2000), None).expect("they are there");
    let many = ClaimRequest { role: "s".into(), limit: 40, now: 2000, lease_until: 3000, ..request(vec![]) };
    let (claimed, _) = claim::claim(tx, &many).expect("claims").read(tx.keys, &many);
    claim::claim(tx, &ClaimRequest { queues: vec!["q".into()], limit: 5, ..many.clone() }).expect("claims");
    // And where keys take turns, in a queue and over all of them.
    for scope in [Scope::Queue("q".into()), Scope::Role("s".into())] {
        limits::change(tx, &scope, |rule| rule.limits.fair = true).expect("is set");
        claim::claim(tx, &ClaimRequest { limit: 5, ..many.clone() }).expect("claims");
    }
    let end = AttemptEnd { lease: claimed[0].lease, ending: ending(Event::Complete) };
    let end = End::new(&end, 2000).expect("is JSON");
    Finish::run(tx, &[&end]).expect("finishes");
    let unworkable = quarantine::Unworkable { lease: claimed[1].lease, why: "why".into() };
    quarantine::give_up(tx, &[unworkable], 2000).expect("gives up");
    enqueue(tx, &batch(9000), None).expect("a key's time is over");
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
    find::next_deadline(Rows::of(&mut connection), 0).expect("can be read");
    Rows::of(&mut connection).to_be_cancelled().expect("can be read");
    // What every process asks once a second, and what finds jobs to delete.
    schedules::due(Rows::of(&mut connection), &Keys::default(), 99).expect("can be read");
    Rows::of(&mut connection).asked_to_end(&WorkerId("w".into())).expect("can be read");
    retention::has_any(Rows::of(&mut connection), i64::MAX).expect("can be read");
    connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let ran: BTreeSet<_> = std::mem::take(&mut asked.lock().expect("no panic").ran).into_iter().collect();
    assert!(ran.len() > 20, "statements were heard");
    for sql in ran {
        for step in plan(&mut connection, &sql) {
            // These hold no row that does not fit the condition; all of them are wanted.
            let of_wanted = [
                "jobs_cancel",
                "jobs_lease",
                "json_each",
                "sqlite_sequence",
                "CONSTANT ROW",
                "VALUES CLAUSE",
                "rules",
                "deaths_suspect",
                "sessions_deleted",
                "retention",
            ];
            let is_bounded = !step.starts_with("SCAN") || of_wanted.iter().any(|name| step.contains(name));
            assert!(is_bounded, "{step}\n{sql}");
            assert!(!step.contains("TEMP B-TREE"), "{step}\n{sql}");
            // Rows that are equal in both columns would all be walked; see `after_rank`.
            assert!(!step.contains(")>(") || step.contains("(rank,id)>("), "{step}\n{sql}");
            // What runs is counted at every claim where there are rules, without a look at the rows.
            let counts_running = step.starts_with("SCAN jobs") && sql.contains("concurrency_key");
            assert!(!counts_running || step.contains("COVERING"), "{step}\n{sql}");
        }
    }
}

#[test]
fn a_turn_costs_the_same_however_many_keys_and_jobs_there_are() {
    use posse_core::queue::rules::Scope;
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = new_database(&folder);
    let (mut notifies, mut places, keys) = (false, Places::default(), Keys::default());
    let tx = &mut Transaction::new(Rows::of(&mut connection), &keys, &mut places, &mut notifies);
    limits::change(tx, &Scope::All, |rule| rule.limits.fair = true).expect("is set");
    let mut statements = |with_key: &dyn Fn(usize) -> String, jobs: usize| {
        let new = |n| NewJob { role: "r".into(), concurrency_key: Some(with_key(n)), ..NewJob::default() };
        let batch = Batch::new((0..jobs).map(new).collect(), 1).expect("is JSON");
        let tx = &mut Transaction::new(Rows::of(&mut connection), &keys, &mut places, &mut notifies);
        enqueue(tx, &batch, None).expect("enqueues");
        let asked = listen(&mut connection);
        let tx = &mut Transaction::new(Rows::of(&mut connection), &keys, &mut places, &mut notifies);
        let request = ClaimRequest { limit: 20, ..request(vec![]) };
        let (claimed, _) = claim::claim(tx, &request).expect("claims").read(&keys, &request);
        assert_eq!(claimed.len(), 20);
        connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
        asked.lock().expect("no panic").ran.len()
    };
    let few = statements(&|n| format!("k{:02}", n % 40), 400);
    let many = statements(&|n| if n < 20_000 { "k00".into() } else { format!("k{n}") }, 21_000);
    assert_eq!(few, many, "one for each job that is taken, and those of every claim");
    assert!(few <= 20 + 7, "{few}");
}

#[test]
fn lists_and_counts_read_the_index_of_their_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = new_database(&folder);
    for step in [rows::COUNTS, rows::LIVE, rows::JOBS].iter().flat_map(|sql| plan(&mut connection, sql)) {
        assert!(!step.starts_with("SCAN jobs") || step.contains("INDEX jobs_"), "{step}");
    }
    let asked = listen(&mut connection);
    let discarded = vec![posse_core::job::JobState::Discarded];
    find::list(
        Rows::of(&mut connection),
        &Keys::default(),
        &JobFilter { states: discarded, limit: 5, ..JobFilter::default() },
    )
    .expect("lists");
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
    for sql in &asked.ran {
        let text = sql.split(" -- binds").next().unwrap_or(sql);
        assert!(asked.kept.contains(text), "prepared on every use: {sql}");
    }
    assert_eq!(texts.len(), asked.kept.len(), "each text has an entry of its own");
}

#[test]
fn turns_of_a_session_are_found_by_their_index() {
    use posse_core::session::NewSession;
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = new_database(&folder);
    let (mut notifies, mut places, keys) = (false, Places::default(), Keys::default());
    let tx = &mut Transaction::new(Rows::of(&mut connection), &keys, &mut places, &mut notifies);
    let (session, _) = sessions::begin(tx, &NewSession { name: None, role: "r".into() }, 1).expect("begins");
    let asked = listen(&mut connection);
    let tx = &mut Transaction::new(Rows::of(&mut connection), &keys, &mut places, &mut notifies);
    let mut said = NewJob { role: "r".into(), ..NewJob::default() };
    said.payload.session = Some(session.id);
    let batch = Batch::new(vec![said], 1).expect("is JSON");
    enqueue(tx, &batch, None).expect("enqueues");
    sessions::turns(Rows::of(&mut connection), &keys, session.id, None).expect("reads");
    Rows::of(&mut connection).sessions(Some("r"), 5).expect("reads");
    Rows::of(&mut connection).sessions(None, 5).expect("reads");
    connection.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let ran = std::mem::take(&mut asked.lock().expect("no panic").ran);
    assert!(ran.len() > 5, "statements were heard");
    for sql in ran {
        for step in plan(&mut connection, &sql) {
            let of_wanted = ["sessions_used", "sqlite_sequence", "CONSTANT ROW"];
            let is_bounded = !step.starts_with("SCAN") || of_wanted.iter().any(|name| step.contains(name));
            assert!(is_bounded && !step.contains("TEMP B-TREE"), "{step}\n{sql}");
        }
    }
}
