//! What a worker process takes its orders from while it works, and what it leaves behind: personas that change, roles
//! however they are spelled, files about runs.

use crate::support::{ModelServer, Project, Say, until};
use serde_json::json;

/// A project whose model is this server, with personas of its own.
fn project_of(server: &ModelServer, personas: &[(&str, serde_json::Value)]) -> Project {
    let project = Project::with_model(server);
    for (file, persona) in personas {
        project.write(&format!("config/personas/{file}.json"), persona.to_string());
    }
    project
}

fn persona(role: &str, goal: &str) -> serde_json::Value {
    json!({"role": role, "goal": goal, "tools": ["read_file"]})
}

/// What the model was told first in its last request.
fn told(server: &ModelServer) -> String {
    server.requests().last().expect("it was asked")["messages"][0]["content"].as_str().expect("a text").to_owned()
}

#[test]
fn personas_are_hired_changed_and_dismissed_while_workers_run() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "answer 0"}))]);
    let project = project_of(&server, &[]);
    let mut worker = project.start(&["work"]);
    worker.hear("roles");
    project.write("config/personas/smith.json", persona("smith", "Forge swords.").to_string());
    project.posse(&["enqueue", "--role", "smith", "Forge one"]).ok();
    project.wait_for_state(1, "completed");
    assert!(told(&server).contains("Forge swords."), "{}", told(&server));
    let listed = project.posse(&["worker", "list", "--json"]).ok().json();
    assert!(listed.to_string().contains("\"smith\""), "others see it: {listed}");

    project.write("config/personas/smith.json", persona("smith", "Forge ploughs.").to_string());
    worker.hear("smith has changed");
    project.posse(&["enqueue", "--role", "smith", "Forge one more"]).ok();
    project.wait_for_state(2, "completed");
    assert!(told(&server).contains("Forge ploughs."), "{}", told(&server));

    project.write("config/personas/smith.json", "{\"role\": \"smith\", \"goal\": ");
    worker.hear("as it was before stays in force");
    project.posse(&["run", "--role", "smith", "x"]).expect(2);
    project.write("config/personas/smith.json", persona("smith", "Forge nails.").to_string());
    worker.hear("smith has changed");
    std::fs::remove_file(project.path().join("config/personas/smith.json")).expect("removed");
    worker.hear("smith is gone");
    let is_listed = || project.posse(&["worker", "list"]).ok().out.contains("smith");
    until("others see that it is gone", || !is_listed());
    worker.terminate();
    assert!(!worker.wait().ok().err.contains("stays in force"), "a broken file is told of once");
}

#[test]
fn a_persona_of_another_shape_is_worked_and_its_role_is_found_however_it_is_spelled() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "answer 0"}))]);
    let shape = json!({"id": "smith-v1", "role": "Master SMITH", "goal": "Forge swords.", "backstory": "Old.",
                       "toolNames": ["read_file"]});
    let project = project_of(&server, &[("smith", shape)]);
    let checked = project.posse(&["persona", "check"]).ok().out;
    assert!(checked.contains("'Master SMITH' is read as 'master-smith'"), "{checked}");
    assert!(checked.contains("toolNames is read as 'tools'"), "{checked}");
    project.posse(&["run", "--role", "Master Smith", "Forge one"]).ok();
    project.posse(&["enqueue", "--role", "MASTER  smith", "Forge one"]).ok();
    project.posse_with(&["enqueue", "--jsonl", "-"], b"{\"role\": \"Master SMITH\", \"goal\": \"x\"}\n").ok();
    project.posse(&["schedule", "add", "daily", "--cron", "0 7 * * *", "--role", "MASTER SMITH", "Forge"]).ok();
    project.posse(&["limit", "set", "--role", "Master Smith", "--running", "1"]).ok();
    let listed = project.posse(&["list", "--role", "Master SMITH", "--json"]).ok().json();
    assert_eq!(listed.to_string().matches("\"role\":\"master-smith\"").count(), 3, "{listed}");
    let shown = project.posse(&["schedule", "list", "--json"]).ok().out + &project.posse(&["limit", "list"]).ok().out;
    assert_eq!(shown.matches("master-smith").count(), 2, "{shown}");
    let unknown = project.posse(&["enqueue", "--role", "Big Boss", "x"]);
    assert!(unknown.err.contains("big-boss"), "{}", unknown.err);
}

#[test]
fn every_run_has_its_events_and_a_checkpoint_and_old_ones_go() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "answer 0"}))]);
    let project = project_of(&server, &[]);
    project.posse(&["run", "--role", "researcher", "Look"]).ok();
    let run = project.path().join(".posse/runs/job-1");
    let events = std::fs::read_to_string(run.join("events.jsonl")).expect("there are events");
    assert_eq!(events, project.posse(&["job", "events", "1"]).ok().out, "the same as from the journal");
    let files: Vec<_> = std::fs::read_dir(run.join("checkpoints")).expect("a folder").flatten().collect();
    assert_eq!(files.len(), 1);
    let checkpoint: serde_json::Value =
        serde_json::from_slice(&std::fs::read(files[0].path()).expect("readable")).expect("JSON");
    assert_eq!((&checkpoint["state"]["text"], &checkpoint["job"]), (&"answer 0".into(), &1.into()));
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(run.metadata().expect("a folder").permissions().mode() & 0o777, 0o700, "nobody else's");

    let out = project.path().join("out");
    let step = project.posse(&["job", "export", "1", "--to", "out", "--at-step", "0", "--json"]).ok().json();
    assert_eq!(step["files"].as_array().map(Vec::len), Some(2), "{step}");
    let early: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("checkpoints/0.json")).expect("readable")).expect("JSON");
    assert_eq!((&early["state"]["status"], &early["step"]), (&"unfinished".into(), &0.into()));
    project.posse(&["job", "export", "9"]).expect(3);

    let settings = std::fs::read_to_string(project.path().join("config/posse.toml")).expect("settings");
    project.write("config/posse.toml", format!("run_files = 0\n{settings}"));
    project.posse(&["run", "--role", "researcher", "Look"]).ok();
    assert!(!project.path().join(".posse/runs/job-2").exists(), "nobody wants any");
    project.write("config/posse.toml", format!("run_files = 1\n{settings}"));
    project.posse(&["run", "--role", "researcher", "Look"]).ok();
    assert!(project.path().join(".posse/runs/job-3").exists() && !run.exists(), "the newest one is kept");
}
