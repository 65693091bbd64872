//! What leaves the program: nothing that others wrote steers a terminal, nobody's work waits for a reader, and
//! what was done is told or not done at all.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use crate::support::{ModelServer, Project, Say, full_pipe, until};
use serde_json::{Value, json};

/// What a terminal would do something about, and what hides or reorders text.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2K\r\u{9b}2J\u{202e}txt.exe\u{2066}\u{200b}\u{feff}\u{e0041}\u{7f}";

#[track_caller]
fn assert_is_harmless(what: &str, shown: &str) {
    let acts = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    if let Some(bad) = shown.chars().find(|c| acts(*c)) {
        panic!("{what} shows {bad:?} as it is:\n{shown:?}");
    }
}

/// A provider that refuses every request, with these words.
fn refusing(words: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            let _ = reader.read_exact(&mut vec![0; length]);
            let body = json!({"error": {"message": words, "type": words}}).to_string();
            let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    format!("http://{address}/v1")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn a_providers_words_reach_no_terminal_as_they_are() {
    let project = Project::begun();
    let url = refusing(HOSTILE);
    for format in ["text", "json"] {
        project.posse(&["enqueue", "--role", "scribe", "--max-attempts", "1", "x"]).ok();
        let mut work = project.command(&["work", "--role", "scribe"]);
        work.env("OPENAI_BASE_URL", &url)
            .env("OPENAI_MODEL", "mock")
            .env("POSSE_LOG", "debug")
            .env("POSSE_LOG_FORMAT", format);
        let mut worker =
            work.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut heard = String::new();
        let mut lines = BufReader::new(worker.stderr.take().expect("piped"));
        while !heard.contains("txt.exe") {
            let mut line = Vec::new();
            assert!(lines.read_until(b'\n', &mut line).expect("read") > 0, "it ended: {heard}");
            heard.push_str(&text(line));
        }
        let _ = worker.kill();
        let _ = worker.wait();
        assert_is_harmless("the log", &heard);
        if format == "json" {
            let is_event = |line: &&str| line.starts_with('{');
            let events: Vec<Value> =
                heard.lines().filter(is_event).map(|line| serde_json::from_str(line).expect(line)).collect();
            assert!(events.iter().any(|event| event["level"] == "debug" || event["level"] == "warn"), "{heard}");
        }
    }
}

#[test]
fn json_escapes_what_would_steer_a_terminal_and_says_the_same() {
    let server = ModelServer::start(vec![
        Say::Call("read_file", json!({"path": HOSTILE})),
        Say::Call("finish", json!({"final_summary": HOSTILE})),
    ]);
    let project = Project::with_model(&server);
    project.write(
        "config/personas/hostile.json",
        json!({"role": "hostile", "goal": HOSTILE, "tools": ["filesystem"]}).to_string(),
    );
    let run = project.posse(&["run", "--json", "--role", "hostile", HOSTILE]).ok();
    assert_is_harmless("run --json", &(run.out + &run.err));
    project.posse(&["job", "annotate", "1", HOSTILE]).ok();
    let looks: [&[&str]; 9] = [
        &["list"],
        &["show", "1"],
        &["job", "events", "1"],
        &["job", "events", "1", "--follow"],
        &["job", "replay", "1"],
        &["job", "replay", "1", "--requests"],
        &["persona", "show", "hostile"],
        &["persona", "list"],
        &["doctor"],
    ];
    for look in looks {
        let seen = project.posse(&[look, &["--json"]].concat());
        assert_is_harmless(&look.join(" "), &(seen.out + &seen.err));
    }
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["payload"]["goal"], HOSTILE);
}

#[test]
fn an_argument_is_repeated_as_text() {
    let project = Project::begun();
    let calls: [&[&str]; 7] = [
        &[HOSTILE],
        &["show", HOSTILE],
        &["list", "--state", HOSTILE],
        &["enqueue", "--role", HOSTILE, "x"],
        &["schedule", "show", HOSTILE],
        &["session", "show", HOSTILE],
        &["tool", "show", HOSTILE],
    ];
    for call in calls {
        let seen = project.posse(call);
        assert_ne!(seen.code, 0);
        assert_is_harmless(&call.join(" "), &(seen.out + &seen.err));
    }
}

#[test]
fn a_worker_whose_log_nobody_reads_works_and_ends_when_it_is_told_to() {
    for args in [&["work", "--role", "scribe"][..], &["work", "--json", "--role", "scribe"], &["up"]] {
        let server = ModelServer::start(vec![Say::Silence]);
        let project = Project::with_model(&server);
        let (_unread, err) = full_pipe();
        let (_unread_too, out) = full_pipe();
        let mut worker = project.command(args);
        worker.env("POSSE_LOG", "trace").stdin(Stdio::null()).stdout(Stdio::from(out)).stderr(Stdio::from(err));
        let mut worker = worker.spawn().expect("started");
        project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
        server.wait_for_requests(1);
        let asked = Command::new("/bin/kill").args(["-TERM", &worker.id().to_string()]).status();
        assert!(asked.expect("kill runs").success());
        // Twice: the step in hand is not waited for.
        let asked = Command::new("/bin/kill").args(["-TERM", &worker.id().to_string()]).status();
        assert!(asked.expect("kill runs").success());
        until("it ends", || worker.try_wait().expect("waited").is_some());
        let job = project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
        assert_eq!((&job["state"], &job["leased_by"]), (&json!("available"), &Value::Null), "{args:?}: {job}");
    }
}

#[test]
fn nobody_waits_for_who_does_not_read_and_what_was_dropped_is_told() {
    let project = Project::begun();
    let unknown = "x".repeat(4000);
    for n in 0..400 {
        project.write(&format!("config/personas/wrong-{n}.json"), json!({"role": "wrong", &unknown: 1}).to_string());
    }
    // So many that the list of them does not fit into a pipe: it does not end before it is read.
    for n in 0..1000 {
        let persona = json!({"role": format!("role-{n}"), "goal": "to be there ".repeat(9), "tools": []});
        project.write(&format!("config/personas/role-{n}.json"), persona.to_string());
    }
    let mut list = project.command(&["persona", "list"]);
    let mut list = list.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let (mut out, err) = (list.stdout.take().expect("piped"), list.stderr.take().expect("piped"));
    // What is wrong comes first, and by now all of it was said to nobody.
    out.read_exact(&mut [0]).expect("the list begins");
    let mut heard = String::new();
    let mut err = BufReader::new(err);
    while !heard.ends_with("which nobody read in time\n") {
        assert!(err.read_line(&mut heard).expect("read") > 0, "nothing was dropped");
    }
    let kept = heard.matches("warning: ").count();
    let told = heard.lines().last().expect("a line").strip_prefix("… ").expect("how many");
    let told: usize = told.split(' ').next().expect("a word").parse().expect("a number");
    let all = project.posse(&["persona", "check", "--json"]).json()["problems"].as_array().map(Vec::len);
    assert_eq!(Some(kept + told), all, "none is missing untold");
    assert!(heard.len() < (1 << 20) + (1 << 17), "what is kept is bounded");
    out.read_to_end(&mut Vec::new()).expect("read");
    assert!(list.wait().expect("ended").success());
}

#[test]
fn a_run_whose_reader_has_had_enough_goes_on_to_its_end() {
    let server = ModelServer::start(vec![
        Say::Call("list_files", json!({"path": "."})),
        Say::Call("finish", json!({"final_summary": "Done."})),
    ]);
    let project = Project::with_model(&server);
    let mut run = project.command(&["run", "--role", "scribe", "x"]);
    let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let mut first = String::new();
    let mut out = BufReader::new(run.stdout.take().expect("piped"));
    out.read_line(&mut first).expect("read");
    drop(out);
    let Output { status, stderr, .. } = run.wait_with_output().expect("ended");
    assert!(first.starts_with("job 1"), "{first}");
    let err = text(stderr);
    assert_eq!(status.code(), Some(0), "{err}");
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "completed");
}

#[test]
fn what_could_not_be_told_is_not_done() {
    let project = Project::begun();
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    project.posse(&["job", "cancel", "1"]).ok();
    project.posse(&["enqueue", "--role", "scribe", "y"]).ok();
    let before = project.posse(&["list", "--json"]).ok().out;
    let changes: [&[&str]; 16] = [
        &["enqueue", "--role", "scribe", "x"],
        &["job", "retry", "1"],
        &["job", "cancel", "2"],
        &["job", "edit", "2", "--goal", "z"],
        &["job", "set-priority", "2", "--to", "1"],
        &["job", "move", "2", "--to", "q"],
        &["job", "delete", "1"],
        &["job", "delete", "--where", "role=scribe", "--yes"],
        &["job", "annotate", "2", "z"],
        &["limit", "set", "--all", "--running", "1"],
        &["pause", "--all"],
        &["schedule", "add", "s", "--cron", "@daily", "--role", "scribe", "x"],
        &["db", "backup", "copy.db"],
        &["db", "compact"],
        &["run", "--role", "scribe", "x"],
        &["persona", "new", "somebody"],
    ];
    for change in changes {
        for json in [&[][..], &["--json"]] {
            let full = OpenOptions::new().write(true).open("/dev/full").expect("a device");
            let (read, broken) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
            drop(read);
            for stdout in [Stdio::from(full), Stdio::from(broken)] {
                let mut command = project.command(&[change, json].concat());
                command.env("OPENAI_BASE_URL", "http://127.0.0.1:1/v1").env("OPENAI_MODEL", "mock");
                let ended = command.stdin(Stdio::null()).stdout(stdout).output().expect("ran");
                let err = text(ended.stderr);
                assert_eq!(ended.status.code(), Some(1), "{change:?}: {err}");
                assert!(
                    err.contains("standard output cannot be written") && err.contains("nothing was done"),
                    "{change:?}: {err}"
                );
            }
        }
    }
    assert_eq!(project.posse(&["list", "--json"]).ok().out, before);
    assert_eq!(project.posse(&["limit", "list"]).ok().out, "");
    assert_eq!(project.posse(&["schedule", "list"]).ok().out, "");
    assert!(!project.path().join("copy.db").exists());
    assert!(!project.path().join("config/personas/somebody.json").exists());
    assert!(!project.posse(&["show", "2", "--json"]).ok().out.contains("annotations\": [{"));
}

/// A file that takes nothing, which is known only when it is written: its process may make files of no length.
#[test]
fn what_was_done_is_told_where_the_answer_could_not_be() {
    let project = Project::begun();
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    project.write("answer", "");
    for (change, told) in [
        ("enqueue --role scribe x", "job 2"),
        ("job cancel 1", "job 1 is cancelled"),
        ("pause --queue q", "queue q is paused"),
    ] {
        // What is written beyond the limit fails with EFBIG once its signal is ignored; the answer's file is there already.
        let script = format!("trap '' XFSZ; exec {} {change} 5<>answer >>answer", env!("CARGO_BIN_EXE_posse"));
        let file = File::options().write(true).open(project.path().join("answer")).expect("opened");
        file.set_len(1 << 30).expect("as long as may be");
        let mut shell = Command::new("/bin/bash");
        shell.args(["-c", &format!("ulimit -f {}; {script}", 1 << 20)]).current_dir(project.path());
        shell.env("HOME", project.path()).env("POSSE_TRUST", project.path());
        let ended = shell.stdin(Stdio::null()).output().expect("ran");
        let err = text(ended.stderr);
        assert_eq!(ended.status.code(), Some(6), "{change}: {err}");
        assert!(err.contains("is done") && err.contains(told), "{change}: {err}");
    }
    assert_eq!(project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().expect("jobs").len(), 2);
}

#[test]
fn a_reader_who_has_had_enough_of_a_list_is_no_failure() {
    let project = Project::begun();
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    for look in [&["list"][..], &["list", "--json"], &["show", "1"], &["job", "events", "1"]] {
        let (read, broken) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        drop(read);
        let ended = project.command(look).stdin(Stdio::null()).stdout(Stdio::from(broken)).output().expect("ran");
        assert_eq!((ended.status.code(), text(ended.stderr).as_str()), (Some(0), ""), "{look:?}");
        let full = OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let ended = project.command(look).stdin(Stdio::null()).stdout(Stdio::from(full)).output().expect("ran");
        assert!(look[0] == "job" || ended.status.code() == Some(1), "{look:?}");
    }
}
