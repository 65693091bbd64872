//! Agents' commands in the hands of a real worker: whatever ends a job ends its commands, and the journal says so.

use std::fs;
use std::path::Path;

use crate::support::{ModelServer, Project, Say, until};
use serde_json::{Value, json};

/// How many processes of this machine sleep for this time.
fn sleeping(marker: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| *line == format!("sleep\0{marker}\0").into_bytes()).count()
}

/// A time that nobody else sleeps for.
fn marker(test: u32) -> String {
    format!("{}.{test}", 200_000 + std::process::id())
}

/// A project with a persona that runs commands; none where this host cannot confine them, which is said.
fn project(server: &ModelServer) -> Option<Project> {
    let project = Project::with_model(server);
    project.write("config/posse.toml", "grace_seconds = 1\n");
    let persona = json!({"role": "runner", "goal": "run commands", "tools": ["run_command"]});
    project.write("config/personas/runner.json", persona.to_string());
    let findings = project.posse(&["doctor", "--json"]).json();
    let commands = findings["findings"].as_array().expect("findings").iter().find(|f| f["check"] == "commands");
    let commands = commands.expect("the doctor looks at commands");
    if commands["verdict"] == "ok" {
        let message = commands["message"].as_str().expect("a message");
        assert!(message.starts_with("run in sandboxes; ") && message.contains("memory"), "{message}");
        return Some(project);
    }
    eprintln!("A TEST OF COMMANDS IS SKIPPED, for this host cannot make sandboxes: {commands}");
    None
}

fn shown(project: &Project) -> Value {
    project.posse(&["show", "1", "--json"]).ok().json()
}

/// The state of the job's only call of a tool, and what the model is told of its end.
#[track_caller]
fn call(project: &Project) -> (String, String) {
    let shown = shown(project);
    let rows = shown["ledger"].as_array().expect("a ledger");
    assert_eq!(rows.len(), 1, "{shown}");
    let ends = shown["journal"].as_array().expect("a journal").iter().filter(|step| step["kind"] == "call_ended");
    let text = ends.map(|step| step["text"].as_str().unwrap_or_default()).collect();
    (rows[0]["state"].as_str().expect("a state").into(), text)
}

fn done(answer: &str) -> Say {
    Say::Call("finish", json!({"final_summary": answer}))
}

fn two_sleeps(marker: &str) -> Say {
    Say::Call("run_command", json!({"command": format!("echo begun; sleep {marker} & sleep {marker}")}))
}

/// A17, D07: a cancelled job's processes are gone, the ones in the background too, and nothing more is begun for it.
#[test]
fn cancelling_a_job_ends_its_command_with_all_processes() {
    let marker = marker(1);
    let server = ModelServer::start(vec![two_sleeps(&marker), done("done")]);
    let Some(project) = project(&server) else { return };
    let worker = project.start(&["work", "--role", "runner"]);
    project.posse(&["enqueue", "--role", "runner", "Run it"]).ok();
    until("the command runs", || sleeping(&marker) == 2);
    let asked = server.requests().len();
    project.posse(&["job", "cancel", "1"]).ok();
    project.wait_for_state(1, "cancelled");
    assert_eq!(sleeping(&marker), 0);
    let (state, told) = call(&project);
    assert_eq!(state, "unknown");
    assert!(told.contains("may or may not") && told.contains("Cancelled") && told.contains("begun"), "{told}");
    assert_eq!(server.requests().len(), asked, "the model is not asked again");
    let journal = shown(&project)["journal"].clone();
    assert!(journal.as_array().expect("a journal").iter().all(|step| step["kind"] != "ended"), "{journal}");
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn a_killed_worker_takes_its_commands_along_and_nothing_is_repeated() {
    let marker = marker(2);
    let server = ModelServer::start(vec![two_sleeps(&marker), done("It may have been run.")]);
    let Some(project) = project(&server) else { return };
    let worker = project.start(&["work", "--role", "runner"]);
    project.posse(&["enqueue", "--role", "runner", "Run it"]).ok();
    until("the command runs", || sleeping(&marker) == 2);
    // With SIGKILL.
    drop(worker);
    until("its processes are gone", || sleeping(&marker) == 0);
    let worker = project.start(&["work", "--role", "runner"]);
    project.wait_for_state(1, "completed");
    assert_eq!(call(&project).0, "unknown");
    assert!(project.posse(&["show", "1"]).ok().out.contains("whether it took effect is not known"));
    let last = server.requests().pop().expect("asked").to_string();
    assert!(last.contains("It may or may not have taken effect"), "{last}");
    assert_eq!(sleeping(&marker), 0);
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn a_worker_that_shuts_down_ends_commands_after_its_grace_and_gives_the_job_back() {
    let marker = marker(3);
    let server = ModelServer::start(vec![two_sleeps(&marker), done("done")]);
    let Some(project) = project(&server) else { return };
    let worker = project.start(&["work", "--role", "runner"]);
    project.posse(&["enqueue", "--role", "runner", "Run it"]).ok();
    until("the command runs", || sleeping(&marker) == 2);
    worker.terminate();
    worker.wait().ok();
    assert_eq!(sleeping(&marker), 0);
    let job = shown(&project)["job"].clone();
    assert_eq!((&job["state"], &job["attempt"]), (&"available".into(), &0.into()), "{job}");
    let (state, told) = call(&project);
    assert_eq!(state, "unknown");
    assert!(told.contains("Shutdown") && told.contains("begun"), "{told}");
}

/// D05: what the worker was given in its environment, and what the project has of its own, reaches nobody.
#[test]
fn d05_no_secret_reaches_a_command() {
    let command = "env; cat /proc/$PPID/environ /proc/*/environ | tr '\\0' '\\n'; tr '\\0' '\\n' < /proc/1/environ; ps auxww; \
        python3 -c 'import os; print(os.environ)'; git config -l; cat .posse/* ../*; cat /proc/*/cmdline | tr '\\0' ' '; ls -a . .posse; \
        touch config/personas/evil.json sqlite_extensions/vec0.so .agents/x";
    let server = ModelServer::start(vec![Say::Call("run_command", json!({"command": command})), done("done")]);
    let Some(project) = project(&server) else { return };
    let mut run = project.command(&["run", "--role", "runner", "--full", "Run it"]);
    run.env("MOCK_API_KEY", "sk-canary-1").env("DATABASE_URL", "db://canary-2").env("RANDOM_TOKEN", "canary-3");
    let ended = run.env("OPENAI_API_KEY", "sk-canary-4").output().expect("posse runs");
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ended.status.success() && said.contains("HOME=/tmp"), "{said}");
    assert!(!said.contains("canary"), "{said}");
    let told = server.requests().pop().expect("asked").to_string();
    assert!(told.contains("TERM=dumb") && !told.contains("canary") && !told.contains("SQLite format"), "{told}");
    for file in files(project.path()) {
        let bytes = fs::read(&file).expect("readable");
        assert!(!bytes.windows(6).any(|six| six == b"canary"), "{}", file.display());
        assert!(!["evil.json", "vec0.so", "x"].iter().any(|name| file.ends_with(name)), "{}", file.display());
    }
    assert!(project.path().join(".posse/posse.db").exists());
}

/// Another tenant's database is hidden however deep it lies, also where nobody looks for one: that it was used is
/// remembered.
#[test]
fn no_command_sees_another_tenants_database() {
    let tenants = ["deep/in/side/ann.db", "node_modules/x/bob.db"];
    let command = "ls -AR; cat */*/*.db* */*/*/*.db*; touch deep/in/side/new; cat plain/y";
    let server = ModelServer::start(vec![Say::Call("run_command", json!({"command": command})), done("done")]);
    let Some(project) = project(&server) else { return };
    for tenant in tenants {
        project.write(&format!("{tenant}.sessions/1/events.jsonl"), "canary");
        project.posse(&["enqueue", "--db", tenant, "--role", "scribe", "canary"]).ok();
    }
    project.write("plain/y", "is free");
    project.posse(&["run", "--role", "runner", "Run it"]).ok();
    let (_, told) = call(&project);
    assert!(told.contains("is free"), "{told}");
    for hidden in ["canary", "ann.db", "bob.db", "SQLite format"] {
        assert!(!told.contains(hidden), "{hidden}: {told}");
    }
    assert!(!project.path().join("deep/in/side/new").exists());
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(path) = ahead.pop() {
        match path.is_dir() {
            true => ahead.extend(fs::read_dir(path).expect("readable").map(|entry| entry.expect("an entry").path())),
            false => files.push(path),
        }
    }
    files
}

/// A persona that does not name the tool never has it.
#[test]
fn only_personas_that_name_it_run_commands() {
    let server =
        ModelServer::start(vec![Say::Call("run_command", json!({"command": "touch ran"})), done("I could not.")]);
    let project = Project::with_model(&server);
    let ran = project.posse(&["run", "--role", "scribe", "Run it"]).ok().out;
    assert!(!project.path().join("ran").exists());
    assert!(ran.contains("There is no tool 'run_command'. Your tools are: append_file,"), "{ran}");
    let listed = project.posse(&["tool", "show", "run_command", "--json"]).ok().json();
    assert_eq!((&listed["pack"], &listed["effect"]), (&"commands".into(), &"once".into()));
    // Its limits are part of what the model is told.
    project.write("config/posse.toml", "[commands]\nmemory_mb = 77\n");
    let told = project.posse(&["tool", "show", "run_command", "--json"]).ok().json()["description"].clone();
    assert!(told.as_str().expect("words").contains("77 MB of memory"), "{told}");
    project.write("config/posse.toml", "[commands]\nmemory_mb = 1\n");
    let refused = project.posse(&["tool", "list"]).expect(2).err;
    assert!(refused.contains("[commands] memory_mb is 1; it must lie between 16 and"), "{refused}");
}
