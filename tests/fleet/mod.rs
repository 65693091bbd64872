//! A fleet under fire: four worker processes, and whatever can happen to processes, hosts and databases.
//!
//! Every job has one step with an effect in the world that must not happen twice. While the jobs are worked, workers are
//! killed, frozen for longer than their leases stand, asked to end and replaced, kept from writing and from opening files;
//! the write lock is held by somebody else, also for longer than leases stand; the host's clock is set by an hour; the
//! database's files are moved, replaced and deleted, and backups are restored. In the end every job has ended once, no effect
//! has happened twice but what a backup has undone, nobody is charged a death but by who was killed, and each
//! ledger says what its journal says.
//!
//! `POSSE_FLEET_JOBS=20000` is the full form. `POSSE_FLEET_SEED=17` has the same happen again.

mod burst;
mod deploys;
mod files;
mod host;
mod killer;
mod oracle;
mod plan;
mod strike;
mod worker;
mod world;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use posse_core::job::JobId;
use posse_core::port::{CareRepository as _, JobQueries as _};
use posse_infra::process::SystemClock;

use crate::support::dice::number;
use crate::support::wait::wait_async;
use host::Host;
use oracle::Book;
use plan::{Round, plan};
use strike::{HOUR, Tally, strike};
use worker::LEASE;

const WORKERS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_every_job_ends_once() {
    let jobs = number("POSSE_FLEET_JOBS").unwrap_or(1_000).max(100);
    let by_time = posse_core::clock::Clock::now(&SystemClock) as u64 % 1_000_000;
    let seed = number("POSSE_FLEET_SEED").unwrap_or(by_time);
    let about = format!("POSSE_FLEET_SEED={seed} POSSE_FLEET_JOBS={jobs}");
    eprintln!("{about}");
    let (mut tally, mut book) = (Tally::default(), Book::default());
    let mut host = Host::new();
    (0..WORKERS).for_each(|_| host.start_worker());
    host.until_at_work().await;
    let began = Instant::now();
    for Round { jobs, blow, then_ms } in plan(seed, jobs) {
        eprintln!("{:6.1} s: {jobs} jobs, {blow:?}", began.elapsed().as_secs_f32());
        book.ids.extend(host.enqueue(jobs).await);
        strike(&mut host, &mut book, blow, &mut tally).await;
        tokio::time::sleep(Duration::from_millis(then_ms)).await;
    }
    host.until_all_ended(&about, Duration::from_secs(60)).await;
    let took = began.elapsed();
    let problems = book.problems(&host, &mut tally).await;
    assert!(problems.is_empty(), "{about}: {} problems: {:#?}", problems.len(), &problems[..problems.len().min(20)]);
    assert_eq!(book.ids.len() as u64, jobs, "those that a backup did not have came beside them");
    // It was under fire.
    assert!(tally.missing().is_empty() && tally.undone > 0, "{about}: {:?}: {tally:?}", tally.missing());
    let jumps = host.store().clock_jumps().await.expect("readable");
    let is_an_hour = |by: i64| (by.abs() - HOUR).abs() < 10_000;
    assert!(jumps.iter().all(|jump| is_an_hour(jump.by_ms)), "{about}: {jumps:?}");
    eprintln!("{} jobs in {:.1} s: {tally:?}", book.ids.len(), took.as_secs_f32());
}

/// The check at the end is one that can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_went_wrong_would_be_seen() {
    let mut host = Host::new();
    host.start_worker();
    let ids = host.enqueue(8).await;
    host.until_all_ended("eight jobs", Duration::from_secs(20)).await;
    host.kill(0);
    let book = Book { ids: ids.clone(), ..Book::default() };
    assert_eq!(book.problems(&host, &mut Tally::default()).await, [""; 0]);
    let database = rusqlite::Connection::open(host.database()).expect("opens");
    let [twice, open, lost, crashed, undone, forged, gone, _] = ids[..] else { panic!("eight jobs") };
    host.world.forge(twice, |seen| seen.struck += 1);
    host.world.forge(undone, |seen| seen.struck = 0);
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
    let said = book.problems(&host, &mut Tally::default()).await;
    let has =
        |id: JobId, what: &str| said.iter().any(|said| said.starts_with(&format!("job {id}: ")) && said.contains(what));
    assert!(has(twice, "its effect happened 2 times"), "{said:#?}");
    assert!(has(open, "it is available"), "{said:#?}");
    assert!(has(open, "it was told to be completed, and is available"), "{said:#?}");
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
        host.restart(at);
        std::fs::remove_file(&hold).expect("may be removed");
        host.until_all_ended("after a kill", Duration::from_secs(20)).await;
    }
    eprintln!("from kill -9 to the next claim: {slowest:?} at most");
    assert!(slowest < LEASE, "it was not the lease's end that was waited for: {slowest:?}");
}

/// Waits until the job's journal was begun in its n-th attempt, and tells whose it is.
async fn until(host: &Host, id: JobId, attempt: usize) -> String {
    let came = wait_async(Duration::from_secs(20), async || {
        let attempts = host.store().attempts(id).await.expect("readable");
        let journal = host.store().journal(id, 0).await.expect("readable");
        attempts.into_iter().nth(attempt - 1).filter(|_| !journal.is_empty()).ok_or(())
    });
    let Ok(last) = came.await else { panic!("attempt {attempt} never came\n{}", host.log()) };
    last.worker
}
