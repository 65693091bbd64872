//! A database that nobody can write for longer than leases stand, and processes that stand still.

use std::time::Duration;

use serde_json::{Value, json};

use super::is_full;
use crate::support::{ModelServer, Project, Running, Say, until};

fn project(server: &ModelServer, lease_seconds: u64) -> Project {
    super::project(server, &format!("lease_seconds = {lease_seconds}\nslots = 2"))
}

/// Somebody holds the write lock for so long.
fn hold_lock(project: &Project, time: Duration) {
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.busy_timeout(Duration::from_secs(60)).expect("is set");
    database.execute_batch("BEGIN IMMEDIATE").expect("locks");
    std::thread::sleep(time);
    database.execute_batch("COMMIT").expect("lets go");
}

fn shown(project: &Project, job: i64) -> Value {
    project.posse(&["show", &job.to_string(), "--json"]).ok().json()
}

/// In whose hands a job is, and in which attempt; it met no death.
fn hands(project: &Project, job: i64) -> (String, i64) {
    let shown = shown(project, job);
    assert_eq!(shown["job"]["crashes"], 0, "{}", shown["attempts"]);
    let attempt = shown["job"]["attempt"].as_i64().expect("a number");
    (shown["job"]["leased_by"].as_str().unwrap_or_default().to_owned(), attempt)
}

fn workers(project: &Project) -> Vec<Running> {
    let workers: Vec<_> = (0..2).map(|_| project.start(&["work", "--quiet", "--role", "writer"])).collect();
    until("both are there", || {
        project.posse(&["worker", "list", "--json"]).ok().json()["workers"].as_array().map(Vec::len) == Some(2)
    });
    workers
}

#[test]
fn a_database_that_is_locked_for_longer_than_leases_stand_takes_no_job_from_anybody() {
    let server = ModelServer::start(vec![Say::Silence]);
    let (lease, held, times) = if is_full() { (3, 6, 4) } else { (1, 4, 2) };
    let project = project(&server, lease);
    for _ in 0..4 {
        project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    }
    let workers = workers(&project);
    (1..=4).for_each(|job| project.wait_for_state(job, "running"));
    let before: Vec<_> = (1..=4).map(|job| hands(&project, job)).collect();
    for _ in 0..times {
        hold_lock(&project, Duration::from_secs(held));
        std::thread::sleep(Duration::from_millis(1500));
    }
    // As long as somebody would watch an overdue lease, and longer.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!((1..=4).map(|job| hands(&project, job)).collect::<Vec<_>>(), before);
    drop(workers);
}

/// With leases of the usual length a lock is not waited for as long as that.
#[test]
fn a_lock_that_outlasts_patience_takes_no_job_either() {
    if !is_full() {
        return;
    }
    let server = ModelServer::start(vec![Say::Silence]);
    let project = project(&server, 30);
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let workers = workers(&project);
    project.wait_for_state(1, "running");
    let before = hands(&project, 1);
    for _ in 0..4 {
        hold_lock(&project, Duration::from_secs(36));
        std::thread::sleep(Duration::from_secs(5));
    }
    std::thread::sleep(Duration::from_secs(20));
    assert_eq!(hands(&project, 1), before);
    drop(workers);
}

#[test]
fn what_is_worked_while_the_database_stalls_is_worked_once_and_nothing_is_unknown() {
    let mut script = vec![Say::Call("append_file", json!({"path": "out.txt", "text": "x\n"})); 25];
    script.push(Say::Call("finish", json!({"final_summary": "written"})));
    let server = ModelServer::start(script);
    let project = project(&server, 1);
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let workers = workers(&project);
    until("it works", || server.requests().len() > 2);
    for _ in 0..if is_full() { 5 } else { 2 } {
        hold_lock(&project, Duration::from_secs(3));
    }
    project.wait_for_state(1, "completed");
    let shown = shown(&project, 1);
    assert_eq!((&shown["job"]["crashes"], &shown["job"]["attempt"]), (&json!(0), &json!(1)), "{}", shown["attempts"]);
    assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1), "{}", shown["attempts"]);
    let lines = std::fs::read_to_string(project.path().join("out.txt")).expect("is there");
    assert_eq!(lines.lines().count(), 25, "each once");
    let states: Vec<_> = shown["ledger"].as_array().expect("calls").iter().map(|call| &call["state"]).collect();
    assert!(states.len() == 25 && states.iter().all(|state| **state == "done"), "{states:?}");
    drop(workers);
}

/// A process that stands still is seen to live: its job goes on elsewhere, and meets no death.
#[test]
fn a_process_that_stands_still_is_charged_no_death() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = project(&server, 1);
    let first = project.start(&["work", "--quiet", "--role", "writer"]);
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    project.wait_for_state(1, "running");
    let (holder, _) = hands(&project, 1);
    first.stop();
    let second = project.start(&["work", "--quiet", "--role", "writer"]);
    until("another one has it", || {
        let (now, _) = hands(&project, 1);
        !now.is_empty() && now != holder
    });
    let shown = shown(&project, 1);
    let first_attempt = &shown["attempts"][0];
    assert_eq!(first_attempt["outcome"], "interrupted", "{shown}");
    assert!(first_attempt["reason"].as_str().is_some_and(|why| why.contains("lives, and did not renew")), "{shown}");
    let (second_holder, _) = hands(&project, 1);
    first.go_on();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(hands(&project, 1).0, second_holder, "the one that stood still does not take it back");
    drop((first, second));
}
