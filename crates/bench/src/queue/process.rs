//! One process of the measurements. It speaks the harness's language: a line of JSON for what happens,
//! and it ends when its standard input does. Times are the machine's monotonic clock, which all
//! processes share, in nanoseconds.

use std::fmt::Write as _;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use clap::Parser;
use posse_core::clock::Clock;
use posse_core::job::{NewJob, Output, Payload};
use posse_core::port::JobRepository;
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_core::worker::{WorkerService, maintain};
use posse_infra::process::{SystemClock, monotonic_ns};
use posse_infra::sqlite::{Keys, SqliteStore};
use serde::{Deserialize, Serialize};

use crate::{fleet, open};

/// What a process does. Arguments are those of the harness.
#[derive(Parser)]
#[command(no_binary_name = true)]
pub enum Verb {
    /// Make the database
    Setup { database: String },
    /// Enqueue N jobs, BATCH with each call, GAP milliseconds apart; OUT gets the times of each call
    Enqueue { database: String, n: u64, batch: u64, gap: u64, out: Option<String> },
    /// Enqueue N jobs one by one from CALLERS tasks at once
    Callers { database: String, n: u64, callers: u64 },
    /// Work what there is; LOG gets the time at which each job was handed over
    Work { database: String, slots: usize, cap: u64, log: String },
    /// Work, and enqueue N jobs from the same process
    Inproc { database: String, slots: usize, cap: u64, log: String, n: u64, gap: u64, out: String },
}

const ROLE: &str = "bench";

/// About 200 bytes as JSON, as every peer of the harness carries it.
#[derive(Serialize, Deserialize)]
struct Mail {
    seq: u64,
    t: u64,
    user: u64,
    to: String,
    template: String,
    body: String,
}

fn job(seq: u64) -> NewJob {
    let mail = Mail {
        seq,
        t: monotonic_ns(),
        user: 900_000 + seq,
        to: "somebody.with.a.long.name@example.com".into(),
        template: "welcome/v2".into(),
        body: "x".repeat(72),
    };
    NewJob {
        role: ROLE.into(),
        payload: Payload { goal: serde_json::to_string(&mail).unwrap_or_default(), ..Payload::default() },
        ..NewJob::default()
    }
}

/// Decodes the payload and notes when it was handed over.
struct Noop {
    ran: Mutex<Vec<(u64, u64)>>,
}

#[async_trait]
impl AgentExecutor for Noop {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        let at = monotonic_ns();
        match serde_json::from_str::<Mail>(&cx.job.payload.goal) {
            Ok(mail) => {
                self.ran.lock().unwrap_or_else(PoisonError::into_inner).push((mail.seq, at));
                StepOutcome::Completed { output: Output::default(), entries: Vec::new() }
            }
            Err(error) => StepOutcome::Failed { reason: error.to_string() },
        }
    }
}

pub async fn run(verb: Verb, keys: Keys) -> Result<()> {
    let open = |database: &str| open(database, keys);
    match verb {
        Verb::Setup { database } => open(&database).map(drop),
        Verb::Enqueue { database, n, batch, gap, out } => {
            enqueue(&*open(&database)?, n, batch.max(1), gap, out.as_deref()).await
        }
        Verb::Callers { database, n, callers: many } => callers(&open(&database)?, n, many).await,
        Verb::Work { database, slots, log, .. } => work(&open(&database)?, slots, log).await,
        Verb::Inproc { database, slots, log, n, gap, out, .. } => {
            let store = open(&database)?;
            let producer = Arc::clone(&store);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                if let Err(error) = enqueue(&producer, n, 1, gap, Some(&out)).await {
                    eprintln!("{error:#}");
                }
            });
            work(&store, slots, log).await
        }
    }
}

/// Seconds of processor time that a process has used, in steps of a hundredth.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which is in brackets: user and system time are the 12th and 13th field.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    let ticks: f64 = fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

async fn enqueue(store: &SqliteStore, n: u64, batch: u64, gap_ms: u64, out: Option<&str>) -> Result<()> {
    let mut calls = String::new();
    let t0 = monotonic_ns();
    let mut seq = 0;
    while seq < n {
        let jobs: Vec<_> = (seq..(seq + batch).min(n)).map(job).collect();
        let many = jobs.len() as u64;
        let before = monotonic_ns();
        store.enqueue(jobs, SystemClock.now()).await?;
        let _ = writeln!(calls, "{seq} {before} {}", monotonic_ns());
        seq += many;
        if gap_ms > 0 {
            tokio::time::sleep(Duration::from_millis(gap_ms)).await;
        }
    }
    let t1 = monotonic_ns();
    if let Some(out) = out.filter(|out| !out.is_empty()) {
        std::fs::write(out, calls)?;
    }
    println!(r#"{{"ev":"enqueued","t0":{t0},"t1":{t1}}}"#);
    Ok(())
}

async fn callers(store: &Arc<SqliteStore>, n: u64, callers: u64) -> Result<()> {
    let cpu0 = cpu_seconds(std::process::id());
    let t0 = monotonic_ns();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            for seq in (caller..n).step_by(callers as usize) {
                store.enqueue(vec![job(seq)], SystemClock.now()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let t1 = monotonic_ns();
    let seconds = (t1 - t0) as f64 / 1e9;
    let cpu = cpu_seconds(std::process::id()) - cpu0;
    println!(
        r#"{{"ev":"enqueued","t0":{t0},"t1":{t1},"callers":{callers},"n":{n},"jobs_s":{:.0},"cpu_s_10k":{:.3}}}"#,
        n as f64 / seconds,
        cpu / n as f64 * 1e4
    );
    Ok(())
}

async fn work(store: &Arc<SqliteStore>, slots: usize, log: String) -> Result<()> {
    let fleet = fleet(store, ROLE, slots).await?;
    let executor = Arc::new(Noop { ran: Mutex::default() });
    println!(r#"{{"ev":"run","t":{},"cpu":{:.3}}}"#, monotonic_ns(), cpu_seconds(std::process::id()));
    let service = Arc::new(WorkerService {
        handles_role: ROLE.into(),
        queues: Vec::new(),
        slots,
        executor: executor.clone(),
        fleet: Arc::clone(&fleet),
    });
    tokio::spawn(service.run());
    tokio::spawn(maintain(fleet));
    let counter = Arc::clone(&executor);
    std::thread::spawn(move || {
        let mut last = 0;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let n = counter.ran.lock().unwrap_or_else(PoisonError::into_inner).len();
            if n != last {
                println!(r#"{{"ev":"n","n":{n}}}"#);
                last = n;
            }
        }
    });
    let store = Arc::clone(store);
    tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
        }
        let ran = executor.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: String = ran.iter().map(|(seq, at)| format!("{seq} {at}\n")).collect();
        let written = std::fs::write(&log, lines);
        println!(r#"{{"ev":"bye","commits":{}}}"#, store.commits());
        std::process::exit(i32::from(written.is_err()));
    })
    .await?;
    Ok(())
}
