//! Posse as a peer of the queue benchmark: `setup DB`, `enqueue DB N BATCH GAP_MS OUT`,
//! `work DB CONCURRENCY CAP LOG`, `inproc DB CONCURRENCY CAP LOG N GAP_MS OUT`, and
//! `callers DB N CALLERS`, which the harness does not have.

use anyhow::{Context, bail};
use async_trait::async_trait;
use posse_bench::{fleet, monotonic_ns, open, resources};
use posse_core::clock::Clock;
use posse_core::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_core::job::{NewJob, Output, Payload};
use posse_core::port::JobRepository;
use posse_core::worker::{WorkerService, maintain};
use posse_infra::process::SystemClock;
use posse_infra::sqlite::SqliteStore;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let text = |i: usize| args.get(i).map(String::as_str).context("see the top of this file for the arguments");
    let number = |i: usize| -> anyhow::Result<u64> { Ok(text(i)?.parse()?) };
    let store = open(text(1)?)?;
    match text(0)? {
        "setup" => Ok(()),
        "enqueue" => enqueue(&store, number(2)?, number(3)?, number(4)?, args.get(5).map(String::as_str)).await,
        "callers" => callers(&store, number(2)?, number(3)?).await,
        "work" => work(&store, number(2)? as usize, text(4)?).await,
        "inproc" => {
            let producer = Arc::clone(&store);
            let (n, gap, out) = (number(5)?, number(6)?, text(7)?.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                enqueue(&producer, n, 1, gap, Some(&out)).await
            });
            work(&store, number(2)? as usize, text(4)?).await
        }
        other => bail!("unknown verb '{other}'"),
    }
}

async fn enqueue(store: &SqliteStore, n: u64, batch: u64, gap_ms: u64, out: Option<&str>) -> anyhow::Result<()> {
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

async fn callers(store: &Arc<SqliteStore>, n: u64, callers: u64) -> anyhow::Result<()> {
    let (cpu0, _) = resources();
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
    let seconds = (monotonic_ns() - t0) as f64 / 1e9;
    let cpu = resources().0 - cpu0;
    println!(
        r#"{{"callers":{callers},"n":{n},"jobs_s":{:.0},"cpu_s_10k":{:.3}}}"#,
        n as f64 / seconds,
        cpu / n as f64 * 1e4
    );
    Ok(())
}

async fn work(store: &Arc<SqliteStore>, slots: usize, log: &str) -> anyhow::Result<()> {
    let fleet = fleet(store, ROLE, slots).await?;
    let executor = Arc::new(Noop { ran: Mutex::default() });
    println!(r#"{{"ev":"run","t":{},"cpu":{:.3}}}"#, monotonic_ns(), resources().0);
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
    let log = log.to_owned();
    tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
        }
        let ran = executor.ran.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: String = ran.iter().map(|(seq, at)| format!("{seq} {at}\n")).collect();
        let written = std::fs::write(&log, lines);
        println!(r#"{{"ev":"bye"}}"#);
        std::process::exit(i32::from(written.is_err()));
    })
    .await?;
    Ok(())
}
