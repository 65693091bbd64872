//! `posse annotation`: remarks of agents and people, found again through the binary.

use crate::support::{ModelServer, Project, Say};
use serde_json::{Value, json};

fn numbers(listed: &Value) -> Vec<i64> {
    listed["annotations"].as_array().expect("a list").iter().map(|one| one["id"].as_i64().expect("a number")).collect()
}

/// A job that a person and an agent remarked on, which then asks something.
fn remarked() -> Project {
    let asks = json!({"final_summary": "", "clarifying_questions": ["Which price?"]});
    let server = ModelServer::start(vec![
        Say::Call("annotate", json!({"text": "The price\u{1b}[2J is missing.", "tags": ["gap"]})),
        Say::Call("finish", asks),
    ]);
    let project = Project::with_model(&server);
    project.posse(&["enqueue", "--role", "researcher", "Find the price"]).ok();
    project.posse(&["job", "annotate", "1", "--tag", "gap", "--tag", "why", "for", "Monday"]).ok();
    let worker = project.start(&["work", "--role", "researcher"]);
    project.wait_for_state(1, "suspended");
    worker.terminate();
    worker.wait().ok();
    project
}

#[test]
fn remarks_are_listed_by_tag_and_found_by_words() {
    let project = remarked();
    let of = |args: &[&str]| {
        let args = [&["annotation"], args, &["--json"]].concat();
        numbers(&project.posse(&args).ok().json())
    };
    assert_eq!(of(&["list"]), [3, 2, 1]);
    assert_eq!(of(&["list", "--tag", "clarification_needed"]), [3]);
    assert_eq!(of(&["list", "--tag", "gap"]), [2, 1]);
    assert_eq!(of(&["list", "--tag", "gap", "--tag", "why"]), [1]);
    assert_eq!(of(&["list", "--author", "researcher", "--job", "1"]), [3, 2]);
    assert_eq!(of(&["list", "--job", "2"]), [0; 0]);
    assert_eq!(of(&["search", "missing", "price"]), [2, 3]);
    let page = project.posse(&["annotation", "list", "-n", "2", "--json"]).ok().json();
    assert_eq!((numbers(&page), &page["next"]), (vec![3, 2], &json!(2)));
    assert_eq!(of(&["list", "--before", "2"]), [1]);
    let human = project.posse(&["annotation", "list", "-n", "2"]).ok();
    assert!(human.out.contains("clarification_needed") && human.out.contains("Which price?"), "{}", human.out);
    assert!(human.err.contains("more: --before 2") && !human.out.contains('\x1b'), "{}", human.err);
    assert!(project.posse(&["annotation", "list", "--tag", "no"]).ok().err.contains("no such remarks"));
    assert!(project.posse(&["annotation", "search", "?"]).expect(2).err.contains("no word to look for"));
    let shown = project.posse(&["show", "1"]).ok().out;
    assert!(shown.contains("person: for Monday [gap, why]"), "{shown}");
    assert!(shown.contains("researcher: Which price? [clarification_needed, job:1]"), "{shown}");
    // Those that are there are tagged.
    let tag = |args: &[&str]| project.posse(&[&["annotation", "tag"], args].concat());
    assert!(tag(&["1", "later", "gap", "--remove", "why"]).ok().out.contains("remark 1: gap, later"));
    assert_eq!((of(&["list", "--tag", "later"]), of(&["list", "--tag", "why"])), (vec![1], vec![]));
    assert_eq!(tag(&["1", "--remove", "later", "--json"]).ok().json()["tags"], json!(["gap"]));
    assert_eq!(of(&["list", "--tag", "later"]), [0; 0]);
    assert!(tag(&["9", "x"]).expect(3).err.contains("posse annotation list"));
    tag(&["1"]).expect(2);
    assert!(tag(&["1", " "]).expect(2).err.contains("a tag must be"));
    let many: Vec<_> = (0..17).map(|n| n.to_string()).collect();
    let many: Vec<_> = std::iter::once("1").chain(many.iter().map(String::as_str)).collect();
    assert!(tag(&many).expect(2).err.contains("more tags than 16"));
}

#[test]
fn remarks_of_the_version_before_are_found_and_a_worker_of_it_may_go_on() {
    let project = remarked();
    let file = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    file.execute_batch(include_str!("../../migrations/sqlite/0015_annotation_tags/down.sql")).expect("goes back");
    file.execute("DELETE FROM __diesel_schema_migrations WHERE version = '0015'", [])
        .expect("is of the version before");
    file.execute("UPDATE annotations SET tags = 'no list' WHERE id = 2", []).expect("is damaged");
    project.posse(&["resume", "--key", "k"]).ok();
    project.posse(&["job", "annotate", "1", "--tag", "new", "of this version"]).ok();
    // As the version before does it.
    let insert =
        "INSERT INTO annotations (job_id, author, text, tags, created_at) VALUES (1, 'r', 't', '[\"old\"]', 1)";
    file.execute(insert, []).expect("is stored");
    for (tag, ids) in [("gap", vec![1]), ("clarification_needed", vec![3]), ("new", vec![4]), ("old", vec![5])] {
        assert_eq!(numbers(&project.posse(&["annotation", "list", "--tag", tag, "--json"]).ok().json()), ids, "{tag}");
    }
    file.execute_batch("PRAGMA foreign_keys = ON; DELETE FROM annotations WHERE id = 5").expect("is deleted");
    let left = file.query_row("SELECT count(*) FROM annotation_tags WHERE tag = 'old'", [], |row| row.get(0));
    assert_eq!(left, Ok(0), "a remark's tags go with it");
}
