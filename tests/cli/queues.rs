//! What is said of a queue, as people say it.

use crate::support::Project;
use serde_json::{Value, json};

fn limits(project: &Project) -> Value {
    project.posse(&["limit", "list", "--json"]).ok().json()
}

#[test]
fn rules_of_queues_are_the_same_after_their_table_has_changed() {
    let project = Project::begun();
    for set in [
        &["limit", "set", "--queue", "mail", "--running", "5", "--per-minute", "60", "--fair"][..],
        &["limit", "set", "--queue", "news", "--running-per-key", "1"],
        &["limit", "set", "--all", "--running", "9"],
        &["pause", "--queue", "paused"],
        &["pause", "--role", "scribe"],
    ] {
        project.posse(set).ok();
    }
    let before = limits(&project);
    assert_eq!(before["limits"].as_array().map(Vec::len), Some(5));

    let file = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    file.execute_batch(include_str!("../../migrations/sqlite/0013_queues/down.sql")).expect("goes back");
    file.execute("DELETE FROM __diesel_schema_migrations WHERE version = '0013'", [])
        .expect("is of the version before");
    let of_queues = "SELECT count(*) FROM rules WHERE scope = 'queue'";
    assert_eq!(file.query_row(of_queues, [], |row| row.get(0)), Ok(3));
    drop(file);

    project.posse(&["resume", "--key", "k"]).ok();
    assert_eq!(limits(&project), before);
}

fn enqueue(project: &Project, more: &[&str]) -> Value {
    let args = [&["enqueue", "-r", "scribe", "--queue", "mail", "--json"], more, &["write it"]].concat();
    project.posse(&args).ok().json()
}

fn terms(job: &Value) -> [&Value; 2] {
    [&job["priority"], &job["max_attempts"]]
}

#[test]
fn a_job_begins_as_it_is_asked_for_then_as_its_persona_its_queue_and_everybody_has_it() {
    let project = Project::begun();
    assert_eq!(terms(&enqueue(&project, &[])), [5, 5]);
    let set = ["queue", "set", "mail", "--priority", "2", "--max-attempts", "7", "--priority-step", "90s"];
    project.posse(&set).ok();
    assert_eq!(terms(&enqueue(&project, &[])), [2, 7]);
    assert_eq!(terms(&enqueue(&project, &["--priority", "5", "--max-attempts", "3"])), [5, 3]);
    assert_eq!(terms(&enqueue(&project, &["--retry", "none"])), [2, 1], "one attempt was asked for");
    // The lines of a file, each in its queue, and the flags that stand in for them.
    let lines = ["", r#", "queue": "other""#, r#", "priority": 9"#].map(|more| format!(r#"{{"goal": "g"{more}}}"#));
    project.write("jobs.jsonl", lines.join("\n"));
    let file = ["enqueue", "-r", "scribe", "--queue", "mail", "--max-attempts", "4", "--jsonl", "jobs.jsonl", "--json"];
    let first = project.posse(&file).ok().json()["first"].as_i64().expect("a number");
    let stored = |id: i64| project.posse(&["show", &id.to_string(), "--json"]).ok().json()["job"].clone();
    let jobs = [0, 1, 2].map(|n| stored(first + n));
    assert_eq!(jobs.each_ref().map(terms), [[2, 4], [5, 4], [9, 4]]);

    // A schedule keeps what it was added with, and so does a job.
    let add = ["schedule", "add", "s", "--cron", "0 0 1 1 *", "--queue", "mail", "-r", "scribe", "write it"];
    project.posse(&add).ok();
    project.posse(&["queue", "set", "mail", "--priority", "none", "--max-attempts", "none"]).ok();
    let made = project.posse(&["schedule", "run-now", "s", "--json"]).ok().json()["job"].as_i64().expect("a number");
    assert_eq!(terms(&stored(made)), [2, 7]);
    assert_eq!(terms(&stored(2)), [2, 7]);
    assert_eq!(terms(&enqueue(&project, &[])), [5, 5]);
    let step = |id: i64| {
        let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
        let step =
            database.query_row("SELECT priority_step_ms FROM jobs WHERE id = ?", [id], |row| row.get::<_, i64>(0));
        step.expect("is there")
    };
    assert_eq!([step(1), step(2), step(made)], [600_000, 90_000, 90_000]);

    // What a persona says of attempts goes before its queue.
    project.posse(&["queue", "set", "mail", "--max-attempts", "7"]).ok();
    let path = project.path().join("config/personas/scribe.json");
    let mut persona: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("is there")).expect("JSON");
    persona["retry"] = json!({"strategy": "fixed", "max_attempts": 9});
    std::fs::write(&path, persona.to_string()).expect("is written");
    assert_eq!(terms(&enqueue(&project, &[])), [5, 9]);
    assert_eq!(terms(&enqueue(&project, &["--max-attempts", "3"])), [5, 3]);
}

#[test]
fn what_is_said_of_a_queue_is_set_shown_and_taken_back() {
    let project = Project::begun();
    let nothing = project.posse(&["queue", "show", "mail", "--json"]).ok().json();
    let as_usual = json!({"keep_ms": 2_592_000_000_i64, "is_own": false});
    assert_eq!(
        (&nothing["available"], &nothing["rule"], &nothing["kept"]["completed"]),
        (&json!(0), &Value::Null, &as_usual)
    );
    assert_eq!(nothing["defaults"], json!({"priority": null, "priority_step_ms": null, "max_attempts": null}));
    assert_eq!(nothing["created_at"], Value::Null);

    enqueue(&project, &[]);
    project.posse(&["pause", "--queue", "mail"]).ok();
    let set = ["queue", "set", "mail", "--priority", "1", "--keep-completed", "7d", "--keep-discarded", "forever"];
    let set = project.posse(&set).ok().out;
    for words in [
        "1 available, 0 scheduled",
        "paused",
        "priority 1",
        "completed 7d, cancelled 30d (as the database), discarded forever",
    ] {
        assert!(set.contains(words), "{words}: {set}");
    }
    let shown = project.posse(&["queue", "show", "mail", "--json"]).ok().json();
    assert_eq!(shown["kept"]["discarded"], json!({"keep_ms": null, "is_own": true}));
    assert_eq!((&shown["defaults"]["priority"], &shown["rule"]["name"]), (&json!(1), &json!("mail")));
    assert!(shown["created_at"].is_i64() && shown["created_at_rfc3339"].is_string());
    // A queue of which only that is said is in no list of limits, and in that of queues.
    project.posse(&["resume", "--queue", "mail"]).ok();
    assert_eq!(limits(&project)["limits"], json!([]));
    let listed = project.posse(&["queue", "list", "--json"]).ok().json()["queues"].clone();
    assert_eq!((&listed[0]["queue"], &listed[0]["rule"]), (&json!("mail"), &Value::Null));
    let none = ["queue", "set", "mail", "--priority", "none", "--keep-completed", "none", "--keep-discarded", "none"];
    project.posse(&none).ok();
    let again = project.posse(&["queue", "show", "mail", "--json"]).ok().json();
    assert_eq!((&again["kept"]["completed"], &again["created_at"]), (&as_usual, &Value::Null));

    for (wrong, words) in [
        (&["set", "mail"][..], "say what is to be set: --priority"),
        (&["set", "mail", "--priority", "12"], "priority is 12; it must lie between 1 (first) and 9 (last)"),
        (&["set", "mail", "--priority", "high"], "write a whole number, or none"),
        (&["set", "mail", "--max-attempts", "0"], "max_attempts is 0; it must lie between 1 and"),
        (&["set", "mail", "--priority-step", "8d"], "it must lie between 0 and 604800000"),
        (&["set", "mail", "--keep-completed", "soon"], "write a time like 12h or 30d, or forever"),
        (&["set", "no queue", "--priority", "1"], "queue 'no queue'"),
        (&["show", ""], "queue"),
    ] {
        let told = project.posse(&[&["queue"], wrong].concat()).expect(2).err;
        assert!(told.contains(words), "{wrong:?}: {told}");
    }
}
