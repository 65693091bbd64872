//! Putting a backup in the place of a database.

use std::path::Path;

use crate::support::{ModelServer, Project, Say};

fn jobs(project: &Project) -> usize {
    project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map_or(0, Vec::len)
}

fn enqueue(project: &Project, jobs: usize) {
    for _ in 0..jobs {
        project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    }
}

/// What lies beside the database and is kept.
fn kept(project: &Project) -> Vec<String> {
    let folder = std::fs::read_dir(project.path().join(".posse")).expect("can be listed");
    let names = folder.map(|entry| entry.expect("can be read").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("before-restore")).collect()
}

/// The log of a process that was killed, with what is in no other file.
fn leave_a_log(project: &Project) {
    let worker = project.start(&["work", "--quiet", "--role", "reviewer"]);
    enqueue(project, 2);
    drop(worker);
    let log = project.path().join(".posse/posse.db-wal");
    assert!(log.metadata().is_ok_and(|data| data.len() > 0), "the log stays");
}

#[test]
fn a_backup_is_the_database_afterwards_whatever_log_lay_there() {
    for _ in 0..3 {
        let project = Project::begun();
        enqueue(&project, 3);
        let told = project.posse(&["db", "backup", "copy.db"]).ok();
        assert!(told.err.contains("posse db restore"), "{}", told.err);
        leave_a_log(&project);
        assert_eq!(jobs(&project), 5);
        leave_a_log(&project);
        let done = project.posse(&["db", "restore", "copy.db", "--json"]).ok().json();
        assert_eq!(jobs(&project), 3);
        project.posse(&["db", "check", "--full"]).ok();
        // What was there is whole, log and all.
        let old = done["kept"].as_str().expect("is kept").to_owned();
        assert_eq!(kept(&project).len(), 1, "one file: its log was taken in");
        let there = project.posse(&["--db", &old, "list", "--json"]).ok().json();
        assert_eq!(there["jobs"].as_array().map(Vec::len), Some(7));
        // A number that was given once is not given again.
        let next = project.posse(&["enqueue", "--role", "scribe", "--json", "x"]).ok().json()["id"].clone();
        assert_eq!(next, 8);
    }
}

#[test]
fn a_damaged_database_is_restored_and_kept_too() {
    let project = Project::begun();
    enqueue(&project, 3);
    project.posse(&["db", "backup", "copy.db"]).ok();
    leave_a_log(&project);
    let database = project.path().join(".posse/posse.db");
    std::fs::write(&database, "rubbish, and more of it, in the place of a database").expect("is written");
    let refused = project.posse(&["list"]).expect(5).err;
    assert!(refused.contains("posse db restore FILE"), "{refused}");
    project.posse(&["db", "restore", "copy.db"]).ok();
    assert_eq!(jobs(&project), 3);
    assert!(kept(&project).iter().any(|name| name.ends_with("-wal")), "{:?}", kept(&project));
    // One that was deleted is put back as well, whatever was left of it.
    std::fs::remove_file(&database).expect("is removed");
    std::fs::write(project.path().join(".posse/posse.db-wal"), "left over").expect("is written");
    project.posse(&["db", "restore", "copy.db"]).ok();
    assert_eq!(jobs(&project), 3);
    project.posse(&["db", "check", "--full"]).ok();
}

#[test]
fn a_backup_that_cannot_be_used_changes_nothing() {
    let project = Project::begun();
    enqueue(&project, 2);
    project.posse(&["db", "backup", "copy.db"]).ok();
    let change = |name: &str, sql: &str| {
        std::fs::copy(project.path().join("copy.db"), project.path().join(name)).expect("is copied");
        let database = rusqlite::Connection::open(project.path().join(name)).expect("opens");
        database.execute_batch(sql).expect("works");
    };
    change("newer.db", "INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')");
    change("torn.db", "PRAGMA foreign_keys = 0; DELETE FROM jobs");
    change("sealed.db", "INSERT INTO meta (key, value) VALUES ('sealing_key', '0123abcd')");
    std::fs::write(project.path().join("rubbish.db"), "no database at all, and that for long").expect("is written");
    std::fs::write(project.path().join("empty.db"), "").expect("is written");
    for (name, said) in [
        ("newer.db", "newer posse"),
        ("torn.db", "is damaged"),
        ("sealed.db", "is sealed with key 0123abcd"),
        ("rubbish.db", "not a database"),
        ("empty.db", "is empty"),
        ("missing.db", "cannot be read"),
        (".posse/posse.db", "is the database itself"),
    ] {
        let refused = project.posse(&["db", "restore", name]);
        assert!(refused.code != 0 && refused.err.contains(said), "{name}: {} {}", refused.code, refused.err);
    }
    assert_eq!((jobs(&project), kept(&project).len()), (2, 0));
    assert!(!Path::new(&project.path().join(".posse/posse.db.restore-part")).exists());
}

#[test]
fn nothing_is_restored_under_somebodys_hands() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = super::project(&server, "");
    project.posse(&["enqueue", "--role", "writer", "x"]).ok();
    let worker = project.start(&["work", "--quiet", "--role", "writer"]);
    project.wait_for_state(1, "running");
    project.posse(&["db", "backup", "copy.db"]).ok();
    let refused = project.posse(&["db", "restore", "copy.db"]);
    assert!(refused.code != 0 && refused.err.contains("posse worker drain"), "{}", refused.err);
    drop(worker);
    // Some other program has it open.
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    let _: i64 = database.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).expect("can be read");
    let refused = project.posse(&["db", "restore", "copy.db"]);
    assert!(refused.code != 0 && refused.err.contains("open"), "{}", refused.err);
    drop(database);
    let done = project.posse(&["db", "restore", "copy.db", "--json"]).ok().json();
    assert_eq!(done["given_back"], 1);
    let job = project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    assert_eq!((&job["state"], &job["crashes"], &job["attempt"]), (&"available".into(), &0.into(), &0.into()), "{job}");
}

/// Whatever ends it in the middle, a restore that is not finished is told of, and finished by the next one.
#[test]
fn a_restore_that_was_interrupted_is_told_of() {
    let project = Project::begun();
    enqueue(&project, 2);
    project.posse(&["db", "backup", "copy.db"]).ok();
    std::fs::write(project.path().join(".posse/posse.db.restoring"), "").expect("is written");
    for args in [&["list"][..], &["enqueue", "--role", "scribe", "x"], &["doctor"]] {
        let told = project.posse(args);
        assert!(told.code != 0 && (told.err + &told.out).contains("posse db restore FILE again"), "{args:?}");
    }
    project.posse(&["db", "restore", "copy.db"]).ok();
    assert_eq!(jobs(&project), 2);
}
