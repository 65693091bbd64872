//! The host as it is: folders by identity, processes, clocks.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use posse_core::clock::Clock as _;
use posse_core::port::{ProcessProbe as _, WorkerRecord};
use posse_infra::folder::{NotTaken, identify, places};
use posse_infra::process::{LinuxProcessProbe, SystemClock, start_ticks_of, this_process};

#[test]
fn a_folder_is_known_by_more_than_its_name() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    fs::create_dir(root.join("a")).unwrap();
    let first = identify(&root.join("a")).unwrap();
    fs::write(root.join("a/file"), "x").unwrap();
    assert!(first.is(&identify(&root.join("a")).unwrap()), "what is in it does not matter");
    fs::rename(root.join("a"), root.join("b")).unwrap();
    assert!(first.is(&identify(&root.join("b")).unwrap()));
    fs::create_dir(root.join("a")).unwrap();
    assert!(!first.is(&identify(&root.join("a")).unwrap()));
}

#[test]
fn links_are_named_wherever_they_stand() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("real/sub")).unwrap();
    symlink("real", root.join("link")).unwrap();
    for path in ["link", "link/sub"] {
        let refused = identify(&root.join(path)).unwrap_err();
        assert_eq!(refused, NotTaken::Link { link: root.join("link"), target: "real".into() });
    }
    symlink("link/sub", root.join("other")).unwrap();
    let places = places(&root.join("./x/../other/file"));
    assert_eq!(places, ["other", "link", "real/sub/file"].map(|place| root.join(place)));
    assert!(identify(&root.join("nothing")).unwrap_err().to_string().contains("cannot be opened"));
}

fn record(id: &str, (host, pid, pid_started): (String, u32, u64)) -> WorkerRecord {
    WorkerRecord {
        id: id.into(),
        host,
        pid,
        pid_started,
        roles: Vec::new(),
        slots: 1,
        started_at: 0,
        heartbeat_at: 0,
        lease_ms: 30_000,
        drain_requested_at: None,
    }
}

#[test]
fn a_running_process_lives_and_an_ended_one_is_dead() {
    let mut child = Command::new("sleep").arg("60").spawn().expect("sleep runs");
    let (host, _, _) = this_process();
    let started = start_ticks_of(child.id()).expect("the child runs");
    let workers = [
        record("me", this_process()),
        record("child", (host.clone(), child.id(), started)),
        record("reused id", (host, child.id(), started + 1)),
        record("elsewhere", ("another boot".into(), child.id(), started)),
    ];
    let dead = |workers: &[WorkerRecord]| {
        LinuxProcessProbe.dead(workers).into_iter().map(|worker| worker.0).collect::<Vec<_>>()
    };
    assert_eq!(dead(&workers), ["reused id"]);
    child.kill().expect("may be killed");
    // Before its parent has looked it is a zombie: it works no more.
    let wait_for_end = std::time::Instant::now();
    while !dead(&workers).contains(&"child".to_owned()) {
        assert!(wait_for_end.elapsed().as_secs() < 10, "a killed process is seen to be dead");
        std::thread::yield_now();
    }
    child.wait().expect("is waited for");
    assert_eq!(dead(&workers), ["child", "reused id"]);
}

#[test]
fn a_process_is_known_whatever_its_program_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("a) b (c");
    fs::copy("/bin/sleep", &program).unwrap();
    let before = start_ticks_of(std::process::id()).unwrap();
    let mut child = Command::new(&program).arg0("sleep").arg("60").spawn().unwrap();
    let started = start_ticks_of(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(started.is_some_and(|started| started >= before), "{started:?} {before}");
}

#[test]
fn the_clock_tells_milliseconds() {
    let year_2020 = 1_577_836_800_000;
    assert!(SystemClock.now() > year_2020 && SystemClock.now() < 100 * year_2020);
}
