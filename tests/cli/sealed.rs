//! A database whose texts are sealed, as people use one.

use std::os::unix::fs::PermissionsExt;

use crate::support::{ModelServer, Project, Say};
use serde_json::json;

const CANARY: &str = "canary-4711-in-the-clear";

/// A project with a key in a file of its own.
fn with_key(server: &ModelServer, digit: &str) -> Project {
    let project = Project::with_model(server);
    let file = project.write("keys", digit.repeat(32));
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).expect("is set");
    project.write("config/posse.toml", "[sealing]\nkey_file = 'keys'\n");
    project
}

fn stands_in_a_file(project: &Project) -> bool {
    let files = std::fs::read_dir(project.path().join(".posse")).expect("can be read");
    files.map(|file| file.expect("an entry").path()).filter(|path| path.is_file()).any(|path| {
        let bytes = std::fs::read(path).expect("can be read");
        bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
    })
}

#[test]
fn who_has_the_key_works_and_reads_and_nobody_else() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": format!("found {CANARY}")}))]);
    let project = with_key(&server, "5a");
    let project = &project;
    project.posse(&["enqueue", "--role", "scribe", "look", "for", CANARY]).ok();
    let worker = project.start(&["work", "--role", "scribe"]);
    project.wait_for_state(1, "completed");
    worker.terminate();
    worker.wait().ok();
    assert!(!stands_in_a_file(project));
    for args in
        [&["show", "1", "--full"][..], &["list"], &["job", "events", "1"], &["list", "--search", "FOUND canary"]]
    {
        let shown = project.posse(args).ok().out;
        assert!(shown.contains(CANARY), "{args:?}: {shown}");
    }

    let sealing = || -> Vec<String> {
        let report: serde_json::Value = serde_json::from_str(&project.posse(&["doctor", "--json"]).out).expect("JSON");
        let findings = report["findings"].as_array().expect("findings").clone();
        let of_texts = findings.iter().filter(|found| found["check"] == "sealing" || found["check"] == "histories");
        of_texts.map(|found| format!("{} {}", found["check"], found["verdict"]).replace('"', "")).collect()
    };
    assert_eq!(sealing(), ["sealing ok", "histories ok"]);

    project.write("config/posse.toml", "");
    assert_eq!(sealing(), ["sealing wrong"], "what cannot be opened is not damage");
    let listed = project.posse(&["list", "--json"]).ok().out;
    assert!(listed.contains("sealed with key") && !listed.contains(CANARY), "{listed}");
    for args in [&["enqueue", "--role", "scribe", "write"][..], &["work", "--role", "scribe"], &["job", "retry", "1"]] {
        let refused = project.posse(args).expect(5).err;
        assert!(refused.contains("POSSE_SEAL_KEYS") && !refused.contains("5a5a"), "{args:?}: {refused}");
    }
    let refused = project.posse(&["db", "reseal"]).expect(2).err;
    assert!(refused.contains("there is no key"), "{refused}");
}

#[test]
fn keys_are_changed_and_taken_away() {
    let server = ModelServer::start(vec![Say::Words("none")]);
    let project = with_key(&server, "5a");
    project.posse(&["enqueue", "--role", "scribe", "look", "for", CANARY]).ok();
    let both = format!("{}\n{}\n", "6b".repeat(32), "5a".repeat(32));
    project.write("keys", both);
    let sealed = project.posse(&["db", "reseal", "--json"]).ok().json();
    assert_eq!((&sealed["values"], &sealed["closed"]), (&1.into(), &0.into()), "{sealed}");
    project.write("keys", "6b".repeat(32));
    assert!(project.posse(&["list"]).ok().out.contains(CANARY));
    assert!(!stands_in_a_file(&project));
    project.posse(&["db", "reseal", "--clear"]).ok();
    project.write("config/posse.toml", "");
    assert!(project.posse(&["list"]).ok().out.contains(CANARY) && stands_in_a_file(&project));
    project.posse(&["job", "cancel", "1"]).ok();
}

#[test]
fn a_file_of_keys_is_its_owners_alone() {
    let server = ModelServer::start(vec![Say::Words("none")]);
    let project = with_key(&server, "5a");
    let file = project.path().join("keys");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).expect("is set");
    let refused = project.posse(&["list"]).expect(2).err;
    assert!(refused.contains("chmod 600"), "{refused}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("is set");
    project.write("keys", "5a5a5a\n");
    let refused = project.posse(&["list"]).expect(2).err;
    assert!(refused.contains("key 1 has not 64 hexadecimal digits") && !refused.contains("5a5a"), "{refused}");
    std::fs::remove_file(&file).expect("is removed");
    assert!(project.posse(&["list"]).expect(2).err.contains("cannot be read"));
}

#[test]
fn what_was_waited_for_is_told_and_stays_sealed() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": format!("found {CANARY}")}))]);
    let project = with_key(&server, "5a");
    project.posse(&["enqueue", "--role", "scribe", "look"]).ok();
    project.posse(&["enqueue", "--role", "scribe", "--after", "1", "sum up"]).ok();
    let worker = project.start(&["work", "--role", "scribe"]);
    project.wait_for_state(2, "completed");
    worker.terminate();
    worker.wait().ok();
    let asked = server.requests().iter().any(|request| {
        let messages = request["messages"].as_array().expect("messages");
        let mut texts = messages.iter().filter_map(|message| message["content"].as_str());
        texts.any(|text| text.contains("Your task:\nsum up") && text.contains(&format!("| found {CANARY}")))
    });
    assert!(asked, "the second job was told what the first had found");
    assert!(!stands_in_a_file(&project));
}
