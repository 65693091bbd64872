//! How fast the SQLite repository stores, hands out and ends jobs on this machine.
//!
//! `cargo run --release -p posse-infra --example sqlite_bench [folder [word of what to measure]]`

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_core::job::lease::WorkerId;
use posse_core::job::transition::Event;
use posse_core::job::{NewJob, Payload};
use posse_core::port::{ClaimRequest, Ending, JobRepository, RepositoryError};
use posse_core::run::journal::Entry;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};

/// How long each measurement runs.
const SPAN: Duration = Duration::from_secs(3);

fn job() -> NewJob {
    let payload = Payload { goal: "Which of these suppliers ships to Norway?".into(), ..Payload::default() };
    NewJob { role: "r".into(), payload, ..NewJob::default() }
}

fn request(limit: u32) -> ClaimRequest {
    let worker = WorkerId("w".into());
    ClaimRequest { worker, role: "r".into(), queues: vec![], limit, now: 1, lease_until: 30_000 }
}

fn completed() -> Ending {
    Ending {
        event: Event::Complete,
        due_at: 1,
        reason: None,
        output: None,
        entries: vec![],
        seq: 0,
        children: vec![],
        waits_for: vec![],
    }
}

/// Enqueues with so many callers, each with batches of so many.
async fn enqueue(store: &Arc<SqliteStore>, callers: usize, batch: usize) -> Result<f64, RepositoryError> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut stored = 0;
                while begun.elapsed() < SPAN {
                    stored += store.enqueue(vec![job(); batch], 1).await?.len();
                }
                Ok::<_, RepositoryError>(stored)
            })
        })
        .collect();
    let mut stored = 0;
    for task in tasks {
        stored += task.await.expect("a task ends")?;
    }
    Ok(stored as f64 / begun.elapsed().as_secs_f64())
}

/// Claims by hundreds and ends each, all at once, until nothing is left.
async fn cycle(store: &Arc<SqliteStore>, jobs: usize) -> Result<f64, RepositoryError> {
    for _ in 0..jobs / 1000 {
        store.enqueue(vec![job(); 1000], 1).await?;
    }
    let begun = Instant::now();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut done = 0;
                loop {
                    let claimed = store.claim(request(100)).await?;
                    if claimed.is_empty() {
                        return Ok::<_, RepositoryError>(done);
                    }
                    let endings = claimed.iter().map(|claimed| store.finish(claimed.lease, completed(), 2));
                    done += futures::future::try_join_all(endings).await?.len();
                }
            })
        })
        .collect();
    let mut done = 0;
    for worker in workers {
        done += worker.await.expect("a task ends")?;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

/// Appends to one journal, one entry at a time.
async fn append(store: &Arc<SqliteStore>) -> Result<f64, RepositoryError> {
    store.enqueue(vec![job()], 1).await?;
    let lease = store.claim(request(1)).await?[0].lease;
    let (begun, mut seq) = (Instant::now(), 0);
    while begun.elapsed() < SPAN {
        store.append(lease, seq, vec![Entry::Note { text: "x".repeat(300) }], 2).await?;
        seq += 1;
    }
    Ok(seq as f64 / begun.elapsed().as_secs_f64())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), RepositoryError> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let wanted = std::env::args().nth(2).unwrap_or_default();
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        let measure = async |what: &str, kind: u8| {
            if !what.contains(&wanted) {
                return Ok(());
            }
            let path = Path::new(&folder).join(format!("bench-{}.db", std::process::id()));
            let options = Options { synchronous, ..Options::default() };
            let store = Arc::new(SqliteStore::open(&path, options)?);
            let rate = match kind {
                0 => enqueue(&store, 1, 1).await?,
                1 => enqueue(&store, 64, 1).await?,
                2 => enqueue(&store, 1, 1000).await?,
                3 => cycle(&store, 200_000).await?,
                _ => append(&store).await?,
            };
            println!("{synchronous:?}\t{what}\t{rate:.0}/s\t{} commits", store.commits());
            drop(store);
            for suffix in ["", "-wal", "-shm", ".wake"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
            }
            Ok::<_, RepositoryError>(())
        };
        measure("enqueue one by one", 0).await?;
        measure("enqueue, 64 callers", 1).await?;
        measure("enqueue by 1000", 2).await?;
        measure("claim by 100, finish each", 3).await?;
        measure("append one by one", 4).await?;
    }
    Ok(())
}
