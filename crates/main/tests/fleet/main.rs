//! A fleet under fire: four worker processes, and whatever can happen to processes and hosts.
//!
//! Every job has one step with an effect in the world that must not happen twice. While the jobs are
//! worked, workers are killed, frozen for longer than their leases stand, asked to end and replaced,
//! the write lock is held by somebody else, and the host's clock is set by an hour. In the end every
//! job has ended once, no effect has happened twice, and each ledger says what its journal says.
//!
//! `POSSE_FLEET_JOBS=20000` is the full form. `POSSE_FLEET_SEED=17` has the same happen again.

mod burst;
#[path = "../support/dice.rs"]
mod dice;
mod killer;
mod plan;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use posse_core::job::{JobId, JobState, NewJob};
use posse_core::journal::CallState;
use posse_core::journal::audit::disagreement;
use posse_core::port::{CareRepository as _, JobFilter, JobQueries as _, JobRepository as _};
use posse_infra::process::SystemClock;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};
use tempfile::TempDir;

use dice::number;
use plan::{Blow, Round, plan};
use worker::{LEASE, ROLE, host_now, set_host_clock};

const WORKERS: usize = 4;
/// By how much the host's clock is set, in milliseconds.
const HOUR: i64 = 3_600_000;

/// A host: a folder with a database, a clock, and worker processes.
struct Host {
    folder: TempDir,
    store: SqliteStore,
    workers: Vec<Child>,
    /// The processes that were killed; nobody else may be charged a death.
    killed: BTreeSet<u32>,
}

impl Host {
    fn new() -> Host {
        let folder = TempDir::new().expect("a temporary folder");
        set_host_clock(folder.path(), 0);
        let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
        let store = SqliteStore::open(&folder.path().join("posse.db"), options).expect("a new database");
        Host { folder, store, workers: Vec::new(), killed: BTreeSet::new() }
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn start_worker(&mut self) {
        self.workers.push(start_worker(self.root()));
    }

    /// `kill -9`, or another signal.
    fn signal(&self, worker: usize, signal: &str) {
        send(self.workers[worker].id(), signal);
    }

    /// Kills one for good.
    fn kill(&mut self, worker: usize) {
        self.killed.insert(self.workers[worker].id());
        self.workers[worker].kill().expect("SIGKILL");
        self.workers[worker].wait().expect("it is reaped");
    }

    /// Kills one for good and puts another in its place.
    fn replace(&mut self, worker: usize) {
        self.kill(worker);
        self.workers[worker] = start_worker(self.folder.path());
    }

    async fn enqueue(&self, jobs: usize) -> Vec<JobId> {
        let job = NewJob { role: ROLE.into(), max_attempts: 50, ..NewJob::default() };
        let enqueued = self.store.enqueue(vec![job; jobs], host_now(self.root())).await.expect("is stored");
        enqueued.into_iter().map(|enqueued| enqueued.id).collect()
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.root().join("work.log")).unwrap_or_default();
        log.lines().rev().take(40).collect::<Vec<_>>().join("\n")
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

fn start_worker(root: &Path) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(root.join("work.log")).expect("a log file");
    Command::new(std::env::current_exe().expect("has a path"))
        .args(["--exact", "worker::works_until_it_is_ended", "--nocapture", "--test-threads=1"])
        .env("POSSE_FLEET_HOST", root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("starts")
}

fn send(pid: u32, signal: &str) {
    let sent = Command::new("/bin/kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
    // One that has ended meanwhile cannot be told, and need not be.
    sent.expect("kill runs");
}

/// What happened to the fleet; to see that it was under fire.
#[derive(Default, Debug)]
struct Tally {
    killed: u32,
    frozen: u32,
    drained: u32,
    locked: u32,
    clock_set: u32,
    crashes: u32,
    unknown: u32,
    discarded: u32,
}

/// Has it happen.
async fn strike(host: &mut Host, blow: Blow, tally: &mut Tally) {
    match blow {
        Blow::Kill { worker } => {
            host.replace(worker);
            tally.killed += 1;
        }
        Blow::Freeze { worker, beyond_ms } => {
            host.signal(worker, "-STOP");
            tokio::time::sleep(LEASE + Duration::from_millis(beyond_ms)).await;
            host.signal(worker, "-CONT");
            tally.frozen += 1;
        }
        Blow::End { worker, after_ms } => {
            host.signal(worker, "-TERM");
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            host.replace(worker);
            tally.drained += 1;
        }
        Blow::Lock { ms } => {
            let other = hold_write_lock(host.root()).await;
            tokio::time::sleep(Duration::from_millis(ms)).await;
            drop(other);
            tally.locked += 1;
        }
        Blow::SetClock => {
            // There and back again, so that due times stay near.
            let is_forward = tally.clock_set.is_multiple_of(2);
            set_host_clock(host.root(), HOUR * i64::from(is_forward));
            until_jump_is_noticed(host, is_forward).await;
            tally.clock_set += 1;
        }
    }
}

/// Waits for the first worker that notices. A clock that is set back before anybody looked was never set.
async fn until_jump_is_noticed(host: &Host, is_forward: bool) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let jumps = host.store.clock_jumps().await.expect("readable");
        if jumps.first().is_some_and(|newest| (newest.by_ms > 0) == is_forward) {
            return;
        }
        assert!(Instant::now() < until, "nobody noticed that the clock was set\n{}", host.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Another program that holds the write lock until it is dropped.
struct Lock(Child);

/// Returns once it holds it.
async fn hold_write_lock(root: &Path) -> Lock {
    let told = root.join("locked");
    let _ = std::fs::remove_file(&told);
    let child = Command::new(std::env::current_exe().expect("has a path"))
        .args(["--exact", "worker::holds_the_write_lock", "--nocapture", "--test-threads=1"])
        .env("POSSE_FLEET_LOCK", root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let lock = Lock(child.expect("starts"));
    let until = Instant::now() + Duration::from_secs(20);
    while !told.exists() {
        assert!(Instant::now() < until, "the write lock was never had");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    lock
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How often each job's effect happened.
fn effects(root: &Path) -> BTreeMap<i64, u32> {
    let text = std::fs::read_to_string(root.join("effects.log")).unwrap_or_default();
    let mut effects = BTreeMap::new();
    for line in text.lines() {
        *effects.entry(line.parse().expect("a job's number")).or_default() += 1;
    }
    effects
}

/// What is wrong with how the jobs ended; nothing, if each ended once, its effect happened at most once,
/// and its ledger says what its journal says.
async fn problems(host: &Host, ids: &[JobId], tally: &mut Tally) -> Vec<String> {
    let effects = effects(host.root());
    let mut problems = Vec::new();
    for id in ids {
        let mut must = |is_right: bool, else_said: String| {
            if !is_right {
                problems.push(format!("job {id}: {else_said}"));
            }
        };
        let store = &host.store;
        let Some(job) = store.job(*id).await.expect("readable") else {
            must(false, "it is lost".into());
            continue;
        };
        must(job.state.is_final() && job.leased_by.is_none(), format!("it is {}", job.state));
        let attempts = store.attempts(*id).await.expect("readable");
        let ended_as = |outcome| attempts.iter().filter(|a| a.outcome.as_deref() == Some(outcome)).count();
        must(attempts.iter().all(|attempt| attempt.outcome.is_some()), "an attempt has no end".into());
        // A worker's name ends with the number of its process.
        let was_killed = |worker: &str| host.killed.iter().any(|pid| worker.ends_with(&format!("-{pid}")));
        let lost = attempts.iter().filter(|attempt| attempt.outcome.as_deref() == Some("worker_lost"));
        let charged: Vec<_> = lost.filter(|attempt| !was_killed(&attempt.worker)).collect();
        must(charged.is_empty(), format!("a death of a worker that lived: {charged:?}"));
        match job.state {
            JobState::Completed => must(ended_as("completed") == 1, "it did not end once".into()),
            // A job that meets death too often is given up, and says so.
            JobState::Discarded => {
                let said = job.reason.as_deref().unwrap_or_default();
                must(ended_as("completed") == 0 && said.contains("its worker was lost"), format!("discarded: {said}"));
                tally.discarded += 1;
            }
            _ => {}
        }
        must(ended_as("worker_lost") as u32 == job.crashes, "not every lost attempt is counted".into());
        let (journal, ledger) =
            (store.journal(*id, 0).await.expect("readable"), store.ledger(*id).await.expect("readable"));
        if let Some(said) = disagreement(store.installation(), *id, &journal, &ledger) {
            must(false, said);
        }
        let happened = effects.get(&id.0).copied().unwrap_or(0);
        must(happened <= 1, format!("its effect happened {happened} times"));
        if let Some(row) = ledger.first() {
            must(row.state != CallState::Done || happened == 1, "its effect is done, and never happened".into());
            tally.unknown += u32::from(row.state == CallState::Unknown);
        }
        tally.crashes += job.crashes;
    }
    problems
}

/// Waits until every worker is on the list. One that starts later than a blow is not struck by it.
async fn until_at_work(host: &Host) {
    let until = Instant::now() + Duration::from_secs(20);
    while host.store.workers().await.expect("readable").len() < host.workers.len() {
        assert!(Instant::now() < until, "the workers never came\n{}", host.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_all_ended(host: &Host, about: &str, limit: Duration) {
    let until = Instant::now() + limit;
    let open: Vec<_> = JobState::ALL.into_iter().filter(|state| !state.is_final()).collect();
    loop {
        let filter = JobFilter { states: open.clone(), limit: 5, ..JobFilter::default() };
        let left = host.store.jobs(filter).await.expect("readable");
        if left.is_empty() {
            return;
        }
        let states: Vec<_> = left.iter().map(|job| (job.id, job.state, job.reason.clone())).collect();
        assert!(Instant::now() < until, "{about}: not at their end: {states:?}\n{}", host.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_every_job_ends_once() {
    let jobs = number("POSSE_FLEET_JOBS").unwrap_or(1_000).max(100);
    let by_time = posse_core::clock::Clock::now(&SystemClock) as u64 % 1_000_000;
    let seed = number("POSSE_FLEET_SEED").unwrap_or(by_time);
    let about = format!("POSSE_FLEET_SEED={seed} POSSE_FLEET_JOBS={jobs}");
    eprintln!("{about}");
    let (mut tally, mut ids) = (Tally::default(), Vec::new());
    let mut host = Host::new();
    (0..WORKERS).for_each(|_| host.start_worker());
    until_at_work(&host).await;
    let began = Instant::now();
    for Round { jobs, blow, then_ms } in plan(seed, jobs) {
        ids.extend(host.enqueue(jobs).await);
        strike(&mut host, blow, &mut tally).await;
        tokio::time::sleep(Duration::from_millis(then_ms)).await;
    }
    until_all_ended(&host, &about, Duration::from_secs(60)).await;
    let took = began.elapsed();
    let problems = problems(&host, &ids, &mut tally).await;
    assert!(problems.is_empty(), "{about}: {problems:#?}");
    assert_eq!(ids.len() as u64, jobs);
    // It was under fire.
    let Tally { killed, frozen, drained, locked, clock_set, .. } = tally;
    assert!([killed, frozen, drained, locked, clock_set].iter().all(|many| *many > 0), "{about}: {tally:?}");
    let jumps = host.store.clock_jumps().await.expect("readable");
    let is_an_hour = |by: i64| (by.abs() - HOUR).abs() < 10_000;
    assert!(!jumps.is_empty() && jumps.iter().all(|jump| is_an_hour(jump.by_ms)), "{about}: {jumps:?}");
    eprintln!("{} jobs in {:.1} s: {tally:?}", ids.len(), took.as_secs_f32());
}

/// The check at the end is one that can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_wrong_would_be_seen() {
    let mut host = Host::new();
    host.start_worker();
    let ids = host.enqueue(8).await;
    until_all_ended(&host, "eight jobs", Duration::from_secs(20)).await;
    host.kill(0);
    assert_eq!(problems(&host, &ids, &mut Tally::default()).await, [""; 0]);
    let database = rusqlite::Connection::open(host.root().join("posse.db")).expect("opens");
    let [twice, open, lost, crashed, undone, forged, gone, _] = ids[..] else { panic!("eight jobs") };
    let log = host.root().join("effects.log");
    let effects = std::fs::read_to_string(&log).expect("readable");
    let without = effects.lines().filter(|line| *line != undone.to_string()).map(|line| format!("{line}\n"));
    std::fs::write(&log, without.collect::<String>() + &format!("{twice}\n")).expect("is written");
    for (sql, id) in [
        ("UPDATE jobs SET state = 'available', finalized_at = NULL, leased_by = NULL WHERE id = ?", open),
        ("UPDATE jobs SET claimed_at = NULL, leased_by = NULL WHERE id = ?", lost),
        ("UPDATE jobs SET crashes = 1 WHERE id = ?", crashed),
        ("UPDATE tool_calls SET state = 'failed' WHERE job_id = ?", forged),
        ("DELETE FROM jobs WHERE id = ?", gone),
    ] {
        database.pragma_update(None, "foreign_keys", 1).expect("is set");
        assert_eq!(database.execute(sql, [id.0]).expect("works"), 1, "{sql}");
    }
    let said = problems(&host, &ids, &mut Tally::default()).await;
    let has =
        |id: JobId, what: &str| said.iter().any(|said| said.starts_with(&format!("job {id}: ")) && said.contains(what));
    assert!(has(twice, "its effect happened 2 times"), "{said:#?}");
    assert!(has(open, "it is available"), "{said:#?}");
    assert!(has(lost, "it did not end once"), "{said:#?}");
    assert!(has(crashed, "not every lost attempt is counted"), "{said:#?}");
    assert!(has(undone, "its effect is done, and never happened"), "{said:#?}");
    assert!(has(forged, ""), "{said:#?}");
    assert!(has(gone, "it is lost"), "{said:#?}");
    assert!(!has(ids[7], ""), "{said:#?}");
}

/// How long it takes from the death of a worker to the next claim of its job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_workers_job_is_claimed_again_at_once() {
    let mut host = Host::new();
    (0..2).for_each(|_| host.start_worker());
    let mut slowest = Duration::ZERO;
    for _ in 0..3 {
        // Its effect takes until somebody removes this file.
        let hold: PathBuf = host.root().join("hold");
        std::fs::write(&hold, "").expect("is written");
        let id = host.enqueue(1).await[0];
        let holder = until(&host, id, 1).await;
        let at =
            host.workers.iter().position(|worker| holder.ends_with(&format!("-{}", worker.id()))).expect("a worker");
        let killed = Instant::now();
        host.kill(at);
        until(&host, id, 2).await;
        slowest = slowest.max(killed.elapsed());
        host.workers[at] = start_worker(host.root());
        std::fs::remove_file(&hold).expect("may be removed");
        until_all_ended(&host, "after a kill", Duration::from_secs(20)).await;
    }
    eprintln!("from kill -9 to the next claim: {slowest:?} at most");
    assert!(slowest < LEASE, "it was not the lease's end that was waited for: {slowest:?}");
}

/// Waits until the job's journal was begun in its n-th attempt, and tells whose it is.
async fn until(host: &Host, id: JobId, attempt: usize) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let attempts = host.store.attempts(id).await.expect("readable");
        let journal = host.store.journal(id, 0).await.expect("readable");
        if let Some(last) = attempts.get(attempt - 1).filter(|_| !journal.is_empty()) {
            return last.worker.clone();
        }
        assert!(Instant::now() < until, "attempt {attempt} never came\n{}", host.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
