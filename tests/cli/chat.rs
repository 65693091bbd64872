//! Conversations over a pipe, with a model on loopback; forks and replays of what was said.

use crate::support::{ModelServer, Project, Say, task_in, until};
use serde_json::{Value, json};

/// From now on the project's model is `server`, which is asked for tools as `calling` says.
fn use_model(project: &Project, server: &ModelServer, calling: &str) {
    let model = format!("base_url = \"{}\"\nmodel = \"mock\"\ntool_calling = \"{calling}\"\n", server.base_url);
    project.write("config/posse.toml", format!("grace_seconds = 0\n[models.mock]\n{model}"));
}

fn project_with(server: &ModelServer) -> Project {
    let project = Project::begun();
    use_model(&project, server, "native");
    project
}

/// What was said, without what the run is told of its workspace.
fn contents(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    let said = messages.iter().filter_map(|message| message["content"].as_str());
    said.map(|text| task_in(text).unwrap_or(text).to_owned()).collect()
}

fn look_and_answer() -> Vec<Say> {
    vec![Say::Call("list_files", json!({"path": "examples/suppliers"})), Say::Words("There are four.\u{1b}[2J")]
}

#[test]
fn a_chat_goes_on_where_the_last_one_ended() {
    let server = ModelServer::start(look_and_answer());
    let project = project_with(&server);
    let first =
        project.posse_with(&["chat", "researcher"], b"How many \\\nsuppliers are there?\n\nAre you sure?\n").ok();
    assert_eq!(first.out.matches("There are four.␛[2J\n").count(), 2, "{}", first.out);
    assert!(first.err.contains("session 1, new") && first.err.contains("→ list_files"), "{}", first.err);
    assert!(!first.out.contains("list_files") && !first.out.contains("fjordtex"), "{}", first.out);

    let second = project.posse_with(&["chat", "researcher"], b"Thanks.").ok();
    assert!(second.err.contains("session 1, 2 turns"), "{}", second.err);
    let said = contents(&server.requests()[4]);
    let task = |text: &str| format!("Your task:\n{text}");
    let answer = "There are four.\u{1b}[2J".to_owned();
    let wanted =
        [task("How many \nsuppliers are there?"), answer.clone(), task("Are you sure?"), answer, task("Thanks.")];
    assert_eq!(said[1..], wanted);

    let shown = project.posse(&["session", "show", "1"]).ok().out;
    assert!(shown.contains("Are you sure?") && shown.contains("There are four."), "{shown}");
    assert!(!shown.contains('\x1b'));
    let listed = project.posse(&["session", "list", "--json"]).ok().json();
    assert_eq!((&listed["sessions"][0]["turns"], &listed["sessions"][0]["role"]), (&json!(3), &json!("researcher")));
    let exported = project.posse(&["session", "export", "1"]).ok().json_lines();
    assert_eq!(exported.len(), 6);
    assert_eq!((&exported[1]["role"], &exported[4]["text"]), (&json!("agent"), &json!("Thanks.")));
    let markdown = project.posse(&["session", "export", "1", "--format", "markdown"]).ok().out;
    assert!(markdown.starts_with("# Session 1 with researcher\n\n## You, "), "{markdown}");

    // The file written as the chat went is the one made from the journals.
    let path = project.path().join(".posse/sessions/1/events.jsonl");
    let written = std::fs::read_to_string(&path).expect("the events");
    std::fs::write(&path, "lost").expect("written");
    let told = project.posse(&["session", "export", "1", "--events"]).ok().out;
    assert!(told.trim().ends_with(".posse/sessions/1/events.jsonl"), "{told}");
    assert_eq!(std::fs::read_to_string(&path).expect("the events"), written);
    let kinds: Vec<Value> =
        written.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["type"].clone()).collect();
    assert_eq!(kinds[..6], ["message", "message", "tool.start", "tool.end", "message", "done"].map(|kind| json!(kind)));
    assert_eq!(kinds.len(), 18);
}

#[test]
fn a_chat_as_json_is_its_events() {
    let server = ModelServer::start(look_and_answer());
    let project = project_with(&server);
    let chat = project.posse_with(&["chat", "researcher", "--session", "ada", "--json"], b"Hello\n").ok();
    let lines = chat.json_lines();
    assert_eq!((&lines[0]["type"], &lines[0]["session"]["name"]), (&json!("session"), &json!("ada")));
    let done = lines.last().expect("a line");
    assert_eq!(
        (&done["type"], &done["status"], &done["usage"]["input"]),
        (&json!("done"), &json!("completed"), &json!(200))
    );
    let events = project.posse(&["job", "events", "1"]).ok().json_lines();
    assert_eq!(events, lines[1..]);
    assert_eq!(project.posse(&["job", "events", "1", "--follow"]).ok().json_lines(), events);
    assert!(project.path().join(".posse/sessions/ada/events.jsonl").is_file());
}

#[test]
fn questions_are_answered_at_the_prompt() {
    let server = ModelServer::start(vec![
        Say::Call("finish", json!({"final_summary": "", "clarifying_questions": ["Which folder?", "How deep?"]})),
        Say::Words("Then three."),
    ]);
    let project = project_with(&server);
    let chat = project.posse_with(&["chat", "researcher"], b"Count\nexamples\n2\n").ok();
    // Who reads a pipe wants the answer; what was said beside the questions is no part of it.
    assert_eq!(chat.out, "Then three.\n", "{}", chat.err);
    assert!(chat.err.contains("\nI look.\n"), "{}", chat.err);
    assert!(chat.err.contains("? Which folder?") && chat.err.contains("? How deep?"), "{}", chat.err);
    let told = server.requests()[1].to_string();
    assert!(told.contains("Which folder?\\nAnswer: examples") && told.contains("How deep?\\nAnswer: 2"), "{told}");

    let left = project.posse_with(&["chat", "researcher", "--new"], b"Count\n").expect(1);
    assert!(left.err.contains("stays open: posse question answer 3"), "{}", left.err);
    let resumed = project.posse_with(&["chat", "researcher"], b"docs\n1\n").ok();
    assert!(resumed.err.contains("going on with what was said last: Count"), "{}", resumed.err);
    assert_eq!(resumed.out, "Then three.\n");
}

#[test]
fn ctrl_c_drops_what_is_worked_on_and_the_chat_goes_on() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = project_with(&server);
    let mut chat = project.start_to_talk(&["chat", "researcher", "--json"]);
    chat.write("something long\n");
    server.wait_for_requests(1);
    chat.interrupt();
    project.wait_for_state(1, "cancelled");
    chat.write("something else\n");
    server.wait_for_requests(2);
    chat.interrupt();
    project.wait_for_state(2, "cancelled");
    chat.close_input();
    let lines = chat.wait().expect(1).json_lines();
    let done: Vec<_> = lines.iter().filter(|line| line["type"] == "done").map(|line| line["status"].clone()).collect();
    assert_eq!(done, ["cancelled", "cancelled"]);
    let said = contents(&server.requests()[1]);
    assert_eq!(said[1..], ["Your task:\nsomething long", "(interrupted)", "Your task:\nsomething else"]);
}

#[test]
fn a_chat_that_is_told_to_end_leaves_its_job_for_the_next_one() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = project_with(&server);
    let mut chat = project.start_to_talk(&["chat", "researcher"]);
    chat.write("something long\n");
    server.wait_for_requests(1);
    chat.terminate();
    chat.wait().expect(130);
    let job = project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    assert_eq!((&job["state"], &job["payload"]["session"]), (&json!("available"), &json!(1)));
    let answers = ModelServer::start(vec![Say::Words("Here it is.")]);
    use_model(&project, &answers, "native");
    let resumed = project.posse_with(&["chat", "researcher"], b"").ok();
    assert_eq!(resumed.out, "Here it is.\n", "{}", resumed.err);
}

#[test]
fn a_structured_answer_is_read_out_of_its_json() {
    let server = ModelServer::start(vec![
        Say::Call("list_files", json!({"path": "examples"})),
        Say::Call("finish", json!({"final_summary": "It is \"four\".\nReally."})),
    ]);
    let project = Project::begun();
    use_model(&project, &server, "structured");
    let chat = project.posse_with(&["chat", "researcher"], b"How many?\n").ok();
    assert_eq!(chat.out, "It is \"four\".\nReally.\n", "{}", chat.err);
}

#[test]
fn a_pipe_gets_the_answer_and_what_was_said_beside_it_goes_elsewhere() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "Five."}))]);
    let project = project_with(&server);
    let chat = project.posse_with(&["chat", "researcher"], b"How many?\n").ok();
    assert_eq!((chat.out.as_str(), chat.err.matches("I look.").count()), ("Five.\n", 1), "{}", chat.err);
}

#[test]
fn sessions_are_named_with_care() {
    let server = ModelServer::start(vec![Say::Words("Hello.")]);
    let project = project_with(&server);
    project.posse_with(&["chat", "researcher", "--session", "ada"], b"Hi\n").ok();
    for (args, code, words) in [
        (&["chat", "researcher", "--session", "../ada"][..], 2, "ada would do"),
        (&["chat", "researcher", "--session", "ada", "--new"], 4, "there is a session ada already"),
        (&["chat", "scribe", "--session", "ada"], 4, "posse chat researcher --session ada"),
        (&["chat", "researcher", "--session", "77"], 3, "there is no session 77"),
        (&["chat", "reviewr"], 3, "did you mean reviewer?"),
        (&["session", "show", "bob"], 3, "there is no session 'bob'"),
        (&["session", "export", ".x"], 2, "begins with a dot or a dash"),
    ] {
        let refused = project.posse(args).expect(code);
        assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
    }
    assert_eq!(project.posse(&["session", "list", "--json"]).ok().json()["sessions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_replay_shows_the_requests_for_summaries_too() {
    let read = || Say::Call("read_file", json!({"path": "long.txt"}));
    let server = ModelServer::start(vec![read(), read(), read()]);
    let project = project_with(&server);
    project.write("long.txt", "the ship sails on, ".repeat(200));
    let context = json!({"max_messages": 4, "chunk": 2, "keep_last": 1});
    let persona =
        json!({"role": "reader", "goal": "g", "tools": ["read_file"], "limits": {"max_turns": 5}, "context": context});
    project.write("config/personas/reader.json", persona.to_string());
    project.posse(&["run", "--role", "reader", "Read it"]).expect(1);
    let made = project.posse(&["job", "replay", "1", "--requests"]).ok().json_lines();
    let told = |request: &Value| {
        let messages = request["messages"].as_array().expect("messages").iter();
        let last = messages.last().expect("one");
        last["content"].as_str().or(last["text"].as_str()).expect("words").to_owned()
    };
    let sent: Vec<_> = server.requests().iter().map(told).collect();
    let again: Vec<_> = made.iter().map(|made| told(&made["request"])).collect();
    assert_eq!(again, sent);
    assert!(made.iter().any(|made| made["for"] == "summary"), "{made:?}");
}

#[test]
fn a_run_is_forked_and_replayed() {
    let server = ModelServer::start(look_and_answer());
    let project = project_with(&server);
    project.posse(&["run", "--role", "researcher", "How many?"]).ok();
    let replayed = project.posse(&["job", "replay", "1"]).ok().out;
    assert!(replayed.contains("→ list_files") && replayed.contains("There are four."), "{replayed}");
    let asked = project.posse(&["job", "replay", "1", "--requests"]).ok().json_lines();
    assert_eq!(asked.len(), server.requests().len());
    let last = asked[1]["request"]["messages"].as_array().expect("messages").last().expect("one").clone();
    assert_eq!(last["role"], "tool");
    let events = project.posse(&["job", "events", "1"]).ok().json_lines();
    let result = events.iter().find(|event| event["type"] == "tool.end").expect("a result")["seq"].to_string();
    let fork = ["job", "fork", "1", "--at-step", &result, "--edit", "nothing here", "--json"];
    assert_eq!(project.posse(&fork).ok().json()["id"], 2);
    let before = server.requests().len();
    let worker = project.start(&["work", "--role", "researcher"]);
    project.posse(&["job", "watch", "2"]).ok();
    worker.terminate();
    worker.wait().ok();
    let requests = server.requests();
    assert_eq!(requests.len(), before + 1, "it goes on behind the result");
    assert!(contents(&requests[before]).contains(&"nothing here".to_owned()));
    let shown = project.posse(&["show", "2"]).ok().out;
    assert!(shown.contains(&format!("from job 1 at step {result}")), "{shown}");
    for (args, code, words) in [
        (&["job", "fork", "1", "--at-step", "99"][..], 2, "go from 0 to"),
        (&["job", "fork", "1", "--at-step", "0", "--edit", "x"], 2, "only a tool's result"),
        (&["job", "fork", "9", "--at-step", "0"], 3, "there is no job 9"),
        (&["job", "replay", "9"], 3, "there is no job 9"),
    ] {
        let refused = project.posse(args).expect(code);
        assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
    }
}

#[test]
fn tenants_in_one_folder_share_nothing() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "done"}))]);
    let project = Project::with_model(&server);
    let path = |name: &str| project.path().join(name);
    let enqueue = |tenant: &str| project.posse(&["enqueue", "--db", tenant, "--role", "scribe", "write", "it"]).ok();
    enqueue("ann.db");
    enqueue("bob.db");
    let before = std::fs::read(path("ann.db")).expect("is there");
    let mut command = project.command(&["work", "--role", "scribe"]);
    let quiet = || std::process::Stdio::null();
    let mut worker = command.env("POSSE_DB", "bob.db").stdout(quiet()).stderr(quiet()).spawn().expect("started");
    until("bob's job", || {
        project.posse(&["show", "1", "--db", "bob.db", "--json"]).ok().json()["job"]["state"] == "completed"
    });
    worker.kill().expect("is ended");
    worker.wait().expect("has ended");
    assert_eq!(std::fs::read(path("ann.db")).expect("is there"), before, "not a byte is touched");
    let listed = project.posse(&["list", "--db", "ann.db", "--json"]).ok().json();
    assert_eq!(listed["jobs"][0]["state"], "available");
    for (tenant, said) in [("ann.db", b"I am Ann"), ("bob.db", b"I am Bob")] {
        project.posse_with(&["chat", "scribe", "--db", tenant], said).ok();
    }
    for (tenant, said, other) in [("ann.db", "I am Ann", "I am Bob"), ("bob.db", "I am Bob", "I am Ann")] {
        let events = path(&format!("{tenant}.sessions/1/events.jsonl"));
        let events = std::fs::read_to_string(&events).unwrap_or_else(|error| panic!("{}: {error}", events.display()));
        assert!(events.contains(said) && !events.contains(other), "{events}");
    }
}

#[test]
fn a_damaged_journal_is_followed_once() {
    let server = ModelServer::start(vec![Say::Call("list_files", json!({"path": "examples"})), Say::Silence]);
    let project = project_with(&server);
    project.posse(&["enqueue", "--role", "researcher", "How many?"]).ok();
    let worker = project.start(&["work", "--role", "researcher"]);
    server.wait_for_requests(2);
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.busy_timeout(std::time::Duration::from_secs(10)).expect("set");
    // The model's turn is lost, and what follows it is there.
    assert_eq!(database.execute("DELETE FROM steps WHERE job_id = 1 AND seq = 1", ()).expect("deletes"), 1);
    let following = project.start(&["job", "events", "1", "--follow"]);
    let watching = project.start(&["job", "watch", "1", "--json"]);
    // Long enough for some looks at a job that is at work.
    std::thread::sleep(std::time::Duration::from_secs(1));
    project.posse(&["job", "cancel", "1"]).ok();
    project.wait_for_state(1, "cancelled");
    for followed in [following, watching] {
        let out = followed.wait().out;
        let lines: Vec<_> = out.lines().collect();
        let mut once = lines.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), lines.len(), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("cancelled")), "{lines:#?}");
    }
    worker.terminate();
    worker.wait();
}
