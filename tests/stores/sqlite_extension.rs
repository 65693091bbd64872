//! sqlite-vec: a build of it in the folder for extensions is used instead of the one built in. A
//! process chooses once, so each choice is tested in a program of its own.

use std::process::Command;

use diesel::prelude::*;
use posse_infra::sqlite::extension::{Source, register_from};
use posse_infra::sqlite::{Options, SqliteStore};

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = diesel::sql_types::Text)]
    version: String,
}

/// What `vec_version()` says on a connection opened after a store.
fn version() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let _store = SqliteStore::open(&path, Options::default()).expect("opens");
    let mut connection = SqliteConnection::establish(&path.to_string_lossy()).expect("opens");
    let row: Version =
        diesel::sql_query("SELECT vec_version() AS version").get_result(&mut connection).expect("is a function");
    row.version
}

/// An extension that has nothing of sqlite-vec but its name and its version.
const EXTENSION: &str = r#"
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT1
static void version(sqlite3_context *context, int n, sqlite3_value **values) {
    sqlite3_result_text(context, "test", -1, SQLITE_STATIC);
}
int sqlite3_vec_init(sqlite3 *db, char **message, const sqlite3_api_routines *api) {
    SQLITE_EXTENSION_INIT2(api);
    return sqlite3_create_function(db, "vec_version", 0, SQLITE_UTF8, 0, version, 0, 0);
}
"#;

/// Where the source of a library is that this program was compiled with.
fn source(of: &str) -> Option<std::path::PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(Into::into)
        .or_else(|| std::env::var_os("HOME").map(|home| std::path::PathBuf::from(home).join(".cargo")))?;
    let sources = std::fs::read_dir(home.join("registry/src")).ok()?;
    let crates = sources.flatten().filter_map(|index| std::fs::read_dir(index.path()).ok());
    let mut crates = crates.flatten().flatten().map(|entry| entry.path());
    crates.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(of)))
}

#[test]
fn the_built_in_one_is_there() {
    if std::env::var_os("POSSE_TEST_EXTENSIONS").is_some() {
        return;
    }
    let empty = tempfile::tempdir().expect("a folder");
    assert_eq!(register_from(Some(empty.path())).expect("works"), Source::BuiltIn);
    assert!(version().starts_with("v0.1."), "{}", version());
}

#[test]
fn one_in_the_folder_wins() {
    if let Some(folder) = std::env::var_os("POSSE_TEST_EXTENSIONS") {
        let file = std::path::Path::new(&folder).join("vec0.so");
        if std::fs::metadata(&file).expect("is there").len() < 100_000 {
            let said = register_from(Some(folder.as_ref())).expect_err("is refused").to_string();
            assert!(said.contains("vec0.so") && said.contains("replace or remove it"), "{said}");
            return;
        }
        assert_eq!(register_from(Some(folder.as_ref())).expect("works"), Source::File(file));
        assert_eq!(version(), "test");
        return;
    }
    let (header, vec) = (source("libsqlite3-sys-0.38"), source("sqlite-vec-0.1.9"));
    let (Some(header), Some(vec), true) = (header, vec, Command::new("cc").arg("--version").output().is_ok()) else {
        eprintln!("skipped: there is no C compiler, or no source of SQLite or sqlite-vec");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (c, so) = (folder.path().join("vec.c"), folder.path().join("vec0.so"));
    let build = |text: String| {
        std::fs::write(&c, text).expect("is written");
        let mut cc = Command::new("cc");
        let cc = cc.args(["-shared", "-fPIC", "-I"]).arg(header.join("sqlite3")).arg("-I").arg(&vec);
        assert!(cc.arg("-o").args([&so, &c]).status().expect("runs").success());
    };
    let text = std::fs::read_to_string(vec.join("sqlite-vec.c")).expect("can be read");
    build(text.replace("SQLITE_VEC_VERSION,", "\"test\","));
    let run = || {
        Command::new(std::env::current_exe().expect("has a path"))
            .args(["--exact", "stores::sqlite_extension::one_in_the_folder_wins"])
            .env("POSSE_TEST_EXTENSIONS", folder.path())
            .status()
            .expect("runs")
    };
    assert!(run().success(), "a good one is used");
    build(EXTENSION.into());
    assert!(run().success(), "one that does not do its work is named");
    std::fs::write(&so, "not a library").expect("is written");
    assert!(run().success(), "a bad one is named");
}
