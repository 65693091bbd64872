//! What of a workspace is not its agents', by name.

use posse_core::tool::ToolErrorCategory::PermissionDenied;
use posse_core::workspace::protected::Protected;
use serde_json::json;

use super::support::Bench;

fn is_hidden(bench: &Bench, path: &str) -> bool {
    bench.write(path, "seen");
    match bench.call("read_file", json!({"path": path})) {
        Ok(text) => text != "seen",
        Err(error) => error.category == PermissionDenied && error.message.contains("belongs to Posse"),
    }
}

#[test]
fn what_belongs_to_a_database_goes_by_its_name() {
    let mut bench = Bench::new();
    bench.protected = Protected { databases: vec![bench.ws("acme.db")], ..Protected::default() };
    for path in ["acme.db", "ACME.DB", "acme.db-wal", "acme.db.sessions/1/events.jsonl", "acme.db.part", "acme.db.bak"]
    {
        assert!(is_hidden(&bench, path), "{path}");
    }
    for path in ["acme", "acme.dbx", "other.db", "sub/acme.db", "sessions/1"] {
        assert!(!is_hidden(&bench, path), "{path}");
    }
    bench.protected = Protected { databases: vec![bench.ws("posse.db")], ..Protected::default() };
    assert!(is_hidden(&bench, "sessions/1"));
}

#[test]
fn what_decides_about_agents_is_nobodys_at_any_depth() {
    let bench = Bench::new();
    let create = |path: &str| bench.call("create_file", json!({"path": path, "content": "x"}));
    for path in ["a/.agents/skills/x", "SQLite_Extensions/vec0.so", "b/config/posse.toml", "Config/Personas/x.json"] {
        let error = create(path).unwrap_err();
        assert!(error.message.contains("belongs to Posse, whose own files are read-only"), "{path}: {error}");
    }
    for path in ["config/app.toml", "agents/x", "posse.toml", "personas/x.json"] {
        create(path).unwrap();
    }
}

#[test]
fn a_workspace_beside_a_database_is_still_one() {
    let mut bench = Bench::new();
    let (hidden, databases) = (vec![bench.ws("keys")], vec![bench.base().join("x.db"), bench.ws("data/y.db")]);
    bench.protected = Protected { hidden, databases, ..Protected::default() };
    assert!(!is_hidden(&bench, "a") && is_hidden(&bench, "KEYS"));
    assert!(is_hidden(&bench, "data/z"));
}
