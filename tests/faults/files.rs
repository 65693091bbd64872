//! A database that is deleted, moved, replaced, or not to be written.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Resource;

use crate::support::{ModelServer, Project, Running, Say, until};

const FILES: [&str; 3] = ["posse.db", "posse.db-wal", "posse.db-shm"];

fn at_work(server: &ModelServer) -> (Project, Running) {
    let project = super::project(server, "lease_seconds = 5");
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let worker = project.start(&["work", "--quiet", "--role", "writer"]);
    project.wait_for_state(1, "running");
    (project, worker)
}

fn file(project: &Project, name: &str) -> PathBuf {
    project.path().join(".posse").join(name)
}

#[test]
fn a_worker_whose_database_is_gone_stops_and_says_so() {
    for name in FILES {
        for replaced in [false, true] {
            let server = ModelServer::start(vec![Say::Silence]);
            let (project, worker) = at_work(&server);
            let (from, aside) = (file(&project, name), project.path().join("aside"));
            if replaced {
                // Another file takes its name, in one step.
                std::fs::copy(&from, &aside).expect("is copied");
                std::fs::rename(&aside, &from).expect("takes its place");
            } else {
                std::fs::rename(&from, &aside).expect("is moved");
            }
            let ended = worker.wait().expect(5);
            let what = if replaced { "was replaced" } else { "was deleted or moved" };
            assert!(ended.err.contains(&format!("{name} {what} while it was in use")), "{name}: {}", ended.err);
            assert!(ended.err.contains("posse db restore FILE"), "{}", ended.err);
        }
    }
}

/// Nobody is told that something was saved which went into a file that nobody will find.
#[test]
fn what_goes_into_a_file_without_a_name_is_not_called_done() {
    let server = ModelServer::start(vec![Say::Call("finish", serde_json::json!({"final_summary": "done"}))]);
    let project = super::project(&server, "");
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let worker = project.start(&["work", "--json", "--role", "writer"]);
    project.wait_for_state(1, "completed");
    for name in FILES {
        let _ = std::fs::remove_file(file(&project, name));
    }
    let ended = worker.wait().expect(5);
    assert_eq!(ended.out.matches("\"attempt_ended\"").count(), 1, "{}", ended.out);
    // A new one is a new one, and the doctor knows nothing against it.
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "available");
}

#[test]
fn a_run_whose_database_is_gone_ends_too() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = super::project(&server, "");
    let running = project.start(&["run", "--role", "writer", "x"]);
    project_has(&project);
    project.wait_for_state(1, "running");
    std::fs::remove_file(file(&project, "posse.db")).expect("is removed");
    let ended = running.wait().expect(5);
    assert!(ended.err.contains("was deleted or moved"), "{}", ended.err);
}

fn project_has(project: &Project) {
    until("there is a job", || project.posse(&["show", "1"]).code == 0);
}

/// Nobody makes a new database while a process works on the one that was here.
#[test]
fn a_database_that_is_gone_is_not_made_anew_while_somebody_works_on_it() {
    let server = ModelServer::start(vec![Say::Silence]);
    let (project, worker) = at_work(&server);
    // It notices nothing while it stands still.
    worker.stop();
    let (from, aside) = (file(&project, "posse.db"), project.path().join("aside.db"));
    std::fs::rename(&from, &aside).expect("is moved");
    let refused = project.posse(&["enqueue", "--role", "writer", "x"]).expect(5);
    assert!(refused.err.contains("a process still works on one that is gone"), "{}", refused.err);
    assert!(!from.exists(), "nothing was made");
    let report = project.posse(&["doctor"]).expect(1).out;
    assert!(report.contains("there is none at") && report.contains("posse db restore FILE"), "{report}");
    worker.go_on();
    worker.wait().expect(5);
}

/// A service manager starts a worker again that ended: it makes no new database where the log of the old one lies, which
/// would go with that, and nobody's job met a death.
#[test]
fn a_database_that_is_put_back_is_as_it_was_whoever_was_started_meanwhile() {
    let server = ModelServer::start(vec![Say::Silence]);
    let (project, worker) = at_work(&server);
    let (from, aside) = (file(&project, "posse.db"), project.path().join("aside.db"));
    std::fs::rename(&from, &aside).expect("is moved");
    worker.wait().expect(5);
    let log = std::fs::read(file(&project, "posse.db-wal")).expect("its log is there");
    assert!(!log.is_empty());
    for args in
        [&["work", "--role", "writer"][..], &["enqueue", "--role", "writer", "x"], &["run", "--role", "writer", "x"]]
    {
        let refused = project.start(args).wait().expect(5).err;
        assert!(refused.contains("its log posse.db-wal lies there without it"), "{refused}");
        assert!(refused.contains("posse db restore FILE"), "{refused}");
    }
    assert!(!from.exists(), "nothing was made");
    assert!(std::fs::read(file(&project, "posse.db-wal")).is_ok_and(|now| now == log), "nothing was taken away");
    std::fs::rename(&aside, &from).expect("is put back");
    let worker = project.start(&["work", "--quiet", "--role", "writer"]);
    until("it is worked again", || server.requests().len() > 1);
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    let first = &shown["attempts"][0];
    assert_eq!((&shown["job"]["crashes"], &shown["job"]["attempt"]), (&0.into(), &1.into()), "{shown}");
    assert_eq!(first["outcome"], "interrupted", "{shown}");
    assert!(first["reason"].as_str().is_some_and(|why| why.contains("ended, and could not store")), "{first}");
    drop(worker);
    project.posse(&["db", "check", "--full"]).ok();
    // Whoever wants nothing of it any more begins anew.
    for name in ["posse.db", "posse.db-wal", "posse.db-shm"] {
        let _ = std::fs::remove_file(file(&project, name));
    }
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
}

/// As where a file system has become read-only under its hands.
#[test]
fn a_worker_that_may_write_nothing_any_more_waits_and_goes_on() {
    let mut script = vec![Say::Call("append_file", serde_json::json!({"path": "out.txt", "text": "x\n"})); 15];
    script.push(Say::Call("finish", serde_json::json!({"final_summary": "written"})));
    let server = ModelServer::start(script);
    let project = super::project(&server, "lease_seconds = 1");
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let mut worker = project.start(&["work", "--role", "writer"]);
    until("it works", || server.requests().len() > 2);
    worker.limit(Resource::Fsize, Some(0));
    let said = worker.hear("cannot be written");
    // For longer than leases stand.
    std::thread::sleep(std::time::Duration::from_secs(4));
    worker.limit(Resource::Fsize, None);
    project.wait_for_state(1, "completed");
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    assert_eq!((&shown["job"]["crashes"], &shown["job"]["attempt"]), (&0.into(), &1.into()), "{shown}\n{said}");
    assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1), "{}", shown["attempts"]);
    // A call that was on its way then could not write either, and said so.
    let calls = shown["ledger"].as_array().expect("calls");
    let are = |state: &str| calls.iter().filter(|call| call["state"] == state).count();
    assert!(are("done") + are("failed") == 15 && are("failed") <= 1, "{calls:?}");
    let lines = std::fs::read_to_string(project.path().join("out.txt")).expect("is there");
    assert_eq!(lines.lines().count(), are("done"));
    worker.terminate();
    let said = worker.wait().ok().err;
    assert!(said.contains("may not grow any more"), "{said}");
    project.posse(&["db", "check", "--full"]).ok();
}

#[test]
fn the_doctor_tries_to_write_and_what_is_not_full_is_not_called_full() {
    // Root may write whatever the rights say.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    let project = Project::begun();
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    let report = project.posse(&["doctor"]).out;
    assert!(report.contains("ok       writing: works"), "{report}");
    if !is_root {
        let folder = project.path().join(".posse");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o500)).expect("is set");
        let report = project.posse(&["doctor"]).expect(1).out;
        let refused = project.posse(&["enqueue", "--role", "scribe", "x"]).expect(5).err;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("is set");
        for said in [report, refused] {
            assert!(said.contains("may not write") && !said.contains("storage full"), "{said}");
        }
    }
    let database = rusqlite::Connection::open(file(&project, "posse.db")).expect("opens");
    database.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let report = project.posse(&["doctor"]).expect(1).out;
    let pid = std::process::id();
    assert!(report.contains("wrong    writing") && report.contains(&format!("locked by process {pid}")), "{report}");
    database.execute_batch("ROLLBACK").expect("lets go");
    let kept: i64 = database
        .query_row("SELECT count(*) FROM meta WHERE key LIKE 'written%'", [], |row| row.get(0))
        .expect("can be read");
    assert_eq!(kept, 0, "what it tries it takes back");
}

#[test]
fn the_doctor_loads_what_others_load() {
    let project = Project::begun();
    project.write("sqlite_extensions/vec0.so", "rubbish");
    let refused = project.posse(&["enqueue", "--role", "scribe", "x"]).expect(5).err;
    assert!(refused.contains("vec0.so"), "{refused}");
    let report = project.posse(&["doctor"]).expect(1).out;
    assert!(report.contains("wrong    extension") && report.contains("vec0.so"), "{report}");
}
