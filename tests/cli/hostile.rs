//! E03: what people, models and files say is shown as text, wherever it is shown.

use crate::support::{ModelServer, Project, Say};
use serde_json::json;

/// HTML, script, templates, links and formulas, what a terminal would do something about, and a line of its own.
const HOSTILE: &str = "<img src=x onerror=fetch('/canary')> {{7*7}} ${7*7} [x](javascript:alert(1)) \
    ![](http://127.0.0.1:9901/leak?d=1) =cmd <style>*{display:none}</style> \u{1b}]0;owned\u{7}\u{9b}2J \u{202e}txt.exe\u{200b}\r\n\
    completed  job 99";

/// What is left of it where a line is cut.
const BEGINNING: &str = "<img src=x onerror=fetch('/canary')> {{7*7}} ${7*7}";

/// Nothing that a terminal acts upon, or that hides what is there.
#[track_caller]
fn assert_is_text(what: &str, shown: &str) {
    let acts = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{200b}' | '\u{202e}');
    if let Some(bad) = shown.chars().find(|c| acts(*c)) {
        panic!("{what} shows {bad:?} as it is:\n{shown:?}");
    }
    assert!(!shown.contains(" 49 "), "{what} has evaluated a template:\n{shown}");
    let injected = shown.lines().any(|line| line.starts_with("completed  job 99"));
    assert!(!injected, "{what} lets a text begin a line as if it were posse's own:\n{shown}");
}

#[test]
fn e03_what_is_hostile_is_shown_as_text() {
    let server = ModelServer::start(vec![
        Say::Call("</td><script>alert(1)</script>", json!({"path": HOSTILE})),
        Say::Call("read_file", json!({"path": HOSTILE})),
        Say::Call("annotate", json!({"text": HOSTILE, "tags": ["<b>"]})),
        Say::Call("finish", json!({"final_summary": HOSTILE})),
    ]);
    let project = Project::with_model(&server);
    let persona = json!({
        "role": "hostile", "goal": HOSTILE, "backstory": HOSTILE, "tools": ["filesystem", "annotations"],
    });
    project.write("config/personas/hostile.json", persona.to_string());
    let tag = "<b onclick=x>";
    let names = ["--queue", "q", "--group", "<g>", "--tag", tag, "--concurrency-key", "<k>", "--meta", "<m>=<v>"];
    let ask = [&["enqueue", "--role", "hostile", "--unique", "<u>"], &names[..], &[HOSTILE]].concat();
    assert_is_text("enqueue", &project.posse(&ask).ok().out);
    let again = project.posse(&ask).ok();
    assert_is_text("enqueue again", &(again.out + &again.err));
    let worker = project.start(&["work"]);
    project.wait_for_state(1, "completed");
    worker.terminate();
    let worked = worker.wait();
    assert_is_text("work", &(worked.out + &worked.err));

    let as_json = serde_json::to_string(HOSTILE).expect("JSON");
    let is_told = |request: &serde_json::Value| request["messages"].to_string().contains(as_json.trim_matches('"'));
    assert!(server.requests().iter().any(is_told), "the model is told the goal to the letter");

    let looks: [&[&str]; 13] = [
        &["list"],
        &["list", "--search", "onerror"],
        &["show", "1"],
        &["show", "1", "--full"],
        &["job", "watch", "1"],
        &["job", "replay", "1"],
        &["group", "list"],
        &["group", "show", "<g>"],
        &["queue", "list"],
        &["persona", "show", "hostile"],
        &["persona", "list"],
        &["doctor"],
        &["metrics"],
    ];
    for look in looks {
        let seen = project.posse(look);
        assert_is_text(&look.join(" "), &(seen.out + &seen.err));
    }
    let shown = project.posse(&["show", "1", "--full"]).ok().out;
    assert!(shown.matches(BEGINNING).count() >= 4, "goal, arguments, remark and answer are there:\n{shown}");

    // Programs get what was said, and nothing else.
    let document = project.posse(&["show", "1", "--json"]).ok().json();
    assert_eq!(document["job"]["payload"]["goal"], HOSTILE);
    assert_eq!(document["job"]["output"]["text"], HOSTILE);
    assert_eq!(document["annotations"][0]["text"], HOSTILE);
    assert_eq!(document["job"]["tags"], json!([tag]));
}

#[test]
fn e03_a_hostile_name_is_refused_and_shown_as_text() {
    let project = Project::begun();
    let role = "\"><svg onload=x>\u{1b}[2J";
    project.write("config/personas/svg.json", json!({"role": role, "goal": "x"}).to_string());
    project.write("config/personas/\u{1b}[2J.json", "{");
    for (args, code) in
        [(&["persona", "check"][..], 2), (&["persona", "list"], 0), (&["enqueue", "--role", role, "x"], 2)]
    {
        let seen = project.posse(args).expect(code);
        assert_is_text(&args.join(" "), &(seen.out + &seen.err));
    }
}
