//! What only this database has: group commit, locks of other processes, a full disk, notifications.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use posse_core::events::states::{Followed, StateChanges};
use posse_core::job::lease::WorkerId;
use posse_core::job::transition::Event;
use posse_core::job::{JobId, JobState, NewJob, Payload};
use posse_core::port::{ClaimRequest, Ending, JobFilter, JobQueries, JobRepository, RepositoryError};
use posse_core::run::journal::Entry;
use posse_infra::sqlite::{Keys, Options, SqliteStore, Synchronous};

use crate::support::until;

fn job(goal: &str) -> NewJob {
    let payload = Payload { goal: goal.into(), ..Payload::default() };
    NewJob { role: "r".into(), payload, ..NewJob::default() }
}

fn request() -> ClaimRequest {
    let worker = WorkerId("w".into());
    ClaimRequest { worker, role: "r".into(), queues: vec![], limit: 1, now: 1, lease_until: 30_000 }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn open(folder: &tempfile::TempDir) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&folder.path().join("jobs.db"), Options::default()).expect("opens"))
}

fn lock(path: &Path) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_commits() {
    let folder = folder();
    let store = open(&folder);
    // While the lock is held, everybody has time to come.
    let holder = lock(store.path());
    let callers: Vec<_> = (0..300)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enqueue(vec![job(&n.to_string())], 1).await.expect("is stored")[0].id })
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(!callers.iter().any(|caller| caller.is_finished()), "nobody is answered before the commit");
    holder.execute_batch("COMMIT").expect("lets go");
    let mut ids = Vec::new();
    for caller in callers {
        ids.push(caller.await.expect("ends"));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 300);
    assert!(store.commits() < 30, "{} commits for 300 callers", store.commits());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_command_does_not_harm_its_neighbours() {
    let folder = folder();
    let store = open(&folder);
    let holder = lock(store.path());
    let callers: Vec<_> = (0..60)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                match n % 3 {
                    0 => store.enqueue(vec![job("good")], 1).await.map(drop),
                    // Fails in its second row, after its first was written.
                    1 => store.enqueue(vec![job("bad"), NewJob { priority: 99, ..job("bad") }], 1).await.map(drop),
                    _ => store.retry(JobId(9_999), 1).await,
                }
            })
        })
        .collect();
    holder.execute_batch("COMMIT").expect("lets go");
    for (n, caller) in callers.into_iter().enumerate() {
        let result = caller.await.expect("ends");
        match n % 3 {
            0 => result.expect("is stored"),
            1 => assert!(matches!(result, Err(RepositoryError::Misused(_))), "{result:?}"),
            _ => assert!(matches!(result, Err(RepositoryError::NoSuchJob(JobId(9_999)))), "{result:?}"),
        }
    }
    let stored = store.jobs(JobFilter { limit: 1000, ..JobFilter::default() }).await.expect("can be read");
    assert_eq!(stored.len(), 20);
    assert!(stored.iter().all(|job| job.payload.goal == "good"));
}

#[test]
fn no_runtime_is_needed() {
    let folder = folder();
    let store = open(&folder);
    let beat = std::thread::spawn(move || {
        futures::executor::block_on(store.heartbeat(WorkerId("w".into()), vec![], 2, 1)).expect("works")
    });
    assert!(beat.join().expect("ends").lost.is_empty());
}

#[tokio::test]
async fn what_was_asked_for_is_written_before_the_store_closes() {
    let folder = folder();
    let store = open(&folder);
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enqueue(vec![job("g")], 1).await })
        })
        .collect();
    for task in asked {
        task.await.expect("ends").expect("is stored");
    }
    drop(store);
    let beside: Vec<_> = std::fs::read_dir(folder.path()).expect("can be listed").collect();
    assert_eq!(beside.len(), 2, "the database and its wake file; the log was taken in: {beside:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_do_not_wait_for_a_write_in_another_process() {
    let folder = folder();
    let store = open(&folder);
    let id = store.enqueue(vec![job("g")], 1).await.expect("is stored")[0].id;
    let _holder = lock(store.path());
    let read = tokio::time::timeout(Duration::from_secs(5), store.job(id)).await.expect("does not wait");
    assert!(read.expect("can be read").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_store_on_the_same_file_is_woken_at_once() {
    let folder = folder();
    let (here, there) = (open(&folder), open(&folder));
    let mut took = Vec::new();
    for _ in 0..50 {
        let mut wakes = there.wakes();
        wakes.mark_unchanged();
        here.enqueue(vec![job("g")], 1).await.expect("is stored");
        let begun = Instant::now();
        let woken = tokio::time::timeout(Duration::from_secs(5), wakes.changed()).await;
        woken.expect("is woken").expect("is open");
        took.push(begun.elapsed());
        assert_eq!(there.claim(request()).await.expect("works").len(), 1);
    }
    // Whoever only looks finds out a second after the last time.
    took.sort();
    assert!(took[25] < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn nobody_is_notified_where_nobody_else_listens() {
    let folder = folder();
    let here = open(&folder);
    let written = || std::fs::read(folder.path().join("jobs.db.wake")).expect("is there");
    here.enqueue(vec![job("g")], 1).await.expect("is stored");
    assert!(written().is_empty());
    let there = open(&folder);
    here.enqueue(vec![job("g")], 1).await.expect("is stored");
    let mark = written();
    assert!(!mark.is_empty());
    drop(there);
    // Its own mark would be another.
    std::fs::write(folder.path().join("jobs.db.wake"), b"nobody's").expect("may");
    here.enqueue(vec![job("g")], 1).await.expect("is stored");
    assert_eq!(written(), b"nobody's");
}

#[tokio::test]
async fn a_caller_who_comes_alone_keeps_no_thread_waiting() {
    let folder = folder();
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    let store = SqliteStore::open(&folder.path().join("jobs.db"), options).expect("opens");
    for n in 0..20 {
        store.enqueue(vec![job(&n.to_string())], 1).await.expect("is stored");
    }
    let holder = lock(store.path());
    // This runtime has one thread: if the write held it, this would not end before the lock does.
    let too_late = tokio::time::timeout(Duration::from_millis(50), store.enqueue(vec![job("g")], 1)).await;
    assert!(too_late.is_err());
    holder.execute_batch("COMMIT").expect("lets go");
    assert_eq!(store.claim(request()).await.expect("works").len(), 1);
}

#[tokio::test]
async fn a_store_without_its_wake_file_is_woken_by_its_own_look() {
    let folder = folder();
    let here = open(&folder);
    std::fs::remove_file(folder.path().join("jobs.db.wake")).expect("may");
    let there = open(&folder);
    let mut wakes = here.wakes();
    there.enqueue(vec![job("g")], 1).await.expect("is stored");
    tokio::time::timeout(Duration::from_secs(5), wakes.changed()).await.expect("is woken").expect("is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_takes_nothing_and_passes() {
    let folder = folder();
    let path = folder.path().join("jobs.db");
    drop(open(&folder));
    let pages = std::fs::metadata(&path).expect("is there").len() / 4096 + 20;
    let options = Options { max_page_count: u32::try_from(pages).ok(), ..Options::default() };
    let store = SqliteStore::open(&path, options).expect("opens");
    let large = "x".repeat(20_000);
    let mut stored = Vec::new();
    let error = loop {
        match store.enqueue(vec![job(&large)], 1).await {
            Ok(ids) => stored.extend(ids),
            Err(error) => break error,
        }
        assert!(stored.len() < 1000, "it never fills");
    };
    let RepositoryError::Unavailable(said) = &error else { panic!("{error:?}") };
    assert!(said.starts_with("storage full") && said.contains("jobs.db"), "{said}");
    let there = store.jobs(JobFilter { limit: 1000, ..JobFilter::default() }).await.expect("can be read");
    assert_eq!(there.len(), stored.len(), "all that was answered, and no more");
    // A batch in which something small would still fit fails as one, and the thread lives on.
    let both = futures::future::join(store.enqueue(vec![job(&large)], 1), store.claim(request())).await;
    assert!(both.0.is_err());
    store.claim(request()).await.expect("small things still fit");
    drop(store);
    let store = SqliteStore::open(&path, Options::default()).expect("opens when there is room again");
    store.enqueue(vec![job(&large)], 1).await.expect("is stored");
    let check: String = rusqlite::Connection::open(&path)
        .expect("opens")
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("checks");
    assert_eq!(check, "ok");
}

#[tokio::test]
async fn what_jobs_share_is_stored_once() {
    let folder = folder();
    let store = open(&folder);
    let opening = serde_json::json!({
        "persona": {"role": "r", "goal": "g"}, "model": "m", "calling": "native", "tools": [],
        "system": "s".repeat(50_000),
    });
    let began = serde_json::json!({"kind": "began", "goal": "g", "opening": opening});
    let began: Entry = serde_json::from_value(began).expect("is an entry");
    store.enqueue(vec![job("g"); 100], 1).await.expect("is stored");
    for _ in 0..100 {
        let lease = store.claim(request()).await.expect("works")[0].lease;
        store.append(lease, 0, vec![began.clone()], 1).await.expect("is saved");
    }
    let path = store.path().to_owned();
    drop(store);
    let bytes = std::fs::metadata(path).expect("is there").len();
    assert!(bytes < 500_000, "{bytes} bytes for 100 runs that share 50,000");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_gives_up_leaves_nothing_behind() {
    let folder = folder();
    let store = open(&folder);
    store.enqueue(vec![job("g")], 1).await.expect("is stored");
    let holder = lock(store.path());
    // The first is begun and waits for the lock; the second waits behind it.
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.retry(JobId(9_999), 1).await }
    });
    tokio::task::yield_now().await;
    let gave_up = tokio::time::timeout(Duration::from_millis(20), store.claim(request())).await;
    assert!(gave_up.is_err());
    holder.execute_batch("COMMIT").expect("lets go");
    first.await.expect("ends").expect_err("is not there");
    let claimed = store.claim(request()).await.expect("works");
    assert_eq!(claimed.len(), 1, "the job was not claimed for nobody");
}

/// Several processes, and one that may only look, are told of what one of them does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_from_other_processes_too() {
    let folder = folder();
    let (store, other) = (open(&folder), open(&folder));
    let id = store.enqueue(vec![job("g")], 1).await.expect("is stored")[0].id;
    let looker = Arc::new(SqliteStore::open_read_only(store.path(), Keys::default()).expect("can be read"));
    let followed = Followed::Jobs(vec![id]);
    let mut here = StateChanges::follow(Arc::clone(&store) as _, followed.clone()).await.expect("can be read");
    let mut there = StateChanges::follow(looker as _, followed).await.expect("can be read");
    let claimed = other.claim(request()).await.expect("works").remove(0);
    let end = Ending {
        event: Event::Complete,
        due_at: 2,
        reason: None,
        output: None,
        entries: vec![],
        seq: 0,
        children: vec![],
        waits_for: vec![],
    };
    other.finish(claimed.lease, end, 2).await.expect("finishes");
    for events in [&mut here, &mut there] {
        let mut last = None;
        let all = async {
            while let Some(event) = events.next().await {
                last = event.expect("can be read").to;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("is told in time");
        assert_eq!(last, Some(JobState::Completed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_taken_into_the_database_beside_the_writing() {
    let folder = folder();
    let store = open(&folder);
    let size = || std::fs::metadata(store.path()).expect("is there").len();
    let empty = size();
    // 10 MB: more than is left in the log, and less than what a commit waits for.
    for n in 0..50 {
        store.enqueue(vec![job(&format!("{n}{}", "x".repeat(200_000)))], 1).await.expect("is stored");
    }
    until("the log is in the database, as nobody reads from it", || size() >= empty + (8 << 20));
    // Nothing is kept from those who write meanwhile, and closing waits for it.
    let id = store.enqueue(vec![job("one more")], 2).await.expect("is stored")[0].id;
    drop(store);
    assert!(open(&folder).job(id).await.expect("is read").is_some());
}

/// Callers write for themselves where that takes no wait, and what one claim has seen is behind the next one all the same.
#[test]
fn claims_on_many_threads_go_on_behind_each_other() {
    fn wait<T>(work: impl Future<Output = Result<T, RepositoryError>>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("starts");
        runtime.block_on(work).expect("works")
    }
    let folder = folder();
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    let store = &SqliteStore::open(&folder.path().join("jobs.db"), options).expect("opens");
    // Three times as many lines as one claim takes from.
    let line = |key: String| NewJob { concurrency_key: Some(key), ..job("g") };
    let new = (0..3000).map(|n| line(format!("k{n:04}"))).collect();
    let mut last: HashSet<JobId> = wait(store.enqueue(new, 1))[2000..].iter().map(|made| made.id).collect();
    for _ in 0..30 {
        let claim = || wait(store.claim(ClaimRequest { limit: 200, ..request() }));
        let claimed = std::thread::scope(|scope| scope.spawn(claim).join()).expect("ends");
        last.retain(|id| !claimed.iter().any(|claimed| claimed.job.id == *id));
        if last.is_empty() {
            return;
        }
        // New ones come all the time, in the lines before all others.
        let keys = claimed.into_iter().filter_map(|claimed| claimed.job.concurrency_key);
        let more: Vec<_> = keys.filter(|key| key.as_str() < "k1000").map(line).collect();
        if !more.is_empty() {
            wait(store.enqueue(more, 1));
        }
    }
    panic!("{} of the last lines were never served", last.len());
}
