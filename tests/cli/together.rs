//! Jobs that belong together, and many at once, by the command line.

use crate::support::{ModelServer, Project, Say};
use serde_json::{Value, json};

fn state(project: &Project, id: i64) -> String {
    let shown = project.posse(&["show", &id.to_string(), "--json"]).ok().json();
    shown["job"]["state"].as_str().expect("a state").to_owned()
}

fn ids(listed: &Value) -> Vec<i64> {
    listed["jobs"].as_array().expect("jobs").iter().map(|job| job["id"].as_i64().expect("a number")).collect()
}

#[test]
fn a_job_waits_for_others_and_says_so() {
    let project = Project::begun();
    project.posse(&["enqueue", "-r", "scribe", "first"]).ok();
    let told = project.posse(&["enqueue", "-r", "scribe", "--after", "1", "second"]).ok();
    assert!(told.out.contains("after 1"), "{}", told.out);
    project.posse(&["enqueue", "-r", "scribe", "--after", "1,2", "--on-failed-dependency", "wait", "third"]).ok();
    let shown = project.posse(&["show", "3"]).ok().out;
    assert!(shown.contains("waits      for job 1 (available), job 2 (suspended)"), "{shown}");
    for once in ["wait", "(available)", "job 1"] {
        assert_eq!(shown.matches(once).count(), 1, "{once} is said once: {shown}");
    }
    project.posse(&["job", "cancel", "1"]).ok();
    assert_eq!((state(&project, 2), state(&project, 3)), ("cancelled".into(), "suspended".into()));
    let shown = project.posse(&["show", "2"]).ok().out;
    assert!(shown.contains("job 1, which it waited for, was cancelled"), "{shown}");
    let shown = project.posse(&["show", "3"]).ok().out;
    assert!(shown.contains("for job 1 (cancelled; posse job retry 1 runs it again)"), "{shown}");
    assert!(shown.matches("wait").count() == 1 && !shown.contains("after"), "{shown}");

    let unknown = project.posse(&["enqueue", "-r", "scribe", "--after", "77", "x"]).expect(3);
    assert!(unknown.err.contains("there is no job 77"), "{}", unknown.err);
    let rule = project.posse(&["enqueue", "-r", "scribe", "--after", "1", "--on-failed-dependency", "hope", "x"]);
    assert!(rule.expect(2).err.contains("rules are cancel, run, wait"));
    let help = project.posse(&["enqueue", "--help"]).ok().out;
    for words in ["no cycle can be made", "`cancel` this job too", "--jsonl", "\"after\": [\"fetch\", 41]"] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn a_job_waits_for_a_group_and_says_so() {
    let project = Project::begun();
    let refused = project.posse(&["enqueue", "-r", "scribe", "--after-group", "g", "last"]).expect(4);
    assert!(refused.err.contains("there is no job in group 'g'"), "{}", refused.err);
    project.write(
        "jobs.jsonl",
        "{\"goal\": \"a\", \"group\": \"g\"}\n{\"goal\": \"b\", \"group\": \"g\"}\n{\"goal\": \"c\", \"after_group\": [\"g\"]}\n",
    );
    project.posse(&["enqueue", "--jsonl", "jobs.jsonl", "-r", "scribe"]).ok();
    let told = project.posse(&["enqueue", "-r", "scribe", "--after-group", "g", "--after", "1", "last"]).ok();
    assert!(told.out.contains("after 1, group g"), "{}", told.out);
    assert_eq!((state(&project, 3), state(&project, 4)), ("suspended".into(), "suspended".into()));
    let shown = project.posse(&["show", "4"]).ok().out;
    assert!(shown.contains("waits      for all of group g, job 1 (available), job 2 (available)"), "{shown}");
    assert_eq!(shown.matches("(available)").count(), 2, "{shown}");
    let shown = project.posse(&["show", "3", "--json"]).ok().json();
    assert_eq!(shown["awaited_groups"], json!([{"group": "g", "open": true, "on_failed": "cancel"}]));
    project.write("more.jsonl", "{\"goal\": \"d\"}\n\n{\"goal\": \"e\", \"after_group\": [\"g\", \"typo\"]}\n");
    let empty = project.posse(&["enqueue", "--jsonl", "more.jsonl", "-r", "scribe"]).expect(2);
    assert!(empty.err.contains("more.jsonl:3: there is no job in group 'typo'"), "{}", empty.err);
    assert!(empty.err.contains("nothing was stored"), "{}", empty.err);
    let own = project.posse(&["enqueue", "-r", "scribe", "--group", "g", "--after-group", "g", "x"]).expect(2);
    assert!(own.err.contains("its own group"), "{}", own.err);
    project.posse(&["job", "cancel", "2"]).ok();
    assert_eq!((state(&project, 3), state(&project, 4)), ("cancelled".into(), "cancelled".into()));
}

#[test]
fn groups_tags_and_texts_find_jobs() {
    let project = Project::begun();
    let group =
        ["enqueue", "-r", "scribe", "--group", "night", "--tag", "mail", "--meta", "ticket=A-7", "sort the mail"];
    let enqueued = project.posse(&[&group[..], &["--json"]].concat()).ok().json();
    assert_eq!((&enqueued["group"], &enqueued["meta"]), (&json!("night"), &json!({"ticket": "A-7"})));
    project.posse(&["enqueue", "-r", "researcher", "--group", "night", "water the plants"]).ok();
    project.posse(&["enqueue", "-r", "scribe", "read the mail"]).ok();
    let list = |args: &[&str]| ids(&project.posse(&[&["list", "--json"], args].concat()).ok().json());
    assert_eq!(list(&["--group", "night"]), [2, 1]);
    assert_eq!(list(&["--group", "night", "--role", "scribe"]), [1]);
    assert_eq!(list(&["--tag", "mail"]), [1]);
    assert_eq!(list(&["--meta", "ticket=A-7"]), [1]);
    assert!(list(&["--meta", "ticket=A-8"]).is_empty());
    let meant = project.posse(&["job", "cancel", "--where", "meta=ticket=A-7", "--json"]).ok().json();
    assert_eq!(meant["jobs"], 1, "{meant}");
    assert_eq!(list(&["--search", "MAIL"]), [3, 1]);
    assert_eq!(list(&["--search", "mail", "--before", "3"]), [1]);
    assert_eq!(list(&["--since", "1h"]), [3, 2, 1]);
    assert!(list(&["--until", "1h"]).is_empty());
    assert!(list(&["--ended-since", "1h"]).is_empty());

    project.posse(&["job", "cancel", "2"]).ok();
    let shown = project.posse(&["group", "show", "night", "--json"]).ok().json();
    assert_eq!(shown["states"], json!({"available": 1, "cancelled": 1}));
    assert_eq!((&shown["jobs"], &shown["ended"], &shown["share"]), (&json!(2), &json!(1), &json!(0.5)));
    assert!(project.posse(&["group", "show", "night"]).ok().out.contains("50 % (1 of 2)"));
    assert!(project.posse(&["group", "list"]).ok().out.contains("night"));
    assert!(project.posse(&["group", "show", "day"]).expect(3).err.contains("there is no group 'day'"));
    let tags = project.posse(&["show", "1"]).ok().out;
    assert!(tags.contains("mail") && tags.contains("ticket"), "{tags}");
    assert!(project.posse(&["enqueue", "-r", "scribe", "--meta", "x", "a"]).expect(2).err.contains("key=value"));
}

#[test]
fn many_are_shown_before_they_are_changed() {
    let project = Project::begun();
    for n in 0..7 {
        project.posse(&["enqueue", "-r", "scribe", "--group", "g", &format!("job {n}")]).ok();
    }
    project.posse(&["enqueue", "-r", "researcher", "another"]).ok();
    let preview = project.posse(&["job", "cancel", "--where", "group=g"]).ok();
    assert!(preview.out.contains("job 6") && !preview.out.contains("another"), "{}", preview.out);
    assert!(
        preview.err.contains("7 jobs (and 2 more) would be cancelled (7 available); nothing was done yet"),
        "{}",
        preview.err
    );
    assert_eq!(state(&project, 1), "available");

    let moved =
        project.posse(&["job", "set-priority", "--to", "2", "--where", "group=g", "--yes", "--json"]).ok().json();
    assert_eq!((&moved["jobs"], &moved["changed"], &moved["done"]), (&json!(7), &json!(7), &json!(true)));
    project.posse(&["job", "move", "--to", "slow", "--where", "group=g", "--where", "search=job 3", "--yes"]).ok();
    assert_eq!(ids(&project.posse(&["list", "--json", "--queue", "slow"]).ok().json()), [4]);

    let cancelled = project.posse(&["job", "cancel", "--where", "role=scribe", "--yes", "--reason", "enough"]).ok();
    assert!(cancelled.out.contains("7 jobs cancelled"), "{}", cancelled.out);
    assert_eq!((state(&project, 7), state(&project, 8)), ("cancelled".into(), "available".into()));
    // Only those whose state allows it are meant.
    let retry = project.posse(&["job", "retry", "--where", "since=1d", "--json"]).ok().json();
    assert_eq!((&retry["jobs"], &retry["done"]), (&json!(7), &json!(false)));
    let none = project.posse(&["job", "retry", "--where", "state=available"]).ok();
    assert!(none.err.contains("no job that can be re-run fits"), "{}", none.err);
    project.posse(&["job", "delete", "--where", "state=cancelled", "--yes"]).ok();
    assert_eq!(ids(&project.posse(&["list", "--json"]).ok().json()), [8]);

    for (args, words) in [
        (&["job", "cancel"][..], "--where"),
        (&["job", "cancel", "8", "--where", "role=scribe"], "and not both"),
        (&["job", "cancel", "8", "--yes"], "cannot be used with"),
        (&["job", "delete", "--where", "colour=red"], "'colour' is no key; keys are state, role"),
        (&["job", "move", "8", "--to", "A B"], "queue 'A B'"),
        (&["job", "set-priority", "8", "--to", "0"], "between 1 (first) and 9 (last)"),
        (&["job", "edit", "8"], "edit changes nothing"),
        (&["job", "edit", "8", "--role", "plumber"], "'plumber' has no persona"),
    ] {
        let refused = project.posse(args).expect(2);
        assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
    }
}

#[test]
fn a_discarded_or_cancelled_job_is_edited_and_runs_again() {
    let project = Project::begun();
    project.posse(&["enqueue", "-r", "scribe", "wrong"]).ok();
    let early = project.posse(&["job", "delete", "1"]).expect(4);
    assert!(early.err.contains("it is available; only a job that ended can be deleted"), "{}", early.err);
    project.posse(&["job", "cancel", "1"]).ok();
    let edit =
        ["job", "edit", "1", "--goal", "right", "--role", "researcher", "--priority", "1", "--max-attempts", "2"];
    project.posse(&edit).ok();
    project.posse(&["job", "retry", "1"]).ok();
    let job = project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    assert_eq!(
        (&job["payload"]["goal"], &job["role"], &job["state"]),
        (&json!("right"), &json!("researcher"), &json!("available"))
    );
    assert_eq!((&job["priority"], &job["max_attempts"]), (&json!(1), &json!(2)));
    assert!(project.posse(&["job", "edit", "9", "--priority", "1"]).expect(3).err.contains("there is no job 9"));
    project.posse(&["job", "cancel", "1"]).ok();
    assert!(project.posse(&["job", "delete", "1"]).ok().out.contains("job 1 was deleted"));
    assert!(project.posse(&["job", "delete", "1"]).expect(3).err.contains("there is no job 1"));
}

fn file(project: &Project, lines: &[String]) {
    project.write("jobs.jsonl", lines.join("\n"));
}

fn plain(count: usize) -> Vec<String> {
    (0..count).map(|n| json!({"goal": format!("goal {n}")}).to_string()).collect()
}

#[test]
fn a_file_of_jobs_is_stored_with_its_relations() {
    let project = Project::begun();
    let mut lines = plain(1500);
    lines[0] = json!({"goal": "a", "name": "first", "tags": ["t"], "priority": 1, "role": "researcher"}).to_string();
    lines[1] = String::new();
    // Within one chunk, over two, and to a job that is there.
    lines[2] = json!({"goal": "b", "after": ["first"]}).to_string();
    lines[1400] = json!({"goal": "c", "after": ["first"], "delay": "1h", "on_failed_dependency": "run"}).to_string();
    file(&project, &lines);
    let args = ["enqueue", "--jsonl", "jobs.jsonl", "--role", "scribe", "--group", "all", "--json"];
    let told = project.posse(&args).ok();
    let summary = told.json();
    assert_eq!((&summary["jobs"], &summary["first"], &summary["last"]), (&json!(1499), &json!(1), &json!(1499)));
    assert_eq!((&summary["lines"], &summary["batch"]), (&json!(1500), &Value::Null));
    let job = |id: i64| project.posse(&["show", &id.to_string(), "--json"]).ok().json();
    assert_eq!((job(1)["job"]["role"].as_str(), job(1)["job"]["tags"][0].as_str()), (Some("researcher"), Some("t")));
    assert_eq!((job(2)["job"]["role"].as_str(), &job(2)["dependencies"][0]["on"]), (Some("scribe"), &json!(1)));
    assert_eq!(
        (state(&project, 1400), &job(1400)["dependencies"][0]["on_failed"]),
        ("suspended".into(), &json!("run"))
    );
    assert_eq!(project.posse(&["group", "show", "all", "--json"]).ok().json()["jobs"], 1499);
}

#[test]
fn a_mistake_is_named_with_its_line_and_nothing_is_stored() {
    let project = Project::begun();
    for (line, words) in [
        ("{\"goal\": ", "jobs.jsonl:1202: has an object that does not end in it (EOF while parsing"),
        (
            "{\"goal\": \"x\", \"rolle\": \"scribe\"}",
            "jobs.jsonl:1202: unknown field `rolle`, expected one of `goal`, `role`",
        ),
        ("{\"goal\": \" \"}", "jobs.jsonl:1202: goal is empty"),
        ("{\"goal\": \"x\", \"role\": \"plumber\"}", "jobs.jsonl:1202: role 'plumber' has no persona"),
        ("{\"goal\": \"x\", \"priority\": 12}", "jobs.jsonl:1202: priority is 12"),
        ("{\"goal\": \"x\", \"after\": [\"later\"]}", "jobs.jsonl:1202: after names 'later', and no line before"),
        ("{\"goal\": \"x\", \"name\": \"n\"}", "jobs.jsonl:1202: name 'n' is taken"),
        ("{\"goal\": \"x\", \"at\": \"noon\"}", "jobs.jsonl:1202: at: write it as"),
        ("{\"goal\": \"x\", \"at\": \"2026-05-01T09:00\", \"delay\": \"1h\"}", "has both at and delay"),
        (
            "{\"goal\": \"x\", \"retry\": \"often\"}",
            "jobs.jsonl:1202: unknown variant `often`, expected one of `exponential`",
        ),
        ("{\"goal\": \"x\", \"retry_wait\": \"soon\"}", "jobs.jsonl:1202: retry_wait: "),
        ("{\"goal\": \"x\", \"retry_wait\": \"500ms\"}", "jobs.jsonl:1202: retry has base_seconds 0"),
        ("{\"goal\": \"x\", \"retry\": \"none\", \"max_attempts\": 3}", "jobs.jsonl:1202: max_attempts allows other"),
        ("{\"goal\": \"a\\u0000b\"}", "jobs.jsonl:1202: goal contains a NUL character at byte 1"),
        ("{\"goal\": \"x\", \"meta\": {\"k\\u0000ey\": 1}}", "jobs.jsonl:1202: meta 'k\\0ey' cannot be used"),
        ("{\"goal\": \"\\ud800\"}", "jobs.jsonl:1202: unexpected end of hex escape"),
        ("[1]", "jobs.jsonl:1202: begins a JSON array"),
    ] {
        let mut lines = plain(1300);
        lines[0] = json!({"goal": "a", "name": "n"}).to_string();
        lines[1201] = line.into();
        file(&project, &lines);
        let refused = project.posse(&["enqueue", "--jsonl", "jobs.jsonl", "--role", "scribe"]).expect(2);
        assert!(refused.err.contains(words), "{line}: {}", refused.err);
    }
    assert!(!project.path().join(".posse/posse.db").exists(), "nothing was made");
    file(&project, &plain(1));
    assert!(project.posse(&["enqueue", "--jsonl", "jobs.jsonl"]).expect(2).err.contains("jobs.jsonl:1: has no role"));
    assert!(project.posse(&["enqueue", "--jsonl", "gone.jsonl"]).expect(2).err.contains("gone.jsonl cannot be read"));

    // What only the database knows: the chunk is not stored, and its line is named.
    let mut lines = plain(1300);
    lines[1201] = json!({"goal": "x", "after": [99_999]}).to_string();
    file(&project, &lines);
    let args = ["enqueue", "--jsonl", "jobs.jsonl", "--role", "scribe", "--batch", "b"];
    let refused = project.posse(&args).expect(2);
    assert!(refused.err.contains("jobs.jsonl:1202: after names job 99999"), "{}", refused.err);
    assert!(refused.err.contains("1,000 jobs before it are stored; mend it and run this again"), "{}", refused.err);
    lines[1201] = json!({"goal": "x", "after": [1]}).to_string();
    file(&project, &lines);
    let mended = project.posse(&[&args[..], &["--json"]].concat()).ok().json();
    assert_eq!((&mended["jobs"], &mended["jobs_before"], &mended["last"]), (&json!(300), &json!(1000), &json!(1300)));
}

#[test]
fn lines_have_retry_policies_of_their_own() {
    let project = Project::begun();
    let lines = [
        r#"{"goal": "a"}"#,
        r#"{"goal": "b", "retry": "exponential", "max_attempts": 9}"#,
        r#"{"goal": "c", "retry_wait": "20s", "retry_wait_most": "2m"}"#,
        r#"{"goal": "d", "retry": "none"}"#,
    ];
    file(&project, &lines.map(str::to_owned));
    let flags = ["--role", "scribe", "--retry", "fixed", "--retry-wait", "7s", "--max-attempts", "4"];
    // The flags say four attempts, which the strategy none contradicts.
    let refused = project.posse(&[&["enqueue", "--jsonl", "jobs.jsonl"], &flags[..]].concat()).expect(2);
    assert!(refused.err.contains("jobs.jsonl:4: max_attempts allows other attempts"), "{}", refused.err);
    project.posse(&[&["enqueue", "--jsonl", "jobs.jsonl"], &flags[..6]].concat()).ok();
    let policy = |id: &str| {
        let job = project.posse(&["show", id, "--json"]).ok().json()["job"].clone();
        let retry = &job["retry"];
        json!([retry["strategy"], retry["base_seconds"], retry["max_seconds"], job["max_attempts"]])
    };
    assert_eq!(policy("1"), json!(["fixed", 7, 900, 5]), "as the flags say");
    assert_eq!(policy("2"), json!(["exponential", 7, 900, 9]));
    assert_eq!(policy("3"), json!(["fixed", 20, 120, 5]));
    assert_eq!(policy("4"), json!(["none", 7, 900, 1]));
}

#[test]
fn a_batch_goes_on_where_it_was_and_doubles_nothing() {
    let project = Project::begun();
    let mut lines = plain(2500);
    lines[3] = json!({"goal": "a", "name": "early"}).to_string();
    lines[2400] = json!({"goal": "b", "after": ["early"]}).to_string();
    let args = ["enqueue", "--jsonl", "-", "--role", "scribe", "--batch", "monday", "--json"];
    // Killed in the middle: as much as came in whole chunks is there. Standard input ends early here.
    let part = lines[..2000].join("\n");
    let first = project.posse_with(&args, part.as_bytes()).ok().json();
    assert_eq!(first["jobs"], 2000);
    let whole = lines.join("\n");
    let second = project.posse_with(&args, whole.as_bytes()).ok().json();
    assert_eq!((&second["jobs"], &second["resumed_after_line"]), (&json!(500), &json!(2000)));
    let third = project.posse_with(&args, whole.as_bytes()).ok().json();
    assert_eq!((&third["jobs"], &third["jobs_before"]), (&json!(0), &json!(2500)));
    let waits = project.posse(&["show", "2401", "--json"]).ok().json();
    assert_eq!(waits["dependencies"][0]["on"], 4, "a name outlives the process");

    let other = whole.replacen("goal 0", "goal X", 1);
    let refused = project.posse_with(&args, other.as_bytes()).expect(2);
    assert!(refused.err.contains("are not those that batch 'monday' has stored"), "{}", refused.err);
    assert_eq!(
        project.posse(&["db", "check", "--json"]).ok().json()["jobs"],
        json!({"available": 2499, "suspended": 1})
    );
}

#[test]
fn a_batch_survives_being_killed() {
    let project = Project::begun();
    let lines = plain(30_000);
    file(&project, &lines);
    let args = ["enqueue", "--jsonl", "jobs.jsonl", "--role", "scribe", "--batch", "b", "--json"];
    let jobs = || {
        let counted = project.posse(&["db", "check", "--json"]);
        if counted.code == 0 { counted.json()["jobs"]["available"].as_i64().unwrap_or(0) } else { 0 }
    };
    // Killed without warning once something is stored.
    let running = project.start(&args);
    while jobs() == 0 {
        std::thread::yield_now();
    }
    drop(running);
    let stored = jobs();
    assert_eq!(stored % 1000, 0, "whole chunks only");
    let rest = project.posse(&args).ok().json();
    assert_eq!(rest["jobs"].as_i64(), Some(30_000 - stored));
    assert_eq!(jobs(), 30_000);
}

#[test]
fn a_job_that_waits_is_put_off_and_brought_forward() {
    let project = Project::begun();
    project.posse(&["enqueue", "-r", "scribe", "x"]).ok();
    let job = || project.posse(&["show", "1", "--json"]).ok().json()["job"].clone();
    let before = job()["run_at"].as_i64().expect("a time");
    project.posse(&["job", "edit", "1", "--in", "2h"]).ok();
    assert_eq!(job()["state"], "scheduled");
    let put_off = job()["run_at"].as_i64().expect("a time") - before;
    assert!((7_200_000..7_260_000).contains(&put_off), "{put_off}");
    project.posse(&["job", "edit", "1", "--at", "2099-05-01T09:00:00Z"]).ok();
    assert_eq!(job()["run_at"], 4_081_309_200_000_i64);
    assert!(
        project
            .posse(&["job", "edit", "1", "--at", "2099-05-01", "--in", "2h"])
            .expect(2)
            .err
            .contains("cannot be used")
    );
    project.posse(&["job", "edit", "1", "--in", "0s"]).ok();
    assert!(job()["run_at"].as_i64() < Some(before + 3_600_000));
    project.posse(&["job", "cancel", "1"]).ok();
    let refused = project.posse(&["job", "edit", "1", "--in", "2h"]).expect(4);
    assert!(refused.err.contains("due at once when it is re-run; retry it first"), "{}", refused.err);
}

#[test]
fn what_completed_is_asked_again_only_where_that_is_said() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "the answer"}))]);
    let project = Project::with_model(&server);
    for n in 1..=2 {
        project.posse(&["enqueue", "-r", "scribe", "--group", "night", &format!("job {n}")]).ok();
    }
    let worker = project.start(&["work"]);
    project.wait_for_state(1, "completed");
    project.wait_for_state(2, "completed");
    worker.terminate();
    worker.wait().ok();
    project.posse(&["enqueue", "-r", "scribe", "--group", "night", "job 3"]).ok();
    project.posse(&["cancel", "3"]).ok();

    let preview = project.posse(&["retry", "--group", "night"]).ok();
    assert!(preview.out.contains("job 3") && !preview.out.contains("job 1"), "{}", preview.out);
    assert!(preview.err.contains("2 completed left out") && preview.err.contains("--completed"), "{}", preview.err);
    let told = project.posse(&["job", "retry", "--where", "group=night", "--yes", "--json"]).ok().json();
    assert_eq!(
        (&told["changed"], &told["states"], &told["left_out"]),
        (&json!(1), &json!({"cancelled": 1}), &json!({"completed": 2}))
    );
    assert_eq!((state(&project, 1), state(&project, 3)), ("completed".into(), "available".into()));
    let none = project.posse(&["retry", "--where", "group=night", "--yes"]).ok();
    assert!(
        none.err.contains("no job that can be re-run fits") && none.err.contains("2 completed left out"),
        "{}",
        none.err
    );
    let all = project.posse(&["retry", "--group", "night", "--completed", "--json"]).ok().json();
    assert_eq!(all["states"], json!({"completed": 2}));
    project.posse(&["retry", "--where", "group=night state=completed", "--yes"]).ok();
    assert_eq!((state(&project, 1), state(&project, 2)), ("available".into(), "available".into()));

    // The same words as flags and as terms, wherever jobs are chosen.
    let listed = |args: &[&str]| ids(&project.posse(args).ok().json());
    assert_eq!(listed(&["list", "--json", "--where", "group=night search=job 2"]), [2]);
    assert_eq!(listed(&["list", "--json", "--where", "group=night", "--search", "job 3"]), [3]);
    let twice = project.posse(&["list", "--where", "role=scribe", "--role", "scribe"]).expect(2);
    assert!(twice.err.contains("--role is given, and --where says it too"), "{}", twice.err);
    project.posse(&["cancel", "--search", "job 2", "--yes"]).ok();
    assert_eq!((state(&project, 1), state(&project, 2)), ("available".into(), "cancelled".into()));
}

#[test]
fn an_answer_is_printed_alone() {
    let server = ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "line one\nline two"}))]);
    let project = Project::with_model(&server);
    let ran = project.posse(&["run", "--answer", "-r", "scribe", "say it"]).ok();
    assert_eq!(ran.out, "line one\nline two\n", "{}", ran.err);
    assert_eq!(project.posse(&["show", "1", "--answer"]).ok().out, "line one\nline two\n");
    let json = project.posse(&["show", "1", "--answer", "--json"]).ok().json();
    assert_eq!(json, json!({"id": 1, "state": "completed", "answer": "line one\nline two"}));
    project.posse(&["enqueue", "-r", "scribe", "later"]).ok();
    let not_yet = project.posse(&["show", "2", "--answer"]).expect(4);
    assert!(
        not_yet.out.is_empty() && not_yet.err.contains("job 2 has no answer yet, it is available"),
        "{}",
        not_yet.err
    );
    project.posse(&["cancel", "2", "--reason", "no need"]).ok();
    let never = project.posse(&["show", "2", "--answer"]).expect(1);
    assert!(never.out.is_empty() && never.err.contains("it was cancelled: no need"), "{}", never.err);
}

#[test]
fn files_that_are_no_lines_of_json_are_taken_or_refused_by_name() {
    let project = Project::begun();
    let jobs = || project.posse(&["list", "--json"]).ok().json()["jobs"].as_array().map_or(0, Vec::len);
    let line = "{\"goal\": \"a\", \"role\": \"scribe\"}";
    // A mark at the beginning, ends of lines as elsewhere, lines with nothing in them.
    project.write("marked.jsonl", format!("\u{feff}{line}\r\n\r\n  \n\u{feff}{line}"));
    project.posse(&["enqueue", "--jsonl", "marked.jsonl"]).ok();
    assert_eq!(jobs(), 2);
    let pretty = "{\n  \"goal\": \"a\",\n  \"role\": \"scribe\"\n}\n";
    let wide: Vec<u8> = format!("\u{feff}{line}\n").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let huge = format!("{{\"role\": \"scribe\", \"goal\": \"{}\"}}\n", "x".repeat(3 << 20));
    for (bytes, words) in [
        (format!("[{line}]\n").into_bytes(), "jobs.jsonl:1: begins a JSON array"),
        (format!("{line}\n[\n{line}\n]\n").into_bytes(), "jobs.jsonl:2: begins a JSON array"),
        (pretty.into(), "jobs.jsonl:1: has an object that does not end in it"),
        (format!("{line},\n{line}\n").into_bytes(), "jobs.jsonl:1: ends with a comma"),
        (format!("{line}{line}\n").into_bytes(), "jobs.jsonl:1: has more than one object"),
        (wide, "jobs.jsonl:1: is UTF-16"),
        (b"{\"goal\": \"a\0b\"}".to_vec(), "jobs.jsonl:1: contains a NUL"),
        (b"{\"goal\": \"a\", \"goal\": \"b\"}".to_vec(), "the key \"goal\" is there twice"),
        (huge.into_bytes(), "jobs.jsonl:1: has more than"),
    ] {
        project.write("jobs.jsonl", &bytes);
        for input in ["jobs.jsonl", "-"] {
            let refused = project.posse_with(&["enqueue", "--jsonl", input, "-r", "scribe"], &bytes).expect(2);
            let words = if input == "-" { words.replace("jobs.jsonl", "standard input") } else { words.to_owned() };
            assert!(refused.err.contains(&words), "{words}: {}", refused.err);
        }
        assert_eq!(jobs(), 2);
    }
}

#[test]
fn a_cancelled_job_of_a_worker_that_is_gone_ends_without_another() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    for n in 1..=2 {
        project.posse(&["enqueue", "-r", "scribe", &format!("job {n}")]).ok();
    }
    let worker = project.start(&["work"]);
    project.wait_for_state(1, "running");
    project.wait_for_state(2, "running");
    drop(worker);
    assert_eq!(state(&project, 1), "running");
    let told = project.posse(&["cancel", "1"]).ok();
    assert!(told.out.contains("job 1 is cancelled; worker ") && told.out.contains("was gone"), "{}", told.out);
    assert_eq!((state(&project, 1), state(&project, 2)), ("cancelled".into(), "available".into()));
    // One whose worker is there is still asked to end it.
    let worker = project.start(&["work"]);
    project.wait_for_state(2, "running");
    assert!(project.posse(&["cancel", "2"]).ok().out.contains("its worker ends it at the next boundary"));
    project.wait_for_state(2, "cancelled");
    worker.terminate();
    worker.wait().ok();
}
