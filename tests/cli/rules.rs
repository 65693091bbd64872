//! Whether and when jobs may run, as people say it: unique keys, limits, pauses, retries, outages.

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::support::{ModelServer, Project, Running, Say, until};
use serde_json::{Value, json};

fn enqueue(project: &Project, more: &[&str]) -> Value {
    let args = [&["enqueue", "-r", "scribe", "--json"], more, &["write it"]].concat();
    project.posse(&args).ok().json()
}

#[test]
fn fifty_processes_that_enqueue_one_key_make_one_job() {
    let project = Project::begun();
    let args = ["enqueue", "-r", "scribe", "--json", "--unique", "k1", "u"];
    let start = |_| project.command(&args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
    let children: Vec<_> = (0..50).map(start).collect();
    let mut ids = BTreeSet::new();
    let mut new = 0;
    for child in children {
        let ended = child.wait_with_output().expect("ended");
        assert!(ended.status.success());
        let said: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
        ids.insert(said["id"].as_i64().expect("a number"));
        new += usize::from(said["existing"] == false);
    }
    assert_eq!((ids.len(), new), (1, 1));
    assert_eq!(project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_key_is_free_when_its_job_has_ended() {
    let project = Project::begun();
    let first = enqueue(&project, &["--unique", "k", "--unique-for", "1h"]);
    assert_eq!((&first["existing"], &first["unique"]["for_ms"]), (&json!(false), &json!(3_600_000)));
    let text = project.posse(&["enqueue", "-r", "scribe", "--unique", "k", "again"]).ok();
    assert_eq!(text.out, "job 1  existing\n");
    assert!(text.err.contains("nothing was enqueued"), "{}", text.err);
    project.posse(&["job", "cancel", "1"]).ok();
    assert_eq!(enqueue(&project, &["--unique", "k"])["id"], 2);
    let refused = project.posse(&["job", "retry", "1"]).expect(4);
    assert!(refused.err.contains("job 1 cannot run again: its unique key 'k' is held by job 2"), "{}", refused.err);
    project.posse(&["job", "cancel", "2"]).ok();
    project.posse(&["job", "retry", "1"]).ok();
    assert!(project.posse(&["show", "1"]).ok().out.contains("unique     k"));
}

#[test]
fn a_job_that_has_not_begun_is_replaced_or_put_off() {
    let project = Project::begun();
    let first = enqueue(&project, &["--unique", "k", "--delay", "1h"]);
    assert_eq!((&first["id"], &first["became"]), (&json!(1), &json!("stored")));
    assert_eq!(enqueue(&project, &["--unique", "k"])["became"], "kept");
    let args = ["enqueue", "-r", "scribe", "--unique", "k", "--if-held", "replace", "--tag", "new", "another"];
    let text = project.posse(&args).ok();
    assert_eq!(text.out, "job 1  replaced\n");
    assert!(text.err.contains("it is this job now"), "{}", text.err);
    let shown = &project.posse(&["show", "1", "--json"]).ok().json()["job"];
    assert_eq!(
        (&shown["payload"]["goal"], &shown["state"], &shown["tags"]),
        (&json!("another"), &json!("available"), &json!(["new"]))
    );
    let debounce = ["--unique", "k", "--if-held", "debounce", "--delay", "2h", "--debounce-at-most", "90m"];
    let put_off = enqueue(&project, &debounce);
    assert_eq!((&put_off["existing"], &put_off["became"]), (&json!(true), &json!("debounced")));
    let shown = &project.posse(&["show", "1", "--json"]).ok().json()["job"];
    let after = shown["run_at"].as_i64().zip(shown["created_at"].as_i64()).map(|(due, first)| due - first);
    assert_eq!((&shown["state"], after), (&json!("scheduled"), Some(90 * 60_000)));
    // Lines of a file say it each for itself.
    let line = |more: &str| format!("{{\"role\": \"scribe\", \"goal\": \"a line\", \"unique\": \"k\"{more}}}");
    project.write("jobs.jsonl", [line(""), line(", \"if_held\": \"replace\"")].join("\n"));
    let told = project.posse(&["enqueue", "--jsonl", "jobs.jsonl", "--json"]).ok().json();
    assert_eq!((&told["jobs"], &told["existing"], &told["changed"]), (&json!(0), &json!(2), &json!(1)));
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["payload"]["goal"], "a line");
    assert_eq!(project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn rules_are_set_shown_and_taken_back() {
    let project = Project::begun();
    assert_eq!(project.posse(&["limit", "list", "--json"]).ok().json()["limits"], json!([]));
    assert_eq!(project.posse(&["queue", "list", "--json"]).ok().json()["queues"], json!([]));
    let args = ["limit", "set", "--queue", "mail", "--running", "5", "--running-per-key", "1", "--per-minute", "60"];
    let set = project.posse(&args).ok().out;
    assert_eq!(set, "queue mail: at most 5 at once, at most 1 at once for each key, at most 60 a minute\n");
    assert!(project.posse(&["pause", "--queue", "mail"]).ok().out.contains("queue mail is paused"));
    assert!(project.posse(&["pause", "--queue", "mail"]).ok().out.contains("was paused before"));
    let mail = enqueue(&project, &["--queue", "mail", "--concurrency-key", "ann"]);
    enqueue(&project, &[]);

    let rules = project.posse(&["limit", "list", "--json"]).ok().json()["limits"].clone();
    let rule = &rules[0];
    assert_eq!((&rule["scope"], &rule["name"], &rule["running"]), (&json!("queue"), &json!("mail"), &json!(5)));
    assert!(rule["paused_at"].is_i64());
    let queues = project.posse(&["queue", "list", "--json"]).ok().json()["queues"].clone();
    assert_eq!((&queues[0]["queue"], &queues[0]["rule"]), (&json!("default"), &Value::Null));
    assert_eq!((&queues[1]["available"], &queues[1]["rule"]), (&json!(1), rule));
    let table = project.posse(&["queue", "list"]).ok().out;
    assert!(table.contains("paused") && table.contains("at most 5 at once"), "{table}");
    let shown = project.posse(&["show", &mail["id"].to_string()]).ok().out;
    assert!(shown.contains("available, held: queue mail is paused") && shown.contains("key        ann"), "{shown}");

    project.posse(&["resume", "--queue", "mail"]).ok();
    project.posse(&["limit", "set", "--queue", "mail", "--running", "0"]).ok();
    let shown = project.posse(&["show", &mail["id"].to_string()]).ok().out;
    assert!(shown.contains("held: queue mail has a limit of 0 at once"), "{shown}");
    project.posse(&["limit", "remove", "--queue", "mail"]).ok();
    project.posse(&["limit", "remove", "--queue", "mail"]).expect(3);
    assert_eq!(project.posse(&["limit", "list", "--json"]).ok().json()["limits"], json!([]));
    let unknown = project.posse(&["pause", "--role", "plumber", "--json"]).ok();
    assert!(unknown.err.contains("no persona of this project plays the role 'plumber'"), "{}", unknown.err);
    assert_eq!(unknown.json(), json!({"paused": {"scope": "role", "name": "plumber"}, "new": true}));
}

#[test]
fn keys_take_turns_where_that_is_set() {
    let project = Project::begun();
    let set = project.posse(&["limit", "set", "--queue", "mail", "--fair", "--running-per-key", "2"]).ok().out;
    assert_eq!(set, "queue mail: at most 2 at once for each key, keys take turns\n");
    let rules = project.posse(&["limit", "list", "--json"]).ok().json()["limits"].clone();
    assert_eq!((&rules[0]["fair"], &rules[0]["running"]), (&json!(true), &Value::Null));
    let table = project.posse(&["limit", "list"]).ok().out;
    assert!(table.contains("FAIR") && table.contains("yes"), "{table}");
    assert!(project.posse(&["queue", "list"]).ok().out.contains("keys take turns"));
    // What is not named stays.
    project.posse(&["limit", "set", "--queue", "mail", "--running", "2"]).ok();
    assert_eq!(project.posse(&["limit", "list", "--json"]).ok().json()["limits"][0]["fair"], json!(true));
    project.posse(&["limit", "set", "--queue", "mail", "--fair=none"]).ok();
    assert_eq!(project.posse(&["limit", "list", "--json"]).ok().json()["limits"][0]["fair"], json!(false));
}

#[test]
fn what_cannot_be_is_refused_with_the_way_out() {
    let project = Project::begun();
    let long = "k".repeat(300);
    let cases: &[(&[&str], &str)] = &[
        (&["limit", "set", "--queue", "q"], "say which limit"),
        (&["limit", "set", "--running", "1"], "--all"),
        (&["limit", "set", "--all", "--queue", "q", "--running", "1"], "cannot be used with"),
        (&["limit", "set", "--queue", "A B", "--running", "1"], "\"a-b\""),
        (&["limit", "set", "--key", "k", "--running-per-key", "1"], "a key's own limit is --running"),
        (&["limit", "set", "--key", "k", "--fair"], "--fair is for a queue, a role or all"),
        (&["limit", "set", "--all", "--per-minute", "0"], "To let nothing start: posse pause"),
        (&["pause"], "--all"),
        (&["enqueue", "-r", "scribe", "--unique", "", "x"], "unique is empty"),
        (&["enqueue", "-r", "scribe", "--unique", &long, "x"], "has 300 bytes; at most 256"),
        (&["enqueue", "-r", "scribe", "--unique-for", "1h", "x"], "--unique <KEY>"),
        (&["enqueue", "-r", "scribe", "--unique", "k", "--unique-for", "0s", "x"], "unique_for is 0 ms"),
        (&["enqueue", "-r", "scribe", "--if-held", "replace", "x"], "--unique <KEY>"),
        (&["enqueue", "-r", "scribe", "--unique", "k", "--if-held", "debounce", "x"], "give it a delay"),
        (
            &["enqueue", "-r", "scribe", "--unique", "k", "--if-held", "replace", "--debounce-at-most", "1h", "x"],
            "debounce_at_most is for debounce",
        ),
        (&["enqueue", "-r", "scribe", "--concurrency-key", "a\tb", "x"], "control character"),
        (&["enqueue", "-r", "scribe", "--retry", "often", "x"], "exponential, fixed, none"),
        (&["enqueue", "-r", "scribe", "--retry-wait", "500ms", "x"], "the shortest wait is 1"),
        (&["enqueue", "-r", "scribe", "--retry-wait-most", "30d", "x"], "max_seconds 2592000"),
        (&["enqueue", "-r", "scribe", "--retry", "none", "--max-attempts", "3", "x"], "leave one of them out"),
    ];
    for (args, words) in cases {
        let ended = project.posse(args).expect(2);
        assert!(ended.err.contains(words), "{args:?} lacks {words:?}: {}", ended.err);
    }
    assert!(!project.path().join(".posse").exists(), "none of them makes a database");
    project.write("config/posse.toml", "priority_step_minutes = 99999\n");
    assert!(project.posse(&["list"]).expect(2).err.contains("priority_step_minutes is 99999; at most 10080"));
}

#[test]
fn retries_are_the_jobs_own_or_its_personas() {
    let project = Project::begun();
    let retry = json!({"strategy": "fixed", "base_seconds": 7, "max_attempts": 3});
    let persona = json!({"role": "patient", "goal": "g", "retry": retry});
    project.write("config/personas/patient.json", persona.to_string());
    assert!(project.posse(&["persona", "show", "patient"]).ok().out.contains("every 7 s"));
    let of = |id: &str| project.posse(&["show", id, "--json"]).ok().json()["job"].clone();
    project.posse(&["enqueue", "-r", "patient", "x"]).ok();
    let job = of("1");
    let policy = (&job["max_attempts"], &job["retry"]["strategy"], &job["retry"]["base_seconds"]);
    assert_eq!(policy, (&json!(3), &json!("fixed"), &json!(7)));
    project.posse(&["enqueue", "-r", "patient", "--retry", "exponential", "--max-attempts", "9", "x"]).ok();
    let job = of("2");
    let policy = (&job["max_attempts"], &job["retry"]["strategy"], &job["retry"]["base_seconds"]);
    assert_eq!(policy, (&json!(9), &json!("exponential"), &json!(7)));
    project.posse(&["enqueue", "-r", "patient", "--retry", "none", "x"]).ok();
    assert_eq!(of("3")["max_attempts"], 1);
    project.posse(&["enqueue", "-r", "scribe", "x"]).ok();
    assert_eq!((&of("4")["max_attempts"], &of("4")["retry"]), (&json!(5), &Value::Null));
    let broken = json!({"role": "patient", "goal": "g", "retry": {"base_seconds": 0}});
    project.write("config/personas/patient.json", broken.to_string());
    assert!(project.posse(&["persona", "check"]).expect(2).out.contains("base_seconds 0"));
}

#[test]
fn a_limit_holds_over_worker_processes_and_a_pause_ends_nothing() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    project.posse(&["limit", "set", "--all", "--running", "2"]).ok();
    for _ in 0..6 {
        enqueue(&project, &[]);
    }
    let workers = [0, 1].map(|_| project.start(&["work", "--quiet"]));
    let running = || project.posse(&["queue", "list", "--json"]).ok().json()["queues"][0]["running"].as_u64();
    until("two run", || running() == Some(2) && !server.requests().is_empty());
    project.posse(&["pause", "--all"]).ok();
    project.posse(&["limit", "set", "--all", "--running", "9"]).ok();
    // A worker that may, claims within milliseconds of being notified; the pause is what holds it.
    let list = project.posse(&["queue", "list"]).ok();
    assert!(list.err.contains("everything is paused"), "{}", list.err);
    assert_eq!(running(), Some(2), "what runs goes on, and nothing starts");
    let run = project.start(&["run", "--role", "scribe", "x"]);
    until("it is enqueued", || project.posse(&["show", "7"]).code == 0);
    // Whoever waits for it is told why.
    run.interrupt();
    let ended = run.wait().expect(130);
    assert!(ended.err.contains("job 7 is held: everything is paused"), "{}", ended.err);
    project.posse(&["job", "cancel", "7"]).ok();
    project.posse(&["resume", "--all"]).ok();
    until("all run", || running() == Some(6));
    for worker in workers {
        worker.terminate();
        worker.terminate();
        drop(worker);
    }
}

#[test]
fn an_outage_is_seen_and_spends_no_attempts() {
    let project = Project::begun();
    // Nobody listens on port 1.
    let file = "[models.main]\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"\"\nmodel = \"m\"\n\
                tool_calling = \"structured\"\nretries = 0\n";
    project.write("config/posse.toml", file);
    for _ in 0..12 {
        // Those that fail before it is known stay where they are, however slow this machine is.
        enqueue(&project, &["--retry-wait", "1h"]);
    }
    let worker = project.start(&["work", "--quiet", "--slots", "1"]);
    let mut jobs = Vec::new();
    until("all have been tried", || {
        jobs = project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().expect("jobs").clone();
        jobs.iter().all(|job| job["state"] == "scheduled" || job["state"] == "retryable")
    });
    let snoozed: Vec<_> = jobs.into_iter().filter(|job| job["state"] == "scheduled").collect();
    assert_eq!(snoozed.len(), 8, "the fifth failure makes it known, and costs its job nothing either");
    for job in &snoozed {
        assert_eq!(job["attempt"], 0, "{job}");
        let reason = job["reason"].as_str().expect("says why");
        assert!(reason.contains("http://127.0.0.1:1/v1"), "{reason}");
    }
    let models = project.posse(&["model", "list", "--json"]).ok().json();
    let main = models["models"].as_array().expect("models").iter().find(|m| m["name"] == "main").expect("is there");
    assert!(main["failing"]["rests"].as_u64() >= Some(1), "{main}");
    let text = project.posse(&["model", "list"]).ok();
    assert!(text.out.contains("out, asked again") && text.err.contains("main failed last with"), "{}", text.out);
    worker.terminate();
    worker.wait();
}

/// Settings of one model at this address.
fn one_model(project: &Project, base_url: &str) {
    let file = format!(
        "default_model = \"main\"\n[models.main]\nbase_url = \"{base_url}\"\napi_key_env = \"\"\nmodel = \"m\"\n\
         tool_calling = \"native\"\n"
    );
    project.write("config/posse.toml", file);
}

#[test]
fn a_person_who_waits_is_told_at_once_what_they_have_to_mend() {
    for (status, text) in [
        ("401 Unauthorized", "bad key"),
        ("402 Payment Required", "no money"),
        ("403 Forbidden", "not yours"),
        ("404 Not Found", "no such model"),
        ("429 Too Many Requests\r\nRetry-After: 86400", "see you tomorrow"),
        ("", "could not be reached"),
    ] {
        let project = Project::begun();
        let server = ModelServer::start(vec![Say::Refusal(status, text)]);
        one_model(&project, if status.is_empty() { "http://127.0.0.1:1/v1" } else { &server.base_url });
        let ran = project.posse(&["run", "--role", "scribe", "x"]).expect(1);
        assert!(ran.err.contains("job 1 waits, and is tried again at"), "{}", ran.err);
        assert!(ran.err.contains(text) && ran.err.contains("posse job cancel 1"), "{}", ran.err);
        let talked = project.posse_with(&["chat", "scribe"], b"hello\n").expect(1);
        assert!(talked.err.contains("job 2 waits, and is tried again at"), "{}", talked.err);
        let jobs = project.posse(&["list", "--json"]).ok().json()["jobs"].clone();
        for job in jobs.as_array().expect("jobs") {
            let at_once = ["scheduled", "retryable"].iter().any(|state| job["state"] == *state);
            assert!(at_once && (status.is_empty() || job["attempt"] == 0), "{job}");
        }
        assert!(server.requests().len() <= 2, "one request for each");
    }
}

#[test]
fn a_provider_without_credit_is_found_out_by_one() {
    let server = ModelServer::start(vec![Say::Refusal("402 Payment Required", "no money")]);
    let project = Project::begun();
    one_model(&project, &server.base_url);
    for _ in 0..8 {
        enqueue(&project, &[]);
    }
    let worker = project.start(&["work", "--slots", "1"]);
    let jobs = || project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().expect("jobs").clone();
    until("all wait", || jobs().iter().all(|job| job["state"] == "scheduled"));
    for job in jobs() {
        assert_eq!(job["attempt"], 0, "{job}");
        assert!(job["reason"].as_str().is_some_and(|reason| reason.contains("no money")), "{job}");
    }
    assert_eq!(server.requests().len(), 1);
    worker.terminate();
    let said = worker.wait().err;
    assert_eq!(said.matches("is out: ").count(), 1, "{said}");
    assert!(said.lines().count() < 20, "nothing is said of jobs that merely wait: {said}");
    let listed = project.posse(&["model", "list"]).ok();
    assert!(listed.out.contains("out, asked again") && listed.err.contains("no money"), "{}{}", listed.out, listed.err);
}

/// Its jobs are gone when the provider is paid, so it asks for nothing: it says all the same that the outage is over.
#[test]
fn a_worker_without_jobs_says_that_an_outage_is_over() {
    let server = ModelServer::start(vec![Say::Refusal("402 Payment Required", "no money")]);
    let project = Project::begun();
    one_model(&project, &server.base_url);
    enqueue(&project, &[]);
    let log = project.path().join("worker.log");
    let mut command = project.command(&["work"]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).expect("a file"));
    let worker = Running::of(command);
    let said = || std::fs::read_to_string(&log).expect("a log");
    until("the outage is said", || said().contains("is out: "));
    project.posse(&["cancel", "1"]).ok();
    server.says(vec![Say::Words("well")]);
    assert!(!said().contains("answers again"), "{}", said());
    project.posse(&["model", "test", "main"]).ok();
    until("the end is said", || said().contains("answers again, after "));
    worker.terminate();
    worker.wait();
    for once in ["is out: ", "answers again, after ", "1 job of this worker waited"] {
        assert_eq!(said().matches(once).count(), 1, "{once}: {}", said());
    }
}

#[test]
fn what_a_worker_lacks_spends_no_job() {
    let project = Project::begun();
    project.write("config/posse.toml", "[models.main]\nkind = \"local\"\n");
    enqueue(&project, &[]);
    let worker = project.start(&["up"]);
    project.wait_for_state(1, "scheduled");
    // Enqueued by somebody whose settings have more.
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    let sql = "SELECT payload FROM job_data";
    let payload: String = database.query_row(sql, [], |row| row.get(0)).expect("a payload");
    let mut payload: Value = serde_json::from_str(&payload).expect("JSON");
    payload["model"] = "newer".into();
    database.execute("UPDATE job_data SET payload = ?1", [payload.to_string()]).expect("works");
    database.execute("UPDATE jobs SET run_at = unixepoch() * 1000 - 1000", []).expect("works");
    let job = || project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    let reason = |job: &Value| job["reason"].as_str().unwrap_or_default().to_owned();
    until("its model is missed", || reason(&job()).contains("no model 'newer'"));
    project.wait_for_state(1, "scheduled");
    assert_eq!(job()["attempt"], 0, "{}", job());
    worker.terminate();
    let said = worker.wait().err;
    assert!(said.contains("posse model pull"), "says what to do: {said}");
    assert!(said.contains("jobs that need it wait, and spend no attempts"), "{said}");
}

#[test]
fn a_run_that_is_overtaken_watches_the_one_who_works_it() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "done elsewhere"}))]);
    let project = Project::with_model(&server);
    project.posse(&["pause", "--all"]).ok();
    let run = project.start(&["run", "--role", "scribe", "x"]);
    until("it is enqueued", || project.posse(&["show", "1"]).code == 0);
    // It cannot be the first while it is stopped.
    run.stop();
    let other = project.start(&["work", "--quiet"]);
    project.posse(&["resume", "--all"]).ok();
    project.wait_for_state(1, "completed");
    let worker = project.posse(&["worker", "list", "--json"]).ok().json()["workers"].clone();
    let ids: Vec<_> = worker.as_array().expect("workers").iter().map(|w| w["id"].as_str().expect("an id")).collect();
    run.go_on();
    let ended = run.wait().expect(0);
    let named = ids.iter().any(|id| ended.err.contains(&format!("job 1 is worked by {id}, which was there first")));
    assert!(named, "{ids:?}: {}", ended.err);
    assert!(ended.out.contains("done elsewhere"), "{}", ended.out);
    other.terminate();
    other.wait().expect(0);
}

#[test]
fn the_doctor_names_keys_that_are_stuck_and_endpoints_that_are_out() {
    let project = Project::begun();
    enqueue(&project, &["--unique", "k1", "--queue", "mail"]);
    enqueue(&project, &["--unique", "k2"]);
    project.posse(&["pause", "--queue", "mail"]).ok();
    let findings = |check: &str| {
        let report = project.posse(&["doctor", "--json"]).json();
        let all = report["findings"].as_array().expect("findings").clone();
        all.into_iter().filter(|finding| finding["check"] == check).collect::<Vec<_>>()
    };
    assert_eq!(findings("unique keys")[0]["verdict"], "ok", "it was paused a moment ago");
    assert_eq!(findings("endpoints")[0]["verdict"], "ok");
    // Two hours pass.
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    let hours = "UPDATE jobs SET created_at = created_at - 7200000, run_at = run_at - 7200000;
                 UPDATE queues SET paused_at = paused_at - 7200000;
                 INSERT INTO breakers (endpoint, failures, failed_at, rests, out_until, probe_until, reason)
                 VALUES ('http://model/v1', 9, unixepoch() * 1000, 2, unixepoch() * 1000 + 9999, 0, 'connection refused')";
    database.execute_batch(hours).expect("works");
    let [stuck] = &findings("unique keys")[..] else { panic!("one finding") };
    assert_eq!(stuck["verdict"], "warning");
    let said = "held for 2 h by what cannot end: 'k1' by job 1; it cannot start: queue mail is paused";
    assert_eq!(
        (&stuck["message"], &stuck["way_out"]),
        (&json!(said), &json!("posse resume --queue 'mail', or posse job cancel 1"))
    );
    let [out] = &findings("endpoints")[..] else { panic!("one finding") };
    let said = out["message"].as_str().expect("words");
    assert!(out["verdict"] == "wrong" && said.contains("http://model/v1 is out") && said.contains("refused"), "{said}");
    project.posse(&["resume", "--queue", "mail"]).ok();
    assert_eq!(findings("unique keys")[0]["verdict"], "ok");
}

#[test]
fn a_limit_that_is_set_leaves_the_others_as_they_are() {
    let project = Project::begun();
    let limit = |args: &[&str]| project.posse(&[&["limit", "set", "--role", "scribe"], args].concat());
    limit(&["--running", "2"]).ok();
    assert_eq!(limit(&["--per-minute", "30"]).ok().out, "role scribe: at most 2 at once, at most 30 a minute\n");
    limit(&["--fair"]).ok();
    let told = limit(&["--running", "none", "--json"]).ok().json();
    assert_eq!((&told["running"], &told["per_minute"], &told["fair"]), (&json!(null), &json!(30), &json!(true)));
    assert_eq!(limit(&["--fair=none", "--per-minute", "none"]).ok().out, "role scribe: no limits\n");
    assert_eq!(project.posse(&["limit", "list", "--json"]).ok().json()["limits"], json!([]));
    assert!(limit(&["--running", "many"]).expect(2).err.contains("write a whole number, or none"));
    assert!(limit(&[]).expect(2).err.contains("say which limit"));
    // A pause is not one of them.
    project.posse(&["pause", "--role", "scribe"]).ok();
    limit(&["--running", "1"]).ok();
    assert!(project.posse(&["limit", "list", "--json"]).ok().json()["limits"][0]["paused_at"].is_i64());
}
