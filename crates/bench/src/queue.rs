//! How fast the queue is. Each measurement is made by processes of this program on a database of its own, and printed
//! as soon as it is known.

pub mod process;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser as _, ValueEnum};
use posse_core::port::JobQueries;
use posse_core::text::plural;
use posse_infra::sqlite::{Keys, SqliteStore};
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::{DURABILITY, open};
use process::cpu_seconds;

/// Set for the processes that a measurement starts, with the arguments of theirs. They are this program with the
/// same command, so that what is measured is what runs here, whichever program that is.
const PROCESS: &str = "POSSE_BENCH_PROCESS";

/// How long a measurement may stand still.
const PATIENCE: Duration = Duration::from_secs(60);

/// How fast the queue is on this machine; with POSSE_SEAL_KEYS set, while it seals texts
#[derive(Args)]
pub struct QueueArgs {
    /// What a commit promises: to survive a power cut, or only the death of the process
    #[arg(long, value_parser = ["full", "normal"], default_value = "full")]
    durability: String,
    /// Jobs in each measurement of whole cycles; others use a share of it
    #[arg(long, default_value_t = 50_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    jobs: u64,
    /// Work so many jobs first, and measure beside their rows
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    finished_rows: u64,
    /// Measure so many times; the median is the result
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// Only this measurement; may be given more than once
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Workload>,
    /// The folder for the databases, on the disk to be measured; made for the time it takes
    #[arg(long, default_value = "posse-bench", value_name = "DIR")]
    folder: PathBuf,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// One caller, a job with each call
    EnqueueOne,
    /// 64 callers, a job with each call
    EnqueueCallers,
    /// One caller, 1,000 jobs with each call
    EnqueueBatch,
    /// One worker process with 10 slots works what is queued
    Cycle10,
    /// One worker process with 100 slots
    Cycle100,
    /// Four worker processes with 25 slots each
    Cycle4x25,
    /// From the commit to the work, in the worker's own process
    Latency,
    /// From the commit to the work, across processes
    LatencyAcross,
    /// What a worker process with nothing to do costs
    Idle,
}

/// One result, as the benchmark harness writes it.
#[derive(Serialize)]
pub struct Line<'a> {
    peer: &'static str,
    version: &'static str,
    db: &'static str,
    workload: &'a str,
    metric: &'a str,
    value: f64,
    unit: &'a str,
    n: u64,
    notes: String,
    runs: Vec<f64>,
}

/// Measures, and gives each result to `print`. `keys` seal what is stored.
pub async fn run(args: QueueArgs, keys: Keys, print: &dyn Fn(&Line) -> Result<()>) -> Result<()> {
    if let Some(arguments) = std::env::var_os(PROCESS) {
        let arguments: Vec<String> = serde_json::from_slice(arguments.as_encoded_bytes())?;
        return process::run(process::Verb::try_parse_from(&arguments)?, keys).await;
    }
    let made = !args.folder.exists();
    std::fs::create_dir_all(&args.folder).with_context(|| format!("making {}", args.folder.display()))?;
    let outcome = Bench { print, keys, folder: args.folder.clone(), args: &args }.all().await;
    if made {
        // What is left of it is only in the way; the results are printed.
        let _ = std::fs::remove_dir_all(&args.folder);
    }
    outcome
}

struct Bench<'a> {
    print: &'a dyn Fn(&Line) -> Result<()>,
    keys: Keys,
    folder: PathBuf,
    args: &'a QueueArgs,
}

impl Bench<'_> {
    async fn all(&self) -> Result<()> {
        if self.args.finished_rows > 0 {
            self.remove_database();
            self.enqueue(self.args.finished_rows, 1000).await?;
            self.drain(self.args.finished_rows, 1, 200).await?;
            // The last connection takes the log into the file.
            self.open().map(drop)?;
            std::fs::rename(self.database(), self.finished()).context("keeping the finished rows")?;
        }
        for workload in Workload::value_variants() {
            if self.args.only.is_empty() || self.args.only.contains(workload) {
                self.measure(*workload).await?;
            }
        }
        Ok(())
    }

    async fn measure(&self, workload: Workload) -> Result<()> {
        let jobs = self.args.jobs;
        match workload {
            Workload::EnqueueOne => self.rates("W1-single", jobs / 10, || self.enqueue(jobs / 10, 1)).await,
            Workload::EnqueueCallers => self.rates("W1-64-callers", jobs, || self.callers(jobs)).await,
            Workload::EnqueueBatch => self.rates("W1-batch1000", 2 * jobs, || self.enqueue(2 * jobs, 1000)).await,
            Workload::Cycle10 => self.cycle("W2-c10", 1, 10).await,
            Workload::Cycle100 => self.cycle("W2-c100", 1, 100).await,
            Workload::Cycle4x25 => self.cycle("W4-4x25", 4, 25).await,
            Workload::Latency => self.latency("W3-inproc", true).await,
            Workload::LatencyAcross => self.latency("W3", false).await,
            Workload::Idle => self.idle().await,
        }
    }

    async fn rates<F: Future<Output = Result<f64>>>(&self, name: &str, n: u64, once: impl Fn() -> F) -> Result<()> {
        let mut runs = Vec::new();
        for _ in 0..self.args.repeat {
            self.fresh()?;
            runs.push(once().await?);
        }
        self.print(name, "enqueue", "jobs/s", n, runs)
    }

    async fn cycle(&self, name: &str, processes: usize, slots: usize) -> Result<()> {
        let jobs = self.args.jobs;
        let (mut rates, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..self.args.repeat {
            self.fresh()?;
            self.enqueue(jobs, 1000).await?;
            let (rate, seconds) = self.drain(jobs, processes, slots).await?;
            rates.push(rate);
            cpu.push(seconds * 1e4 / jobs as f64);
        }
        self.print(name, "drain", "jobs/s", jobs, rates)?;
        self.print(name, "worker_cpu", "cpu-s/10k jobs", jobs, cpu)
    }

    async fn latency(&self, name: &str, in_process: bool) -> Result<()> {
        const JOBS: u64 = 300;
        let mut percentiles: [Vec<f64>; 3] = Default::default();
        for _ in 0..self.args.repeat {
            self.fresh()?;
            let (log, calls) = (self.file("log"), self.file("calls"));
            let worker = if in_process {
                let worker = self.peer(&["inproc", &self.database(), "10", "0", &log, "300", "20", &calls])?;
                worker.event("enqueued").await?;
                worker
            } else {
                let worker = self.peer(&["work", &self.database(), "10", "0", &log])?;
                worker.event("run").await?;
                // Idle workers are what is measured.
                tokio::time::sleep(Duration::from_secs(5)).await;
                let producer = self.peer(&["enqueue", &self.database(), "300", "1", "20", &calls])?;
                producer.event("enqueued").await?;
                producer.end().await?;
                worker
            };
            worker.count(JOBS).await?;
            worker.end().await?;
            let started: HashMap<u64, u64> = rows(&log)?.into_iter().map(|row| (row[0], row[1])).collect();
            let late = |call: &Vec<u64>| Some((*started.get(&call[0])? as f64 - call[2] as f64) / 1e6);
            let mut late: Vec<f64> = rows(&calls)?.iter().filter_map(late).collect();
            ensure!(late.len() as u64 == JOBS, "{} of {JOBS} jobs were worked", late.len());
            late.sort_by(f64::total_cmp);
            for (values, percent) in percentiles.iter_mut().zip([50, 95, 99]) {
                values.push(late[late.len() * percent / 100]);
            }
        }
        for (values, metric) in percentiles.into_iter().zip(["pickup_p50", "pickup_p95", "pickup_p99"]) {
            self.print(name, metric, "ms after commit returned", JOBS, values)?;
        }
        Ok(())
    }

    async fn idle(&self) -> Result<()> {
        const SECONDS: f64 = 10.0;
        let mut shares = Vec::new();
        for _ in 0..self.args.repeat {
            self.fresh()?;
            let worker = self.peer(&["work", &self.database(), "10", "0", &self.file("log")])?;
            worker.event("run").await?;
            // What a start costs is not what idling costs.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = worker.cpu();
            tokio::time::sleep(Duration::from_secs_f64(SECONDS)).await;
            shares.push((worker.cpu() - before) / SECONDS * 100.0);
            worker.end().await?;
        }
        self.print("idle", "worker_cpu", "% of one core", 0, shares)
    }

    /// Jobs per second.
    async fn enqueue(&self, n: u64, batch: u64) -> Result<f64> {
        self.produce(n, &["enqueue", &self.database(), &n.to_string(), &batch.to_string(), "0"]).await
    }

    async fn callers(&self, n: u64) -> Result<f64> {
        self.produce(n, &["callers", &self.database(), &n.to_string(), "64"]).await
    }

    async fn produce(&self, n: u64, arguments: &[&str]) -> Result<f64> {
        let producer = self.peer(arguments)?;
        let event = producer.event("enqueued").await?;
        producer.end().await?;
        let time = |name: &str| event[name].as_u64().context("a time is missing");
        Ok(n as f64 / ((time("t1")? - time("t0")?) as f64 / 1e9))
    }

    /// Works all that is queued, from the first job handed over to the last one's commit. Gives jobs per second, and
    /// seconds of processor time of all workers.
    async fn drain(&self, n: u64, processes: usize, slots: usize) -> Result<(f64, f64)> {
        let store = self.open()?;
        let logs: Vec<String> = (0..processes).map(|i| self.file(&format!("log{i}"))).collect();
        let start = |log: &String| self.peer(&["work", &self.database(), &slots.to_string(), &n.to_string(), log]);
        let workers = logs.iter().map(start).collect::<Result<Vec<_>>>()?;
        let mut last = (0, std::time::Instant::now());
        while last.0 < n {
            let sum = workers.iter().map(Peer::counted).sum();
            if sum != last.0 {
                last = (sum, std::time::Instant::now());
            }
            ensure!(last.1.elapsed() < PATIENCE, "{sum} of {} were worked, and then no more", plural(n, "job"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // All were handed over; without a lease all have ended.
        while store.next_lease_end().await?.is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let end = posse_infra::process::monotonic_ns();
        let cpu = workers.iter().map(Peer::cpu).sum();
        for worker in workers {
            worker.end().await?;
        }
        let mut ran = Vec::new();
        for log in &logs {
            ran.extend(rows(log)?);
        }
        let different: HashSet<u64> = ran.iter().map(|row| row[0]).collect();
        ensure!(
            ran.len() as u64 == n && different.len() as u64 == n,
            "{} ran, {} different ones of {n}",
            plural(ran.len() as u64, "job"),
            different.len()
        );
        let first = ran.iter().map(|row| row[1]).min().context("no job ran")?;
        Ok((n as f64 / ((end - first) as f64 / 1e9), cpu))
    }

    /// A new database, or a copy of the one with the finished rows, all of it on the disk.
    fn fresh(&self) -> Result<()> {
        self.remove_database();
        if self.args.finished_rows > 0 {
            std::fs::copy(self.finished(), self.database()).context("copying the finished rows")?;
            std::fs::File::open(self.database())?.sync_all()?;
        }
        self.open().map(drop)
    }

    fn finished(&self) -> String {
        self.file("finished.db")
    }

    fn open(&self) -> Result<Arc<SqliteStore>> {
        open(&self.database(), self.keys.clone())
    }

    fn remove_database(&self) {
        for suffix in ["", "-wal", "-shm", ".wake"] {
            // It need not be there.
            let _ = std::fs::remove_file(format!("{}{suffix}", self.database()));
        }
    }

    fn database(&self) -> String {
        self.file("bench.db")
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn peer(&self, arguments: &[&str]) -> Result<Peer> {
        Peer::start(arguments, &self.args.durability)
    }

    fn print(&self, workload: &str, metric: &str, unit: &str, n: u64, runs: Vec<f64>) -> Result<()> {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let rounded = |value: f64| if value < 100.0 { (value * 1e3).round() / 1e3 } else { value.round() };
        let rows = match self.args.finished_rows {
            0 => String::new(),
            rows => format!("; {}", plural(rows, "finished row")),
        };
        let sealed = if self.keys.seals() { "; texts sealed" } else { "" };
        (self.print)(&Line {
            peer: "posse",
            version: env!("CARGO_PKG_VERSION"),
            db: "sqlite",
            workload,
            metric,
            value: rounded(sorted[sorted.len() / 2]),
            unit,
            n,
            notes: format!("WAL, synchronous={}; finished rows kept{rows}{sealed}", self.args.durability),
            runs: runs.into_iter().map(rounded).collect(),
        })
    }
}

fn rows(path: &str) -> Result<Vec<Vec<u64>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(text.lines().map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect()).collect())
}

/// A process of the benchmark. It ends when it is dropped.
struct Peer {
    child: Child,
    events: watch::Receiver<Vec<Value>>,
}

impl Peer {
    fn start(arguments: &[&str], durability: &str) -> Result<Peer> {
        let program = std::env::current_exe().context("this program's own file is not known")?;
        let mut child = Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(PROCESS, serde_json::to_string(arguments)?)
            .env(DURABILITY, durability)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("a process could not be started")?;
        let lines = child.stdout.take().context("no output")?;
        let (sender, events) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut lines = BufReader::new(lines).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|events| events.push(serde_json::from_str(&line).unwrap_or_default()));
            }
        });
        Ok(Peer { child, events })
    }

    /// Waits until it says that something happened.
    async fn event(&self, name: &str) -> Result<Value> {
        let mut events = self.events.clone();
        let is_it = |event: &Value| event["ev"] == name;
        let said = tokio::time::timeout(10 * PATIENCE, events.wait_for(|events| events.iter().any(is_it))).await;
        match said {
            Ok(Ok(events)) => events.iter().find(|event| is_it(event)).cloned().context("it was said"),
            Ok(Err(_)) => bail!("a process of the benchmark ended before '{name}'"),
            Err(_) => bail!("a process of the benchmark did not come to '{name}'"),
        }
    }

    /// Waits until it has worked so many jobs.
    async fn count(&self, n: u64) -> Result<()> {
        let mut events = self.events.clone();
        let said = tokio::time::timeout(PATIENCE, events.wait_for(|events| counted(events) >= n)).await;
        said.with_context(|| format!("{} of {} were worked", self.counted(), plural(n, "job")))?.map(drop)?;
        Ok(())
    }

    fn counted(&self) -> u64 {
        counted(&self.events.borrow())
    }

    fn cpu(&self) -> f64 {
        self.child.id().map_or(0.0, cpu_seconds)
    }

    async fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await.context("a process does not end")??;
        ensure!(ended.success(), "a process of the benchmark failed: {ended}");
        Ok(())
    }
}

/// How many jobs have been worked, by the last event that says so.
fn counted(events: &[Value]) -> u64 {
    events.iter().rev().find(|event| event["ev"] == "n").and_then(|event| event["n"].as_u64()).unwrap_or_default()
}
