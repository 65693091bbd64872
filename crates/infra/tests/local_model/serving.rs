//! `ensure_running`, with a server that is a few lines of Python; the last test takes the real one if it is there.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use posse_infra::local_model::server::{ensure_running_blocking, find_binary};
use posse_infra::local_model::{
    Endpoint, ServerError, ServerOptions, catalogue, ensure_running, find, models_dir, stop,
};
use serde_json::Value;

use super::{names, script};
use crate::support::wait::wait;

/// Stands in for `posse-local`. What it does wrong, files beside it say; what it was given, it writes beside it.
const SERVER: &str = r#"#!/usr/bin/env python3
import http.server, json, os, sys, threading, time
here = os.path.dirname(os.path.abspath(sys.argv[0]))
has = lambda name: os.path.exists(os.path.join(here, name))
arg = lambda name: sys.argv[sys.argv.index(name) + 1]
with open(os.path.join(here, "starts"), "a") as starts:
    starts.write(json.dumps({"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid(), "sid": os.getsid(0),
        "cwd": os.getcwd()}) + "\n")
if has("die"):
    sys.exit("error: the model is not a model")
if has("never"):
    print("loading", file=sys.stderr, flush=True)
    time.sleep(60)
if has("slow"):
    time.sleep(0.5)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if has("hang"):
            time.sleep(60)
        self.send_response(500 if has("sick") else 200)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(arg("--port"))), Handler)
print("a line that is not the one", flush=True)
print(json.dumps({"ready": True, "port": server.server_port, "model": arg("--name"), "ctx": int(arg("--ctx"))}), flush=True)
# No test leaves a server for long, whatever happens to it.
threading.Timer(60, lambda: os._exit(0)).start()
server.serve_forever()
"#;

struct Fake {
    dir: tempfile::TempDir,
    options: ServerOptions,
    model: PathBuf,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("bin");
        let options = ServerOptions {
            binary: Some(script(&bin.join("posse-local"), SERVER)),
            state_dir: Some(dir.path().join("run/posse")),
            start_timeout: Duration::from_secs(20),
            ..ServerOptions::default()
        };
        let model = dir.path().join("fake.gguf");
        fs::write(&model, "weights").expect("the model");
        Self { dir, options, model }
    }

    fn flag(&self, name: &str) -> PathBuf {
        self.dir.path().join("bin").join(name)
    }

    fn starts(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.flag("starts")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn ensure(&self) -> Result<Endpoint, ServerError> {
        ensure_running_blocking(&self.model, "fake", &self.options)
    }

    fn state_dir(&self) -> PathBuf {
        self.dir.path().join("run/posse")
    }

    fn state_file(&self) -> PathBuf {
        self.state_dir().join("local-fake.json")
    }

    /// Changes one field of the file about the running server.
    fn edit_state(&self, key: &str, value: Value) {
        let mut state: Value = serde_json::from_slice(&fs::read(self.state_file()).expect("the file")).expect("JSON");
        state[key] = value;
        fs::write(self.state_file(), state.to_string()).expect("the file");
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        for start in self.starts() {
            end(start["pid"].as_u64().expect("a number") as u32);
        }
    }
}

/// Whether the process lives. One that waits for burial by us does not.
fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

/// Ends a fake server; the reaper of the thread that started it buries it.
fn end(pid: u32) {
    if fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.contains("posse-local")) {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
    let _ = wait(Duration::from_secs(5), || if lives(pid) { Err(()) } else { Ok(()) });
}

#[test]
fn callers_at_the_same_time_share_one_server() {
    let fake = Fake::new();
    fs::write(fake.flag("slow"), "").expect("a flag");
    let ends: Vec<Endpoint> = std::thread::scope(|scope| {
        // All are started before the first is waited for.
        let mut callers = Vec::new();
        for _ in 0..4 {
            callers.push(scope.spawn(|| fake.ensure().expect("a server")));
        }
        callers.into_iter().map(|c| c.join().expect("no panic")).collect()
    });
    assert_eq!(fake.starts().len(), 1);
    assert_eq!(ends.iter().filter(|e| e.started).count(), 1);
    assert!(ends.iter().all(|e| (&e.base_url, &e.token, e.pid) == (&ends[0].base_url, &ends[0].token, ends[0].pid)));
    assert_eq!(fs::metadata(fake.state_file()).expect("the file").permissions().mode() & 0o777, 0o600);
    assert_eq!(names(&fake.state_dir()), ["local-fake.json", "local-fake.log"]);
}

#[test]
fn the_token_is_in_the_environment_alone_and_nothing_else_is() {
    let fake = Fake::new();
    let end = fake.ensure().expect("a server");
    let start = &fake.starts()[0];
    assert_eq!(end.token.len(), 64);
    assert_eq!(start["env"]["POSSE_LOCAL_TOKEN"], end.token.as_str());
    assert!(!start["argv"].to_string().contains(&end.token));
    assert!(!format!("{end:?}").contains(&end.token));
    // Python and its launcher add some of their own; none of ours may come through.
    let env = start["env"].as_object().expect("an object");
    let alien: Vec<_> = env.keys().filter(|k| k.starts_with("CARGO") || k.ends_with("_KEY")).collect();
    assert!(alien.is_empty(), "{alien:?}");
    assert_eq!(start["sid"], start["pid"], "it has a session of its own");
    assert_eq!(start["cwd"], "/");
    let argv = start["argv"].to_string();
    for word in ["\"--port\",\"0\"", "\"--ctx\",\"8192\"", "\"--idle-exit\",\"900\"", "\"--name\",\"fake\""] {
        assert!(argv.contains(word), "{word} is not in {argv}");
    }
    assert!(end.base_url.starts_with("http://127.0.0.1:") && end.base_url.ends_with("/v1"), "{}", end.base_url);
}

#[test]
fn a_server_that_died_is_replaced() {
    let fake = Fake::new();
    let first = fake.ensure().expect("a server");
    end(first.pid);
    let second = fake.ensure().expect("a server");
    assert!(second.started && second.pid != first.pid && second.token != first.token);
    assert_eq!(fake.starts().len(), 2);
}

#[test]
fn a_number_that_now_is_another_process_is_left_alone() {
    let fake = Fake::new();
    let first = fake.ensure().expect("a server");
    end(first.pid);
    // A process that lives and is not the server: the number fits, the moment of its start does not.
    let mut other = Command::new("sleep").arg("60").spawn().expect("sleep");
    fake.edit_state("pid", other.id().into());
    let second = fake.ensure().expect("a server");
    assert!(second.started && second.pid != other.id());
    assert!(lives(other.id()), "the other process was ended");
    // Nor is a number that no process can have.
    for none in [0, u32::MAX] {
        end(fake.ensure().expect("a server").pid);
        fake.edit_state("pid", none.into());
        assert!(fake.ensure().expect("a server").started);
    }
    other.kill().and_then(|()| other.wait()).expect("its end");
}

#[test]
fn a_sick_server_is_ended_and_replaced() {
    for flag in ["sick", "hang"] {
        let fake = Fake::new();
        let first = fake.ensure().expect("a server");
        fs::write(fake.flag(flag), "").expect("a flag");
        let second = fake.ensure().expect("a server");
        assert!(second.started && !lives(first.pid), "{flag}");
    }
}

#[test]
fn a_server_of_another_file_or_with_less_context_is_replaced_and_one_with_more_is_shared() {
    let mut fake = Fake::new();
    let first = fake.ensure().expect("a server");
    fake.options.context = 4096;
    assert_eq!(fake.ensure().expect("a server").pid, first.pid);
    fake.options.context = 16384;
    let second = fake.ensure().expect("a server");
    assert!(second.started && second.context == 16384 && !lives(first.pid));
    fake.model = fake.dir.path().join("other.gguf");
    fs::write(&fake.model, "other weights").expect("the model");
    let third = fake.ensure().expect("a server");
    assert!(third.started && !lives(second.pid));
}

#[test]
fn a_state_file_that_others_may_read_or_that_is_garbage_counts_for_nothing() {
    let fake = Fake::new();
    fake.ensure().expect("a server");
    fs::set_permissions(fake.state_file(), fs::Permissions::from_mode(0o644)).expect("its mode");
    assert!(fake.ensure().expect("a server").started);
    fs::write(fake.state_file(), "{").expect("the file");
    assert!(fake.ensure().expect("a server").started);
}

#[test]
fn a_server_that_is_never_ready_is_ended_and_its_log_shown() {
    let mut fake = Fake::new();
    fs::write(fake.flag("never"), "").expect("a flag");
    fake.options.start_timeout = Duration::from_secs(3);
    let error = fake.ensure().expect_err("never ready");
    assert!(matches!(error, ServerError::NeverReady { .. }), "{error}");
    assert!(error.to_string().contains("loading") && error.to_string().contains("local-fake.log"), "{error}");
    let pid = fake.starts()[0]["pid"].as_u64().expect("a number") as u32;
    assert!(!lives(pid), "it was left running");
    assert_eq!(names(&fake.state_dir()), ["local-fake.log"]);
}

#[test]
fn a_server_that_dies_at_once_is_told_with_its_words() {
    let fake = Fake::new();
    fs::write(fake.flag("die"), "").expect("a flag");
    let begun = Instant::now();
    let error = fake.ensure().expect_err("dead").to_string();
    assert!(error.contains("exit status: 1") && error.contains("the model is not a model"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for a dead server");
}

#[test]
fn what_is_missing_is_named() {
    let mut fake = Fake::new();
    let gone = fake.dir.path().join("gone.gguf");
    let error = ensure_running_blocking(&gone, "fake", &fake.options).expect_err("no model").to_string();
    assert!(error.contains("gone.gguf") && error.contains("posse model pull"), "{error}");
    for name in ["", "../x", "a/b", "a b"] {
        let error = ensure_running_blocking(&fake.model, name, &fake.options).expect_err("a bad name");
        assert!(matches!(error, ServerError::BadName(_)), "{error}");
    }
    let plain = fake.dir.path().join("plain");
    fs::write(&plain, "").expect("the file");
    for wrong in [plain, fake.dir.path().join("none"), fake.dir.path().to_owned()] {
        fake.options.binary = Some(wrong.clone());
        let error = fake.ensure().expect_err("not runnable").to_string();
        assert!(error.contains(&*wrong.to_string_lossy()) && error.contains("POSSE_LOCAL_BIN"), "{error}");
    }
}

#[tokio::test]
async fn a_server_is_stopped_once() {
    let fake = Fake::new();
    let dir = Some(fake.state_dir());
    assert!(!stop("fake", dir.clone()).await.expect("nothing to stop"));
    let end = ensure_running(&fake.model, "fake", fake.options.clone()).await.expect("a server");
    assert!(lives(end.pid));
    assert!(stop("fake", dir.clone()).await.expect("stopped"));
    assert!(!lives(end.pid));
    assert!(!stop("fake", dir).await.expect("nothing to stop"));
}

/// The status of a GET with or without the token.
fn get(end: &Endpoint, path: &str, token: Option<&str>) -> u16 {
    let port: u16 =
        end.base_url.trim_start_matches("http://127.0.0.1:").trim_end_matches("/v1").parse().expect("a port");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connected");
    let key = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{key}Connection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status")
}

#[tokio::test]
async fn the_real_server_runs_the_real_small_model() {
    let model = catalogue::by_name("smollm2-135m").expect("known");
    let file = models_dir().and_then(|dir| find(model, &dir).ok().flatten());
    let (Ok(binary), Some(file)) = (find_binary(), file) else {
        eprintln!(
            "skipped: needs posse-local (./quickstart builds it) and smollm2-135m (posse model pull smollm2-135m)"
        );
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let state_dir = Some(dir.path().to_owned());
    let options = ServerOptions {
        binary: Some(binary),
        state_dir: state_dir.clone(),
        context: 2048,
        // Should this test be killed.
        idle_exit: Duration::from_secs(60),
        ..ServerOptions::default()
    };
    let begun = Instant::now();
    let end = ensure_running(&file, model.name, options.clone()).await.expect("a server");
    eprintln!("ready after {:.1} s", begun.elapsed().as_secs_f32());
    assert_eq!(get(&end, "/v1/models", Some(&end.token)), 200);
    assert_eq!(get(&end, "/v1/models", None), 401);
    let again = ensure_running(&file, model.name, options).await.expect("a server");
    assert!(!again.started && again.pid == end.pid);
    assert!(stop(model.name, state_dir).await.expect("stopped"));
    assert!(!lives(end.pid));
}
