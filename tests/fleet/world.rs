//! The world outside of the fleet, in which effects happen, and where workers tell what they did.
//!
//! All of it comes through one pipe, a line in one write, so it stands here in the order in which it happened, and a
//! worker that may open or write no file any more still reaches it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use posse_core::job::{JobId, JobState};

/// What came of one job, as far as the world knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// How often its effect happened.
    pub struck: u32,
    /// How often somebody was told that it completed.
    pub told: u32,
}

/// See the module's documentation.
pub struct World {
    pipe: File,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    seen: BTreeMap<i64, Seen>,
    marks: u64,
    is_over: bool,
}

fn pipe(root: &Path) -> PathBuf {
    root.join("world")
}

/// A worker's end of the pipe; it stays open, whatever the worker may open later.
pub fn reach(root: &Path) -> File {
    OpenOptions::new().write(true).open(pipe(root)).expect("the world is there")
}

/// Does the job's effect.
pub fn strike(mut world: &File, job: JobId) {
    world.write_all(format!("struck {job}\n").as_bytes()).expect("the world takes it");
}

/// Tells how an attempt ended, after that was stored.
pub fn tell(mut world: &File, job: JobId, state: JobState) {
    world.write_all(format!("told {job} {state}\n").as_bytes()).expect("the world hears it");
}

impl World {
    /// A new one, beside the files of a host.
    pub fn new(root: &Path) -> World {
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe(root), 0o600.into()).expect("a pipe");
        // Read and written here too, so that it never ends.
        let pipe = OpenOptions::new().read(true).write(true).open(pipe(root)).expect("opens");
        let shared = Arc::new(Shared::default());
        let (reader, into) = (pipe.try_clone().expect("another one"), Arc::clone(&shared));
        std::thread::spawn(move || into.listen(reader));
        World { pipe, shared }
    }

    /// What came of each job, when all that was sent until now has come.
    pub fn seen(&self) -> BTreeMap<i64, Seen> {
        let mark = self.shared.lock().marks + 1;
        (&self.pipe).write_all(b"mark\n").expect("is written");
        let known = self.shared.lock();
        let waiting = |known: &mut Known| known.marks < mark;
        let waited = self.shared.changed.wait_timeout_while(known, Duration::from_secs(20), waiting);
        let (known, timeout) = waited.expect("not poisoned");
        assert!(!timeout.timed_out(), "the world stands still");
        known.seen.clone()
    }

    /// Has something be seen that never happened, so that a test sees that this is found.
    pub fn forge(&self, job: JobId, change: impl FnOnce(&mut Seen)) {
        change(self.shared.lock().seen.entry(job.0).or_default());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        let _ = (&self.pipe).write_all(b"mark\n");
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("not poisoned")
    }

    fn listen(&self, pipe: File) {
        for line in BufReader::new(pipe).lines() {
            let line = line.expect("can be read");
            let mut known = self.lock();
            let words: Vec<_> = line.split(' ').collect();
            let job = words.get(1).and_then(|job| job.parse().ok());
            match (words[0], job, words.get(2)) {
                ("struck", Some(job), None) => known.seen.entry(job).or_default().struck += 1,
                ("told", Some(job), Some(&"completed")) => known.seen.entry(job).or_default().told += 1,
                ("told", Some(_), Some(_)) => {}
                ("mark", None, None) => known.marks += 1,
                _ => panic!("nobody says {line:?}"),
            }
            self.changed.notify_all();
            if known.is_over {
                return;
            }
        }
    }
}
