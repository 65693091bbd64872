//! The commands that need no model: shapes, messages, exit codes.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use crate::support::{self, ModelServer, Project, Say};
use serde_json::json;

/// Arguments, standard input, exit code, words of the message.
type Refusal<'a> = (&'a [&'a str], &'a [u8], i32, &'a str);

#[test]
fn a_project_is_begun_once() {
    let project = Project::empty();
    let begun = project.posse(&["init"]).ok();
    assert!(begun.out.contains("posse run --role researcher"));
    for file in ["config/posse.toml", "config/personas/scribe.json", "examples/suppliers/fjordtex.md"] {
        assert!(project.path().join(file).is_file(), "{file}");
    }
    let again = project.posse(&["init"]).expect(4);
    assert!(again.err.contains("has a project in it already"), "{}", again.err);
    let elsewhere = project.posse(&["init", "new/place", "--json"]).ok();
    let written = elsewhere.json()["written"].as_array().expect("a list").clone();
    assert!(written.len() > 10, "{written:?}");
    for file in &written {
        let path = project.path().join("new/place").join(file.as_str().expect("a path"));
        assert!(path.is_file(), "{}", path.display());
    }
    project.posse(&["persona", "check"]).ok();
    assert!(project.posse(&["persona", "list"]).ok().out.contains("researcher"));
}

#[test]
fn a_job_has_one_shape_everywhere() {
    let project = Project::begun();
    assert_eq!(project.posse(&["list", "--json"]).ok().json(), serde_json::json!({"jobs": [], "next": null}));
    let args = ["enqueue", "--role", "scribe", "--json", "--priority", "2", "--delay", "1h", "write", "it"];
    let enqueued = project.posse(&args).ok().json();
    assert_eq!((&enqueued["id"], &enqueued["goal"]), (&1.into(), &"write it".into()));
    assert!(enqueued["run_at"].is_i64());
    project.posse(&["job", "enqueue", "-r", "researcher", "find", "it"]).ok();

    let listed = project.posse(&["list", "--json", "-n", "1"]).ok().json();
    assert_eq!((&listed["jobs"][0]["id"], &listed["next"]), (&2.into(), &2.into()));
    let next = project.posse(&["list", "--json", "--before", "2"]).ok().json();
    assert_eq!((&next["jobs"][0]["state"], &next["next"]), (&"scheduled".into(), &serde_json::Value::Null));
    let keys =
        |value: &serde_json::Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    let of_a_job = ["annotations", "attempts", "awaited_groups", "beneath", "children", "dependencies"];
    let parts = [&of_a_job[..], &["job", "journal", "ledger", "questions"]].concat();
    assert_eq!(keys(&shown).into_iter().collect::<Vec<_>>(), parts);
    assert_eq!(keys(&shown["job"]), keys(&next["jobs"][0]));
    let filtered = project.posse(&["list", "--json", "--state", "available", "--role", "scribe"]).ok().json();
    assert_eq!(filtered["jobs"].as_array().map(Vec::len), Some(0));

    project.posse(&["job", "annotate", "1", "--tag", "why", "for", "Monday"]).ok();
    let human = project.posse(&["show", "1"]).ok().out;
    for words in ["job 1", "scribe", "scheduled, due in", "write it", "priority 2", "person: for Monday [why]"] {
        assert!(human.contains(words), "{words}: {human}");
    }
    assert!(!human.contains('\x1b'), "colours only on a terminal");
}

#[test]
fn bad_input_is_named_with_the_way_out() {
    let project = Project::begun();
    let long = vec![b'x'; 300 * 1024];
    let r: &[Refusal] = &[
        (
            &["enqueue", "--role", "plumber", "x"],
            b"",
            2,
            "'plumber' has no persona; there are: analyst, assistant, browser, coordinator, researcher, reviewer, scribe, triager",
        ),
        (&["enqueue", "--role", "Big/Boss", "x"], b"", 2, "\"big-boss\""),
        (&["enqueue", "--role", "scribe"], b"", 2, "GOAL"),
        (&["enqueue", "--role", "scribe", " "], b"", 2, "goal is empty"),
        (&["enqueue", "--role", "scribe", "-"], b"", 2, "goal is empty"),
        (&["enqueue", "--role", "scribe", "-"], b"a\0b", 2, "goal contains a NUL character at byte 1"),
        (&["enqueue", "--role", "scribe", "-"], b"ab\xff", 2, "not valid UTF-8 at byte 2"),
        (&["enqueue", "--role", "scribe", "-"], &long, 2, "more than 262,144 bytes"),
        (&["enqueue", "--role", "scribe", "--priority", "0", "x"], b"", 2, "between 1 (first) and 9 (last)"),
        (&["enqueue", "--role", "scribe", "--max-attempts", "0", "x"], b"", 2, "max_attempts is 0"),
        (&["enqueue", "--role", "scribe", "--queue", "A B", "x"], b"", 2, "queue 'A B'"),
        (&["enqueue", "--role", "scribe", "--delay", "soon", "x"], b"", 2, "90s, 10m, 2h or 1d"),
        (&["enqueue", "--role", "scribe", "--at", "noon", "x"], b"", 2, "2026-05-01T09:00:00Z"),
        (&["enqueue", "--role", "scribe", "--workspace", "gone", "x"], b"", 2, "workspace gone cannot be used"),
        (&["enqueue", "--role", "scribe", "--workspace", "config/posse.toml", "x"], b"", 2, "is no folder"),
        (&["list", "--state", "done"], b"", 2, "states are scheduled, available"),
        (&["list", "-n", "0"], b"", 2, "1..=10000"),
        (&["show", "7"], b"", 3, "there is no job 7"),
        (&["job", "cancel", "7"], b"", 3, "there is no job 7"),
        (&["job", "watch", "7"], b"", 3, "there is no job 7"),
        (&["job", "retry", "7"], b"", 3, "there is no job 7"),
        (&["job", "annotate", "7", " "], b"", 2, "a remark must be text"),
        (&["persona", "show", "resercher"], b"", 3, "did you mean researcher?"),
        (&["persona", "new", "Chef!"], b"", 2, "\"chef\""),
        (&["persona", "new", "chef", "--tools", "raed_file"], b"", 2, "did you mean read_file"),
        (&["persona", "new", "scribe"], b"", 4, "plays 'scribe' already"),
        (&["tool", "show", "red_file"], b"", 3, "did you mean read_file?"),
        (&["--config", "gone.toml", "list"], b"", 3, "gone.toml cannot be read"),
        (&["work", "--slots", "0"], b"", 2, "slots is 0"),
        (&["work", "--role", "plumber"], b"", 3, "there is no persona 'plumber'. There are: "),
        (&["run", "--role", "plumber", "x"], b"", 3, "there is no persona 'plumber'"),
        (&["run", "--role", "scribe", "--base-url", "localhost", "x"], b"", 2, "must begin with http://"),
        (&["run", "--role", "scribe", "--model", "gpt", "x"], b"", 2, "there is no model 'gpt'"),
        (&["db", "check"], b"", 3, "there is no database at"),
        (&["frobnicate"], b"", 2, "unrecognized subcommand"),
    ];
    // None of them makes a database, so that nothing is half done.
    for (args, input, code, words) in r {
        let ended = project.posse_with(args, input);
        assert_eq!(ended.code, *code, "{args:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(words), "{args:?} lacks {words:?}: {}", ended.err);
        assert!(ended.out.is_empty(), "{args:?} prints data: {}", ended.out);
    }
    let there = project.posse(&["list", "--json"]).ok().json();
    assert_eq!(there["jobs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn states_allow_what_they_allow() {
    let project = Project::begun();
    project.posse(&["enqueue", "-r", "scribe", "a"]).ok();
    let retry = project.posse(&["job", "retry", "1"]).expect(4);
    assert!(retry.err.contains("job 1 is available; only a job that ended can be re-run"), "{}", retry.err);
    assert_eq!(project.posse(&["job", "cancel", "1", "--json"]).ok().json()["cancelled"], "now");
    assert_eq!(project.posse(&["job", "cancel", "1", "--json"]).ok().json()["cancelled"], "already");
    let watched = project.posse(&["job", "watch", "1"]).expect(1);
    assert!(watched.out.contains("cancelled"), "{}", watched.out);
    project.posse(&["job", "retry", "1"]).ok();
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "available");
}

#[test]
fn a_broken_persona_is_told_and_leaves_the_others_working() {
    let project = Project::begun();
    project.write("config/personas/chef.json", "{\n  \"role\": \"chef\",\n  \"goal\": \"cook\",\n  \"tolls\": []\n}");
    project.write("config/personas/guard.json", "{\"role\": \"guard\", \"goal\": \"g\",\n \"tools\": [\"raed_file\"]}");
    project.write("config/personas/twin.json", "{\"role\": \"scribe\", \"goal\": \"g\"}");
    let check = project.posse(&["persona", "check"]).expect(2);
    for words in [
        "config/personas/chef.json:4: tolls is no field of a persona; did you mean tools?",
        "config/personas/guard.json:2: tools names 'raed_file'",
        "did you mean read_file",
        "config/personas/twin.json: role 'scribe' is played by",
    ] {
        assert!(check.out.contains(words), "{words}: {}", check.out);
    }
    assert!(check.err.contains("3 errors; 8 personas can be used"), "{}", check.err);
    let json = project.posse(&["persona", "check", "--json"]).expect(2).json();
    assert_eq!(json["problems"][0]["line"], 4);
    project.posse(&["enqueue", "--role", "researcher", "x"]).ok();
    let chef = project.posse(&["enqueue", "--role", "chef", "x"]).expect(2);
    assert!(chef.err.contains("the persona 'chef' cannot be used"), "{}", chef.err);
    assert!(chef.err.contains("did you mean tools?"), "{}", chef.err);
}

#[test]
fn a_fallback_that_could_never_be_tried_is_told() {
    let project = Project::begun();
    let persona = |spare: &str, tools: &str| {
        let text = format!(
            "{{\"role\": \"guard\", \"goal\": \"g\", \"style\": \"phased\",\n\"tools\": [{tools}],\n\
             \"fallback_tools\": {{\"search_files\": \"{spare}\"}}}}"
        );
        project.write("config/personas/guard.json", &text);
        project.posse(&["persona", "check"])
    };
    let misspelt = persona("raed_file", "\"search_files\"").expect(2);
    assert!(misspelt.out.contains("guard.json:3: fallback_tools names 'raed_file'"), "{}", misspelt.out);
    assert!(misspelt.out.contains("did you mean read_file"), "{}", misspelt.out);
    let missing = persona("read_file", "\"search_files\"").expect(2);
    assert!(missing.out.contains("not one of the persona's tools"), "{}", missing.out);
    persona("read_file", "\"search_files\", \"read_file\"").ok();
    let shown = project.posse(&["persona", "show", "guard"]).ok().out;
    assert!(shown.contains("read_file for search_files") && shown.contains("phased"), "{shown}");
}

#[test]
fn models_that_a_persona_names_are_there() {
    let project = Project::begun();
    let check = |model: &str, summary_model: &str| {
        let text = format!(
            "{{\"role\": \"guard\", \"goal\": \"g\",\n\"model\": \"{model}\",\n\
             \"context\": {{\"summary_model\": \"{summary_model}\"}}}}"
        );
        project.write("config/personas/guard.json", &text);
        project.posse(&["persona", "check"])
    };
    project.write("config/posse.toml", "default_model = \"large\"\n[models.large]\n[models.small]\n");
    check("large", "local").ok();
    let wrong = check("lage", "small").expect(2).out;
    for words in
        ["guard.json:2: model names 'lage'", "did you mean large?", "There are: large, local, small.", "[models.lage]"]
    {
        assert!(wrong.contains(words), "{words}: {wrong}");
    }
    let wrong = check("large", "tiny").expect(2).out;
    assert!(wrong.contains("guard.json:3: context.summary_model names 'tiny'"), "{wrong}");
    let refused = project.posse(&["enqueue", "--role", "guard", "x"]).expect(2).err;
    assert!(refused.contains("summary_model names 'tiny'"), "before there is a job: {refused}");
    project.write("config/posse.toml", "");
    check("openai", "ollama").ok();
}

#[test]
fn a_persona_is_shown_with_all_its_limits() {
    let project = Project::begun();
    let limits = json!({"max_turns": 7, "max_tool_rounds": 1, "max_tokens": 90_000, "max_wait_seconds": 3600});
    let context = json!({"max_messages": 30, "budget_share": 0.6, "keep_last": 1, "summary_model": "local"});
    let persona = json!({"role": "guard", "goal": "g", "temperature": 0.5, "limits": limits, "context": context});
    project.write("config/personas/guard.json", persona.to_string());
    let shown = project.posse(&["persona", "show", "guard"]).ok().out;
    for words in [
        "temperature 0.5",
        "7 turns, 1 tool round, 90,000 tokens, 3,600 s for an answer to a question",
        "summarised by local from 60 % of the window on, or after 30 messages, 10 at a time; never the last 1 turn",
    ] {
        assert!(shown.replace("\n             ", " ").contains(words), "{words}: {shown}");
    }
}

#[test]
fn settings_are_refused_with_line_and_key() {
    let project = Project::begun();
    project.write("config/posse.toml", "[models.main]\napi_key = \"sk-canary\"\n");
    let refused = project.posse(&["list"]).expect(2);
    assert!(refused.err.contains("posse.toml:2: keys do not belong in this file"), "{}", refused.err);
    assert!(!refused.err.contains("canary"));
    project.write("config/posse.toml", "databse = \"x.db\"\n");
    assert!(project.posse(&["list"]).expect(2).err.contains("did you mean 'database'?"));
    project.write("config/posse.toml", "database = \"data/x.db\"\n");
    project.posse(&["enqueue", "-r", "scribe", "a"]).ok();
    assert!(project.path().join("data/x.db").is_file());
    assert_eq!(project.posse(&["db", "check", "--json"]).ok().json()["jobs"]["available"], 1);
}

#[test]
fn a_new_persona_is_a_new_kind_of_agent() {
    let project = Project::begun();
    project.posse(&["persona", "new", "chef", "--goal", "Plan meals.", "--tools", "filesystem"]).ok();
    project.posse(&["persona", "check"]).ok();
    assert!(project.posse(&["persona", "show", "chef"]).ok().out.contains("create_file"));
    project.posse(&["enqueue", "--role", "chef", "plan a week"]).ok();
}

#[test]
fn without_a_project_the_built_in_personas_work() {
    let project = Project::empty();
    assert!(project.posse(&["persona", "list"]).ok().out.contains("triager"));
    project.posse(&["enqueue", "--role", "researcher", "x"]).ok();
    assert!(project.path().join(".posse/posse.db").is_file());
    assert_eq!(std::fs::read_to_string(project.path().join(".posse/.gitignore")).expect("written"), "*\n");
}

/// Case A13: what can only be read can be read.
#[test]
fn a_read_only_database_can_be_listed() {
    let project = Project::begun();
    project.posse(&["enqueue", "-r", "scribe", "a"]).ok();
    let folder = project.path().join(".posse");
    let chmod = |mode| {
        for path in std::fs::read_dir(&folder).expect("there").flatten().map(|entry| entry.path()) {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode & 0o666)).expect("ours");
        }
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).expect("ours");
    };
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&folder).expect("there").flatten().map(|e| e.file_name()).collect();
        names.sort();
        names
    };
    let bytes = || std::fs::read(folder.join("posse.db")).expect("there");
    let before = (bytes(), names());
    chmod(0o555);
    // Permissions mean nothing to root, for whom the reader may make its shared memory.
    let confined = std::fs::write(folder.join("probe"), "").is_err();
    let _ = std::fs::remove_file(folder.join("probe"));
    let (listed, shown) = (project.posse(&["list"]), project.posse(&["show", "1"]));
    let after = (bytes(), names());
    chmod(0o755);
    assert!(listed.ok().out.contains("scribe"));
    assert!(shown.ok().out.contains("job 1"));
    assert!(before.0 == after.0, "the database was written");
    assert!(!confined || before.1 == after.1, "files were made: {:?}", after.1);
}

#[test]
fn a_database_that_is_none_is_refused_untouched() {
    let project = Project::begun();
    let path = project.write(".posse/posse.db", "this is a letter, not a database. ".repeat(200));
    let before = std::fs::read(&path).expect("there");
    for args in [&["list"][..], &["enqueue", "-r", "scribe", "a"], &["show", "1"]] {
        let refused = project.posse(args).expect(5);
        assert!(refused.err.contains("posse.db"), "{}", refused.err);
    }
    assert_eq!(before, std::fs::read(&path).expect("there"));
}

#[test]
fn help_tells_the_exit_codes_and_completions_complete() {
    let project = Project::empty();
    let help = project.posse(&["--help"]).ok().out;
    for words in ["Exit codes:", "130  interrupted", "posse up", "enqueue", "persona"] {
        assert!(help.contains(words), "{words}: {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = project.posse(&["completions", shell]).ok().out;
        assert!(script.contains("enqueue") && script.len() > 1000, "{shell}");
    }
    for noun in ["job", "group", "persona", "model", "tool", "worker", "db"] {
        assert!(project.posse(&[noun, "--help"]).ok().out.contains("--json"), "{noun}");
    }
    assert!(project.posse(&["tool", "list"]).ok().out.contains("read_file"));
    assert_eq!(project.posse(&["tool", "show", "read_file", "--json"]).ok().json()["pack"], "filesystem");
    assert_eq!(project.posse(&["worker", "list", "--json"]).ok().json()["workers"], serde_json::json!([]));
    let models = project.posse(&["model", "list", "--json"]).ok().json();
    assert_eq!((&models["models"][0]["name"], &models["models"][0]["default"]), (&"local".into(), &true.into()));
    assert_eq!(models["local_files"][0]["status"], "not here");
}

#[test]
fn how_tokens_are_counted_is_told() {
    let server = ModelServer::start(vec![Say::Words("ready")]);
    let project = Project::begun();
    let model = |name: &str, more: &str| {
        let url = &server.base_url;
        format!("[models.{name}]\nbase_url = \"{url}\"\nmodel = \"mock\"\ntool_calling = \"native\"\n{more}\n")
    };
    let models = [
        model("counts", "tokenizer = \"server\""),
        model("filed", "tokenizer = \"gone/tokenizer.json\""),
        model("guesses", ""),
    ];
    project.write("config/posse.toml", models.concat());
    let listed = project.posse(&["model", "list", "--json"]).ok().json();
    let file = project.path().canonicalize().expect("a folder").join("gone/tokenizer.json");
    let told: Vec<_> =
        listed["models"].as_array().expect("a list").iter().map(|m| (&m["name"], &m["tokens"])).collect();
    let by = |how: &str| serde_json::json!({"by": how});
    assert_eq!(told[0], (&"counts".into(), &by("server")));
    assert_eq!(told[1], (&"filed".into(), &serde_json::json!({"by": "file", "path": file})));
    assert_eq!(told[2..], [(&"guesses".into(), &by("estimate")), (&"local".into(), &by("server"))]);

    let told = project.posse(&["model", "test", "counts"]).ok().out;
    assert!(
        told.contains("counted by its server: 6 in the question's text, 100 read with what stands around"),
        "{told}"
    );
    let told = project.posse(&["model", "test", "counts", "--json"]).ok().json();
    assert_eq!((&told["tokens"], &told["counted_tokens"]), (&by("server"), &6.into()));
    let told = project.posse(&["model", "test", "guesses"]).ok().out;
    assert!(told.contains("estimated; what its replies say corrects that"), "{told}");
    let refused = project.posse(&["model", "test", "filed"]);
    assert!(refused.code != 0 && refused.err.contains("gone/tokenizer.json"), "{}", refused.err);
}

#[test]
fn two_processes_enqueue_at_once() {
    let project = Project::begun();
    let ids: Vec<i64> = std::thread::scope(|scope| {
        let each =
            || (0..10).map(|_| project.posse(&["enqueue", "-r", "scribe", "--json", "a"]).ok().json()["id"].as_i64());
        let both = [scope.spawn(move || each().collect::<Vec<_>>()), scope.spawn(move || each().collect::<Vec<_>>())];
        both.into_iter().flat_map(|t| t.join().expect("ended")).map(|id| id.expect("a number")).collect()
    });
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map(Vec::len), Some(20));
}

#[test]
fn whoever_stops_reading_is_not_told() {
    let project = Project::begun();
    let mut child = project.command(&["completions", "bash"]);
    let mut child =
        child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("started");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("ended");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn the_schema_of_personas_is_not_stale() {
    let printed = Project::empty().posse(&["persona", "schema"]).ok().out;
    let kept = include_str!("../../config/personas.schema.json");
    assert_eq!(printed, kept, "run: posse persona schema > config/personas.schema.json");
}

#[test]
fn who_is_outside_of_a_project_hears_where_the_database_is_made() {
    let project = Project::empty();
    let told = project.posse(&["enqueue", "-r", "scribe", "x"]).ok();
    assert!(told.err.contains("there is no project here or above, so a database was made at"), "{}", told.err);
    assert!(told.err.contains(".posse/posse.db") && told.err.contains("posse init begins a project"), "{}", told.err);
    assert!(!project.posse(&["enqueue", "-r", "scribe", "x"]).ok().err.contains("was made at"));
    let project = Project::begun();
    assert!(!project.posse(&["enqueue", "-r", "scribe", "x"]).ok().err.contains("was made at"));
}

#[test]
fn a_persona_that_nobody_has_given_a_goal_is_told_of() {
    let project = Project::begun();
    let told = project.posse(&["persona", "new", "librarian"]).ok();
    assert!(told.err.contains("say in it what its goal is"), "{}", told.err);
    let checked = project.posse(&["persona", "check"]).expect(2);
    assert!(checked.out.contains("librarian.json:4: goal is still what posse persona new wrote"), "{}", checked.out);
    let zero = json!({"role": "idle", "goal": "g", "limits": {"max_turns": 0, "max_seconds": "long", "max_tokens": 0}});
    project.write("config/personas/idle.json", serde_json::to_string_pretty(&zero).expect("JSON"));
    let checked = project.posse(&["persona", "check"]).expect(2).out;
    for words in [
        "limits.max_turns is 0; it must be a number from 1",
        "limits.max_tokens is 0; it must be a number from 1",
        "limits.max_seconds is \"long\"; it must be a number from 1",
    ] {
        assert!(checked.contains(words), "{words}: {checked}");
    }
}

#[test]
fn a_pause_that_jobs_wait_behind_is_told_by_the_doctor() {
    let project = Project::begun();
    project.posse(&["enqueue", "-r", "scribe", "x"]).ok();
    project.posse(&["pause", "--role", "scribe"]).ok();
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute("UPDATE jobs SET run_at = run_at - 300000", []).expect("is put back");
    let worker = project.start(&["work"]);
    support::until("a worker is there", || {
        !project.posse(&["worker", "list", "--json"]).ok().json()["workers"].as_array().is_none_or(Vec::is_empty)
    });
    let found = project.posse(&["doctor"]).out;
    assert!(
        found.contains("pauses: role scribe is paused since") && found.contains("posse resume --role scribe"),
        "{found}"
    );
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn a_proxy_that_is_not_there_is_named_once() {
    let mut project = Project::begun();
    for (name, value) in [
        ("OPENAI_BASE_URL", "http://models.invalid/v1"),
        ("OPENAI_MODEL", "m"),
        ("HTTP_PROXY", "http://me:secret@127.0.0.1:1"),
    ] {
        project.set(name, value);
    }
    let tried = project.posse(&["model", "test"]);
    let said = format!("{}{}", tried.out, tried.err);
    assert_ne!(tried.code, 0, "{said}");
    assert!(
        said.contains("(OPENAI_BASE_URL) could not be reached through the proxy of HTTP_PROXY=127.0.0.1:1"),
        "{said}"
    );
    assert_eq!(said.matches("through the proxy").count(), 1, "{said}");
    assert!(!said.contains("secret"), "{said}");
}
