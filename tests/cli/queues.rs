//! What is said of a queue, as people say it.

use crate::support::Project;
use serde_json::Value;

fn limits(project: &Project) -> Value {
    project.posse(&["limit", "list", "--json"]).ok().json()
}

#[test]
fn rules_of_queues_are_the_same_after_their_table_has_changed() {
    let project = Project::begun();
    for set in [
        &["limit", "set", "--queue", "mail", "--running", "5", "--per-minute", "60", "--fair"][..],
        &["limit", "set", "--queue", "news", "--running-per-key", "1"],
        &["limit", "set", "--all", "--running", "9"],
        &["pause", "--queue", "paused"],
        &["pause", "--role", "scribe"],
    ] {
        project.posse(set).ok();
    }
    let before = limits(&project);
    assert_eq!(before["limits"].as_array().map(Vec::len), Some(5));

    let file = rusqlite::Connection::open(project.path().join(".posse/posse.db")).expect("opens");
    file.execute_batch(include_str!("../../migrations/sqlite/0013_queues/down.sql")).expect("goes back");
    file.execute("DELETE FROM __diesel_schema_migrations WHERE version = '0013'", [])
        .expect("is of the version before");
    let of_queues = "SELECT count(*) FROM rules WHERE scope = 'queue'";
    assert_eq!(file.query_row(of_queues, [], |row| row.get(0)), Ok(3));
    drop(file);

    project.posse(&["resume", "--key", "k"]).ok();
    assert_eq!(limits(&project), before);
}
