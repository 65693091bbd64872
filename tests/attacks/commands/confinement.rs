//! Nothing outside the workspace is read or changed, whatever a command says. No rule here looks at its text.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use posse_core::tool::ToolErrorCategory;
use posse_infra::folder::identify;
use posse_infra::sandbox::Commands;
use posse_infra::sqlite::{Options, SqliteStore};
use serde_json::json;

use crate::support::{Bench, SECRET, SMALL};

pub fn nothing_outside_is_read() {
    let bench = Bench::new();
    let evil = bench.base().join("ws-evil/secret.txt");
    symlink(&evil, bench.ws("link")).unwrap();
    symlink("../ws-evil", bench.ws("folder")).unwrap();
    fs::hard_link(file_of_ours(&bench), bench.ws("hard")).unwrap();
    let evil = evil.display();
    for command in [
        format!("cat {evil}"),
        "cat ../ws-evil/secret.txt".into(),
        "cat link".into(),
        "cat folder/secret.txt".into(),
        "ls ..; cat ../*/secret.txt".into(),
        format!("cat /proc/1/root{evil}; cat /proc/self/root{evil}; cat /proc/1/cwd{evil}"),
        "grep -rs --devices=skip --exclude-dir=usr --exclude-dir=proc s3cret /".into(),
        "cat /etc/shadow /etc/ssl/private/* /root/.ssh/* ~/.ssh/* /var/run/secrets/* /run/*".into(),
    ] {
        let said = bench.run(&command);
        assert!(!said.contains(SECRET) && !said.contains("root:"), "{command}: {said}");
    }
    // What was linked into the workspace is in it.
    assert!(bench.run("cat hard").ends_with("linked"));
}

fn file_of_ours(bench: &Bench) -> std::path::PathBuf {
    let path = bench.base().join("ours");
    fs::write(&path, "linked").unwrap();
    path
}

pub fn nothing_outside_is_changed() {
    let bench = Bench::new();
    symlink(bench.base().join("ws-evil"), bench.ws("folder")).unwrap();
    let before = bench.tree("ws-evil");
    let base = bench.base().display();
    for command in [
        format!("touch {base}/pwned {base}/ws-evil/pwned; mkdir -p {base}/new; rm -rf {base}/ws-evil"),
        "touch ../pwned ../ws-evil/pwned folder/pwned; rm -rf ../ws-evil folder/*".into(),
        "touch /pwned /usr/pwned /etc/pwned /dev/pwned /bin/pwned /home/pwned; echo x >> /etc/passwd".into(),
        "chmod 777 /usr/bin /; mount -t tmpfs x /usr; umount /usr; ln -f /usr/bin/env ./env".into(),
    ] {
        bench.run(&command);
        assert!(bench.tree("ws-evil") == before, "{command}");
        assert!(!bench.base().join("pwned").exists() && !bench.base().join("new").exists(), "{command}");
        assert!(!fs::exists("/pwned").unwrap() && !fs::exists("/usr/pwned").unwrap(), "{command}");
    }
    // What was written beside the workspace was never anywhere but in a folder that is gone.
    assert!(bench.run(&format!("touch {base}/pwned && ls {base}")).ends_with("[stdout]\npwned\nws"));
    assert!(bench.run(&format!("ls {base}")).ends_with("[stdout]\nws"));
}

/// D04: each of these would get past a list of commands that may run; none gets past the sandbox.
pub fn lines_that_fool_lists_stay_inside() {
    let bench = Bench::new();
    bench.write("ls", "#!/bin/sh\ntouch ../pwned\n");
    for line in [
        "ls; touch ../pwned",
        "ls && touch ../pwned",
        "ls\ntouch ../pwned",
        "ls $(touch ../pwned)",
        "ls `touch ../pwned`",
        "echo x > ../pwned",
        "bash -c 'cat <(touch ../pwned)'",
        "find . -exec touch ../pwned \\;",
        "find . -fprintf ../pwned x",
        "git -c core.fsmonitor='touch ../pwned' status",
        "git --exec-path=. status",
        "X=1 touch ../pwned",
        "env touch ../pwned",
        "ls | xargs -I{} touch ../pwned",
        "chmod +x ls; PATH=.:$PATH ls",
        "bash -c 'grep -f <(touch ../pwned) a'",
        "ls\rtouch ../pwned",
    ] {
        bench.run(line);
        assert!(!bench.base().join("pwned").exists(), "{line}");
    }
    assert!(bench.run("echo \"a && b\"").ends_with("[stdout]\na && b"));
    bench.write("-n", "control\n");
    assert!(bench.run("cat -- -n").ends_with("[stdout]\ncontrol"));
}

/// D01, for the folder a command runs in.
pub fn directories_lead_nowhere_else() {
    let bench = Bench::new();
    fs::create_dir(bench.ws("sub")).unwrap();
    fs::create_dir(bench.ws("%2e%2e")).unwrap();
    bench.write("file", "");
    symlink("../ws-evil", bench.ws("out")).unwrap();
    symlink("sub", bench.ws("in")).unwrap();
    let evil = bench.base().join("ws-evil");
    let before = bench.tree("");
    for directory in [
        "../x",
        "sub/../../x",
        evil.to_str().unwrap(),
        "../ws-evil",
        "/etc",
        "~/.ssh",
        "sub//../..//x",
        "..\\x",
        "file:///etc",
        "",
        "out",
        "none",
        "file",
        &"x/".repeat(2500),
        "x\0/../../etc",
    ] {
        let error = bench.run_with(json!({"command": "touch ran; pwd", "directory": directory})).expect_err(directory);
        assert!(error.category.says_nothing_was_done(), "{directory}: {:?} {error}", error.category);
        assert!(bench.tree("") == before, "{directory}");
    }
    let (root, sub) = (bench.ws(""), bench.ws("sub"));
    let (root, sub) = (root.to_str().unwrap().trim_end_matches('/'), sub.to_str().unwrap());
    for (directory, is) in [(".", root), ("./sub/..", root), ("sub", sub), (sub, sub), ("in", sub)] {
        let said = bench.run_with(json!({"command": "pwd -P", "directory": directory})).unwrap();
        assert!(said.ends_with(&format!("\n{is}")), "{directory}: {said}");
    }
    assert!(bench.run_with(json!({"command": "pwd", "directory": "%2e%2e"})).unwrap().ends_with("/%2e%2e"));
}

pub fn what_is_not_for_commands_is_hidden_or_kept() {
    let mut bench =
        Bench::protecting(&[".posse", "keys.txt", "none"], &["config/personas", "absent", "/elsewhere/config"]);
    bench.cx.rules_file = Some("AGENTS.md".into());
    bench.write(".posse/posse.db", SECRET);
    bench.write("keys.txt", SECRET);
    bench.write("config/personas/a.json", "{}");
    bench.write("config/other", "x");
    bench.write("AGENTS.md", "rules");
    bench.write("free", "x");
    assert!(bench.run("cat config/personas/a.json AGENTS.md; ls .posse; cat keys.txt").ends_with("[stdout]\n{}rules"));
    for change in [
        "echo x > config/personas/a.json",
        "touch config/new",
        "mv config moved",
        "rm -rf config",
        "rmdir .posse",
        "mv .posse moved",
        "touch .posse/new",
        "rm -f keys.txt",
        "mv keys.txt moved",
        "echo x > keys.txt",
        "echo x >> AGENTS.md",
        "mv AGENTS.md moved",
        "mv free AGENTS.md",
        "ln -sf free AGENTS.md",
        "rmdir absent",
        "mv absent moved",
        "touch absent/vec0.so",
    ] {
        let said = bench.run(&format!("{change} && echo it worked"));
        assert!(!said.contains("it worked"), "{change}: {said}");
    }
    assert_eq!(fs::read_to_string(bench.ws("config/personas/a.json")).unwrap(), "{}");
    assert_eq!(fs::read_to_string(bench.ws("AGENTS.md")).unwrap(), "rules");
    assert_eq!(fs::read_to_string(bench.ws(".posse/posse.db")).unwrap(), SECRET);
    assert_eq!(fs::read_to_string(bench.ws("keys.txt")).unwrap(), SECRET);
    assert!(bench.ws("absent").is_dir() && !bench.ws("none").exists());
    assert!(bench.run("mv free freed && mkdir none && echo it worked").ends_with("it worked"));
}

pub fn a_workspace_that_cannot_be_confined_is_refused() {
    let mut bench = Bench::new();
    for (workspace, why) in [
        ("/", "has parts of the system in it"),
        ("/usr", "has parts of the system in it"),
        ("/tmp", "has parts of the system in it"),
        ("/proc/sys", "has parts of the system in it"),
        ("/nowhere/at/all", "cannot be opened"),
    ] {
        bench.cx.workspace = workspace.into();
        let error = bench.run_with(json!({"command": "id"})).expect_err(workspace);
        assert!(error.message.contains(why), "{workspace}: {error}");
        assert_eq!(error.category, ToolErrorCategory::PermissionDenied);
    }
    // Its files lie between the agent's.
    let mine = Bench::protecting(&[""], &[]);
    assert!(mine.run_with(json!({"command": "id"})).unwrap_err().message.contains("has files of Posse beside"));
    let linked = Bench::protecting(&[], &["config"]);
    symlink("other", linked.ws("config")).unwrap();
    assert!(linked.run_with(json!({"command": "id"})).unwrap_err().message.contains("'config'"));
    // Nor can a link be that leads elsewhere: another would take its place, and lead where a command wants.
    let outside = Bench::protecting(&["keys"], &["agents"]);
    symlink(outside.base().join("ws-evil"), outside.ws("agents")).unwrap();
    assert!(outside.run_with(json!({"command": "id"})).unwrap_err().message.contains("'agents'"));
    fs::remove_file(outside.ws("agents")).unwrap();
    symlink(outside.base().join("ws-evil/secret.txt"), outside.ws("keys")).unwrap();
    assert!(outside.run_with(json!({"command": "id"})).unwrap_err().message.contains("'keys'"));
}

pub fn another_tenants_database_is_hidden() {
    let bench = Bench::new();
    for folder in ["theirs", "other"] {
        fs::create_dir(bench.ws(folder)).unwrap();
    }
    drop(SqliteStore::open(&bench.ws("theirs/acme"), Options::default()).unwrap());
    bench.write("theirs/acme.sessions/1/events.jsonl", SECRET);
    bench.write("other/x", "free");
    let said = bench.run("ls -A theirs; cat theirs/acme theirs/*/*/*; touch theirs/acme-journal; cat other/x");
    assert!(!said.contains(SECRET) && !said.contains("acme\n") && said.contains("free"), "{said}");
    assert!(!bench.ws("theirs/acme-journal").exists());
    // However deep it lies.
    fs::create_dir_all(bench.ws("other/b/c")).unwrap();
    for name in ["acme", "acme.sessions"] {
        fs::rename(bench.ws("theirs").join(name), bench.ws("other/b/c").join(name)).unwrap();
    }
    let said = bench.run("ls -AR other; cat other/b/c/acme other/b/c/*/*/*; touch other/b/c/acme-wal; ls -A theirs");
    assert!(!said.contains(SECRET) && !said.contains("acme\n"), "{said}");
    assert!(!bench.ws("other/b/c/acme-wal").exists());
    fs::rename(bench.ws("other/b/c/acme"), bench.ws("acme")).unwrap();
    let refused = bench.run_with(json!({"command": "id"})).unwrap_err().message;
    assert!(refused.contains("has files of Posse beside"), "{refused}");
}

/// The look through a workspace ends somewhere; a database that is known is hidden however far behind that it lies.
pub fn a_known_database_is_hidden_behind_any_number_of_files() {
    let looked_for = Bench::new();
    let known = |ws: &Path| vec![ws.join("gone"), ws.join("0/a/b/acme")];
    let known = Bench::with(|ws| Commands { limits: SMALL, known: known(ws), ..Commands::default() });
    for folder in ["0/a/b", "1", "2", "3"] {
        fs::create_dir_all(looked_for.ws(folder)).unwrap();
    }
    for n in 0..32_000 {
        fs::write(looked_for.ws(&format!("{}/{n}", n % 4)), "").unwrap();
    }
    drop(SqliteStore::open(&looked_for.ws("0/a/b/acme"), Options::default()).unwrap());
    assert!(looked_for.run("ls 0/a/b").contains("acme"), "behind all the others");
    for folder in ["0", "1", "2", "3"] {
        fs::rename(looked_for.ws(folder), known.ws(folder)).unwrap();
    }
    let said = known.run("ls -A 0; ls 1 | wc -l");
    assert!(said.ends_with("[stdout]\n8000"), "{said}");
}

/// What a command can do to a folder before another job works there.
pub fn a_workspace_that_was_swapped_runs_nothing() {
    let mut bench = Bench::new();
    let ws = bench.ws("").canonicalize().unwrap();
    bench.cx.workspace = ws.join("sub");
    fs::create_dir(ws.join("sub")).unwrap();
    bench.cx.workspace_id = Some(identify(&ws.join("sub")).unwrap());
    assert!(bench.run("echo it worked").ends_with("it worked"));
    fs::rename(ws.join("sub"), ws.join("old")).unwrap();
    symlink(bench.base().join("ws-evil"), ws.join("sub")).unwrap();
    let refused = bench.run_with(json!({"command": "cat secret.txt"})).unwrap_err();
    assert!(refused.message.contains("is a symlink to") && !refused.message.contains(SECRET), "{refused}");
    fs::remove_file(ws.join("sub")).unwrap();
    fs::create_dir(ws.join("sub")).unwrap();
    let refused = bench.run_with(json!({"command": "id"})).unwrap_err();
    assert_eq!(refused.category, ToolErrorCategory::PermissionDenied);
    assert!(refused.message.contains("another folder than the one"), "{refused}");
}

pub fn there_is_no_network_but_its_own() {
    let bench = Bench::new();
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let said = bench.run(&format!(
        "python3 - <<'E'\n\
         import socket\n\
         def tried(name, do):\n\
         \x20   try: do(); print(name, 'worked')\n\
         \x20   except OSError as e: print(name, 'failed')\n\
         tried('host', lambda: socket.create_connection(('127.0.0.1', {port}), 5))\n\
         tried('world', lambda: socket.create_connection(('192.0.2.1', 80), 5))\n\
         tried('name', lambda: socket.getaddrinfo('example.org', 80))\n\
         tried('vsock', lambda: socket.socket(40, socket.SOCK_STREAM))\n\
         tried('packet', lambda: socket.socket(17, socket.SOCK_RAW))\n\
         s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n\
         tried('own', lambda: socket.create_connection(s.getsockname(), 5))\nE"
    ));
    for (what, is) in [
        ("host", "failed"),
        ("world", "failed"),
        ("name", "failed"),
        ("vsock", "failed"),
        ("packet", "failed"),
        ("own", "worked"),
    ] {
        assert!(said.contains(&format!("{what} {is}\n")) || said.ends_with(&format!("{what} {is}")), "{what}: {said}");
    }
}

pub fn nothing_of_the_kernel_is_open() {
    let bench = Bench::new();
    let status = bench.run("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
    assert_eq!(status.matches("0000000000000000").count(), 5, "{status}");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    assert!(bench.run("unshare -Ur id").contains("Operation not permitted"));
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/kcore", "/sys", "/dev/kmsg", "/dev/mem", "/dev/vsock"] {
        assert!(bench.run(&format!("ls -d {path} || echo none")).contains("none"), "{path}");
    }
}

pub fn other_processes_are_out_of_reach() {
    let bench = Bench::new();
    let ours = std::process::id();
    let said = bench.run(&format!("kill -9 {ours}; kill -9 1; kill -9 -1; cat /proc/1/environ /proc/1/mem; ls /proc"));
    let seen = said.lines().filter(|line| line.parse::<u32>().is_ok()).count();
    assert!(seen <= 4, "{said}");
    assert!(said.contains("/proc/1/environ: Permission denied"), "{said}");
    assert!(bench.run("env | sort").contains("\nHOME=/tmp\nLANG=C.UTF-8\nLOGNAME=agent\n"));
}

/// What agents do with a terminal.
pub fn programs_work() {
    let bench = Bench::new();
    bench.write("a.txt", "b\na\n");
    assert!(bench.run("sort a.txt > sorted.txt && cat sorted.txt").ends_with("[stdout]\na\nb"));
    assert_eq!(fs::read_to_string(bench.ws("sorted.txt")).unwrap(), "a\nb\n");
    assert!(bench.run("bash -c 'diff <(echo a) <(echo a) && echo same'").ends_with("same"));
    let git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline";
    assert!(bench.run(git).starts_with("exit code 0"));
    let threads = "python3 -c 'import threading; t = threading.Thread(target=print, args=(7,)); t.start(); t.join()'";
    assert!(bench.run(threads).ends_with("[stdout]\n7"));
    assert!(bench.run("id -un; hostname; test -w /dev/null && echo x > /dev/null").ends_with("agent\nsandbox"));
}
