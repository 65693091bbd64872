//! Tools of MCP servers: what is accepted of them, how agents call them, and what becomes of servers that break down.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::wait::until;
use crate::support::{Ended, ModelServer, Project, Running, Say};
use serde_json::{Value, json};

const SERVER: &str = include_str!("../data/mcp/server.py");

/// Has the project a server with this fault; `more` is said of it besides.
fn with_server(project: &Project, name: &str, fault: &str, more: &str) {
    project.write("config/mcp/server.py", SERVER);
    let settings = project.path().join("config/posse.toml");
    let before = std::fs::read_to_string(&settings).unwrap_or_default();
    // A test machine may be slow.
    let more = if more.contains("start_seconds") { more.to_owned() } else { format!("start_seconds = 120\n{more}") };
    let table = format!(
        "\n[mcp_servers.{name}]\ncommand = \"python3 /tool/server.py {fault}\"\nsandbox.files = [\"server.py\"]\n{more}\n"
    );
    std::fs::write(settings, before + &table).expect("written");
}

/// A project with a server of this fault, whose tools are accepted.
fn project(fault: &str, more: &str) -> Project {
    let project = Project::begun();
    with_server(&project, "box", fault, more);
    project.posse(&["mcp", "accept", "box"]).ok();
    project
}

fn run(project: &Project, tool: &str, text: &str) -> Ended {
    project.posse(&["tool", "run", tool, &json!({"text": text}).to_string()])
}

fn ledger(project: &Project) -> String {
    std::fs::read_to_string(project.path().join("ledger.txt")).unwrap_or_default()
}

/// Processes with this folder as theirs, but for those of this test itself.
fn processes_in(folder: &Path) -> usize {
    let folder = folder.canonicalize().expect("there");
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let ours = std::process::id().to_string();
    all.filter(|process| {
        let is_there = std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
        is_there && process.file_name().to_string_lossy() != ours
    })
    .count()
}

#[test]
fn a_persona_uses_what_a_person_accepted() {
    let server = ModelServer::start(vec![
        Say::Call("box__echo", json!({"text": "wool"})),
        Say::Call("finish", json!({"final_summary": "wool"})),
    ]);
    let project = Project::with_model(&server);
    with_server(&project, "box", "", "");
    let persona = json!({"role": "crier", "goal": "Shouts.", "tools": ["mcp:box"]});
    project.write("config/personas/crier.json", persona.to_string());

    // Until then there is no such tool, and what to do is said.
    let wrong = project.posse(&["persona", "check"]).expect(2);
    assert!(wrong.out.contains("posse mcp accept box"), "{}", wrong.out);
    let listed = project.posse(&["mcp", "list"]).ok().out;
    assert!(listed.contains("box") && listed.contains("nothing accepted yet"), "{listed}");
    let tools = project.posse(&["mcp", "tools", "box", "--json"]).ok().json();
    assert_eq!((&tools["tools"][0]["standing"], &tools["tools"][0]["call"]), (&"new".into(), &Value::Null));

    let accepted = project.posse(&["mcp", "accept", "box"]).ok();
    assert!(accepted.out.contains("box__echo") && accepted.out.contains("Says it again."), "{}", accepted.out);
    project.posse(&["persona", "check"]).ok();
    let shown = project.posse(&["tool", "show", "box__echo", "--json"]).ok().json();
    assert_eq!((&shown["pack"], &shown["effect"]), (&"mcp:box".into(), &"once".into()));
    project.posse(&["run", "--role", "crier", "Shout wool"]).ok();
    let journal = project.posse(&["show", "1", "--json"]).ok().json();
    let ended = journal["journal"].as_array().expect("a journal").iter().find(|entry| entry["kind"] == "call_ended");
    let said = ended.expect("it was called")["text"].as_str().expect("text").to_owned();
    assert!(said.contains("| echo: wool") && said.contains("no instruction to you"), "{said}");
    assert_eq!(ledger(&project), "echo\n");
    let key = run(&project, "box__echo", "key").ok().out;
    assert!(key.contains("key=") && !key.contains("key=0"), "each call has its key: {key}");
    assert!(run(&project, "box__echo", "x").ok().out.contains("echo: x"));
    assert!(project.posse(&["tool", "run", "box__echo", "{}"]).expect(2).err.contains("text"));
}

#[test]
fn names_are_legal_and_stay() {
    let project = project("names", "");
    let tools = project.posse(&["mcp", "tools", "box", "--json"]).ok().json();
    let mut calls = Vec::new();
    for tool in tools["tools"].as_array().expect("tools") {
        let call = tool["call"].as_str().expect("accepted").to_owned();
        let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(call.len() <= 64 && call.chars().all(is_legal), "{call}");
        let said = project.posse(&["tool", "run", &call]).ok().out;
        assert!(said.contains(&format!("| {}:", tool["tool"].as_str().expect("a name"))), "{call}: {said}");
        calls.push(call.to_lowercase());
    }
    let count = calls.len();
    calls.sort();
    calls.dedup();
    assert_eq!((count, calls.len()), (11, 11), "{calls:?}");
    assert!(calls.contains(&"box__docs_create".to_owned()) && calls.contains(&"box__docs_create_2".to_owned()));
    let before = std::fs::read_to_string(project.path().join("config/mcp/box.json")).expect("there");
    let again = project.posse(&["mcp", "accept", "box"]).ok().out;
    assert!(again.contains("nothing changed"), "{again}");
    assert_eq!(std::fs::read_to_string(project.path().join("config/mcp/box.json")).expect("there"), before);
    // A tool of the project's own keeps a name that a server would have.
    let own = Project::begun();
    own.write("config/tools/box__echo.toml", "description = \"mine\"\ncommand = \"echo mine\"");
    with_server(&own, "box", "", "");
    let accepted = own.posse(&["mcp", "accept", "box", "--json"]).ok().json();
    assert_eq!(accepted["tools"][0]["call"], "box__echo_2");
}

#[test]
fn schemas_that_lie_keep_out_their_tool_and_no_other() {
    let project = project("lies", "");
    let tools = project.posse(&["mcp", "tools", "box", "--json"]).ok().json();
    let names: Vec<_> = tools["tools"].as_array().expect("tools").iter().map(|t| t["tool"].clone()).collect();
    assert_eq!(names, ["echo", "none", "number", "pattern", "text", "tree"]);
    let listed = project.posse(&["tool", "list"]).ok();
    for call in ["box__echo", "box__none", "box__number", "box__tree"] {
        assert!(listed.out.contains(call), "{call}: {}", listed.out);
    }
    for (call, why) in [("box__text", "no object but \"string\""), ("box__pattern", "cannot be used")] {
        assert!(!listed.out.contains(call) && listed.err.contains(call) && listed.err.contains(why), "{}", listed.err);
    }
    let tree = project.posse(&["tool", "show", "box__tree", "--json"]).ok().json();
    let node =
        |next: Value| json!({"type": "object", "properties": {"next": next, "n": {"type": ["integer", "null"]}}});
    let wanted = json!({
        "type": "object",
        "properties": {"root": node(json!({})), "list": {"type": "array", "items": {}}}
    });
    assert_eq!(tree["parameters"], wanted, "{tree}");
    let echo = project.posse(&["tool", "show", "box__echo", "--json"]).ok().json();
    assert_eq!(echo["description"], "the first");
}

#[test]
fn what_a_server_says_of_effects_counts_where_the_operator_says_so() {
    let effects = |more: &str| {
        let project = project("hints", more);
        let effect = |call: &str| project.posse(&["tool", "show", call, "--json"]).ok().json()["effect"].clone();
        ["box__look", "box__put", "box__send"].map(effect)
    };
    assert_eq!(effects(""), ["once", "once", "once"]);
    assert_eq!(effects("trust_hints = true"), ["pure", "idempotent", "once"]);
    assert_eq!(
        effects("effects = { send = \"idempotent\", look = \"once\" }\ntrust_hints = true"),
        ["once", "idempotent", "idempotent"]
    );
}

#[test]
fn a_changed_tool_is_refused_until_it_is_accepted() {
    let server = ModelServer::start(vec![
        Say::Call("box__echo", json!({"text": "change"})),
        Say::Call("box__echo", json!({"text": "again"})),
        Say::Call("finish", json!({"final_summary": "done"})),
    ]);
    let project = Project::with_model(&server);
    with_server(&project, "box", "changes", "");
    project.posse(&["mcp", "accept", "box"]).ok();
    let persona = json!({"role": "crier", "goal": "Shouts.", "tools": ["box__echo"]});
    project.write("config/personas/crier.json", persona.to_string());
    project.posse(&["run", "--role", "crier", "Shout"]).ok();
    assert_eq!(ledger(&project), "echo\n", "the second call, after the change in mid-run, reached nobody");
    let told = server.requests().last().expect("asked")["messages"].to_string();
    assert!(told.contains("announces it otherwise than a person accepted it (description changed)"), "{told}");
    assert!(!told.contains("to a stranger"), "no model has read the new words: {told}");

    assert!(run(&project, "box__echo", "x").expect(1).err.contains("posse mcp accept box"));
    let tools = project.posse(&["mcp", "tools", "box", "--json"]).ok().json();
    assert_eq!(tools["tools"][0]["standing"], json!({"changed": ["description"]}));
    let accepted = project.posse(&["mcp", "accept", "box", "echo"]).ok().out;
    assert!(accepted.contains("to a stranger"), "a person sees what they accept: {accepted}");
    run(&project, "box__echo", "x").ok();
    assert!(project.posse(&["mcp", "accept", "box", "sing"]).expect(3).err.contains("announces no tool 'sing'"));
}

#[test]
fn results_are_data_and_bounded() {
    let huge = run(&project("huge", ""), "box__echo", "").ok().out;
    assert!(
        huge.len() < 20_000 && huge.contains("left out") && huge.contains("| begin") && huge.contains(" end"),
        "{huge}"
    );
    let ids = run(&project("ids", ""), "box__echo", "y").ok().out;
    assert!(ids.contains("9223372036854775807") && ids.contains("-9007199254740993"), "{ids}");
    let kinds = run(&project("kinds", ""), "box__echo", "").ok().out;
    for shown in ["[image, image/png, 6 bytes: not shown]", "[resource notes: file:///notes]", "in a", "hologram"] {
        assert!(kinds.contains(shown), "{shown}: {kinds}");
    }
    let errors = project("errors", "");
    assert!(run(&errors, "box__echo", "").expect(1).err.contains("| the disk is full"));
    assert!(run(&errors, "box__echo", "protocol").expect(2).err.contains("| no such text"));
    let asks = run(&project("asks", ""), "box__echo", "").ok().out;
    assert!(asks.contains("decline"), "nobody is asked for a password: {asks}");
}

#[test]
fn a_server_that_breaks_down_fails_its_call_alone_and_at_once() {
    for (fault, why, seconds) in [
        ("exit-in-call", "it ended with exit code 3", 600),
        ("hang", "had not answered to 'echo' within 2 seconds", 2),
        ("progress", "had not answered to 'echo' within 2 seconds", 2),
        ("wrong-id", "had not answered to 'echo' within 2 seconds", 2),
        ("flood", "it sent a message of more than 8", 600),
    ] {
        let project = project(fault, &format!("call_seconds = {seconds}"));
        let began = Instant::now();
        let ended = run(&project, "box__echo", "x").expect(1);
        assert!(
            ended.err.contains(why) && ended.err.contains("may or may not have happened"),
            "{fault}: {}",
            ended.err
        );
        assert!(began.elapsed() < Duration::from_secs(60), "{fault} took {:?}", began.elapsed());
        assert_eq!(ledger(&project), "echo\n", "{fault}: nothing is sent a second time");
    }
    for fault in ["noise", "slow-exit"] {
        let project = project(fault, "");
        let began = Instant::now();
        assert!(run(&project, "box__echo", "x").ok().out.contains("echo: x"), "{fault}");
        assert!(began.elapsed() < Duration::from_secs(60), "{fault} took {:?}", began.elapsed());
    }
    let pages = Project::begun();
    with_server(&pages, "box", "pages", "");
    assert_eq!(pages.posse(&["mcp", "test", "box", "--json"]).ok().json()["tools"], 3);
}

#[test]
fn a_server_that_is_slow_to_start_may_answer_twice() {
    let project = Project::begun();
    with_server(&project, "box", "late", "");
    assert_eq!(project.posse(&["mcp", "test", "box", "--json"]).ok().json()["tools"], 1);
}

#[test]
fn a_server_that_does_not_start_says_why_to_people_and_keeps_its_secrets() {
    let mut project = Project::begun();
    project.set("SHOWN", "s3cret-token");
    with_server(&project, "box", "crash-loop", "sandbox.environment = [\"SHOWN\"]");
    with_server(&project, "mute", "no-init", "start_seconds = 1");
    with_server(&project, "babble", "garbage", "start_seconds = 1");
    let tested = project.posse(&["mcp", "test", "box"]).expect(1);
    assert!(
        tested.err.contains("it ended with exit code 3") && tested.err.contains("no file config.yaml"),
        "{}",
        tested.err
    );
    assert!(!tested.err.contains("s3cret"), "{}", tested.err);
    for mute in ["mute", "babble"] {
        let tested = project.posse(&["mcp", "test", mute, "--json"]).expect(1).json();
        let problem = tested["problem"].as_str().expect("a problem");
        assert!(problem.contains("did not say what tools it has within 1 second"), "{problem}");
    }
    let wrong = |table: &str, why: &str| {
        let project = Project::begun();
        project.write("config/posse.toml", table);
        assert!(project.posse(&["mcp", "list"]).expect(2).err.contains(why), "{table}");
    };
    wrong("[mcp_servers.a]", "says neither command nor url");
    wrong("[mcp_servers.a]\ncommand = \"x\"\nurl = \"http://x\"", "says both command and url");
    wrong("[mcp_servers.'a b']\ncommand = \"x\"", "no name of a server");
    wrong("[mcp_servers.a]\nurl = \"http://x\"\nheaders = { Authorization = \"Bearer x\" }", "holds a secret");
    wrong("[mcp_servers.a]\ncommand = \"x\"\ncall_seconds = 0", "call_seconds is 0");
    wrong("[mcp_servers.a]\ncommand = \"x\"\nprotocol = \"1\"", "protocol is '1'");
    wrong("[mcp_servers.a]\ncommand = \"x\"\nsandbox.seconds = 3", "a server has start_seconds");
    wrong("[mcp_servers.a]\ncommand = \"x\"\ncomand = 3", "comand");
    assert!(project.posse(&["mcp", "test", "nobody"]).expect(3).err.contains("There are: babble, box, mute"));
}

#[test]
fn a_server_is_confined_and_gets_what_it_is_named() {
    let mut project = Project::begun();
    project.set("SHOWN", "yes");
    project.set("HIDDEN", "no");
    with_server(&project, "box", "environment", "sandbox.environment = [\"SHOWN\"]");
    project.posse(&["mcp", "accept", "box"]).ok();
    let environment = run(&project, "box__echo", "").ok().out;
    assert!(environment.contains("SHOWN") && !environment.contains("HIDDEN"), "{environment}");
    assert!(!environment.contains("POSSE_TRUST"), "{environment}");
    // Words are words, whatever is in them.
    let table = "[mcp_servers.words]\ncommand = \"python3\"\nargs = [\"/tool/server.py\", \"$(touch x) 'it''s\"]\n\
                 sandbox.files = [\"server.py\"]\n";
    let other = Project::begun();
    other.write("config/mcp/server.py", SERVER);
    other.write("config/posse.toml", table);
    other.posse(&["mcp", "test", "words"]).ok();
    assert!(!other.path().join("x").exists());
    // Without its variable it cannot be used, which keeps nothing else from working.
    project.unset("SHOWN");
    let listed = project.posse(&["tool", "list"]).ok();
    assert!(listed.err.contains("[mcp_servers.box] environment names SHOWN") && listed.out.contains("read_file"));
}

#[test]
fn kill_minus_nine_in_a_call_repeats_nothing_and_leaves_nobody() {
    let server = ModelServer::start(vec![
        Say::Call("box__echo", json!({"text": "x"})),
        Say::Call("finish", json!({"final_summary": "done"})),
    ]);
    let project = Project::with_model(&server);
    with_server(&project, "box", "hang", "");
    project.posse(&["mcp", "accept", "box"]).ok();
    let persona = json!({"role": "crier", "goal": "Shouts.", "tools": ["mcp:box"]});
    project.write("config/personas/crier.json", persona.to_string());
    project.posse(&["enqueue", "--role", "crier", "Shout"]).ok();
    let worker = project.start(&["work"]);
    until("the server was called", || ledger(&project) == "echo\n");
    assert!(processes_in(project.path()) > 1, "the worker, and what runs the server");
    drop(worker);
    until("all are gone", || processes_in(project.path()) == 0);
    let _worker = project.start(&["work"]);
    project.wait_for_state(1, "completed");
    assert_eq!(ledger(&project), "echo\n", "it is not called again");
    let told = server.requests().last().expect("asked")["messages"].to_string();
    assert!(told.contains("It may or may not have taken effect"), "{told}");
}

/// A worker of a project with this server, whose agent calls it this often in each job, and then ends.
fn working(fault: &str, more: &str, calls: fn(&Value, usize) -> Say) -> (Project, ModelServer, Running) {
    let server = ModelServer::start(vec![Say::Fitting(calls)]);
    let project = Project::with_model(&server);
    with_server(&project, "box", "", "");
    project.posse(&["mcp", "accept", "box"]).ok();
    std::fs::write(project.path().join("config/posse.toml"), "").expect("written");
    with_server(&project, "box", fault, more);
    let limits = json!({"max_turns": 50});
    let persona = json!({"role": "crier", "goal": "Shouts.", "tools": ["mcp:box"], "limits": limits});
    project.write("config/personas/crier.json", persona.to_string());
    let worker = project.start(&["work"]);
    (project, server, worker)
}

fn finish() -> Say {
    Say::Call("finish", json!({"final_summary": "done"}))
}

#[test]
fn a_result_does_not_wait_for_its_server_which_ends_with_the_attempt() {
    let calls =
        |_: &Value, n: usize| if n < 3 { Say::Call("box__echo", json!({"text": n.to_string()})) } else { finish() };
    let (project, _server, _worker) = working("slow-exit", "", calls);
    for job in 1..=3 {
        project.posse(&["enqueue", "--role", "crier", "Shout"]).ok();
        project.wait_for_state(job, "completed");
        let shown = project.posse(&["show", &job.to_string(), "--json"]).ok().json();
        let journal = shown["journal"].as_array().expect("a journal");
        let calls: Vec<_> = journal.iter().filter(|entry| entry["kind"] == "call_ended").collect();
        assert!(calls.iter().all(|call| call["text"].to_string().contains("| echo:")), "{calls:?}");
        // The first one starts the server.
        let ms = calls.iter().skip(1).map(|call| call["ms"].as_u64().unwrap_or(0)).min();
        assert!(ms.is_some_and(|ms| ms < 100), "{calls:?}");
    }
    assert_eq!(ledger(&project), "echo\n".repeat(9));
    until("only the worker is left", || processes_in(project.path()) == 1);
}

#[test]
fn fifty_calls_of_a_server_that_never_begins_leave_nothing_behind() {
    let calls = |_: &Value, n: usize| Say::Call("box__echo", json!({"text": n.to_string()}));
    let (project, server, worker) = working("garbage", "start_seconds = 1", calls);
    project.posse(&["enqueue", "--role", "crier", "Shout"]).ok();
    server.wait_for_requests(1);
    let before = worker.open_files();
    [10, 20, 30, 40, 50].into_iter().for_each(|n| server.wait_for_requests(n));
    project.wait_for_state(1, "discarded");
    // It is not started fifty times: whoever fails is left alone for a while.
    let told = server.requests().last().expect("asked")["messages"].to_string();
    assert!(told.contains("in a row, at last because it did not say what tools it has"), "{told}");
    until("only the worker is left", || processes_in(project.path()) == 1);
    // A few more or less are the database's and the model's.
    until("its files are as before", || worker.open_files() <= before + 3);
}

/// A server that is asked at an address, until it is dropped.
struct AtAddress {
    child: Child,
    port: u16,
}

impl AtAddress {
    /// One with this fault, at this port, or at any if that is 0. Its ledger lies in the project.
    fn start(project: &Project, fault: &str, port: u16) -> AtAddress {
        let script = project.write("server.py", SERVER);
        let mut command = Command::new("python3");
        command.arg(script).args([fault, &port.to_string()]).current_dir(project.path()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        AtAddress { child, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A project with a server at this port, whose key is in the variable KEY.
fn project_at(port: u16) -> Project {
    let mut project = Project::begun();
    project.set("KEY", "t0ken");
    let table = format!(
        "[mcp_servers.far]\nurl = \"http://127.0.0.1:{port}/mcp?key=${{KEY}}\"\nheaders = {{ Authorization = \"Bearer ${{KEY}}\" }}\n\
         call_seconds = 3\nstart_seconds = 5\n"
    );
    project.write("config/posse.toml", table);
    project
}

#[test]
fn a_server_is_asked_at_an_address_and_may_come_back() {
    let elsewhere = Project::empty();
    let server = AtAddress::start(&elsewhere, "", 0);
    let port = server.port;
    let mut project = project_at(port);
    project.posse(&["mcp", "accept", "far"]).ok();
    assert!(run(&project, "far__echo", "x").ok().out.contains("| echo: x"));
    project.set("KEY", "wr0ng");
    let refused = project.posse(&["mcp", "test", "far"]).expect(1).err;
    assert!(!refused.contains("wr0ng"), "{refused}");
    project.set("KEY", "t0ken");

    // It goes down in the middle of a call.
    drop(server);
    let server = AtAddress::start(&elsewhere, "exit-in-call", port);
    let began = Instant::now();
    let ended = run(&project, "far__echo", "x").expect(1).err;
    assert!(ended.contains("may or may not have happened") && !ended.contains("t0ken"), "{ended}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(ledger(&elsewhere), "echo\necho\n", "nothing was sent a second time");
    let gone = run(&project, "far__echo", "x").expect(1).err;
    assert!(gone.contains("Nothing was called"), "{gone}");
    drop(server);
    let server = AtAddress::start(&elsewhere, "", port);
    run(&project, "far__echo", "x").ok();
    drop(server);

    // What sends on to another address is not followed, and what never answers is given up.
    let server = AtAddress::start(&elsewhere, "sends-on", port);
    project.posse(&["mcp", "test", "far"]).expect(1);
    drop(server);
    let _server = AtAddress::start(&elsewhere, "hang", port);
    let late = run(&project, "far__echo", "x").expect(1).err;
    assert!(late.contains("within 3 seconds (call_seconds), and was given up"), "{late}");
}
