//! What is checked is what is opened: names are exchanged under every opening, as another agent in the same workspace could.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::support::{Bench, SECRET};

/// Exchanges two names as fast as it can while something is done.
fn exchanging<T>(one: &Path, other: &Path, doing: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                std::thread::yield_now();
            }
        });
        let done = doing();
        over.store(true, Ordering::Relaxed);
        done
    })
}

fn secret(bench: &Bench) -> PathBuf {
    bench.base().join("ws-evil/secret.txt")
}

/// Runs a command again and again; what each said, refused or not.
fn again(bench: &Bench, command: &str) -> Vec<String> {
    let run = |_| bench.run_with(json!({"command": command})).unwrap_or_else(|error| error.message);
    (0..40).map(run).collect()
}

pub fn rules_exchanged_with_a_link() {
    let mut bench = Bench::new();
    bench.cx.rules_file = Some("AGENTS.md".into());
    bench.write("AGENTS.md", "rules");
    symlink(secret(&bench), bench.ws("link")).unwrap();
    let said =
        exchanging(&bench.ws("AGENTS.md"), &bench.ws("link"), || again(&bench, "cat AGENTS.md; echo x > AGENTS.md"));
    assert!(said.iter().all(|said| !said.contains(SECRET)), "{said:?}");
    assert!(said.iter().any(|said| said.contains("rules") || said.contains("symlink")), "{said:?}");
    assert_eq!(fs::read_to_string(secret(&bench)).unwrap(), SECRET);
}

pub fn rules_that_link_to_a_file_that_is_not_there() {
    let mut bench = Bench::new();
    bench.cx.rules_file = Some("AGENTS.md".into());
    symlink("../ws-evil/made", bench.ws("AGENTS.md")).unwrap();
    let error = bench.run_with(json!({"command": "touch ran"})).unwrap_err();
    assert!(error.message.contains("'AGENTS.md' in the workspace is a symlink"), "{error}");
    assert!(!bench.base().join("ws-evil/made").exists() && !bench.ws("ran").exists());
}

pub fn rules_with_a_second_name() {
    let mut bench = Bench::new();
    bench.cx.rules_file = Some("AGENTS.md".into());
    bench.write("AGENTS.md", "rules");
    fs::hard_link(bench.ws("AGENTS.md"), bench.ws("other")).unwrap();
    let error = bench.run_with(json!({"command": "echo x > other"})).unwrap_err();
    assert!(error.message.contains("is a file with several names"), "{error}");
    assert_eq!(fs::read_to_string(bench.ws("AGENTS.md")).unwrap(), "rules");
}

pub fn rules_that_are_no_file() {
    let mut bench = Bench::new();
    bench.cx.rules_file = Some("AGENTS.md".into());
    let fifo = std::process::Command::new("mkfifo").arg(bench.ws("AGENTS.md")).status().unwrap();
    assert!(fifo.success());
    let error = bench.run_with(json!({"command": "touch ran"})).unwrap_err();
    assert!(error.message.contains("is neither a file nor a folder"), "{error}");
}

pub fn a_hidden_folder_exchanged_with_a_link() {
    let bench = Bench::protecting(&[".posse"], &[]);
    bench.write(".posse/secret.txt", SECRET);
    fs::create_dir(bench.base().join("other")).unwrap();
    fs::write(bench.base().join("other/secret.txt"), SECRET).unwrap();
    symlink(bench.base().join("other"), bench.ws("link")).unwrap();
    // Whichever of both it was that had the name, it is out of sight.
    let said = exchanging(&bench.ws(".posse"), &bench.ws("link"), || again(&bench, "cat .posse/secret.txt"));
    let came = said.iter().filter(|said| said.contains(SECRET)).count();
    assert_eq!(came, 0, "{said:?}");
}

pub fn a_kept_folder_exchanged_with_a_link() {
    let bench = Bench::protecting(&[], &["config"]);
    bench.write("config/a", "a");
    symlink(bench.base().join("ws-evil"), bench.ws("link")).unwrap();
    let before = bench.tree("ws-evil");
    let said =
        exchanging(&bench.ws("config"), &bench.ws("link"), || again(&bench, "cat config/*; touch config/new; :"));
    assert!(said.iter().all(|said| !said.contains(SECRET)), "{said:?}");
    assert!(bench.tree("ws-evil") == before);
}

pub fn a_workspace_exchanged_with_the_system() {
    let bench = Bench::new();
    let link = bench.base().join("link");
    symlink("/usr", &link).unwrap();
    let said = exchanging(&bench.base().join("ws"), &link, || again(&bench, "touch pwned-by-posse; ls -d share; :"));
    assert!(said.iter().all(|said| !said.contains("share\n") && !said.ends_with("\nshare")), "{said:?}");
    assert!(!fs::exists("/usr/pwned-by-posse").unwrap());
}

pub fn a_directory_exchanged_with_a_link() {
    let bench = Bench::new();
    bench.write("sub/a", "a");
    symlink(bench.base().join("ws-evil"), bench.ws("link")).unwrap();
    let said = exchanging(&bench.ws("sub"), &bench.ws("link"), || {
        let run =
            |_| bench.run_with(json!({"command": "cat *", "directory": "sub"})).unwrap_or_else(|error| error.message);
        (0..40).map(run).collect::<Vec<_>>()
    });
    assert!(said.iter().all(|said| !said.contains(SECRET)), "{said:?}");
}
