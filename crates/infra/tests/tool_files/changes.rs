//! Durable, atomic changes of one file, as tools make them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use posse_core::stop::{Stop, StopReason, stop_pair};
use posse_core::tool::ToolErrorCategory;
use posse_infra::tool::workspace::{Existing, Workspace};

fn bench() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(dir.path()).unwrap();
    (dir, workspace)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_change_by_somebody_else_meanwhile_is_a_conflict() {
    let (dir, workspace) = bench();
    let file = dir.path().join("f");
    type Meddle = fn(&Path);
    let meddlers: [Meddle; 4] = [
        |file| fs::write(file, "theirs!").unwrap(),
        |file| {
            fs::write(file.with_extension("new"), "first").unwrap();
            fs::rename(file.with_extension("new"), file).unwrap();
        },
        |file| fs::remove_file(file).unwrap(),
        |file| {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        },
    ];
    for meddle in meddlers {
        fs::remove_dir(&file).ok();
        fs::write(&file, "first").unwrap();
        let error = workspace.update("f", &Stop::never(), |existing| {
            existing.unwrap().read(100)?;
            meddle(&file);
            Ok(b"ours".to_vec())
        });
        assert_eq!(error.unwrap_err().category, ToolErrorCategory::Conflict);
        assert_ne!(fs::read(&file).ok().as_deref(), Some(b"ours".as_slice()));
        fs::remove_file(&file).ok();
    }
    fs::remove_dir(&file).unwrap();
    let error = workspace.update("f", &Stop::never(), |existing| {
        assert!(existing.is_none());
        fs::write(&file, "theirs").unwrap();
        Ok(b"ours".to_vec())
    });
    assert_eq!(error.unwrap_err().category, ToolErrorCategory::Conflict);
    assert_eq!(fs::read(&file).unwrap(), b"theirs");
    assert_eq!(names(dir.path()), ["f"]);
}

#[test]
fn a_stop_is_heeded_right_before_the_effect() {
    let (dir, workspace) = bench();
    fs::write(dir.path().join("f"), "first").unwrap();
    for raw in ["f", "new", "folder/new"] {
        let (stopper, stop) = stop_pair();
        let error = workspace.update(raw, &stop, |_| {
            stopper.stop(StopReason::LeaseLost);
            Ok(b"second".to_vec())
        });
        assert_eq!(error.unwrap_err().category, ToolErrorCategory::Stopped);
        assert_eq!(names(dir.path()), ["f"]);
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"first");
    }
}

#[test]
fn permissions_stay_and_new_files_are_not_executable() {
    let (dir, workspace) = bench();
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
    let script = dir.path().join("script");
    fs::write(&script, "x").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o4751)).unwrap();
    for name in ["script", "new"] {
        workspace.update(name, &Stop::never(), |_| Ok(b"y".to_vec())).unwrap();
    }
    assert_eq!(mode("script"), 0o751, "the set-user-id bit does not outlive the content it was given to");
    assert_eq!(mode("new") & 0o111, 0);
}

#[test]
fn writers_wait_for_each_other_and_lose_nothing() {
    let (dir, _) = bench();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let root = dir.path();
            scope.spawn(move || {
                let workspace = Workspace::open(root).unwrap();
                for line in 0..25 {
                    let add = |existing: Option<&Existing>| {
                        let mut bytes = existing.map_or(Ok(Vec::new()), |existing| existing.read(1 << 20))?;
                        bytes.extend_from_slice(format!("{writer}-{line}\n").as_bytes());
                        Ok(bytes)
                    };
                    workspace.update("deep/log", &Stop::never(), add).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(dir.path().join("deep/log")).unwrap();
    let lines: std::collections::BTreeSet<_> = text.lines().collect();
    assert_eq!((text.lines().count(), lines.len()), (100, 100));
    assert_eq!(names(&dir.path().join("deep")), ["log"]);
}

#[test]
fn readers_never_see_half_a_file() {
    let (dir, workspace) = bench();
    let versions = [vec![b'a'; 300_000], vec![b'b'; 200_000]];
    let file = dir.path().join("f");
    fs::write(&file, &versions[0]).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for turn in 1..30 {
                workspace.update("f", &Stop::never(), |_| Ok(versions[turn % 2].clone())).unwrap();
            }
        });
        while !writer.is_finished() {
            let seen = fs::read(&file).unwrap();
            assert!(versions.contains(&seen), "{} bytes", seen.len());
        }
    });
}

#[test]
fn a_file_beyond_the_limit_is_refused_by_its_size() {
    let (dir, workspace) = bench();
    fs::File::create(dir.path().join("big")).unwrap().set_len(50 << 30).unwrap();
    let error = workspace.update("big", &Stop::never(), |existing| existing.unwrap().read(1000));
    assert_eq!(error.unwrap_err().category, ToolErrorCategory::LimitExceeded);
}
