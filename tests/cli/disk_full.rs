//! A11: the disk is full while jobs run. On a small file system of its own where this user may mount
//! one; elsewhere the store's own test with a limit of pages has to do.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{ModelServer, Project, Say, until};
use serde_json::json;

/// A file system of a few megabytes, gone with this.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// None where this user may not mount, which is said.
    fn mount(at: PathBuf, megabytes: u32) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).expect("a folder");
        let options = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).output();
        let is_mounted = mounted.is_ok_and(|mounted| mounted.status.success());
        if !is_mounted {
            eprintln!("left out: this user may not mount a small file system");
        }
        is_mounted.then_some(SmallDisk(at))
    }

    /// Takes all the space there is.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.filler()).expect("is made");
        let block = [0x5a; 4096];
        while filler.write_all(&block).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).expect("is removed");
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A persona that writes `texts` into a file, one by one, and ends.
fn writer(texts: usize, bytes: usize) -> ModelServer {
    // Each is another one: the same text over and over would be a habit.
    let append = |n| Say::Call("append_file", json!({"path": "out.txt", "text": format!("{n}{}", "x".repeat(bytes))}));
    let mut script: Vec<_> = (0..texts).map(append).collect();
    script.push(Say::Call("finish", json!({"final_summary": "written"})));
    ModelServer::start(script)
}

fn persona(project: &Project) {
    let persona = json!({"role": "writer", "goal": "g", "tools": ["append_file"], "limits": {"max_turns": 200}});
    project.write("config/personas/writer.json", persona.to_string());
}

fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("is answered in time");
    answer
}

fn entries(project: &Project, job: i64) -> usize {
    let shown = project.posse(&["show", &job.to_string(), "--json"]).ok().json();
    shown["journal"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_full_disk_stops_work_and_loses_nothing() {
    let server = writer(30, 2_000);
    let project = Project::with_model(&server);
    let Some(disk) = SmallDisk::mount(project.path().join("small"), 30) else { return };
    // Nothing of the conversation may be summed up: the server counts what was said.
    let model = format!(
        "[models.mock]\nbase_url = '{}'\nmodel = 'mock'\napi_key_env = ''\ncontext_window = 1000000\n",
        server.base_url
    );
    let settings = format!("database = 'small/posse.db'\nworkspace = 'ws'\ndefault_model = 'mock'\n{model}");
    project.write("config/posse.toml", settings);
    std::fs::create_dir(project.path().join("ws")).expect("a workspace");
    persona(&project);
    let enqueue = || project.posse(&["enqueue", "--role", "writer", "write"]);
    for _ in 0..3 {
        enqueue().ok();
    }
    let mut worker = project.start(&["work", "--role", "writer", "--metrics", "127.0.0.1:0"]);
    let address = worker.hear_rest_of("metrics    http://").trim_end_matches("/metrics").to_owned();
    until("work", || entries(&project, 1) > 6);
    disk.fill();
    until("the full disk is noticed", || enqueue().code == 5);
    let before = entries(&project, 1);
    let refused = enqueue().expect(5);
    let said = refused.err.trim();
    assert!(said.contains("storage full") && said.contains("posse.db") && said.lines().count() == 1, "{said}");
    let health = project.posse(&["doctor", "--json"]).expect(1).json();
    let is_told = health["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .any(|finding| finding["check"] == "space for the database" && finding["verdict"] == "wrong");
    assert!(is_told, "{health}");
    let numbers = get(&address, "/metrics");
    assert!(numbers.contains("posse_database_up 1\n") && numbers.contains("\nposse_leases "), "{numbers}");
    // It is tried again and again meanwhile.
    std::thread::sleep(Duration::from_secs(4));
    for job in 1..=3 {
        let state = project.posse(&["show", &job.to_string(), "--json"]).ok().json()["job"]["state"].clone();
        assert!(state == "running" || state == "completed", "job {job} is {state}");
    }
    disk.free();
    for job in 1..=3 {
        project.wait_for_state(job, "completed");
    }
    assert!(entries(&project, 1) >= before, "no step is lost");
    for job in 1..=3 {
        let shown = project.posse(&["show", &job.to_string(), "--json"]).ok().json();
        assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1), "with no restart: {}", shown["attempts"]);
    }
    assert_eq!(project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(3));
    worker.terminate();
    let log = worker.wait().err;
    let told: Vec<_> = log.lines().filter(|line| line.contains("storage full")).collect();
    assert!(told.len() == 1 && told[0].contains("posse.db"), "once a minute: {told:?}");
    project.posse(&["db", "check", "--full"]).ok();
}

#[test]
fn a_full_workspace_is_the_tools_failure_alone() {
    let server = writer(6, 400_000);
    let project = Project::with_model(&server);
    let Some(_disk) = SmallDisk::mount(project.path().join("ws"), 1) else { return };
    project.write("config/posse.toml", "workspace = 'ws'\n");
    persona(&project);
    let ran = project.posse(&["run", "--role", "writer", "write"]).ok();
    assert!(ran.out.contains("written"), "{}", ran.out);
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    let states: Vec<_> =
        shown["ledger"].as_array().expect("rows").iter().map(|row| row["state"].as_str().expect("a state")).collect();
    assert!(states.contains(&"done") && states.contains(&"failed"), "{states:?}");
    assert_eq!(shown["attempts"].as_array().map(Vec::len), Some(1), "not a failed attempt");
    let told = shown["journal"].to_string();
    assert!(told.contains("space") || told.contains("full"), "the model is told why");
    assert!(Path::new(&project.path().join(".posse/posse.db")).exists());
}
