//! Numbers to watch: what is printed and served, to the last digit.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{ModelServer, Project, Say};
use serde_json::json;

/// The rows of a text in Prometheus' format. Each line of it is looked at.
fn rows(text: &str) -> BTreeMap<String, f64> {
    let mut rows = BTreeMap::new();
    let mut typed: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').expect("a type");
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            assert!(typed.iter().all(|(known, _)| known != name), "told twice: {line}");
            typed.push((name.into(), kind.into()));
        } else if let Some(head) = line.strip_prefix("# HELP ") {
            assert!(head.split_once(' ').is_some_and(|(_, help)| help.ends_with('.')), "{line}");
        } else {
            let (row, value) = line.rsplit_once(' ').expect("a row");
            let name = row.split('{').next().expect("a name");
            let (family, kind) = typed.last().expect("a type stands before its rows");
            match kind.as_str() {
                "histogram" => {
                    assert!(["_bucket", "_sum", "_count"].iter().any(|end| *name == format!("{family}{end}")))
                }
                _ => assert_eq!(name, family),
            }
            assert!(rows.insert(row.to_owned(), value.parse().expect("a number")).is_none(), "told twice: {row}");
        }
    }
    rows
}

/// What is answered, head and body.
fn ask(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is set");
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("is answered in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn scrape(address: &str) -> BTreeMap<String, f64> {
    let (head, body) = ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    rows(&body)
}

#[test]
fn a_worker_serves_what_it_did_and_what_there_is() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "done"}))]);
    let project = Project::with_model(&server);
    let enqueue = |more: &[&str]| project.posse(&[&["enqueue", "--role", "scribe", "write", "it"], more].concat()).ok();
    enqueue(&[]);
    enqueue(&["--queue", "mail"]);
    enqueue(&["--in", "2h"]);
    project.posse(&["enqueue", "--role", "researcher", "look"]).ok();
    let mut worker = project.start(&["work", "--role", "scribe", "--slots", "3", "--metrics", "127.0.0.1:0"]);
    let address = worker.hear_rest_of("metrics    http://").trim_end_matches("/metrics").to_owned();
    project.wait_for_state(1, "completed");
    project.wait_for_state(2, "completed");

    // While somebody else has the database to write.
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let told = scrape(&address);
    database.execute_batch("ROLLBACK").expect("lets go");
    let model = format!(r#"endpoint="{}",model="mock""#, server.base_url);
    for (row, right) in [
        ("posse_database_up", 1.0),
        (r#"posse_jobs{role="scribe",queue="default",state="scheduled"}"#, 1.0),
        (r#"posse_jobs{role="researcher",queue="default",state="available"}"#, 1.0),
        (r#"posse_jobs_due{role="researcher"}"#, 1.0),
        ("posse_jobs_enqueued_total", 4.0),
        ("posse_leases", 0.0),
        ("posse_workers", 1.0),
        ("posse_worker_slots", 3.0),
        ("posse_questions_open", 0.0),
        (r#"posse_claims_total{role="scribe"}"#, 2.0),
        (r#"posse_attempts_total{role="scribe",outcome="completed",state="completed"}"#, 2.0),
        (r#"posse_leases_lost_total{role="scribe"}"#, 0.0),
        (r#"posse_pickup_delay_seconds_count{role="scribe"}"#, 2.0),
        (r#"posse_attempt_duration_seconds_bucket{role="scribe",le="+Inf"}"#, 2.0),
        (r#"posse_attempt_duration_seconds_bucket{role="scribe",le="3600"}"#, 2.0),
        ("posse_rescues_total", 0.0),
        (&format!(r#"posse_model_requests_total{{{model},outcome="answered"}}"#), 2.0),
        (&format!(r#"posse_model_tokens_total{{{model},kind="input"}}"#), 200.0),
        (&format!(r#"posse_model_tokens_total{{{model},kind="output"}}"#), 20.0),
        (&format!(r#"posse_model_cost_dollars_total{{{model}}}"#), 0.0),
        (&format!(r#"posse_model_request_duration_seconds_count{{{model}}}"#), 2.0),
    ] {
        assert_eq!(told.get(row), Some(&right), "{row} in {told:#?}");
    }
    assert!(told["posse_commands_total"] >= told["posse_commits_total"] && told["posse_commits_total"] > 0.0);
    assert!(told["posse_database_size_bytes"] > 4096.0);
    let jobs: Vec<_> = told.keys().filter(|row| row.starts_with("posse_jobs{")).collect();
    assert_eq!(jobs.len(), 2, "jobs that have ended are not counted: {jobs:?}");
    let bounds: Vec<_> = told.iter().filter(|(row, _)| row.starts_with("posse_pickup_delay_seconds_bucket")).collect();
    assert_eq!(bounds.len(), 15, "{bounds:?}");

    let refused = |request: &str| ask(&address, request).0;
    let ours = format!("Host: {address}");
    assert!(refused("GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n").starts_with("HTTP/1.1 403"));
    assert!(refused(&format!("GET / HTTP/1.1\r\n{ours}\r\n\r\n")).starts_with("HTTP/1.1 404"));
    assert!(refused(&format!("DELETE /metrics HTTP/1.1\r\n{ours}\r\n\r\n")).starts_with("HTTP/1.1 405"));
    // One who never says what it wants keeps nobody else waiting.
    let _silent = TcpStream::connect(&address).expect("somebody listens");
    scrape(&address);
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn the_numbers_of_the_database_are_printed_once() {
    let project = Project::begun();
    assert!(project.posse(&["metrics"]).expect(5).err.contains("no database"));
    project.posse(&["enqueue", "--role", "scribe", "write", "it"]).ok();
    // The door takes no such name; whoever reads the numbers should not have to trust it.
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute("UPDATE jobs SET queue = ?1", ["a\"} 1\nposse_jobs 7\\"]).expect("works");
    let told = rows(&project.posse(&["metrics"]).ok().out);
    let row = r#"posse_jobs{role="scribe",queue="a\"} 1\nposse_jobs 7\\",state="available"}"#;
    assert_eq!(told.get(row), Some(&1.0), "{told:?}");
    assert!(told.keys().all(|row| !row.contains("claims")), "no process, no counts of it");
    let as_json = project.posse(&["metrics", "--json"]).ok().json();
    assert_eq!(as_json["standing"]["jobs"][0]["jobs"], 1);
    assert_eq!((&as_json["standing"]["enqueued"], &as_json["process"]), (&1.into(), &json!(null)));
}

#[test]
fn other_machines_are_not_served() {
    let project = Project::begun();
    let refused = project.posse(&["work", "--metrics", "0.0.0.0:9470"]).expect(2);
    assert!(refused.err.contains("127.0.0.1:9470"), "{}", refused.err);
    assert!(!project.path().join(".posse").exists(), "nothing is half done");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    assert!(project.posse(&["work", "--metrics", &address]).expect(1).err.contains(&address));
}
