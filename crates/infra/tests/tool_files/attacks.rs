//! Attempts on the project's own files, on the workspace itself and on the worker's time, each by every file tool.
//! What stops each stands in RELIABILITY.md, "Confinement: files".

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::confinement::calls;
use super::support::{Bench, SECRET};
use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::ToolErrorCategory::{Conflict, NotFound, PermissionDenied, Stopped};
use posse_core::workspace::protected::Protected;
use posse_infra::folder::identify;
use posse_infra::sqlite::{Options, SqliteStore};
use serde_json::json;

/// A workspace that is the project's folder, with each of the settings naming something in it, and another tenant's
/// database beside.
fn project() -> Bench {
    let mut bench = Bench::new();
    let ws = bench.ws("");
    let at = |name: &str| ws.join(name);
    bench.protected = Protected {
        hidden: vec![at(".posse"), at("keys.txt"), at("state/posse")],
        fixed: ["config", ".agents", "sqlite_extensions", "agents", "my.toml", "models/tokenizer.json"].map(at).into(),
        databases: vec![at("acme.db"), at("data/own.db")],
    };
    for database in ["acme.db", "data/own.db", "rival", ".posse/posse.db"] {
        fs::create_dir_all(at(database).parent().unwrap()).unwrap();
        drop(SqliteStore::open(&at(database), Options::default()).unwrap());
    }
    for file in [
        "acme.db.sessions/1/events.jsonl",
        "acme.db.part",
        "acme.db.bak",
        "data/own.db.sessions/1/events.jsonl",
        "data/notes.txt",
        "rival.sessions/1/events.jsonl",
        "rival.part",
        ".posse/sessions/1/events.jsonl",
        "keys.txt",
        "state/posse/trust.json",
    ] {
        bench.write(file, SECRET);
    }
    for file in ["agents/scribe.json", "config/posse.toml", "config/other.toml", ".agents/skills/a/SKILL.md", "my.toml"]
    {
        bench.write(file, "decides");
    }
    bench.write("models/tokenizer.json", "decides");
    bench.write("free.txt", "anybody's");
    bench
}

/// No tool gives a byte of it, and none changes anything.
#[track_caller]
fn is_hidden(bench: &Bench, path: &str) {
    let before = bench.tree();
    for (tool, args) in calls(path) {
        let told = bench.call(tool, args).map_err(|error| (error.category, error.message));
        let (category, message) = told.expect_err(&format!("{tool} {path}"));
        assert!(matches!(category, PermissionDenied | NotFound | Conflict), "{tool} {path}: {category:?} {message}");
        assert!(!message.contains(SECRET) && !message.contains("events.jsonl:"), "{tool} {path}: {message}");
        assert!(before == bench.tree(), "{tool} {path} changed something");
    }
}

/// Every tool that writes is refused.
#[track_caller]
fn is_fixed(bench: &Bench, path: &str) {
    let before = bench.tree();
    for (tool, args) in calls(path).into_iter().skip(5) {
        let error = bench.call(tool, args).expect_err(&format!("{tool} {path}"));
        assert!(matches!(error.category, PermissionDenied | NotFound | Conflict), "{tool} {path}: {error}");
        assert!(before == bench.tree(), "{tool} {path} changed something");
    }
}

#[test]
fn the_database_is_hidden_whatever_it_is_called() {
    let bench = project();
    for path in ["acme.db", "acme.db.sessions/1/events.jsonl", "acme.db.sessions", "acme.db.part", "acme.db.bak"] {
        is_hidden(&bench, path);
    }
    for path in ["data/own.db", "data/own.db.sessions/1/events.jsonl", "data", "data/notes.txt", ".posse/posse.db"] {
        is_hidden(&bench, path);
    }
    // What SQLite would take for its own is not made either.
    for path in ["acme.db-wal", "acme.db-shm", "acme.db-journal", "data/own.db-journal", "acme.db.sessions/2/x"] {
        is_hidden(&bench, path);
    }
}

#[test]
fn keys_and_what_is_kept_of_the_person_are_hidden() {
    let bench = project();
    for path in ["keys.txt", "state/posse/trust.json", "state/posse", ".posse/sessions/1/events.jsonl"] {
        is_hidden(&bench, path);
    }
}

#[test]
fn another_tenants_database_is_known_by_what_is_in_it() {
    let bench = project();
    fs::copy(bench.ws("rival"), bench.ws("innocent.txt")).unwrap();
    for path in ["rival", "innocent.txt", "rival.sessions/1/events.jsonl", "rival.sessions", "rival.part"] {
        is_hidden(&bench, path);
    }
    for path in ["rival-wal", "rival-journal", "rival-shm", "innocent.txt-journal"] {
        is_hidden(&bench, path);
    }
    // Somebody's own database is nobody's business, nor is a text about one.
    rusqlite::Connection::open(bench.ws("app.db")).unwrap().execute_batch("CREATE TABLE jobs(id)").unwrap();
    assert!(bench.call("read_file", json!({"path": "app.db"})).unwrap().contains("SQLite database"));
    bench.call("create_file", json!({"path": "app.db-notes.txt", "content": "x"})).unwrap();
}

/// When a process closes any handle of a file, the kernel takes off all locks that it has on the file. Another process would
/// then take the database for one that nobody uses, and throw away what is not written back to it.
#[test]
fn no_tool_takes_the_locks_off_a_database_in_use() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = project();
    // Known to nobody but by being open.
    let path = bench.ws("in_use");
    let _store = SqliteStore::open(&path, Options::default()).unwrap();
    let shared = bench.ws("in_use-shm");
    for (link, target) in [("hard link", &path), ("hard shm", &shared)] {
        fs::hard_link(target, bench.ws(link)).unwrap();
    }
    let (pid, inodes) =
        (std::process::id().to_string(), [&path, &shared].map(|file| fs::metadata(file).unwrap().ino()));
    let locks = || {
        let all = fs::read_to_string("/proc/locks").unwrap();
        let is_ours = |line: &&str| {
            let mut words = line.split_whitespace();
            words.nth(4) == Some(&pid)
                && words.next().is_some_and(|file| inodes.iter().any(|n| file.ends_with(&format!(":{n}"))))
        };
        all.lines().filter(is_ours).count()
    };
    let before = locks();
    assert!(before > 0, "SQLite has none");
    for path in ["in_use", "in_use-shm", "in_use-wal", "hard link", "hard shm"] {
        is_hidden(&bench, path);
    }
    bench.call("search_files", json!({"pattern": "jobs"})).unwrap();
    bench.call("list_files", json!({"recursive": true})).unwrap();
    assert_eq!(locks(), before);
}

#[test]
fn no_other_spelling_leads_there() {
    let bench = project();
    bench.write("sub/x", "x");
    let absolute = bench.ws("acme.db.sessions/1/events.jsonl");
    for path in ["./acme.db", "sub/../acme.db", "sub/.././/keys.txt", absolute.to_str().unwrap()] {
        is_hidden(&bench, path);
    }
    // Where a file system does not tell cases apart these are the same files; elsewhere they are refused for nothing.
    for path in ["ACME.DB", "Keys.TXT", ".POSSE/x", "acme.DB-WAL"] {
        is_hidden(&bench, path);
    }
    for (link, target) in [
        ("to_file", "acme.db.sessions/1/events.jsonl"),
        ("to_folder", "acme.db.sessions"),
        ("to_keys", "keys.txt"),
        ("to_all", "."),
        ("to_link", "to_keys"),
    ] {
        symlink(target, bench.ws(link)).unwrap();
    }
    for path in ["to_file", "to_folder/1/events.jsonl", "to_folder/new", "to_keys", "to_all/keys.txt", "to_link"] {
        is_hidden(&bench, path);
    }
}

#[test]
fn a_hard_link_is_known_by_its_identity() {
    let mut bench = project();
    // What lies outside of the workspace can have a name in it, too.
    let outside = bench.base().join("ws-evil/secret.txt");
    bench.protected.hidden.push(outside.clone());
    fs::hard_link(&outside, bench.ws("zero")).unwrap();
    is_hidden(&bench, "zero");
    for (name, target) in [
        ("one", "keys.txt"),
        ("two", "acme.db.sessions/1/events.jsonl"),
        ("three", "data/own.db.sessions/1/events.jsonl"),
        ("four", ".posse/sessions/1/events.jsonl"),
        ("five", "rival"),
    ] {
        fs::hard_link(bench.ws(target), bench.ws(name)).unwrap();
        is_hidden(&bench, name);
    }
    fs::hard_link(bench.ws("free.txt"), bench.ws("also free")).unwrap();
    assert_eq!(bench.call("read_file", json!({"path": "also free"})).unwrap(), "anybody's");
}

#[test]
fn what_decides_about_agents_is_read_and_not_written() {
    let bench = project();
    symlink("agents", bench.ws("link")).unwrap();
    symlink("my.toml", bench.ws("settings")).unwrap();
    for path in [
        "agents/scribe.json",
        "agents/new.json",
        "AGENTS/new.json",
        "link/scribe.json",
        "link/new.json",
        "config/posse.toml",
        "config/other.toml",
        "config/new/x",
        "my.toml",
        "settings",
        ".agents/skills/a/SKILL.md",
        ".agents/new",
        "sqlite_extensions/vec0.so",
        "models/tokenizer.json",
        "./sub/../agents/new.json",
        // Nor where a person may walk into it later.
        "sub/config/posse.toml",
        "sub/config/personas/x.json",
        "sub/.agents/skills/a/SKILL.md",
        "sub/.posse/posse.db",
        "sub/sqlite_extensions/vec0.so",
    ] {
        is_fixed(&bench, path);
    }
    assert_eq!(bench.call("read_file", json!({"path": "agents/scribe.json"})).unwrap(), "decides");
    bench.call("create_file", json!({"path": "sub/config/app.toml", "content": "x"})).unwrap();
    bench.call("append_file", json!({"path": "free.txt", "text": "x"})).unwrap();
}

#[test]
fn nobody_comes_across_it_either() {
    let bench = project();
    let found = bench.call("search_files", json!({"pattern": SECRET})).unwrap();
    assert!(found.starts_with("no match"), "{found}");
    let listed = bench.call("list_files", json!({"recursive": true, "limit": 1000})).unwrap();
    for name in ["events.jsonl", "keys.txt", "acme.db ", "own.db", "notes.txt", "trust.json"] {
        assert!(!listed.lines().any(|line| line.contains(name) && !line.starts_with('[')), "{name}: {listed}");
    }
    assert!(listed.contains("free.txt") && listed.contains("agents/scribe.json"), "{listed}");
    for path in ["acme.db.sessions/1/evnts.jsonl", "data/notse.txt", "keys.txt/x"] {
        let error = bench.call("read_file", json!({"path": path})).unwrap_err();
        assert!(!error.message.contains("events.jsonl") && !error.message.contains("notes.txt"), "{error}");
    }
}

#[test]
fn a_workspace_within_what_is_protected_opens_nothing() {
    let mut bench = project();
    let root = bench.ws("").canonicalize().unwrap();
    bench.protected.fixed = vec![root.clone()];
    is_fixed(&bench, "free.txt");
    bench.protected.hidden = vec![root];
    is_hidden(&bench, "free.txt");
}

#[test]
fn a_workspace_that_was_swapped_is_not_touched() {
    let mut bench = Bench::new();
    bench.write("secret.txt", "mine");
    bench.workspace_id = Some(identify(&bench.ws("").canonicalize().unwrap()).unwrap());
    assert_eq!(bench.call("read_file", json!({"path": "secret.txt"})).unwrap(), "mine");
    let (ws, evil) = (bench.base().join("ws"), bench.base().join("ws-evil"));
    let swap = |make: &dyn Fn()| {
        fs::rename(&ws, bench.base().join("old")).unwrap();
        make();
        let before = bench.tree();
        for path in ["secret.txt", "."] {
            for (tool, args) in calls(path) {
                let error = bench.call(tool, args).expect_err(&format!("{tool} {path}"));
                assert_eq!(error.category, PermissionDenied, "{tool} {path}: {error}");
                assert!(!error.message.contains(SECRET), "{error}");
                assert!(before == bench.tree(), "{tool} {path} changed something");
            }
        }
        bench.call("read_file", json!({"path": "secret.txt"})).unwrap_err().message
    };
    let put_back = || fs::rename(bench.base().join("old"), &ws).unwrap();
    assert!(swap(&|| symlink(&evil, &ws).unwrap()).contains("is a symlink to"));
    fs::remove_file(&ws).unwrap();
    put_back();
    let other = swap(&|| {
        fs::create_dir(&ws).unwrap();
        fs::write(ws.join("secret.txt"), SECRET).unwrap();
    });
    assert!(other.contains("another folder than the one that was there when the job was accepted"), "{other}");
    fs::remove_dir_all(&ws).unwrap();
    put_back();
    assert_eq!(bench.call("read_file", json!({"path": "secret.txt"})).unwrap(), "mine");
}

/// Somebody exchanges two entries for each other as fast as can be while `look` is done many times.
fn while_swapping(one: &Path, other: &Path, mut look: impl FnMut()) {
    let done = AtomicBool::new(false);
    let swapped = || {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, other, flags).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swapped();
                swapped();
            }
        });
        for _ in 0..30 {
            look();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_race_for_the_workspace_is_lost() {
    let mut bench = Bench::new();
    bench.write("secret.txt", "mine");
    bench.workspace_id = Some(identify(&bench.ws("").canonicalize().unwrap()).unwrap());
    let (ws, link, evil) = (bench.base().join("ws"), bench.base().join("link"), bench.base().join("ws-evil"));
    symlink(&evil, &link).unwrap();
    while_swapping(&ws, &link, || {
        for (tool, args) in calls("secret.txt") {
            if let Ok(text) = bench.call(tool, args) {
                assert!(!text.contains(SECRET), "{tool}: {text}");
            }
        }
    });
    assert_eq!(fs::read_to_string(evil.join("secret.txt")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&evil).unwrap().count(), 1);
}

#[test]
fn a_race_for_what_is_hidden_or_fixed_is_lost() {
    let bench = project();
    bench.write("mine/1/events.jsonl", "mine");
    bench.write("mine/scribe.json", "mine");
    for own in ["acme.db.sessions", "agents"] {
        let before =
            bench.content(&format!("{own}/{}", if own == "agents" { "scribe.json" } else { "1/events.jsonl" }));
        // A link of ours that leads to our own folder and to theirs by turns.
        let (link, other) = (bench.ws("turn"), bench.ws("turned"));
        symlink("mine", &link).unwrap();
        symlink(own, &other).unwrap();
        while_swapping(&link, &other, || {
            for path in ["turn/1/events.jsonl", "turn/scribe.json", "turn/new"] {
                for (tool, args) in calls(path) {
                    let told = bench.call(tool, args);
                    assert!(!told.as_ref().is_ok_and(|text| text.contains(SECRET)), "{tool} {path}: {told:?}");
                }
            }
        });
        let file = format!("{own}/{}", if own == "agents" { "scribe.json" } else { "1/events.jsonl" });
        assert_eq!(bench.content(&file), before);
        assert!(!bench.ws(&format!("{own}/new")).exists());
        fs::remove_file(&link).unwrap();
        fs::remove_file(&other).unwrap();
    }
}

/// `a[ab]{900}a[ab]{900}[^ab]` on 15 MB of a and b without a line break ran for 90 seconds, and went on after a cancel. It is
/// a smaller one here, for programs that are tested are slow ones.
#[test]
fn a_slow_pattern_is_tried_on_what_can_be_searched_in_time() {
    let bench = Bench::new();
    let line: Vec<u8> =
        (0..3 << 20).map(|n: u32| if n.wrapping_mul(2_654_435_761) >> 31 == 0 { b'a' } else { b'b' }).collect();
    bench.write("line.txt", [&line[..], b"needle\n"].concat());
    let args = json!({"pattern": "a[ab]{90}a[ab]{90}[^ab]", "regex": true});
    let told = bench.call("search_files", args).unwrap();
    assert!(told.contains("no match in 1 file;") && told.contains("of 1 long line only the first 16.0 KiB"), "{told}");
    let plain = bench.call("search_files", json!({"pattern": "needle"})).unwrap();
    assert!(plain.starts_with("line.txt:1: …"), "{plain}");
    let huge = json!({"pattern": "((a[ab]{900}){900}){900}", "regex": true});
    assert!(bench.call("search_files", huge).unwrap_err().message.contains("too large once its repetitions"));
}

#[test]
fn every_tool_ends_at_a_cancel() {
    let (stopper, stop) = stop_pair();
    let bench = Bench::stopped_by(stop);
    bench.write("many.txt", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n".repeat(200_000));
    for n in 0..50 {
        bench.write(&format!("d{n}/x"), "x");
    }
    stopper.stop(StopReason::Cancelled);
    for (tool, args) in [
        ("search_files", json!({"pattern": "(a*)*c", "regex": true})),
        ("search_files", json!({"pattern": "nothing", "path": "many.txt"})),
        ("list_files", json!({"recursive": true})),
        ("read_file", json!({"path": "many.txt", "start_line": 199_000})),
        ("create_file", json!({"path": "new", "content": "x"})),
        ("append_file", json!({"path": "many.txt", "text": "x"})),
        ("edit_file", json!({"path": "d1/x", "old_text": "x", "new_text": "y"})),
    ] {
        let before = bench.tree();
        let error = bench.call(tool, args).expect_err(tool);
        assert_eq!(error.category, Stopped, "{tool}: {error}");
        assert!(before == bench.tree(), "{tool} changed something");
    }
}

#[test]
fn line_breaks_stay_the_files_own_and_that_is_told() {
    let bench = Bench::new();
    bench.write("dos.txt", b"\xef\xbb\xbfone\r\ntwo\r\n");
    let edited = json!({"path": "dos.txt", "old_text": "one\ntwo\n", "new_text": "1\n2\n"});
    assert!(bench.call("edit_file", edited).unwrap().ends_with("its lines end in CR LF, as those of the file do"));
    let told = bench.call("append_file", json!({"path": "dos.txt", "text": "3\n4"})).unwrap();
    assert!(told.ends_with("its lines end in CR LF, as those of the file do"), "{told}");
    assert_eq!(fs::read(bench.ws("dos.txt")).unwrap(), b"\xef\xbb\xbf1\r\n2\r\n3\r\n4\r\n");
    bench.write("both.txt", "a\nb\r\nc\n");
    let told = bench.call("append_file", json!({"path": "both.txt", "text": "d\ne"})).unwrap();
    assert!(told.contains("some lines of this file end in LF and some in CR LF"), "{told}");
    bench.write("open.txt", "first\nlast");
    let args = json!({"path": "open.txt", "old_text": "last\n", "new_text": "x\n"});
    let told = bench.call("edit_file", args).unwrap_err().message;
    assert!(told.contains("ends with a line break and the file does not"), "{told}");
}
