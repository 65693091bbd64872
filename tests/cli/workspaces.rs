//! A workspace is the folder that was there when its job was accepted, by whatever way it came into the job.

use std::os::unix::fs::symlink;

use crate::support::{ModelServer, Project, Say};
use serde_json::json;

const SECRET: &str = "s3cret-canary";

/// A project with `ws/sub`, in which an agent reads and writes, and `outside`, which is nobody's workspace.
fn project(server: &ModelServer) -> Project {
    let project = Project::with_model(server);
    let persona = json!({"role": "reader", "goal": "g", "tools": ["filesystem"]});
    project.write("config/personas/reader.json", persona.to_string());
    project.write("ws/sub/notes.txt", "mine");
    project.write("outside/notes.txt", SECRET);
    project
}

fn script() -> ModelServer {
    ModelServer::start(vec![
        Say::Call("read_file", json!({"path": "notes.txt"})),
        Say::Call("create_file", json!({"path": "planted.txt", "content": "x"})),
        Say::Call("finish", json!({"final_summary": "done"})),
    ])
}

/// What an agent's command did to the folder.
fn swap(project: &Project) {
    let sub = project.path().join("ws/sub");
    std::fs::rename(&sub, project.path().join("ws/old")).expect("moved");
    symlink(project.path().join("outside"), &sub).expect("made");
}

fn put_back(project: &Project) {
    std::fs::remove_file(project.path().join("ws/sub")).expect("removed");
    std::fs::rename(project.path().join("ws/old"), project.path().join("ws/sub")).expect("moved");
}

fn outside_is_as_it_was(project: &Project, server: &ModelServer) {
    assert!(!project.path().join("outside/planted.txt").exists());
    assert!(server.requests().iter().all(|request| !request.to_string().contains(SECRET)));
}

#[test]
fn a_link_in_a_workspace_is_accepted_by_no_way() {
    let server = script();
    let project = project(&server);
    swap(&project);
    project.write("jobs.jsonl", "{\"role\": \"reader\", \"goal\": \"x\", \"workspace\": \"ws/sub\"}\n");
    for args in [
        &["enqueue", "--role", "reader", "--workspace", "ws/sub", "x"][..],
        &["enqueue", "--role", "reader", "--workspace", "./ws/../ws/sub/.", "x"],
        &["enqueue", "--jsonl", "jobs.jsonl"],
        &["run", "--role", "reader", "--workspace", "ws/sub", "x"],
        &["schedule", "add", "nightly", "--cron", "0 3 * * *", "--role", "reader", "--workspace", "ws/sub", "x"],
    ] {
        let refused = project.posse(args).expect(2);
        assert!(refused.err.contains("is a symlink to"), "{args:?}: {}", refused.err);
    }
    // The same through the settings, whose workspace is where jobs work that name none.
    project.write("config/posse.toml", "workspace = 'ws/sub'\n");
    let refused = project.posse(&["run", "--role", "reader", "x"]).expect(2);
    assert!(refused.err.contains("is a symlink to"), "{}", refused.err);
    outside_is_as_it_was(&project, &server);
}

#[test]
fn a_folder_that_was_swapped_after_its_job_was_accepted_is_refused_with_a_reason() {
    let server = script();
    let project = project(&server);
    project.posse(&["enqueue", "--role", "reader", "--workspace", "ws/sub", "x"]).ok();
    project.write("jobs.jsonl", "{\"role\": \"reader\", \"goal\": \"y\", \"workspace\": \"ws/sub\"}\n");
    project.posse(&["enqueue", "--jsonl", "jobs.jsonl"]).ok();
    swap(&project);
    let worker = project.start(&["work", "--role", "reader"]);
    project.wait_for_state(1, "discarded");
    project.wait_for_state(2, "discarded");
    worker.terminate();
    worker.wait().ok();
    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("is a symlink to"), "{shown}");
    outside_is_as_it_was(&project, &server);
    assert!(server.requests().is_empty(), "nobody was asked what to do in another folder");

    // Another plain folder is another folder, too, for a job that is tried again.
    std::fs::remove_file(project.path().join("ws/sub")).expect("removed");
    std::fs::create_dir(project.path().join("ws/sub")).expect("made");
    project.posse(&["job", "retry", "1"]).ok();
    let worker = project.start(&["work", "--role", "reader"]);
    project.wait_for_state(1, "discarded");
    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("another folder than the one that was there when the job was accepted"), "{shown}");

    // And the one it was accepted for is the right one, wherever it was in between.
    std::fs::remove_dir(project.path().join("ws/sub")).expect("removed");
    std::fs::rename(project.path().join("ws/old"), project.path().join("ws/sub")).expect("moved");
    project.posse(&["job", "retry", "1"]).ok();
    project.wait_for_state(1, "completed");
    assert!(project.path().join("ws/sub/planted.txt").is_file());
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn a_fork_works_where_its_job_did() {
    let server = script();
    let project = project(&server);
    project.posse(&["run", "--role", "reader", "--workspace", "ws/sub", "x"]).ok();
    project.posse(&["job", "fork", "1", "--at-step", "2"]).ok();
    swap(&project);
    let worker = project.start(&["work", "--role", "reader"]);
    project.wait_for_state(2, "discarded");
    worker.terminate();
    worker.wait().ok();
    outside_is_as_it_was(&project, &server);
    put_back(&project);
}

#[test]
fn what_decides_about_agents_is_no_workspace() {
    let server = script();
    let project = project(&server);
    for folder in ["config", "config/personas", ".posse"] {
        std::fs::create_dir_all(project.path().join(folder)).expect("made");
        let refused = project.posse(&["enqueue", "--role", "reader", "--workspace", folder, "x"]).expect(2);
        assert!(refused.err.contains("which decides about agents"), "{folder}: {}", refused.err);
    }
}

/// `personas = "agents"`, `key_file`, `--db`: what the settings name is kept from the tools of a job.
#[test]
fn what_the_settings_name_is_kept_from_agents() {
    let server = ModelServer::start(vec![
        Say::Call("create_file", json!({"path": "agents/reader.json", "content": "{}", "overwrite": true})),
        Say::Call("create_file", json!({"path": "acme.db", "content": "x", "overwrite": true})),
        Say::Call("read_file", json!({"path": "keys"})),
        Say::Call("read_file", json!({"path": "other.db.sessions/1/events.jsonl"})),
        Say::Call("create_file", json!({"path": "config/new.txt", "content": "x"})),
        Say::Call("finish", json!({"final_summary": "done"})),
    ]);
    let project = Project::with_model(&server);
    let persona = json!({"role": "reader", "goal": "g", "tools": ["filesystem"]}).to_string();
    project.write("agents/reader.json", &persona);
    project.write("config/posse.toml", "personas = 'agents'\n[sealing]\nkey_file = 'keys'\n");
    let key = "0123456789abcdef".repeat(4);
    let keys = project.write("keys", format!("{key}\n"));
    std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
    project.posse(&["--db", "other.db", "enqueue", "--role", "reader", "theirs"]).ok();
    project.write("other.db.sessions/1/events.jsonl", SECRET);
    project.posse(&["--db", "acme.db", "run", "--role", "reader", "x"]).ok();
    let asked = server.requests();
    let last = asked.last().expect("asked").to_string();
    assert_eq!(last.matches("belongs to Posse").count(), 5, "{last}");
    assert!(!last.contains(SECRET) && !last.contains(&key));
    assert_eq!(std::fs::read_to_string(project.path().join("agents/reader.json")).expect("there"), persona);
    assert!(project.posse(&["--db", "acme.db", "list"]).ok().out.contains("completed"));
}

#[test]
fn links_are_followed_where_no_agent_writes() {
    let project = Project::empty();
    let root = project.path().canonicalize().expect("real");
    project.write("config/posse.toml", "workspace = 'ws'\n");
    project.write("ws/sub/deep/notes.txt", "x");
    // The project's own folder is a workspace of nobody's, but it counts as written by agents all the same.
    let mine = tempfile::tempdir().expect("a folder");
    let mine = mine.path().canonicalize().expect("real");
    std::fs::create_dir(root.join("other")).expect("made");
    symlink(root.join("ws"), mine.join("mine")).expect("made");
    symlink("../other", root.join("ws/theirs")).expect("made");
    symlink(root.join("ws/theirs"), mine.join("way")).expect("made");
    symlink("turn", mine.join("turn")).expect("made");
    let enqueue = |folder: &std::path::Path| {
        project.posse(&["enqueue", "-r", "scribe", "--workspace", folder.to_str().expect("UTF-8"), "x"])
    };
    enqueue(&mine.join("mine/sub/../sub/./deep")).ok();
    let job = project.posse(&["show", "1", "--json"]).ok().json();
    assert_eq!(job["job"]["payload"]["workspace"], root.join("ws/sub/deep").to_str().expect("UTF-8"));
    for path in [root.join("ws/theirs"), mine.join("mine/theirs"), mine.join("way"), root.join("ws/sub/../theirs/..")] {
        let refused = enqueue(&path).expect(2);
        let is_told = refused.err.contains("is a symlink to ../other, and agents can write");
        assert!(is_told, "{}: {}", path.display(), refused.err);
    }
    assert!(enqueue(&mine.join("turn")).expect(2).err.contains("cannot be used"), "nothing can be opened there");
}
