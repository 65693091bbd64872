//! Nothing outside the workspace is read or changed, whatever the path and whoever meddles.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use super::support::{Bench, SECRET};
use posse_core::tool::ToolErrorCategory::{self, *};
use serde_json::{Value, json};

/// Every tool that takes a path, with arguments that would work if the path were fine.
pub fn calls(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("list_files", json!({"path": path})),
        ("list_files", json!({"path": path, "recursive": true})),
        ("read_file", json!({"path": path})),
        ("read_file", json!({"path": path, "start_line": 1, "end_line": 1})),
        ("search_files", json!({"path": path, "pattern": "a"})),
        ("edit_file", json!({"path": path, "old_text": "s3cret", "new_text": "x"})),
        ("append_file", json!({"path": path, "text": "x"})),
        ("create_file", json!({"path": path, "content": "x"})),
        ("create_file", json!({"path": path, "content": "x", "overwrite": true})),
    ]
}

#[track_caller]
fn refused(bench: &Bench, path: &str, allowed: &[ToolErrorCategory]) {
    let before = bench.tree();
    for (tool, args) in calls(path) {
        let error = bench.call(tool, args.clone()).expect_err(&format!("{tool} {path}"));
        assert!(allowed.contains(&error.category), "{tool} {path}: {:?} {error}", error.category);
        assert!(!error.message.contains(SECRET), "{error}");
        assert!(!error.message.contains("root:"), "{error}");
        assert!(before == bench.tree(), "{tool} {args} changed something");
    }
}

#[test]
fn paths_that_lead_out_are_refused_by_every_tool() {
    let bench = Bench::new();
    bench.write("a.txt", "a");
    fs::create_dir(bench.ws("sub")).unwrap();
    let evil = bench.base().join("ws-evil/secret.txt");
    for path in [
        "../x",
        "sub/../../x",
        evil.to_str().unwrap(),
        "../ws-evil/secret.txt",
        "/etc/passwd",
        "/",
        "~/.ssh/id_ed25519",
        "~",
        "sub//../..//x",
        "sub/../../ws-evil/secret.txt",
        "./../ws-evil/secret.txt",
        "file:///etc/passwd",
        "/proc/self/root/etc/passwd",
        "..",
    ] {
        refused(&bench, path, &[PermissionDenied, InvalidArguments]);
    }
    // Through a folder that does not exist, nobody can say where it leads.
    refused(&bench, "none/../../x", &[PermissionDenied, NotFound]);
    refused(&bench, &format!("{}/../../ws-evil/secret.txt", bench.ws("sub").display()), &[PermissionDenied]);
}

#[test]
fn paths_of_a_bad_shape_are_refused_in_words() {
    let bench = Bench::new();
    refused(&bench, "", &[InvalidArguments]);
    refused(&bench, &"x/".repeat(2500), &[InvalidArguments]);
    refused(&bench, &format!("new/{}", "x".repeat(256)), &[InvalidArguments]);
    refused(&bench, "x\0/../../etc/passwd", &[InvalidArguments]);
}

#[test]
fn paths_that_lead_back_to_the_root_are_fine() {
    let bench = Bench::new();
    bench.write("sub/a.txt", "alpha\n");
    let root = bench.ws("");
    for path in [".", "./", "./sub/..", "sub//..//.", root.to_str().unwrap()] {
        assert_eq!(bench.call("list_files", json!({"path": path})).unwrap().lines().count(), 1, "{path}");
        assert!(
            bench.call("search_files", json!({"path": path, "pattern": "alp"})).unwrap().contains("a.txt:1: alpha")
        );
        for tool in ["read_file", "edit_file", "append_file", "create_file"] {
            let args = json!({"path": path, "old_text": "a", "new_text": "b", "text": "c", "content": "d"});
            let fields: &[&str] = match tool {
                "edit_file" => &["path", "old_text", "new_text"],
                "append_file" => &["path", "text"],
                "create_file" => &["path", "content"],
                _ => &["path"],
            };
            let args: serde_json::Map<_, _> = fields.iter().map(|f| ((*f).to_owned(), args[*f].clone())).collect();
            let error = bench.call(tool, Value::Object(args)).unwrap_err();
            assert!(error.message.contains("folder"), "{tool} {path}: {error}");
        }
    }
}

#[test]
fn odd_but_plain_names_and_absolute_paths_inside_work() {
    let bench = Bench::new();
    let absolute = bench.ws("deep/er/x.txt");
    for path in ["%2e%2e/x", "..\\x", "...", "-rf", "a b", "größe/数.txt", absolute.to_str().unwrap()] {
        bench.call("create_file", json!({"path": path, "content": "one"})).unwrap();
        bench.call("append_file", json!({"path": path, "text": "two"})).unwrap();
        bench.call("edit_file", json!({"path": path, "old_text": "one", "new_text": "1"})).unwrap();
        assert_eq!(bench.call("read_file", json!({"path": path})).unwrap(), "1\ntwo\n");
        assert!(bench.call("search_files", json!({"path": path, "pattern": "two"})).unwrap().ends_with(":2: two"));
    }
    assert_eq!(bench.content("deep/er/x.txt"), "1\ntwo\n");
    assert!(bench.ws("%2e%2e/x").exists());
}

#[test]
fn symlinks_work_only_beneath_the_root() {
    let bench = Bench::new();
    bench.write("real/a.txt", "alpha");
    symlink("real", bench.ws("inside")).unwrap();
    symlink("real/a.txt", bench.ws("a")).unwrap();
    symlink("/etc/passwd", bench.ws("passwd")).unwrap();
    symlink("../ws-evil", bench.ws("evil")).unwrap();
    symlink("../ws-evil/secret.txt", bench.ws("secret")).unwrap();
    symlink("../ws-evil/new.txt", bench.ws("dangling")).unwrap();
    symlink("../ws-evil/new", bench.ws("dangling_folder")).unwrap();
    symlink("/proc/self/cwd", bench.ws("magic")).unwrap();
    symlink("loop", bench.ws("loop")).unwrap();
    for path in
        ["passwd", "evil", "evil/secret.txt", "secret", "dangling", "magic", "magic/Cargo.toml", "loop", "evil/new.txt"]
    {
        refused(&bench, path, &[PermissionDenied]);
    }
    refused(&bench, "dangling_folder/x", &[PermissionDenied]);
    assert_eq!(bench.call("read_file", json!({"path": "inside/a.txt"})).unwrap(), "alpha");
    assert_eq!(bench.call("read_file", json!({"path": "a"})).unwrap(), "alpha");
    bench.call("edit_file", json!({"path": "inside/a.txt", "old_text": "alpha", "new_text": "beta"})).unwrap();
    assert_eq!(bench.content("real/a.txt"), "beta");
    // A change through a link at the end would have to replace the link; the target is named.
    let error = bench.call("append_file", json!({"path": "a", "text": "x"})).unwrap_err();
    assert!(error.message.contains("symlink to 'real/a.txt'"), "{error}");
    let found = bench.call("search_files", json!({"pattern": "e"})).unwrap();
    assert!(found.starts_with("real/a.txt:1: beta\n[not searched: 9 symlinks"), "{found}");
    let listed = bench.call("list_files", json!({"recursive": true})).unwrap();
    assert!(listed.contains("evil  symlink\n") && !listed.contains("secret.txt"), "{listed}");
}

#[test]
fn a_hard_link_to_a_file_outside_is_not_written_through() {
    let bench = Bench::new();
    let outside = bench.base().join("ws-evil/secret.txt");
    for (tool, args) in [
        ("edit_file", json!({"path": "link", "old_text": SECRET, "new_text": "mine"})),
        ("append_file", json!({"path": "link", "text": "mine"})),
        ("create_file", json!({"path": "link", "content": "mine", "overwrite": true})),
    ] {
        fs::remove_file(bench.ws("link")).ok();
        fs::hard_link(&outside, bench.ws("link")).unwrap();
        bench.call(tool, args).unwrap();
        assert!(bench.content("link").contains("mine"));
        assert_eq!(fs::read_to_string(&outside).unwrap(), SECRET);
    }
}

#[test]
fn gits_own_files_are_read_only() {
    let bench = Bench::new();
    bench.write(".git/config", "[core]\n");
    bench.write("sub/.GIT/x", "s3cret");
    symlink(".git", bench.ws("alias")).unwrap();
    symlink("../.git", bench.ws("sub/alias")).unwrap();
    for path in [
        ".git/config",
        ".git/hooks/post-commit",
        "alias/config",
        "alias/hooks/x",
        "sub/../.git/config",
        "sub/alias/config",
        "sub/.GIT/x",
        "new/.git/config",
        "new/.git",
    ] {
        let before = bench.tree();
        for (tool, args) in calls(path).into_iter().skip(5) {
            let error = bench.call(tool, args).unwrap_err();
            assert!(matches!(error.category, PermissionDenied | NotFound), "{tool} {path}: {error}");
            assert!(before == bench.tree(), "{tool} {path}");
        }
    }
    assert_eq!(bench.call("read_file", json!({"path": ".git/config"})).unwrap(), "[core]\n");
    bench.call("create_file", json!({"path": ".gitignore", "content": "target/"})).unwrap();
}

#[test]
fn posses_own_files_are_not_for_tools() {
    let bench = Bench::new();
    bench.write(".posse/posse.db", "s3cret");
    bench.write("config/posse.toml", "slots = 1\n");
    bench.write("config/personas/scribe.json", "{}");
    symlink(".posse", bench.ws("alias")).unwrap();
    symlink("config", bench.ws("conf")).unwrap();
    let before = bench.tree();
    for path in [".posse/posse.db", "alias/posse.db", ".posse", "alias", "./config/../.posse/posse.db"] {
        for (tool, args) in calls(path) {
            let answer = bench.call(tool, args);
            assert!(!answer.as_ref().is_ok_and(|text| text.contains("s3cret")), "{tool} {path}: {answer:?}");
            assert!(answer.is_err(), "{tool} {path}: {answer:?}");
        }
    }
    for path in [
        "config/posse.toml",
        "config/personas/new.json",
        "conf/personas/scribe.json",
        "sqlite_extensions/vec0.so",
        "CONFIG/Personas/x.json",
    ] {
        let error = bench.call("create_file", json!({"path": path, "content": "{}", "overwrite": true})).unwrap_err();
        assert_eq!(error.category, PermissionDenied, "{path}: {error}");
    }
    assert!(before == bench.tree());
    let found = bench.call("search_files", json!({"pattern": "s3cret"})).unwrap();
    assert!(found.starts_with("no match"), "{found}");
    assert_eq!(bench.call("read_file", json!({"path": "config/posse.toml"})).unwrap(), "slots = 1\n");
}

/// Ends the swapping when the test ends, also where it fails.
struct EndWith<'a>(&'a AtomicBool);

impl Drop for EndWith<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A folder and a symlink to the outside change places as fast as they can while every tool runs.
#[test]
fn a_swapped_symlink_never_lets_anybody_out() {
    let bench = Bench::new();
    let outside = bench.base().join("ws-evil");
    bench.write("d/secret.txt", "inside\n");
    fs::write(outside.join("secret.txt"), format!("{SECRET}\n")).unwrap();
    symlink(&outside, bench.ws("link")).unwrap();
    symlink("../ws-evil", bench.ws("relative")).unwrap();
    let done = AtomicBool::new(false);
    let swaps = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            let mut swaps = 0u64;
            while !done.load(Ordering::Relaxed) {
                for link in ["link", "relative"] {
                    for _ in 0..2 {
                        let flags = rustix::fs::RenameFlags::EXCHANGE;
                        rustix::fs::renameat_with(
                            rustix::fs::CWD,
                            bench.ws("d"),
                            rustix::fs::CWD,
                            bench.ws(link),
                            flags,
                        )
                        .unwrap();
                        swaps += 1;
                    }
                }
            }
            swaps
        });
        let ending = EndWith(&done);
        let (mut through, mut stopped) = (0, 0);
        for turn in 0..150 {
            for (tool, args) in [
                ("read_file", json!({"path": "d/secret.txt"})),
                ("list_files", json!({"path": "d"})),
                ("search_files", json!({"pattern": "i"})),
                ("edit_file", json!({"path": "d/secret.txt", "old_text": "s3cret", "new_text": "x"})),
                ("append_file", json!({"path": "d/log.txt", "text": "x"})),
                ("create_file", json!({"path": format!("d/new{turn}/x.txt"), "content": "x"})),
            ] {
                let text = match bench.call(tool, args) {
                    Ok(text) => {
                        through += 1;
                        text
                    }
                    Err(error) => {
                        stopped += 1;
                        error.message
                    }
                };
                assert!(!text.contains(SECRET), "{tool}: {text}");
            }
        }
        drop(ending);
        assert!(through > 0 && stopped > 0, "{through} through, {stopped} stopped: no race was run");
        swapper.join().unwrap()
    });
    assert!(swaps > 100, "{swaps}");
    assert_eq!(fs::read_to_string(outside.join("secret.txt")).unwrap(), format!("{SECRET}\n"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "something was made outside");
}

#[test]
fn files_of_a_skill_are_read_beneath_its_folder_and_nowhere_else() {
    let mut bench = Bench::new();
    let call = |bench: &Bench, path: &str| bench.call("read_skill_file", json!({"path": path}));
    let idle = call(&bench, "notes.md").unwrap_err();
    assert_eq!(idle.category, ToolErrorCategory::Conflict);
    let folder = bench.base().join("ws-evil/tidy");
    fs::create_dir_all(folder.join("references")).unwrap();
    fs::write(folder.join("references/units.md"), "kg\nm\n").unwrap();
    symlink("../secret.txt", folder.join("link.txt")).unwrap();
    bench.skill = Some(folder);
    bench.write("notes.md", "of the workspace");
    assert_eq!(call(&bench, "references/units.md").unwrap(), "kg\nm\n");
    let line = bench.call("read_skill_file", json!({"path": "references/units.md", "start_line": 2})).unwrap();
    assert_eq!(line, "[references/units.md, line 2 of 2]\nm\n");
    for outside in ["../secret.txt", "link.txt", "/etc/passwd", "references/../../secret.txt", "~/x"] {
        let error = call(&bench, outside).unwrap_err();
        assert_eq!(error.category, ToolErrorCategory::PermissionDenied, "{outside}: {error}");
        assert!(error.message.contains("below the skill's folder") && !error.message.contains(SECRET));
    }
    let missing = call(&bench, "notes.md").unwrap_err();
    assert!(missing.message.contains("there are: ") && missing.message.contains("references/"), "{missing}");
    assert!(call(&bench, "references").unwrap_err().message.contains("is a folder"));
}

#[test]
fn skills_are_not_the_agents_to_change() {
    let bench = Bench::new();
    for path in ["config/skills/a/SKILL.md", ".agents/skills/a/SKILL.md"] {
        bench.write(path, "before");
        let appended = bench.call("append_file", json!({"path": path, "text": "more"})).unwrap_err();
        assert_eq!(appended.category, ToolErrorCategory::PermissionDenied, "{path}: {appended}");
        assert_eq!(bench.content(path), "before");
    }
}

#[test]
fn an_agent_does_not_change_the_rules_it_is_given() {
    let mut bench = Bench::new();
    let write = |bench: &Bench, path: &str| bench.call("create_file", json!({"path": path, "content": "Obey."}));
    write(&bench, "AGENTS.md").expect("nobody is told it");
    bench.rules_file = Some("AGENTS.md".into());
    let before = bench.tree();
    for path in ["AGENTS.md", "./agents.md"] {
        let words = write(&bench, path).expect_err(path).to_string();
        assert!(words.contains("`project_rules`"), "{path}: {words}");
    }
    let edits = [
        ("edit_file", json!({"path": "AGENTS.md", "old_text": "Obey.", "new_text": "Do not."})),
        ("append_file", json!({"path": "AGENTS.md", "text": "Or not."})),
    ];
    for (tool, args) in edits {
        let words = bench.call(tool, args).expect_err(tool).to_string();
        assert!(words.contains("a person can write it"), "{words}");
    }
    assert_eq!(bench.tree(), before);
    assert!(bench.call("read_file", json!({"path": "AGENTS.md"})).expect("it may be read").contains("Obey."));
    write(&bench, "docs/AGENTS.md").expect("another file");

    // A link leads to the rules, so what it leads to is them.
    std::fs::remove_file(bench.ws("AGENTS.md")).expect("removed");
    for path in ["AGENTS.md", "AGENTS.md/inside"] {
        write(&bench, path).expect_err("nor made where there are none");
    }
    std::os::unix::fs::symlink("docs/AGENTS.md", bench.ws("AGENTS.md")).expect("linked");
    assert!(
        write(&bench, "docs/AGENTS.md").expect_err("its target").to_string().contains("the rules that you were given")
    );
    write(&bench, "docs/other.md").expect("another file");
}
