//! Whole jobs against a model on loopback: run, work, watch, cancel, across processes.

use std::time::{Duration, Instant};

use crate::support::wait::wait;
use crate::support::{ModelServer, Project, Say};
use serde_json::json;

fn find_the_supplier() -> Vec<Say> {
    vec![
        Say::Call("list_files", json!({"path": "examples/suppliers"})),
        Say::Call("read_file", json!({"path": "examples/suppliers/fjordtex.md"})),
        Say::Call("finish", json!({"final_summary": "Fjordtex\u{1b}[2J ships\u{202e} to Norway."})),
    ]
}

#[test]
fn run_shows_a_job_from_claim_to_answer() {
    let server = ModelServer::start(find_the_supplier());
    let project = Project::with_model(&server);
    let ran = project.posse(&["run", "--role", "researcher", "Who", "ships", "to", "Norway?"]).ok();
    let in_order = [
        "job 1  researcher  Who ships to Norway?",
        "attempt 1 of 5, claimed by",
        "model openai",
        "  1  I look.",
        "→ list_files path=\"examples/suppliers\"",
        "← list_files  3 lines",
        "examples/suppliers/fjordtex.md",
        "→ read_file path=\"examples/suppliers/fjordtex.md\"",
        "Ships to: Norway",
        "✓  answer",
        "Fjordtex␛[2J ships\\u{202e} to Norway.",
        "completed · 3 turns · 2 tool calls (list_files, read_file) · 300 in + 30 out tokens · cost unknown",
    ];
    let mut rest = ran.out.as_str();
    for words in in_order {
        let at = rest.find(words).unwrap_or_else(|| panic!("{words:?} is missing or out of order:\n{}", ran.out));
        rest = &rest[at + words.len()..];
    }
    assert!(!ran.out.contains('\x1b') && !ran.err.contains('\x1b'));

    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("✓  answer") && shown.contains("completed · 3 turns"), "{shown}");
    let json = project.posse(&["show", "1", "--json"]).ok().json();
    assert_eq!(json["job"]["output"]["text"], "Fjordtex\u{1b}[2J ships\u{202e} to Norway.");
    assert_eq!(json["ledger"].as_array().map(Vec::len), Some(2));
    assert!(json["ledger"].as_array().expect("rows").iter().all(|row| row["state"] == "done"));
    assert_eq!(json["attempts"][0]["outcome"], "completed");
    // A job that has ended can be watched too, and says the same.
    let watched = project.posse(&["job", "watch", "1", "--json"]).ok().json_lines();
    let events: Vec<_> = watched.iter().map(|line| line["event"].as_str().expect("named")).collect();
    assert_eq!((events.first(), events.last()), (Some(&"claimed"), Some(&"ended")));
    assert_eq!(watched[1]["kind"], "began");
    let too_late = project.posse(&["job", "cancel", "1"]).expect(4);
    assert!(too_late.err.contains("too late: job 1 is completed already"), "{}", too_late.err);
}

#[test]
fn a_run_that_reaches_its_limit_fails_in_words() {
    let server = ModelServer::start(vec![Say::Call("list_files", json!({"path": "."}))]);
    let project = Project::with_model(&server);
    let persona = json!({"role": "looper", "goal": "g", "tools": ["list_files"], "limits": {"max_turns": 2}});
    project.write("config/personas/looper.json", persona.to_string());
    let ran = project.posse(&["run", "--role", "looper", "--json", "x"]).expect(1).json_lines();
    let ended = ran.last().expect("a line");
    assert_eq!((&ended["event"], &ended["job"]["state"]), (&"ended".into(), &"discarded".into()));
    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("the limit of 2 model turns is reached (limits.max_turns)"), "{shown}");
}

#[test]
fn without_a_model_run_says_how_to_get_one() {
    let project = Project::begun();
    let ran = project.posse(&["run", "--role", "researcher", "x"]).expect(1);
    assert!(ran.err.contains("posse model pull"), "{}", ran.err);
    assert_eq!(project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(0));
    let keyless = Project::begun();
    keyless.write("config/posse.toml", "[models.main]\nmodel = \"m\"\n");
    let ran = keyless.posse(&["run", "--role", "researcher", "x"]).expect(1);
    assert!(ran.err.contains("takes its key from OPENAI_API_KEY, which is not set"), "{}", ran.err);
}

#[test]
fn one_process_works_and_another_watches() {
    let server = ModelServer::start(find_the_supplier());
    let project = Project::with_model(&server);
    let worker = project.start(&["work", "--role", "researcher"]);
    project.posse(&["enqueue", "--role", "researcher", "Who ships to Norway?"]).ok();
    let watched = project.posse(&["job", "watch", "1"]).ok();
    assert!(watched.out.contains("✓  answer"), "{}", watched.out);
    let workers = project.posse(&["worker", "list", "--json"]).ok().json()["workers"].clone();
    assert_eq!(workers[0]["roles"], json!(["researcher"]));
    worker.terminate();
    let ended = worker.wait().ok();
    for words in ["at work", "researcher 1  ▸ attempt 1 of 5", "→ read_file", "■ completed"] {
        assert!(ended.err.contains(words), "{words}: {}", ended.err);
    }
    assert_eq!(
        project.posse(&["worker", "list", "--json"]).ok().json()["workers"],
        json!([]),
        "it took itself off the list"
    );
}

#[test]
fn a_running_job_is_cancelled_from_another_process() {
    let server = ModelServer::start(vec![Say::Call("list_files", json!({"path": "."})), Say::Silence]);
    let project = Project::with_model(&server);
    let worker = project.start(&["work", "--role", "researcher", "--json"]);
    project.posse(&["enqueue", "--role", "researcher", "x"]).ok();
    project.wait_for_state(1, "running");
    let asked = Instant::now();
    assert_eq!(project.posse(&["job", "cancel", "1", "--reason", "changed my mind", "--json"]).ok().json()["id"], 1);
    let watched = project.posse(&["job", "watch", "1"]).expect(1);
    assert!(asked.elapsed() < Duration::from_secs(5), "took {:?}", asked.elapsed());
    assert!(watched.out.contains("cancelled") && watched.out.contains("changed my mind"), "{}", watched.out);
    worker.terminate();
    let lines = worker.wait().ok().json_lines();
    assert_eq!(lines.last().expect("a line")["state"], "cancelled");
}

#[test]
fn a_worker_that_is_told_to_end_gives_its_job_back() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    project.write("config/posse.toml", "grace_seconds = 1\n");
    let worker = project.start(&["work", "--role", "researcher"]);
    project.posse(&["enqueue", "--role", "researcher", "x"]).ok();
    project.wait_for_state(1, "running");
    worker.interrupt();
    let ended = worker.wait().ok();
    assert!(ended.err.contains("waiting up to 1 s for the step in progress of job 1"), "{}", ended.err);
    let job = project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    assert_eq!((&job["state"], &job["attempt"], &job["crashes"]), (&"available".into(), &0.into(), &0.into()));
}

#[test]
fn an_interrupted_run_leaves_its_job_in_the_queue() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    project.write("config/posse.toml", "grace_seconds = 0\n");
    let run = project.start(&["run", "--role", "researcher", "x"]);
    server.wait_for_requests(1);
    project.wait_for_state(1, "running");
    run.interrupt();
    let ended = run.wait().expect(130);
    assert!(ended.err.contains("job 1 is back in the queue"), "{}", ended.err);
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "available");
}

#[test]
fn up_says_what_it_serves() {
    let server = ModelServer::start(find_the_supplier());
    let project = Project::with_model(&server);
    project.posse(&["enqueue", "--role", "researcher", "x"]).ok();
    let up = project.start(&["up"]);
    project.posse(&["job", "watch", "1"]).ok();
    up.interrupt();
    let said = up.wait().ok().err;
    let roles = "analyst, assistant, browser, coordinator, researcher, reviewer, scribe, triager";
    for words in [roles, "mock", "posse enqueue --role", "■ completed"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// README's pipeline: two that find, and one that sums up what they found.
fn pipeline(project: &Project) {
    project.posse(&["enqueue", "--role", "researcher", "Which supplier ships to Norway? See examples/suppliers."]).ok();
    project
        .posse(&["enqueue", "--role", "researcher", "Which supplier ships to Ireland? See examples/suppliers."])
        .ok();
    project.posse(&["enqueue", "--role", "scribe", "--after", "1,2", "Sum up what those two found"]).ok();
}

#[test]
fn who_sums_up_is_told_what_was_found() {
    let server = ModelServer::start(find_the_supplier());
    let project = Project::with_model(&server);
    pipeline(&project);
    project.write("jobs.jsonl", "{\"goal\": \"Look once more\", \"role\": \"researcher\", \"group\": \"night\"}\n");
    project.posse(&["enqueue", "--jsonl", "jobs.jsonl"]).ok();
    project.posse(&["enqueue", "--role", "scribe", "--after-group", "night", "Sum up the night"]).ok();
    let worker = project.start(&["work"]);
    for job in [3, 5] {
        project.wait_for_state(job, "completed");
    }
    worker.terminate();
    worker.wait().ok();
    let told = |goal: &str| {
        let first = server.requests().into_iter().find_map(|request| {
            let messages = request["messages"].as_array().expect("messages").clone();
            let mut texts = messages.iter().filter_map(|message| message["content"].as_str());
            texts.find(|text| text.contains(&format!("Your task:\n{goal}"))).map(str::to_owned)
        });
        first.expect("was asked")
    };
    let of_two = told("Sum up what those two found");
    assert!(of_two.contains("(2 completed)") && of_two.contains("\nJob 1 (researcher): completed\n"), "{of_two}");
    assert_eq!(of_two.matches("| Fjordtex").count(), 2, "{of_two}");
    assert!(!of_two.contains('\x1b') && !of_two.contains('\u{202e}'), "{of_two}");
    let of_night = told("Sum up the night");
    assert!(of_night.contains("One job before this task") && of_night.contains("| Look once more"), "{of_night}");
    // What the model reads is in the journal, so people can read it too.
    let shown = project.posse(&["show", "3"]).ok().out;
    assert!(shown.contains("told") && shown.contains("jobs before it (2 completed)"), "{shown}");
}

#[test]
fn the_real_model_sums_up_what_was_found() {
    use posse_infra::local_model::{cache::models_dir, catalogue::default_model, find, server::find_binary};
    let file = models_dir().and_then(|folder| find(default_model(), &folder).ok().flatten());
    let (Ok(binary), Some(file)) = (find_binary(), file) else {
        eprintln!("skipped: needs posse-local and the usual local model (./quickstart builds and fetches them)");
        return;
    };
    let mut project = Project::begun();
    project.set("POSSE_LOCAL_BIN", &binary.display().to_string());
    let model = format!("[models.local]\nkind = \"local\"\nmodel = '{}'\n", file.display());
    project.write("config/posse.toml", model);
    pipeline(&project);
    let worker = project.start(&["work"]);
    // On two cores without a graphics card this takes a minute or two.
    let ended = wait(Duration::from_secs(900), || {
        let state = project.posse(&["show", "3", "--json"]).ok().json()["job"]["state"].clone();
        ["completed", "cancelled", "discarded"].iter().any(|last| state == *last).then_some(()).ok_or(state)
    });
    ended.unwrap_or_else(|state| panic!("the pipeline does not end: {state}"));
    worker.terminate();
    worker.wait().ok();
    let job = project.posse(&["show", "3", "--json"]).ok().json()["job"].clone();
    // Its server lives in the project's folder, so that no other run's is used or ended.
    let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
    let state = project.path().join(".cache/posse");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(posse_infra::local_model::server::stop(&stem, Some(state))).expect("stopped");
    assert_eq!(job["state"], "completed", "{job}");
    let answer = job["output"]["text"].as_str().expect("an answer").to_lowercase();
    assert!(answer.contains("fjordtex"), "what was found stands in the summary: {answer}");
}

#[test]
fn the_files_of_old_runs_go_and_nothing_else_does() {
    let server = ModelServer::start(find_the_supplier());
    let project = Project::with_model(&server);
    project.write("config/posse.toml", "run_files = 2\n");
    for name in ["job-2", "job-10", "job-x", "notes"] {
        project.write(&format!(".posse/runs/{name}/events.jsonl"), "{}\n");
    }
    project.posse(&["run", "--role", "researcher", "Which supplier ships to Norway?"]).ok();
    let entries = std::fs::read_dir(project.path().join(".posse/runs")).expect("readable").flatten();
    let mut left: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["job-10", "job-2", "job-x", "notes"]);
}
