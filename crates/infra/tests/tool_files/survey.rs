//! What a look through a workspace finds: all that tools may read, no more of it than it may take, and nothing else.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::{Survey, SurveyedFile};
use posse_core::workspace::protected::Protected;
use posse_infra::folder::identify;
use posse_infra::sqlite::{Options, SqliteStore};

use super::support::{Bench, SECRET};

fn paths(survey: &Survey) -> Vec<&str> {
    survey.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn files_are_found_in_the_order_of_their_paths_with_how_they_begin() {
    let bench = Bench::new();
    for (path, text) in [("b/z.txt", "deep"), ("b/c/d.md", "deeper\n"), ("z.md", "last"), ("a.md", "")] {
        bench.write(path, text);
    }
    bench.write("photo.png", b"\x89PNG\r\n\x1a\n\0\0");
    bench.write("latin.txt", b"caf\xe9\n");
    let file = |path: &str, bytes, head: &str| SurveyedFile { path: path.into(), bytes, head: head.into() };
    let files = vec![
        file("a.md", 0, ""),
        file("b/c/d.md", 7, "deeper\n"),
        file("b/z.txt", 4, "deep"),
        file("latin.txt", 5, "café\n"),
        file("photo.png", 10, ""),
        file("z.md", 4, "last"),
    ];
    assert_eq!(bench.survey(), Survey { files, ..Survey::default() });
}

#[test]
fn nothing_is_found_that_tools_may_not_read() {
    let mut bench = Bench::new();
    bench.write("plain.txt", "plain");
    for path in [".posse/jobs.txt", "data/acme.db-wal", "keys/key.txt", ".git/config", ".env", "sub/.hidden/x.txt"] {
        bench.write(path, SECRET);
    }
    for path in ["node_modules/x/index.js", "sub/__pycache__/x.txt"] {
        bench.write(path, "made");
    }
    // Another name of what is hidden, and somebody else's database.
    fs::hard_link(bench.ws("keys/key.txt"), bench.ws("linked.txt")).unwrap();
    let elsewhere = bench.base().join("elsewhere");
    drop(SqliteStore::open(&elsewhere, Options::default()).unwrap());
    fs::copy(elsewhere, bench.ws("theirs")).unwrap();
    bench.protected =
        Protected { hidden: vec![bench.ws("keys")], databases: vec![bench.ws("data/acme.db")], ..Protected::default() };
    let found = bench.survey();
    assert_eq!(paths(&found), ["plain.txt"]);
    assert!(!found.has_more, "what is not for tools is not said to be there");
}

#[test]
fn no_link_is_followed_and_nothing_special_opened() {
    let bench = Bench::new();
    bench.write("in/a.txt", "a");
    symlink(bench.base().join("ws-evil/secret.txt"), bench.ws("secret.txt")).unwrap();
    symlink("../ws-evil", bench.ws("evil")).unwrap();
    symlink("in", bench.ws("again")).unwrap();
    symlink(".", bench.ws("in/round")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.ws("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(paths(&bench.survey()), ["in/a.txt"]);
}

#[test]
fn what_cannot_be_read_or_asked_for_is_left_out() {
    let bench = Bench::new();
    bench.write("a.txt", "a");
    bench.write("two\nlines.txt", "a");
    bench.write("closed.txt", "a");
    fs::set_permissions(bench.ws("closed.txt"), fs::Permissions::from_mode(0o000)).unwrap();
    // Whoever is root reads it all the same.
    let closed = fs::read(bench.ws("closed.txt")).is_ok();
    let wanted: &[&str] = if closed { &["a.txt", "closed.txt"] } else { &["a.txt"] };
    assert_eq!(paths(&bench.survey()), wanted);
}

#[test]
fn a_large_workspace_is_looked_at_from_its_root_as_far_as_it_may_be() {
    let bench = Bench::new();
    for n in 0..450 {
        bench.write(&format!("a/deep/{n:04}.txt"), "deep");
        bench.write(&format!("z{n:04}.txt"), "near");
    }
    let found = bench.survey();
    assert!(found.has_more && found.files.len() == 500, "{}", found.files.len());
    assert_eq!(found.files.iter().filter(|file| file.head == "near").count(), 450, "the nearest to the root first");
    assert!(found.files.is_sorted_by(|a, b| a.path < b.path));
}

#[test]
fn no_more_is_read_than_may_be() {
    let bench = Bench::new();
    let long = "é".repeat(20_000);
    for n in 0..100 {
        bench.write(&format!("{n:03}.txt"), &long);
    }
    let found = bench.survey();
    assert!(found.files.len() == 100 && !found.has_more);
    let heads: Vec<_> = found.files.iter().map(|file| file.head.len()).collect();
    assert!(heads.iter().all(|head| *head <= 16 * 1024) && heads.iter().sum::<usize>() <= 1 << 20, "{heads:?}");
    assert!(heads[0] > 16_000 && heads[99] == 0, "{heads:?}");
    assert!(found.files[0].head.chars().all(|c| c == 'é'), "no character is cut");
    assert!(found.files.iter().all(|file| file.bytes == 40_000));
}

#[test]
fn another_folder_in_the_place_of_the_workspace_is_not_looked_at_nor_one_whose_call_is_stopped() {
    let mut bench = Bench::new();
    bench.write("a.txt", "a");
    bench.workspace_id = Some(identify(&bench.base().join("ws-evil")).unwrap());
    assert_eq!(bench.survey(), Survey::default());
    let (stopper, stop) = stop_pair();
    stopper.stop(StopReason::Shutdown);
    let bench = Bench::stopped_by(stop);
    bench.write("a.txt", "a");
    assert_eq!(bench.survey(), Survey { has_more: true, ..Survey::default() });
}
