//! A host: a folder with a database, a clock, a world around it, and worker processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use posse_core::job::{JobId, JobState, NewJob};
use posse_core::port::{JobFilter, JobQueries as _, JobRepository as _};
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};
use tempfile::TempDir;

use super::worker::{ROLE, host_now, set_host_clock};
use super::world::World;
use crate::support::wait::wait_async;

/// How long anything may take that another process is about to do.
const LONG: Duration = Duration::from_secs(20);

/// How a worker ends that cannot use its database, or not any more.
pub const LOST: i32 = 5;

/// See the module's documentation.
pub struct Host {
    folder: TempDir,
    store: Option<SqliteStore>,
    pub world: World,
    pub workers: Vec<Child>,
    /// The processes that were killed; nobody else may be charged a death.
    pub killed: BTreeSet<u32>,
}

impl Host {
    pub fn new() -> Host {
        let folder = TempDir::new().expect("a temporary folder");
        set_host_clock(folder.path(), 0);
        let world = World::new(folder.path());
        let mut host = Host { folder, store: None, world, workers: Vec::new(), killed: BTreeSet::new() };
        host.open();
        host
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    pub fn database(&self) -> PathBuf {
        self.root().join("posse.db")
    }

    /// The database, as this process has it open.
    pub fn store(&self) -> &SqliteStore {
        self.store.as_ref().expect("is open")
    }

    /// Opens the database in this process; makes it, if it is the first time.
    pub fn open(&mut self) {
        let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
        self.store = Some(SqliteStore::open(&self.database(), options).expect("opens"));
    }

    /// Has it open no more.
    pub fn close(&mut self) {
        self.store = None;
    }

    pub fn start_worker(&mut self) {
        self.workers.push(start(worker(self.root())));
    }

    /// Another one in the place of one that has ended.
    pub fn restart(&mut self, worker: usize) {
        self.workers[worker] = start(self::worker(self.folder.path()));
    }

    /// The same, with a limit as a shell sets it: `-n 30`, thirty open files.
    pub fn restart_limited(&mut self, worker: usize, limit: &str) {
        let plain = self::worker(self.folder.path());
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\""));
        shell.arg(plain.get_program()).args(plain.get_args());
        shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.workers[worker] = start(logged(shell, self.folder.path()));
    }

    pub fn signal(&self, worker: usize, signal: &str) {
        send(self.workers[worker].id(), signal);
    }

    /// Kills one for good, unless it has ended by itself.
    pub fn kill(&mut self, worker: usize) {
        let child = &mut self.workers[worker];
        if child.try_wait().expect("can be asked").is_none() {
            self.killed.insert(child.id());
            child.kill().expect("SIGKILL");
            child.wait().expect("it is reaped");
        }
    }

    /// Kills one for good and puts another in its place.
    pub fn replace(&mut self, worker: usize) {
        self.kill(worker);
        self.restart(worker);
    }

    /// Waits until one has ended, and gives its exit code.
    pub async fn ended(&mut self, worker: usize) -> i32 {
        let ended = wait_async(LONG, async || self.workers[worker].try_wait().expect("can be asked").ok_or(())).await;
        let Ok(status) = ended else { panic!("worker {worker} does not end\n{}", self.log()) };
        status.code().unwrap_or(-1)
    }

    pub async fn enqueue(&self, jobs: usize) -> Vec<JobId> {
        let job = NewJob { role: ROLE.into(), max_attempts: 50, ..NewJob::default() };
        let enqueued = self.store().enqueue(vec![job; jobs], host_now(self.root())).await.expect("is stored");
        enqueued.into_iter().map(|enqueued| enqueued.id).collect()
    }

    /// Waits until every worker is on the list. One that starts later than a blow is not struck by it.
    pub async fn until_at_work(&self) {
        let came = wait_async(LONG, async || {
            let listed = self.store().workers().await.expect("readable");
            let is_listed = |worker: &Child| listed.iter().any(|listed| listed.pid == worker.id());
            self.workers.iter().all(is_listed).then_some(()).ok_or(())
        });
        assert!(came.await.is_ok(), "the workers never came\n{}", self.log());
    }

    pub async fn until_all_ended(&self, about: &str, limit: Duration) {
        let open: Vec<_> = JobState::ALL.into_iter().filter(|state| !state.is_final()).collect();
        let ended = wait_async(limit, async || {
            let filter = JobFilter { states: open.clone(), limit: 5, ..JobFilter::default() };
            let left = self.store().jobs(filter).await.expect("readable");
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
        ended.await.unwrap_or_else(|left| {
            let states: Vec<_> = left.iter().map(|job| (job.id, job.state, job.reason.clone())).collect();
            panic!("{about}: not at their end: {states:?}\n{}", self.log());
        });
    }

    /// All that workers said.
    pub fn whole_log(&self) -> String {
        std::fs::read_to_string(self.root().join("work.log")).unwrap_or_default()
    }

    /// What they said last, newest first.
    pub fn log(&self) -> String {
        self.whole_log().lines().rev().take(40).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for mut worker in self.workers.drain(..) {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// A program of this test in a process of its own: a test that does nothing unless it finds `variable`.
pub fn program(name: &str, variable: &str, root: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("has a path"));
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(variable, root);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn worker(root: &Path) -> Command {
    logged(program("fleet::worker::works_until_it_is_ended", "POSSE_FLEET_HOST", root), root)
}

fn logged(mut command: Command, root: &Path) -> Command {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(root.join("work.log")).expect("a log file");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command
}

fn start(mut command: Command) -> Child {
    command.spawn().expect("starts")
}

fn send(pid: u32, signal: &str) {
    let sent = Command::new("/bin/kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
    // One that has ended meanwhile cannot be told, and need not be.
    sent.expect("kill runs");
}
