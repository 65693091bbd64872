//! Fetching a model with a pip that is not one, and starting a server that is not one: what can go wrong on the way.

mod catalogue;
mod pulling;
mod serving;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Puts a program there.
fn script(path: &Path, text: &str) -> PathBuf {
    // Another process writes it: a test that forks at this moment would inherit our open file, and what is open for
    // writing cannot be executed.
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install");
    install.stdin.take().expect("its stdin").write_all(text.as_bytes()).expect("the script");
    assert!(install.wait().expect("its end").success());
    path.to_owned()
}

/// The names in a folder, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("the folder")
        .map(|e| e.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}
