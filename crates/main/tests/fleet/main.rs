//! A fleet under fire: four worker processes, and whatever can happen to processes and hosts.
//!
//! Every job has one step with an effect in the world that must not happen twice. While the jobs are
//! worked, workers are killed, frozen for longer than their leases stand, asked to end and replaced,
//! the write lock is held by somebody else, and the host's clock is set by an hour. In the end every
//! job has ended once, no effect has happened twice, and each ledger says what its journal says.
//!
//! `POSSE_FLEET_JOBS=20000` is the full form. `POSSE_FLEET_SEED=17` begins with the same dice again.

mod worker;

use std::collections::BTreeMap;
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

use worker::{LEASE, ROLE, host_now, set_host_clock};

const WORKERS: usize = 4;

/// SplitMix64: the same seed gives the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

/// A host: a folder with a database, a clock, and worker processes.
struct Host {
    folder: TempDir,
    store: SqliteStore,
    workers: Vec<Child>,
}

impl Host {
    fn new() -> Host {
        let folder = TempDir::new().expect("a temporary folder");
        set_host_clock(folder.path(), 0);
        let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
        let store = SqliteStore::open(&folder.path().join("posse.db"), options).expect("a new database");
        Host { folder, store, workers: Vec::new() }
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

/// One thing that can happen, chosen by the dice.
async fn strike(host: &mut Host, dice: &mut Dice, tally: &mut Tally) {
    let victim = dice.below(WORKERS as u64) as usize;
    match dice.below(8) {
        0..3 => {
            host.replace(victim);
            tally.killed += 1;
        }
        3 => {
            host.signal(victim, "-STOP");
            tokio::time::sleep(LEASE + Duration::from_millis(500 + dice.below(1000))).await;
            host.signal(victim, "-CONT");
            tally.frozen += 1;
        }
        4 => {
            host.signal(victim, "-TERM");
            tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
            host.replace(victim);
            tally.drained += 1;
        }
        5 => {
            let other = hold_write_lock(host.root());
            tokio::time::sleep(Duration::from_millis(200 + dice.below(1300))).await;
            drop(other);
            tally.locked += 1;
        }
        _ => {
            // There and back again, so that due times stay near.
            let by = 3_600_000 * i64::from(tally.clock_set.is_multiple_of(2));
            set_host_clock(host.root(), by);
            tally.clock_set += 1;
        }
    }
    tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
}

/// Another program that holds the write lock until it is dropped.
struct Lock(Child);

fn hold_write_lock(root: &Path) -> Lock {
    let child = Command::new(std::env::current_exe().expect("has a path"))
        .args(["--exact", "worker::holds_the_write_lock", "--nocapture", "--test-threads=1"])
        .env("POSSE_FLEET_LOCK", root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Lock(child.expect("starts"))
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

async fn check(host: &Host, about: &str, ids: &[JobId], tally: &mut Tally) {
    let store = &host.store;
    let effects = effects(host.root());
    for id in ids {
        let job = store.job(*id).await.expect("readable").expect("the job is there: nothing is lost");
        let about = format!("{about}, job {id}");
        assert!(job.state.is_final() && job.leased_by.is_none(), "{about}: {}", job.state);
        let attempts = store.attempts(*id).await.expect("readable");
        let completed = attempts.iter().filter(|a| a.outcome.as_deref() == Some("completed")).count();
        let lost = attempts.iter().filter(|a| a.outcome.as_deref() == Some("worker_lost")).count();
        assert!(attempts.iter().all(|attempt| attempt.outcome.is_some()), "{about}: {attempts:?}");
        match job.state {
            JobState::Completed => assert_eq!(completed, 1, "{about}: it ended once"),
            // A job that meets death too often is given up, and says so.
            JobState::Discarded => {
                let said = job.reason.as_deref().unwrap_or_default();
                assert!(completed == 0 && said.contains("its worker died"), "{about}: {said}");
                tally.discarded += 1;
            }
            state => panic!("{about}: {state}"),
        }
        assert_eq!(lost as u32, job.crashes, "{about}: every lost attempt is counted");
        let (journal, ledger) =
            (store.journal(*id, 0).await.expect("readable"), store.ledger(*id).await.expect("readable"));
        assert_eq!(disagreement(store.installation(), *id, &journal, &ledger), None, "{about}");
        let happened = effects.get(&id.0).copied().unwrap_or(0);
        assert!(happened <= 1, "{about}: its effect happened {happened} times");
        if let Some(row) = ledger.first() {
            assert!(row.state != CallState::Done || happened == 1, "{about}: done, and it never happened");
            tally.unknown += u32::from(row.state == CallState::Unknown);
        }
        tally.crashes += job.crashes;
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
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let jobs = number("POSSE_FLEET_JOBS").unwrap_or(1_000).max(100);
    let by_time = posse_core::clock::Clock::now(&SystemClock) as u64 % 1_000_000;
    let seed = number("POSSE_FLEET_SEED").unwrap_or(by_time);
    let about = format!("POSSE_FLEET_SEED={seed} POSSE_FLEET_JOBS={jobs}");
    eprintln!("{about}");
    let (mut dice, mut tally, mut ids) = (Dice(seed), Tally::default(), Vec::new());
    let mut host = Host::new();
    (0..WORKERS).for_each(|_| host.start_worker());
    let began = Instant::now();
    let rounds = (jobs / 80).clamp(8, 120);
    for round in 0..rounds {
        let batch = jobs / rounds + u64::from(round < jobs % rounds);
        ids.extend(host.enqueue(batch as usize).await);
        strike(&mut host, &mut dice, &mut tally).await;
    }
    until_all_ended(&host, &about, Duration::from_secs(60)).await;
    let took = began.elapsed();
    check(&host, &about, &ids, &mut tally).await;
    let jumps = host.store.clock_jumps().await.expect("readable");
    assert!(tally.clock_set == 0 || !jumps.is_empty(), "{about}: a jump of the clock is on record");
    eprintln!("{} jobs in {:.1} s: {tally:?}", ids.len(), took.as_secs_f32());
    assert_eq!(ids.len() as u64, jobs);
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
