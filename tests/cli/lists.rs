//! What lists show: not more than is looked at, in one shape, at any width, and why each job waits.

use crate::support::{Ended, ModelServer, Project, Say, until};
use serde_json::{Value, json};

/// Letters that are wide, join, combine or have no spaces between them.
const WIDE: &str = "日本語の長い目標文字列がここに続きます 👩\u{200d}👩\u{200d}👧\u{200d}👦 e\u{301}e\u{301}e\u{301} \
    https://example.com/a/very/long/path/without/any/space/at/all/that/goes/on/and/on";

impl Project {
    /// Runs `posse` where somebody has so many columns.
    fn at(&self, columns: usize, args: &[&str]) -> Ended {
        let ended = self.command(args).env("COLUMNS", columns.to_string()).output().expect("ran");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended { code: ended.status.code().unwrap_or(-1), out: text(ended.stdout), err: text(ended.stderr) }
    }
}

fn columns(line: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(line)
}

#[test]
fn lists_are_cut_unless_whole_texts_are_asked_for() {
    let project = Project::begun();
    let goal = "x".repeat(250_000);
    let lines: Vec<_> = (0..150).map(|_| json!({"goal": goal, "role": "scribe"}).to_string()).collect();
    project.write("jobs.jsonl", lines.join("\n"));
    project.posse(&["enqueue", "--jsonl", "jobs.jsonl"]).ok();
    let listed = project.posse(&["list", "--json", "-n", "120"]).ok();
    assert!(listed.out.len() < 120 * 5000, "{} bytes", listed.out.len());
    let jobs = listed.json()["jobs"].clone();
    assert_eq!(jobs.as_array().expect("jobs").len(), 120);
    assert_eq!((&jobs[0]["id"], &jobs[119]["id"], &listed.json()["next"]), (&json!(150), &json!(31), &json!(31)));
    assert_eq!(jobs[0]["cut"], json!({"payload.goal": 250_000}));
    assert_eq!(jobs[0]["payload"]["goal"].as_str().expect("text").chars().count(), 2001);
    let rest = project.posse(&["list", "--json", "-n", "120", "--before", "31"]).ok().json();
    assert_eq!((rest["jobs"].as_array().expect("jobs").len(), &rest["next"]), (30, &Value::Null));
    let whole = project.posse(&["list", "--json", "-n", "1", "--full"]).ok().json();
    assert_eq!(whole["jobs"][0]["payload"]["goal"], json!(goal));
    assert!(whole["jobs"][0].get("cut").is_none());
    assert_eq!(
        project.posse(&["list", "--json", "-n", "130", "--search", "xxx"]).ok().json()["jobs"]
            .as_array()
            .expect("jobs")
            .len(),
        130
    );

    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.len() < 5000 && shown.contains("250.0 kB in all; --full shows them"), "{} bytes", shown.len());
    assert!(project.posse(&["show", "1", "--full"]).ok().out.matches('x').count() >= 250_000);
    project.posse(&["schedule", "add", "s", "--cron", "@daily", "--role", "scribe", &goal[..100_000]]).ok();
    let schedules = project.posse(&["schedule", "list", "--json"]).ok();
    assert!(schedules.out.len() < 5000);
    assert_eq!(schedules.json()["schedules"][0]["cut"], json!({"job.payload.goal": 100_000}));
    assert!(project.posse(&["schedule", "list", "--json", "--full"]).ok().out.len() > 100_000);
    let preview = project.posse(&["job", "cancel", "--where", "role=scribe", "--json"]).ok();
    assert!(preview.out.len() < 30_000, "{} bytes", preview.out.len());
    let status = project.posse(&["status", "--json"]).ok();
    assert!(status.out.len() < 50_000 && status.json()["waiting"][0]["cut"] == json!({"payload.goal": 250_000}));
}

#[test]
fn questions_and_events_are_cut_too() {
    let long: &'static str = Box::leak("why ".repeat(1000).into_boxed_str());
    let server = ModelServer::start(vec![
        Say::Call("finish", json!({"final_summary": "", "clarifying_questions": [long]})),
        Say::Call("finish", json!({"final_summary": long})),
    ]);
    let project = Project::with_model(&server);
    let worker = project.start(&["work", "--role", "scribe"]);
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    project.wait_for_state(1, "suspended");
    let questions = project.posse(&["question", "list", "--json"]).ok();
    assert!(questions.json()["questions"][0]["cut"]["text"].as_u64() > Some(3990), "{}", questions.out);
    assert!(project.posse(&["question", "list", "--json", "--full"]).ok().json()["questions"][0].get("cut").is_none());
    let listed = project.posse(&["list", "--json"]).ok().json()["jobs"][0]["waits"].clone();
    assert_eq!(listed["for"], "person");
    assert!(project.posse(&["list"]).ok().out.contains("suspended (question 1)"));
    let status = project.posse(&["status"]).ok().out;
    assert!(status.contains("suspended, waits for an answer to question 1"), "{status}");
    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("waits      for an answer to question 1"), "{shown}");
    for said in [&status, &shown] {
        assert_eq!(said.matches("posse question").count(), 1, "once: {said}");
    }
    assert_eq!(shown.matches("waits").count(), 1, "once: {shown}");
    project.posse(&["question", "answer", "1", "because"]).ok();
    project.wait_for_state(1, "completed");
    let events = project.posse(&["job", "events", "1"]).ok();
    let is_cut = |event: &Value| event.get("cut").is_some();
    assert!(events.json_lines().iter().any(is_cut) && events.out.len() < 15_000, "{}", events.out);
    assert!(!project.posse(&["job", "events", "1", "--full"]).ok().json_lines().iter().any(is_cut));
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn every_list_has_one_shape() {
    let project = Project::begun();
    let lists = [
        ("jobs", &["list"][..]),
        ("jobs", &["job", "list"]),
        ("questions", &["question", "list"]),
        ("sessions", &["session", "list"]),
        ("groups", &["group", "list"]),
        ("queues", &["queue", "list"]),
        ("limits", &["limit", "list"]),
        ("workers", &["worker", "list"]),
        ("schedules", &["schedule", "list"]),
        ("personas", &["persona", "list"]),
        ("tools", &["tool", "list"]),
        ("skills", &["skill", "list"]),
        ("models", &["model", "list"]),
        ("folders", &["trust", "list"]),
    ];
    let check = || {
        for (name, list) in lists {
            let listed = project.posse(&[list, &["--json"]].concat()).ok().json();
            assert!(listed[name].is_array(), "{list:?}: {listed}");
            assert_eq!(listed.get("next"), Some(&Value::Null), "{list:?}");
        }
    };
    check();
    project.posse(&["enqueue", "--role", "scribe", "--group", "g", "x"]).ok();
    project.posse(&["pause", "--queue", "default"]).ok();
    project.posse(&["schedule", "add", "s", "--cron", "@daily", "--role", "scribe", "x"]).ok();
    check();
    let paused = &project.posse(&["limit", "list", "--json"]).ok().json()["limits"][0];
    assert!(
        paused["paused_at"].is_i64() && paused["paused_at_rfc3339"].as_str().expect("a time").ends_with('Z'),
        "{paused}"
    );
    let job = &project.posse(&["list", "--json"]).ok().json()["jobs"][0];
    let at = job["created_at_rfc3339"].as_str().expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339");
    assert_eq!(at.as_millisecond(), job["created_at"].as_i64().expect("a time"));
}

#[test]
fn lists_and_status_say_why_each_job_waits() {
    let project = Project::begun();
    let enqueue = |more: &[&str]| project.posse(&[&["enqueue", "--role", "scribe"], more, &["x"]].concat()).ok();
    enqueue(&["--queue", "q"]);
    enqueue(&["--after", "1"]);
    enqueue(&["--in", "1h"]);
    enqueue(&["--queue", "r"]);
    enqueue(&[]);
    project.posse(&["pause", "--queue", "q"]).ok();
    project.posse(&["limit", "set", "--queue", "r", "--running", "0"]).ok();
    let listed = project.posse(&["list"]).ok().out;
    for (id, words) in [
        (1, "available (paused)"),
        (2, "suspended (job 1)"),
        (3, "scheduled (in "),
        (4, "available (at its limit)"),
        (5, "available"),
    ] {
        let line = listed.lines().find(|line| line.starts_with(&format!("{id} "))).expect(&listed);
        assert!(line.contains(words), "{line}");
    }
    let jobs = project.posse(&["list", "--json"]).ok().json()["jobs"].clone();
    let kinds: Vec<_> = jobs
        .as_array()
        .expect("jobs")
        .iter()
        .map(|job| job["waits"]["for"].as_str().expect("a kind").to_owned())
        .collect();
    assert_eq!(kinds, ["worker", "limit", "time", "jobs", "pause"]);
    assert_eq!(jobs[4]["waits"]["text"], "queue q is paused");
    assert!(project.posse(&["show", "1"]).ok().out.contains("held: queue q is paused"));
    assert!(project.posse(&["show", "2"]).ok().out.contains("waits      for job 1 (available)"));
    assert_eq!(project.posse(&["show", "2", "--json"]).ok().json()["job"]["waits"]["for"], "jobs");

    let status = project.posse(&["status"]).ok().out;
    for words in [
        "3 available",
        "waits  5",
        "queue q is paused",
        "no worker serves it",
        "posse work --role scribe",
        "waits for job 1",
    ] {
        assert!(status.contains(words), "{words}: {status}");
    }
    let status = project.posse(&["status", "--json"]).ok().json();
    assert_eq!(status["jobs"]["available"], 3);
    assert_eq!(status["needs_a_person"]["paused"][0]["name"], "q");
    assert_eq!(status["needs_a_person"]["unserved"][0]["role"], "scribe");
    assert_eq!(Project::begun().posse(&["status", "--json"]).ok().json()["waiting"], json!([]));
}

#[test]
fn nothing_frays_where_there_are_few_columns() {
    let server = ModelServer::start(vec![
        Say::Call("read_file", json!({"path": WIDE})),
        Say::Call("annotate", json!({"text": WIDE, "tags": ["long-tag-without-a-space-in-it-that-is-long"]})),
        Say::Call("finish", json!({"final_summary": WIDE})),
    ]);
    let project = Project::with_model(&server);
    let persona = json!({"role": "reader-of-many-long-documents", "goal": WIDE, "backstory": WIDE, "tools": ["filesystem", "annotations"]});
    project.write("config/personas/reader.json", persona.to_string());
    let worker = project.start(&["work"]);
    let queue = "a-queue-with-a-name-of-more-than-forty-columns";
    let ask = [
        "enqueue",
        "--role",
        "reader-of-many-long-documents",
        "--queue",
        queue,
        "--group",
        WIDE,
        "--tag",
        "日本語の札",
        "--unique",
        "鍵-key-of-more-than-forty-columns-that-has-no-space",
        WIDE,
    ];
    let ask: Vec<_> = ask.into_iter().map(|arg| if arg == WIDE { &WIDE[..100] } else { arg }).collect();
    project.posse(&ask).ok();
    project.wait_for_state(1, "completed");
    project.posse(&["enqueue", "--role", "reader-of-many-long-documents", "--queue", queue, "--in", "1h", WIDE]).ok();
    project.posse(&["job", "annotate", "1", WIDE]).ok();
    project.posse(&["limit", "set", "--queue", queue, "--running", "3", "--per-minute", "100"]).ok();
    project.posse(&["pause", "--queue", queue]).ok();
    project
        .posse(&[
            "schedule",
            "add",
            "a-schedule-with-a-long-name",
            "--cron",
            "30 2 * * 1-5",
            "--tz",
            "Europe/Oslo",
            "--role",
            "scribe",
            WIDE,
        ])
        .ok();
    let looks: [&[&str]; 26] = [
        &["list"],
        &["show", "1"],
        &["show", "1", "--full"],
        &["show", "2"],
        &["status"],
        &["job", "watch", "1"],
        &["job", "replay", "1"],
        &["doctor"],
        &["queue", "list"],
        &["group", "list"],
        &["group", "show", &WIDE[..100]],
        &["limit", "list"],
        &["worker", "list"],
        &["schedule", "list"],
        &["schedule", "show", "a-schedule-with-a-long-name"],
        &["persona", "list"],
        &["persona", "show", "reader-of-many-long-documents"],
        &["tool", "list"],
        &["skill", "list"],
        &["model", "list"],
        &["question", "list"],
        &["session", "list"],
        &["--help"],
        &["job", "--help"],
        &["enqueue", "--help"],
        &["job", "cancel", "--where", "state=scheduled"],
    ];
    for width in [40, 60] {
        for look in looks {
            let seen = project.at(width, look);
            for line in seen.out.lines().chain(seen.err.lines()) {
                // What is to be typed or copied is not broken: a word that is longer than the line.
                let is_help = look.contains(&"--help");
                assert!(
                    columns(line) <= width || is_help && line.trim().contains("posse "),
                    "{look:?} at {width}: {} columns: {line:?}",
                    columns(line)
                );
            }
        }
    }
    worker.terminate();
    worker.wait().ok();
    until("no worker is left", || project.posse(&["worker", "list", "--json"]).ok().json()["workers"] == json!([]));
}

#[test]
fn nothing_is_counted_wrongly_or_said_twice() {
    let server = ModelServer::start(vec![
        Say::Call("read_file", json!({"path": "one.txt"})),
        Say::Call("finish", json!({"final_summary": "Done."})),
    ]);
    let project = Project::with_model(&server);
    project.write("one.txt", "one line\n");
    let mut worker = project.start(&["work", "--role", "researcher"]);
    project.posse(&["enqueue", "--role", "researcher", "x"]).ok();
    let heard = worker.hear("■");
    worker.terminate();
    let shown = project.posse(&["show", "1"]).ok().out + &project.posse(&["doctor"]).out;
    let all = heard + &shown + &worker.wait().ok().err;
    let ones = ["lines", "turns", "jobs", "calls", "times", "messages", "tries"];
    for noun in ones {
        let wrong = format!("1 {noun}");
        let found = all
            .match_indices(&wrong)
            .find(|(at, _)| *at == 0 || !all[..*at].ends_with(|c: char| c.is_ascii_digit() || c == ','));
        assert!(found.is_none(), "{wrong}: {all}");
    }
    assert!(!all.contains("/.\n") && !all.contains("/. "), "{all}");
}
