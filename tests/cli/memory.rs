//! What people remember, and what they have agents forget.

use crate::support::Project;
use serde_json::{Value, json};

fn texts(listed: &Value) -> Vec<&str> {
    listed["items"].as_array().expect("items").iter().map(|item| item["text"].as_str().expect("a text")).collect()
}

#[test]
fn what_people_save_is_found_changed_and_forgotten() {
    let project = Project::begun();
    let posse = |args: &[&str]| project.posse(&[&["memory"], args].concat());
    assert!(posse(&["list"]).ok().err.contains("posse memory add"));
    assert_eq!(posse(&["search", "tea", "--json"]).ok().json()["items"], json!([]));
    assert_eq!(posse(&["show", "1"]).expect(3).out, "");
    let added =
        posse(&["add", "Ada takes her tea without milk", "--tag", "ada", "--meta", "from=a talk", "--json"]).ok();
    assert_eq!(added.json(), json!({"id": 1, "became": "saved"}));
    assert!(posse(&["add", "ada takes her tea without milk."]).ok().out.contains("known already as item 1"));
    posse(&["add", "--scope", "scribe", "Write plain English."]).ok();
    assert!(posse(&["add", " "]).expect(2).err.contains("must not be empty"));
    let stdin = project.posse_with(&["memory", "add", "-"], b"Two lines\nof text\n").ok();
    assert!(stdin.out.contains("item 3"), "{}", stdin.out);

    let found = posse(&["search", "How does Ada like her teas?", "--json"]).ok().json();
    assert_eq!(found["words"], json!(["ada", "teas"]));
    let hit = &found["items"][0];
    assert_eq!((&hit["id"], &hit["words"], &hit["scope"]), (&json!(1), &json!(["ada", "teas"]), &json!("shared")));
    assert!(hit["score"].as_f64().is_some_and(|score| score > 0.0) && hit["created_at_rfc3339"].is_string(), "{hit}");
    let shown = posse(&["search", "tea"]).ok().out;
    assert!(shown.contains("Item 1,") && shown.contains("words: tea"), "{shown}");
    for (term, wanted) in
        [("scope=scribe", 1), ("tag=ada", 1), ("persona=person", 3), ("persona=scribe", 0), ("since=1h", 3)]
    {
        let listed = posse(&["list", "--where", term, "--json"]).ok().json();
        assert_eq!(texts(&listed).len(), wanted, "{term}");
    }
    assert!(posse(&["list", "--where", "colour=red"]).expect(2).err.contains("keys are scope, tag"));
    let page = posse(&["list", "-n", "2", "--json"]).ok().json();
    assert_eq!((texts(&page).len(), &page["next"]), (2, &json!(2)));
    assert_eq!(texts(&posse(&["list", "--before", "2", "--json"]).ok().json()), ["Ada takes her tea without milk"]);

    let edited = posse(&["edit", "1", "Ada takes her tea black", "--json"]).ok().json();
    assert_eq!(edited, json!({"id": 4, "became": "saved", "supersedes": 1}));
    assert!(posse(&["edit", "1", "no"]).expect(4).err.contains("replaced by item 4"));
    let shown = posse(&["show", "4", "--json"]).ok().json();
    assert_eq!(
        (&shown["version"], &shown["metadata"], &shown["tags"]),
        (&json!(2), &json!({"from": "a talk"}), &json!(["ada"]))
    );
    let history: Vec<_> = shown["history"].as_array().expect("a list").iter().map(|item| &item["text"]).collect();
    assert_eq!(history, ["Ada takes her tea without milk", "Ada takes her tea black"]);
    assert!(posse(&["show", "1"]).ok().out.contains("replaced by item 4"));

    assert!(posse(&["forget"]).expect(2).err.contains("--where"));
    let forgotten = posse(&["forget", "4", "--reason", "she said so", "--json"]).ok().json();
    assert_eq!(forgotten, json!({"forgotten": 1}));
    let shown = posse(&["show", "1", "--json"]).ok().json();
    assert_eq!((&shown["text"], &shown["reason"]), (&json!(""), &json!("she said so")));
    assert_eq!(posse(&["search", "tea", "--json"]).ok().json()["items"], json!([]));
    assert_eq!(posse(&["forget", "--where", "persona=person", "--json"]).ok().json(), json!({"forgotten": 2}));
    assert_eq!(posse(&["list", "--json"]).ok().json()["items"], json!([]));
}

#[test]
fn items_go_into_a_file_and_come_back_once() {
    let project = Project::begun();
    let posse = |args: &[&str]| project.posse(&[&["memory"], args].concat());
    let lines = [
        json!({"text": "Where is the ladder?", "scope": "scribe", "thread": "chat", "place": 1, "at": 1_700_000_000_000_i64}),
        json!({"text": "Behind the shed.", "scope": "scribe", "thread": "chat", "place": 2, "tags": ["garden"]}),
        json!({"text": "A page said so.", "untrusted": true, "source": "http_fetch", "metadata": {"n": 1}}),
    ];
    let file = lines.map(|line| line.to_string()).join("\n\n");
    project.write("items.jsonl", &file);
    assert_eq!(posse(&["import", "items.jsonl", "--json"]).ok().json(), json!({"saved": 3, "known": 0}));
    assert_eq!(posse(&["import", "items.jsonl", "--json"]).ok().json(), json!({"saved": 0, "known": 3}));
    let found = posse(&["search", "ladder", "--json"]).ok().json();
    assert_eq!(texts(&found), ["Where is the ladder?", "Behind the shed."]);
    assert_eq!(found["items"][1]["around"], json!(["ladder"]));
    let exported = posse(&["export"]).ok();
    assert_eq!(exported.json_lines().len(), 3);
    assert!(exported.out.contains("\"source\":\"http_fetch\"") && exported.out.contains("\"thread\":\"chat\""));
    let other = Project::begun();
    let out = exported.out.into_bytes();
    assert!(other.posse_with(&["memory", "import", "-"], &out).ok().out.contains("3 items saved"));
    assert_eq!(other.posse(&["memory", "export"]).ok().out.lines().count(), 3);
    let wrong = other.posse_with(&["memory", "import", "-"], b"{\"text\": \"fine\"}\n{\"txt\": 1}\n").expect(2).err;
    assert!(wrong.contains("line 2") && wrong.contains("import the file again"), "{wrong}");
    assert_eq!(other.posse(&["memory", "search", "fine", "--json"]).ok().json()["items"][0]["text"], "fine");
}

#[test]
fn the_doctor_finds_items_without_words_and_says_how_to_mend_it() {
    let project = Project::begun();
    project.posse(&["memory", "add", "the ladder is red"]).ok();
    project.posse(&["memory", "add", "the shed is green"]).ok();
    let finding = || {
        let found = project.posse(&["doctor", "--json"]).json();
        let all = found["findings"].as_array().expect("findings").clone();
        all.into_iter().find(|one| one["check"] == "memory").expect("is looked at")
    };
    assert_eq!(finding()["verdict"], "ok");
    let file = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    file.execute("DELETE FROM memory_words WHERE rowid = 1", []).expect("is gone");
    file.execute("INSERT INTO memory_words (rowid, content, around) VALUES (77, 'stray', '')", []).expect("is there");
    let found = finding();
    assert_eq!((&found["verdict"], &found["way_out"]), (&json!("warning"), &json!("posse memory reindex")));
    assert_eq!(project.posse(&["memory", "search", "ladder", "--json"]).ok().json()["items"], json!([]));
    let done = project.posse(&["memory", "reindex", "--json"]).ok().json();
    assert_eq!([&done["items"], &done["without_words"], &done["stray_words"]], [2, 0, 0]);
    assert!(done["why_not"].as_str().is_some_and(|why| why.contains("posse model pull")), "{done}");
    assert_eq!(finding()["verdict"], "ok");
    assert_eq!(texts(&project.posse(&["memory", "search", "ladder", "--json"]).ok().json()), ["the ladder is red"]);
}

#[test]
fn blocks_are_written_read_and_brought_back() {
    let project = Project::begun();
    let posse = |args: &[&str]| project.posse(&[&["memory", "block"], args].concat());
    assert!(posse(&["list"]).ok().err.contains("posse memory block edit"));
    posse(&["show", "profile"]).expect(3);
    assert!(posse(&["edit", "Pro file", "x"]).expect(2).err.contains("small letters"));
    assert!(posse(&["edit", "notes", "x"]).expect(2).err.contains("--scope ROLE"));
    let made = posse(&["edit", "profile", "Ada leads the crew.", "--json"]).ok().json();
    let wanted =
        json!({"scope": "shared", "name": "profile", "text": "Ada leads the crew.", "version": 1, "became": "saved"});
    assert_eq!(made, wanted);
    let stdin = ["memory", "block", "edit", "notes", "--scope", "scribe", "-"];
    assert!(project.posse_with(&stdin, b"Plain English.\nNo lists.\n").ok().out.contains("24 bytes, 1,976 left"));
    let too_long = "x".repeat(2001);
    assert!(posse(&["edit", "profile", &too_long]).expect(2).err.contains("at most 2,000 are allowed"));
    let line = format!("{}\n{}", "y".repeat(990), "z".repeat(1000));
    let cut = posse(&["edit", "profile", "--add", &line]).ok();
    assert!(cut.out.contains("1,991 bytes, 9 left") && cut.err.contains("Ada leads the crew."), "{}", cut.err);
    assert!(posse(&["undo", "profile"]).ok().out.contains("version 3: 19 bytes"));
    assert_eq!(posse(&["show", "profile"]).ok().out, "Ada leads the crew.\n");
    assert_eq!(posse(&["undo", "profile", "--to", "2", "--json"]).ok().json()["version"], 4);
    assert!(posse(&["undo", "profile", "--to", "9"]).expect(4).err.contains("posse memory block history profile"));
    let history = posse(&["history", "profile", "--json"]).ok().json();
    let versions = history["versions"].as_array().expect("a list");
    assert_eq!(versions.iter().map(|item| item["version"].as_u64()).collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    let listed = posse(&["list", "--json"]).ok().json();
    let names: Vec<_> = listed["blocks"].as_array().expect("a list").iter().map(|block| &block["name"]).collect();
    assert_eq!(names, ["notes", "profile"]);

    // As items they are exported, and come back as blocks.
    assert!(project.posse(&["memory", "edit", "1", "x"]).expect(4).err.contains("posse memory block edit"));
    assert_eq!(texts(&project.posse(&["memory", "list", "--where", "tier=archival", "--json"]).ok().json()).len(), 0);
    assert!(project.posse(&["memory", "list", "--where", "tier=warm"]).expect(2).err.contains("core archival"));
    let exported = project.posse(&["memory", "export"]).ok().out;
    let other = Project::begun();
    other.posse_with(&["memory", "import", "-"], exported.as_bytes()).ok();
    let shown = other.posse(&["memory", "block", "show", "notes", "--scope", "scribe", "--json"]).ok().json();
    assert_eq!((&shown["text"], &shown["version"]), (&json!("Plain English.\nNo lists."), &json!(1)));
    let disguised = br#"{"text": "x", "thread": "block notes", "place": 0}"#;
    assert!(other.posse_with(&["memory", "import", "-"], disguised).expect(2).err.contains("of the tier core"));
}
