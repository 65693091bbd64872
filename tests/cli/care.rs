//! Schedules, the doctor, copies, and asking workers to end: as people use them.

use std::time::{Duration, Instant};

use crate::support::{ModelServer, Project, Say, until};
use serde_json::{Value, json};

fn finishing() -> ModelServer {
    ModelServer::start(vec![Say::Call("finish", json!({"final_summary": "done"}))])
}

fn verdicts(report: &Value, check: &str) -> Vec<String> {
    let findings = report["findings"].as_array().expect("findings");
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    of_check.map(|finding| finding["verdict"].as_str().expect("a verdict").to_owned()).collect()
}

#[test]
fn a_preview_follows_the_table_of_changing_clocks() {
    let project = Project::empty();
    for (cron, zone, from, right) in [
        ("30 2 * * *", "America/New_York", "2027-03-14", "2027-03-14T07:00:00Z"),
        ("30 1 * * *", "America/New_York", "2027-11-07", "2027-11-07T05:30:00Z"),
        ("*/30 * * * *", "America/New_York", "2027-11-07T06:00:00Z", "2027-11-07T06:00:00Z"),
        ("0 0 * * *", "America/Santiago", "2027-09-04T23:59", "2027-09-05T04:00:00Z"),
        ("45 1 * * *", "Australia/Lord_Howe", "2027-04-04", "2027-04-03T14:45:00Z"),
        ("0 9 31 * *", "UTC", "2027-02-01", "2027-03-31T09:00:00Z"),
    ] {
        let args = ["schedule", "preview", "--cron", cron, "--tz", zone, "--from", from, "--count", "2"];
        let shown = project.posse(&args).ok().out;
        assert!(shown.starts_with(&format!("{right}  ")) && shown.lines().count() == 2, "{cron} {zone}: {shown}");
        let with_json: Vec<_> = args.into_iter().chain(["--json"]).collect();
        assert_eq!(project.posse(&with_json).ok().json()["runs"][0]["utc"], right);
    }
    for (args, said) in [
        (["--cron", "0 9 30 2 *", "--tz", "UTC"], "can never run"),
        (["--cron", "* * * *", "--tz", "UTC"], "has 4 fields"),
        (["--cron", "0 9 * * *", "--tz", "Oslo"], "no time zone 'Oslo'"),
    ] {
        let refused = project.posse(&[&["schedule", "preview"], &args[..]].concat()).expect(2);
        assert!(refused.err.contains(said), "{}", refused.err);
    }
}

#[test]
fn a_job_can_wait_for_its_time() {
    let project = Project::begun();
    let due = |time: &[&str]| {
        let args = [&["enqueue", "--role", "scribe", "--json", "write", "it"], time].concat();
        project.posse(&args).ok().json()["run_at"].as_i64().expect("a time")
    };
    let (at, from_now) = (due(&["--at", "2099-05-01T09:00:00Z"]), due(&["--in", "2h"]));
    assert_eq!(at, 4_081_309_200_000);
    assert!((from_now - due(&["--delay", "2h"])).abs() < 60_000, "two words for one thing");
    let both = project.posse(&["enqueue", "--role", "scribe", "--at", "2099-05-01", "--in", "2h", "write"]).expect(2);
    assert!(both.err.contains("cannot be used with"), "{}", both.err);
}

#[test]
fn a_schedule_lives_from_add_to_remove() {
    let project = Project::begun();
    let add = |name: &str, cron: &str| {
        let rule = ["--cron", cron, "--tz", "Europe/Oslo", "--missed", "all", "--overlap", "skip"];
        let goal = ["--role", "scribe", "--priority", "2", "write", "the", "news"];
        project.posse(&[&["schedule", "add", name][..], &rule, &goal].concat())
    };
    assert!(add("news", "0 9 30 2 *").expect(2).err.contains("can never run"));
    assert!(add("Big News", "0 9 * * *").expect(2).err.contains("name 'Big News'"));
    assert!(!project.path().join(".posse").exists(), "nothing is half done");
    let added = add("news", "0 9 * * *").ok().out;
    assert!(added.contains("news  next run") && added.lines().count() == 4, "{added}");
    assert!(add("news", "0 9 * * *").expect(4).err.contains("schedule 'news' already"));

    let listed = project.posse(&["schedule", "list", "--json"]).ok().json()["schedules"].clone();
    let news = &listed[0];
    assert_eq!((&news["name"], &news["zone"]), (&"news".into(), &"Europe/Oslo".into()));
    assert_eq!((&news["missed"], &news["overlap"]), (&"all".into(), &"skip".into()));
    assert_eq!((&news["job"]["role"], &news["job"]["priority"]), (&"scribe".into(), &2.into()));
    assert_eq!(news["job"]["payload"]["goal"], "write the news");

    assert!(project.posse(&["schedule", "pause", "news"]).ok().out.contains("news is paused"));
    assert!(project.posse(&["schedule", "show", "news"]).ok().out.contains("paused since"));
    assert!(project.posse(&["schedule", "list"]).ok().out.contains("paused"));
    assert!(project.posse(&["schedule", "resume", "news"]).ok().out.contains("resumed, next run"));
    let shown = project.posse(&["schedule", "show", "news", "--json"]).ok().json();
    assert_eq!((shown["next"].as_array().map(Vec::len), &shown["jobs"]), (Some(5), &json!([])));
    assert!(project.posse(&["schedule", "remove", "news"]).ok().out.contains("is removed"));
    for verb in ["show", "pause", "resume", "remove"] {
        assert!(project.posse(&["schedule", verb, "news"]).expect(3).err.contains("there is no schedule 'news'"));
    }
}

#[test]
fn a_worker_keeps_schedules_and_makes_up_for_one_missed_run() {
    let server = finishing();
    let project = Project::with_model(&server);
    project.posse(&["schedule", "add", "often", "--cron", "* * * * *", "--role", "scribe", "write", "it"]).ok();
    // As after hours without a worker.
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute("UPDATE schedules SET next_at = next_at - 3 * 3600000", []).expect("works");
    let worker = project.start(&["work", "--role", "scribe"]);
    project.wait_for_state_of_new(1, "completed");
    let shown = project.posse(&["schedule", "show", "often", "--json"]).ok().json();
    let made = shown["jobs"].as_array().expect("jobs").len();
    assert!((1..=2).contains(&made), "one makes up for all, and one may have come at its time: {shown}");
    assert_eq!(project.posse(&["doctor", "--json"]).ok().json()["verdict"], "ok");
    worker.terminate();
    worker.wait().ok();
}

#[test]
fn a_worker_that_is_drained_finishes_what_it_has() {
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    assert!(project.posse(&["worker", "drain"]).expect(3).err.contains("no worker"));
    let worker = project.start(&["work", "--role", "scribe"]);
    project.posse(&["enqueue", "--role", "scribe", "write", "it"]).ok();
    project.wait_for_state(1, "running");
    let listed = project.posse(&["worker", "list", "--json"]).ok().json()["workers"].clone();
    let one = &listed[0];
    assert_eq!((&one["status"], &one["jobs"][0]["job"]), (&"working".into(), &1.into()), "{listed}");
    assert!(one["jobs"][0]["since"].is_i64() && one["slots_in_all"].as_u64() > Some(0));
    let human = project.posse(&["worker", "list"]).ok().out;
    assert!(human.contains("working") && human.contains("LAST ENTRY"), "{human}");

    assert!(project.posse(&["worker", "drain", "nobody"]).expect(3).err.contains("there is no worker 'nobody'"));
    let asked = project.posse(&["worker", "drain"]).ok().out;
    assert!(asked.contains("claims nothing more"), "{asked}");
    assert_eq!(project.posse(&["worker", "list", "--json"]).ok().json()["workers"][0]["status"], "draining");
    // What comes now is not claimed any more; what is in hand goes on.
    project.posse(&["enqueue", "--role", "scribe", "write", "more"]).ok();
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "running");
    project.posse(&["job", "cancel", "1"]).ok();
    let ended = worker.wait().ok();
    assert!(ended.err.contains("asked to end"), "{}", ended.err);
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "cancelled");
    assert_eq!(project.posse(&["show", "2", "--json"]).ok().json()["job"]["state"], "available");
    assert_eq!(project.posse(&["worker", "list", "--json"]).ok().json()["workers"], json!([]));
}

#[test]
fn a_second_signal_ends_the_step_and_costs_nothing_either() {
    // A step that would go on for as long as it is let.
    let server = ModelServer::start(vec![Say::Silence]);
    let project = Project::with_model(&server);
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    let mut worker = project.start(&["work", "--quiet"]);
    project.wait_for_state(1, "running");
    worker.terminate();
    worker.hear("shutting down: waiting up to");
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "running");
    let begun = Instant::now();
    worker.terminate();
    let ended = worker.wait().expect(0);
    assert!(ended.err.contains("stopping the steps in progress"), "{}", ended.err);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let shown = project.posse(&["show", "1", "--json"]).ok().json();
    assert_eq!((&shown["job"]["state"], &shown["job"]["attempt"]), (&json!("available"), &json!(0)), "{shown}");
    assert_eq!(shown["attempts"][0]["outcome"], "interrupted");
    assert_eq!(project.posse(&["worker", "list", "--json"]).ok().json()["workers"], json!([]), "it left the list");
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let server = finishing();
    let project = Project::with_model(&server);
    let well = project.posse(&["doctor", "--json"]).ok().json();
    assert_ne!(well["verdict"], "wrong", "{well}");
    assert!(!project.path().join(".posse").exists(), "looking leaves no trace");

    project.posse(&["enqueue", "--role", "scribe", "write", "it"]).ok();
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute("UPDATE jobs SET run_at = run_at - 600000", []).expect("works");
    let unserved = project.posse(&["doctor"]).expect(1).out;
    for words in
        ["wrong    due jobs: 1 of role scribe", "no worker serves it", "posse work --role scribe", "ok       damage"]
    {
        assert!(unserved.contains(words), "{words}: {unserved}");
    }

    project.posse(&["run", "--role", "scribe", "write", "more"]).ok();
    database
        .execute_batch(
            "UPDATE jobs SET state = 'completed', finalized_at = 1 WHERE state = 'available';
             UPDATE steps SET seq = seq + 1 WHERE job_id = 2 AND kind = 'ended';",
        )
        .expect("works");
    let torn = project.posse(&["doctor", "--full", "--json"]).expect(1).json();
    assert_eq!(verdicts(&torn, "histories"), ["wrong"], "{torn}");
    assert_eq!(verdicts(&torn, "due jobs"), ["ok"]);
    assert_eq!(verdicts(&torn, "damage"), ["ok"]);

    project.write("config/personas/scribe.json", "{");
    let broken = project.posse(&["doctor", "--json"]).expect(1).json();
    assert!(verdicts(&broken, "personas").contains(&"wrong".to_owned()), "{broken}");

    database.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('9999')", []).expect("works");
    let newer = project.posse(&["doctor", "--json"]).expect(1).json();
    assert_eq!(verdicts(&newer, "database"), ["wrong"], "{newer}");
}

#[test]
fn a_database_is_checked_copied_and_migrated() {
    let project = Project::begun();
    for args in [&["db", "backup", "copy.db"][..], &["db", "check"]] {
        assert!(project.posse(args).expect(3).err.contains("there is no database"));
    }
    assert!(project.posse(&["db", "migrate"]).ok().out.contains("was made with schema"));
    assert!(project.posse(&["db", "migrate"]).ok().out.contains("already"));
    project.posse(&["enqueue", "--role", "scribe", "write", "it"]).ok();
    let copied = project.posse(&["db", "backup", "copy.db", "--json"]).ok().json();
    assert_eq!(copied["checked"], true);
    assert!(project.posse(&["db", "backup", "copy.db"]).expect(5).err.contains("is there already"));
    let from_copy = project.posse(&["--db", "copy.db", "list", "--json"]).ok().json();
    assert_eq!(from_copy["jobs"].as_array().map(Vec::len), Some(1));
    let sound = project.posse(&["db", "check", "--full"]).ok().out;
    assert!(sound.contains("no damage found") && sound.contains("1 job: 1 available"), "{sound}");

    let database = rusqlite::Connection::open(project.path().join("copy.db")).expect("opens");
    database.execute_batch("PRAGMA foreign_keys = 0; DELETE FROM jobs").expect("works");
    drop(database);
    let damaged = project.posse(&["--db", "copy.db", "db", "check"]).expect(5);
    assert!(damaged.out.contains("row 1 of job_data") && damaged.err.contains("is damaged"), "{}", damaged.err);
    let told = project.posse(&["--db", "copy.db", "db", "check", "--json"]).expect(5).json();
    assert_eq!(told["problems"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_damaged_job_is_named_and_hides_no_other() {
    let project = Project::begun();
    for goal in ["one", "two", "three"] {
        project.posse(&["enqueue", "--role", "scribe", goal]).ok();
    }
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute_batch("UPDATE job_data SET payload = 'no json' WHERE job_id = 2").expect("works");
    let listed = project.posse(&["list"]).ok().out;
    assert!(listed.contains("three") && listed.contains("one"), "{listed}");
    assert!(
        listed.lines().any(|line| line.starts_with("2 ") && line.contains("its payload cannot be read")),
        "{listed}"
    );
    let jobs = project.posse(&["list", "--json"]).ok().json()["jobs"].clone();
    assert!(jobs[1]["damage"].as_str().is_some_and(|why| why.contains("payload")) && jobs[0].get("damage").is_none());
    let shown = project.posse(&["show", "2"]).ok().out;
    assert!(shown.contains("damaged") && shown.contains("its payload cannot be read"), "{shown}");
    let report = project.posse(&["doctor", "--json"]).expect(1).json();
    assert_eq!(verdicts(&report, "histories"), ["wrong"]);
    project.posse(&["job", "cancel", "2"]).ok();
    project.posse(&["job", "delete", "2"]).ok();
    let report = project.posse(&["doctor", "--json"]).json();
    assert_eq!(verdicts(&report, "histories"), ["ok"]);
}

#[test]
fn a_database_is_compacted_while_nobody_works() {
    let server = finishing();
    let project = Project::with_model(&server);
    project.posse(&["db", "compact"]).expect(3);
    project.posse(&["enqueue", "--role", "scribe", "x"]).ok();
    let worker = project.start(&["work", "--quiet"]);
    project.wait_for_state(1, "completed");
    let refused = project.posse(&["db", "compact"]).expect(2);
    assert!(
        refused.err.contains("would have to wait") && refused.err.contains("posse worker drain"),
        "{}",
        refused.err
    );
    worker.terminate();
    worker.wait().expect(0);
    let migrate = || project.posse(&["db", "migrate"]).ok().err;
    assert!(!migrate().contains("compact"));
    let database = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    database.execute_batch("PRAGMA auto_vacuum = NONE; VACUUM").expect("works");
    drop(database);
    assert!(migrate().contains("posse db compact rewrites it"));
    let done = project.posse(&["db", "compact", "--json"]).ok().json();
    assert!(done["after"].as_u64() > Some(0) && done["before"].as_u64() > Some(0), "{done}");
    assert!(!migrate().contains("compact"));
    assert_eq!(project.posse(&["show", "1", "--json"]).ok().json()["job"]["state"], "completed");
}

impl Project {
    /// Waits until there is such a job and it is in this state.
    fn wait_for_state_of_new(&self, job: i64, state: &str) {
        until(&format!("there is a job {job}"), || self.posse(&["show", &job.to_string()]).code != 3);
        self.wait_for_state(job, state);
    }
}

#[test]
fn a_schedule_is_edited_replaced_and_run_by_hand() {
    let project = Project::begun();
    let add = [
        "schedule",
        "add",
        "news",
        "--cron",
        "0 7 * * *",
        "--role",
        "researcher",
        "--group",
        "g",
        "--tag",
        "t",
        "look",
    ];
    project.posse(&add).ok();
    let show = || project.posse(&["schedule", "show", "news", "--json"]).ok().json()["schedule"].clone();
    let before = show();
    assert_eq!((&before["job"]["group"], &before["job"]["tags"]), (&json!("g"), &json!(["t"])));

    let made = project.posse(&["schedule", "run-now", "news", "--json"]).ok().json();
    let job = project.posse(&["show", &made["job"].to_string(), "--json"]).ok().json()["job"].clone();
    assert_eq!(
        (&job["payload"]["goal"], &job["group"], &job["state"]),
        (&json!("look"), &json!("g"), &json!("available"))
    );
    assert_eq!(show()["next_at"], before["next_at"], "its next run stays");
    let jobs = project.posse(&["schedule", "show", "news", "--json"]).ok().json()["jobs"].clone();
    assert_eq!(jobs[0]["id"], made["job"]);

    project.posse(&["schedule", "edit", "news", "--goal", "look twice", "--tag", "none", "--priority", "2"]).ok();
    let edited = show();
    assert_eq!((&edited["job"]["payload"]["goal"], &edited["job"]["tags"]), (&json!("look twice"), &json!([])));
    assert_eq!((&edited["job"]["group"], &edited["job"]["priority"]), (&json!("g"), &json!(2)));
    assert_eq!((&edited["next_at"], &edited["cron"]), (&before["next_at"], &before["cron"]));
    project.posse(&["schedule", "pause", "news"]).ok();
    project.posse(&["schedule", "edit", "news", "--cron", "30 9 * * *", "--tz", "Europe/Oslo", "--group", "none"]).ok();
    let moved = show();
    assert_eq!((&moved["cron"], &moved["job"]["group"]), (&json!("30 9 * * *"), &json!(null)));
    assert!(moved["next_at"] != before["next_at"] && moved["paused_at"].is_i64());
    project.posse(&["schedule", "run-now", "news"]).ok();

    let replace = ["schedule", "replace", "news", "--cron", "@daily", "--role", "scribe", "write"];
    project.posse(&replace).ok();
    let replaced = show();
    assert_eq!((&replaced["job"]["role"], &replaced["job"]["priority"]), (&json!("scribe"), &json!(5)));
    assert!(replaced["paused_at"].is_i64() && replaced["last"]["id"].is_i64(), "{replaced}");
    for (args, code, words) in [
        (&["schedule", "edit", "olds", "--goal", "x"][..], 3, "there is no schedule 'olds'"),
        (&["schedule", "edit", "news"], 2, "nothing is different"),
        (&["schedule", "edit", "news", "--role", "plumber"], 2, "'plumber' has no persona"),
        (&["schedule", "edit", "news", "--cron", "soon"], 2, "schedule"),
        (&["schedule", "run-now", "olds"], 3, "there is no schedule 'olds'"),
        (
            &["schedule", "replace", "olds", "--cron", "@daily", "--role", "scribe", "x"],
            3,
            "there is no schedule 'olds'",
        ),
        (&add, 4, "posse schedule replace news"),
    ] {
        let refused = project.posse(args).expect(code);
        assert!(refused.err.contains(words), "{args:?}: {}", refused.err);
    }
}
