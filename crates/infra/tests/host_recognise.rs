//! Which files are databases of Posse, by what is in them.
#![allow(clippy::unwrap_used)]

use posse_host::recognise::{database_of, is_database_at};
use posse_infra::sqlite::{Options, SqliteStore};
use std::fs;

#[test]
fn a_database_is_known_by_what_is_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let store = SqliteStore::open(&at("acme"), Options::default()).expect("opens");
    assert!(is_database_at(&at("acme")).unwrap(), "in use, nothing written back");
    assert_eq!(database_of(&at("acme-wal")).unwrap(), Some(at("acme")));
    assert_eq!(database_of(&at("ACME.sessions")).unwrap(), None, "another name");
    assert_eq!(database_of(&at("acme.sessions")).unwrap(), Some(at("acme")));
    drop(store);
    assert!(is_database_at(&at("acme")).unwrap());
    fs::copy(at("acme"), at("copy.txt")).expect("is copied");
    assert!(is_database_at(&at("copy.txt")).unwrap());
    fs::rename(at("acme"), at("posse.db")).expect("is moved");
    assert_eq!(database_of(&at("sessions")).unwrap(), Some(at("posse.db")));
}

#[test]
fn other_files_are_not_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let other = rusqlite::Connection::open(at("app.db")).expect("opens");
    other.execute_batch("CREATE TABLE jobs(id)").expect("works");
    fs::write(at("a.sql"), "CREATE TABLE job_data".repeat(100)).expect("is written");
    fs::write(at("app.db-wal"), "").expect("is written");
    std::os::unix::fs::symlink("app.db", at("link")).expect("is linked");
    for name in ["app.db", "a.sql", "link", "none", "."] {
        assert!(!is_database_at(&at(name)).unwrap(), "{name}");
    }
    assert_eq!(database_of(&at("app.db-wal")).unwrap(), None);
    assert_eq!(database_of(&at("sessions")).unwrap(), None);
}
