//! How long sessions and jobs are kept, whoever works; and deleting them.

use std::fs;

use crate::support::{ModelServer, Project, Say, until};
use serde_json::{Value, json};

fn project(server: &ModelServer, more: &str) -> Project {
    let project = Project::begun();
    settings(&project, server, more);
    project
}

fn settings(project: &Project, server: &ModelServer, more: &str) {
    let model = format!("base_url = \"{}\"\nmodel = \"mock\"\ntool_calling = \"native\"\n", server.base_url);
    project.write("config/posse.toml", format!("grace_seconds = 0\n[models.mock]\n{model}{more}"));
}

fn kept(project: &Project) -> Value {
    project.posse(&["db", "retention", "--json"]).ok().json()["retention"].clone()
}

const DAY: i64 = 86_400_000;

#[test]
fn retention_is_the_databases_and_no_workers() {
    let server = ModelServer::start(vec![Say::Words("Done.")]);
    let project = project(&server, "");
    project.posse(&["run", "--role", "scribe", "write it"]).ok();
    let usual = json!({"completed": 30 * DAY, "cancelled": 30 * DAY, "discarded": 30 * DAY, "sessions": 365 * DAY});
    assert_eq!(kept(&project), usual);

    // A worker of other settings says so, and deletes by what the database says.
    settings(&project, &server, "[retention]\ncompleted = '1ms'\nsessions = 'forever'\n");
    let ran = project.posse(&["run", "--role", "scribe", "write it"]).ok();
    let told = "completed 30d, not 1ms; sessions 365d, not forever";
    assert!(ran.err.contains(told) && ran.err.contains("posse db retention --from-settings"), "{}", ran.err);
    assert_eq!(kept(&project), usual);
    let doctor = project.posse(&["doctor"]).out;
    assert!(doctor.contains("warning  retention: ") && doctor.contains(told), "{doctor}");

    let shown = project.posse(&["db", "retention", "--from-settings"]).ok();
    assert!(shown.out.contains("completed  1ms\n") && shown.out.contains("sessions   forever\n"), "{}", shown.out);
    assert_eq!(shown.err, "");
    let quiet = project.posse(&["run", "--role", "scribe", "write it"]).ok();
    assert!(!quiet.err.contains("retention"), "{}", quiet.err);
    project.posse(&["db", "retention", "--completed", "7d", "--discarded", "forever"]).ok();
    assert_eq!(
        kept(&project),
        json!({"completed": 7 * DAY, "cancelled": 30 * DAY, "discarded": null, "sessions": null})
    );
    let doctor = project.posse(&["doctor"]).out;
    assert!(doctor.contains("completed 7d, not 1ms") && !doctor.contains("sessions 365d"), "{doctor}");

    for (args, words) in [
        (&["db", "retention", "--completed", "soon"][..], "--completed is 'soon'; write a time like 12h or 30d"),
        (&["db", "retention", "--sessions", "4000d"], "at most 3650d"),
    ] {
        let refused = project.posse(args).expect(2);
        assert!(refused.err.contains(words), "{}", refused.err);
    }
}

#[test]
fn a_database_begins_with_the_settings_of_whoever_makes_it() {
    let server = ModelServer::start(vec![Say::Words("Done.")]);
    let project = project(&server, "[retention]\ncompleted = '2h'\n");
    let before = project.posse(&["db", "retention"]).ok();
    assert!(before.out.contains("completed  2h\n") && before.err.contains("there is no database"), "{}", before.err);
    project.posse(&["enqueue", "--role", "scribe", "write it"]).ok();
    settings(&project, &server, "");
    assert_eq!(kept(&project)["completed"], 2 * 3_600_000);
    let doctor = project.posse(&["doctor"]).out;
    assert!(doctor.contains("retention: completed 2h, cancelled 30d, discarded 30d, sessions 365d"), "{doctor}");
}

#[test]
fn a_session_is_deleted_with_its_jobs_and_its_file() {
    let server = ModelServer::start(vec![Say::Words("Hello.")]);
    let project = project(&server, "");
    project.posse_with(&["chat", "scribe", "--session", "Ada"], b"I am Ada\nAnd now?\n").ok();
    project.posse_with(&["chat", "scribe", "--session", "bob"], b"I am Bob\n").ok();
    let file = |name: &str| project.path().join(format!(".posse/sessions/{name}/events.jsonl"));
    assert!(file("Ada").is_file() && file("bob").is_file());
    project.write(".posse/sessions/bob/mine.txt", "mine");
    // In another case it is the same session, and the same folder.
    project.posse_with(&["chat", "scribe", "--session", "ADA"], b"Still?\n").ok();
    assert!(!file("ADA").exists());
    let deleted = project.posse(&["session", "delete", "ada", "ADA", "--json"]).ok().json();
    assert_eq!(deleted["deleted"], json!([{"session": 1, "name": "Ada", "turns": 3}]));
    assert!(!file("Ada").parent().expect("a folder").exists());
    let listed = project.posse(&["session", "list", "--json"]).ok().json();
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(1));
    for job in ["1", "2"] {
        project.posse(&["show", job]).expect(3);
    }
    let missing = project.posse(&["session", "delete", "bob", "ada"]).expect(3);
    assert!(missing.err.contains("there is no session 'ada'"), "{}", missing.err);
    assert!(file("bob").is_file(), "all are looked for before any is deleted");
    assert_eq!(project.posse(&["session", "delete", "bob"]).ok().out, "deleted session bob, 1 turn\n");
    assert!(!file("bob").exists() && project.path().join(".posse/sessions/bob/mine.txt").is_file());

    project.posse(&["enqueue", "--role", "scribe", "something else"]).ok();
    assert!(project.posse(&["session", "delete", "1"]).expect(3).err.contains("there is no session '1'"));
}

#[test]
fn files_of_sessions_follow_the_database() {
    let server = ModelServer::start(vec![Say::Words("Hello.")]);
    let project = project(&server, "");
    project.posse_with(&["chat", "scribe", "--session", "ada"], b"I am Ada\n").ok();
    let path = project.path().join(".posse/sessions/ada/events.jsonl");
    let whole = fs::read_to_string(&path).expect("the events");
    // As after a crash of the machine, and after retention took a session.
    fs::write(&path, &whole[..whole.len() - 9]).expect("written");
    project.write(".posse/sessions/gone/events.jsonl", "{}\n");
    project.write(".posse/sessions/77/events.jsonl", "{}\n");
    let worker = project.start(&["work"]);
    until("the files follow", || {
        let gone = ["gone", "77"].iter().all(|name| !project.path().join(format!(".posse/sessions/{name}")).exists());
        gone && fs::read_to_string(&path).is_ok_and(|text| text == whole)
    });
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn what_was_asked_is_shown_and_exported() {
    let asking = json!({"final_summary": "", "clarifying_questions": ["Which folder?"]});
    let server = ModelServer::start(vec![Say::Call("finish", asking), Say::Words("Three.")]);
    let project = project(&server, "");
    project.posse_with(&["chat", "researcher"], b"Count\nexamples\n").ok();
    let shown = project.posse(&["session", "show", "1"]).ok().out;
    let places = ["Count", "Which folder?", "examples", "Three."].map(|words| shown.find(words));
    assert!(places.is_sorted() && places.iter().all(Option::is_some), "{shown}");
    let markdown = project.posse(&["session", "export", "1", "--format", "markdown"]).ok().out;
    assert!(markdown.contains("## researcher asks\n\nWhich folder?\n\n## You\n\nexamples\n"), "{markdown}");
    let lines = project.posse(&["session", "export", "1"]).ok().json_lines();
    let said: Vec<_> = lines.iter().map(|line| line["text"].as_str().expect("words")).collect();
    assert_eq!(said, ["Count", "Which folder?", "examples", "Three."]);
}
