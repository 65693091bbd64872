//! Enqueueing and completing inside the caller's own transaction.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::expire::Expire as _;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use posse_core::job::dependency::After;
use posse_core::job::lease::Lease;
use posse_core::job::{JobId, JobState, NewJob, Output, Unique};
use posse_core::port::{ClaimRequest, JobQueries, JobRepository, RepositoryError};
use posse_infra::sqlite::{Keys, Options, SqliteStore, complete_in, enqueue_in, notify};

fn job() -> NewJob {
    NewJob { role: "r".into(), ..NewJob::default() }
}

fn guest(path: &Path) -> SqliteConnection {
    let mut connection = SqliteConnection::establish(path.to_str().expect("UTF-8")).expect("opens");
    connection
        .batch_execute("PRAGMA busy_timeout = 5000; CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY) STRICT")
        .expect("has its own table");
    connection
}

/// A database, opened by Posse and by a guest.
fn opened() -> (tempfile::TempDir, SqliteStore, SqliteConnection) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&path_in(&folder), Options::default()).expect("opens");
    let connection = guest(&path_in(&folder));
    (folder, store, connection)
}

fn path_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("jobs.db")
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    n: i64,
}

fn orders(connection: &mut SqliteConnection) -> i64 {
    diesel::sql_query("SELECT count(*) AS n FROM orders").get_result::<Count>(connection).expect("counts").n
}

#[tokio::test]
async fn rows_and_jobs_are_there_together_or_not_at_all() {
    let (folder, store, mut connection) = opened();
    let enqueued = connection
        .immediate_transaction(|connection| {
            diesel::sql_query("INSERT INTO orders VALUES (1)").execute(connection)?;
            let chain = vec![job(), NewJob { after: vec![After::Earlier(0)], ..job() }];
            Ok::<_, diesel::result::Error>(enqueue_in(connection, &Keys::default(), chain, 5).expect("is stored"))
        })
        .expect("commits");
    let ids: Vec<JobId> = enqueued.into_iter().map(|one| one.id).collect();
    assert_eq!(orders(&mut connection), 1);
    let state = async |id| store.job(id).await.expect("can be read").map(|job| job.state);
    assert_eq!((state(ids[0]).await, state(ids[1]).await), (Some(JobState::Available), Some(JobState::Suspended)));

    // The caller thinks better of it.
    let undone = connection.immediate_transaction(|connection| {
        diesel::sql_query("INSERT INTO orders VALUES (2)").execute(connection)?;
        let ids = enqueue_in(connection, &Keys::default(), vec![job()], 5).expect("is stored");
        assert!(ids[0].id > JobId(2));
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    undone.expect_err("was rolled back");
    assert_eq!((orders(&mut connection), state(JobId(3)).await), (1, None));

    // What is refused leaves the caller's transaction as it was.
    connection
        .immediate_transaction(|connection| {
            diesel::sql_query("INSERT INTO orders VALUES (3)").execute(connection)?;
            let unknown = vec![job(), NewJob { after: vec![After::Job(JobId(99))], ..job() }];
            let refused = enqueue_in(connection, &Keys::default(), unknown, 5);
            assert!(matches!(refused, Err(RepositoryError::NoSuchJob(JobId(99)))), "{refused:?}");
            Ok::<_, diesel::result::Error>(())
        })
        .expect("commits");
    assert_eq!((orders(&mut connection), state(JobId(3)).await), (2, None));

    // Without a transaction it makes one.
    assert_eq!(enqueue_in(&mut connection, &Keys::default(), vec![job()], 5).expect("is stored")[0].id, JobId(3));
    drop(connection);
    assert_eq!(store.enqueue(vec![job()], 5).await.expect("the store goes on")[0].id, JobId(4));
    drop(store);
    SqliteStore::open(&path_in(&folder), Options::default()).expect("a guest's table keeps nobody out");
}

#[tokio::test]
async fn workers_are_told_after_the_commit() {
    let (folder, store, mut connection) = opened();
    let mut wakes = store.wakes();
    let mut woken = async |notified: bool| {
        wakes.mark_unchanged();
        connection
            .immediate_transaction(|c| enqueue_in(c, &Keys::default(), vec![job()], 5).map_err(|_| diesel::NotFound))
            .expect("commits");
        let began = Instant::now();
        if notified {
            notify(&path_in(&folder));
        }
        tokio::time::timeout(Duration::from_secs(10), wakes.changed()).await.expect("are told").expect("is open");
        began.elapsed()
    };
    // The store has looked at least once, and sees from then on what others commit.
    let mut notified = [woken(true).await, woken(true).await, woken(true).await];
    let alone = woken(false).await;
    notified.sort();
    assert!(notified[1] < Duration::from_millis(500), "told after {notified:?}");
    assert!(alone < Duration::from_secs(5), "found after {alone:?}");
}

async fn claim(store: &SqliteStore, now: i64) -> Lease {
    let request = ClaimRequest {
        worker: posse_core::job::lease::WorkerId("w".into()),
        role: "r".into(),
        queues: Vec::new(),
        limit: 1,
        now,
        lease_until: now + 100,
    };
    store.claim(request).await.expect("is claimed")[0].lease
}

/// Notes an order and completes its job, and thinks better of it if `commits` is false.
fn complete(connection: &mut SqliteConnection, lease: Lease, commits: bool) -> Result<(), RepositoryError> {
    let mut said = Ok(());
    let ended = connection.immediate_transaction(|connection| {
        diesel::sql_query("INSERT INTO orders (id) VALUES (NULL)").execute(connection)?;
        let output = Output { text: "packed".into(), ..Output::default() };
        said = complete_in(connection, &Keys::default(), lease, output, 20);
        if commits && said.is_ok() { Ok(()) } else { Err(diesel::result::Error::RollbackTransaction) }
    });
    assert_eq!(ended.is_ok(), commits && said.is_ok());
    said
}

#[tokio::test]
async fn a_job_is_completed_with_the_rows_or_goes_on() {
    let (_folder, store, mut connection) = opened();
    let unique = || Some(Unique { key: "one".into(), ..Unique::default() });
    let first = NewJob { unique: unique(), ..job() };
    let waiting = NewJob { after: vec![After::Earlier(0)], ..job() };
    store.enqueue(vec![first, waiting], 5).await.expect("is stored");
    let lease = claim(&store, 10).await;
    let state = async |id| store.job(JobId(id)).await.expect("can be read").expect("is there").state;

    complete(&mut connection, lease, false).expect("would do");
    assert_eq!((orders(&mut connection), state(1).await, state(2).await), (0, JobState::Running, JobState::Suspended));

    complete(&mut connection, lease, true).expect("is done");
    assert_eq!(
        (orders(&mut connection), state(1).await, state(2).await),
        (1, JobState::Completed, JobState::Available)
    );
    let done = store.job(JobId(1)).await.expect("can be read").expect("is there");
    assert_eq!((done.output.expect("has one").text.as_str(), done.finalized_at), ("packed", Some(20)));
    let attempts = store.attempts(JobId(1)).await.expect("can be read");
    assert_eq!((attempts.len(), attempts[0].ended_at), (1, Some(20)));
    let again = store.enqueue(vec![NewJob { unique: unique(), ..job() }], 21).await.expect("is stored");
    assert!(!again[0].existed(), "the key is free");

    // Its worker may die now, or end it a second time: nothing is left to be done.
    assert!(store.rescue(Vec::new(), 1_000).await.expect("looks").is_empty());
    let lost = complete(&mut connection, lease, true).expect_err("is over");
    assert!(matches!(lost, RepositoryError::LeaseLost(JobId(1))), "{lost:?}");
    assert_eq!(orders(&mut connection), 1, "what a second try stored was taken back");
}

#[tokio::test]
async fn who_lost_the_lease_completes_nothing() {
    let (_folder, store, mut connection) = opened();
    store.enqueue(vec![job()], 5).await.expect("is stored");
    let old = claim(&store, 10).await;
    assert_eq!(store.rescue(Vec::new(), 200).await.expect("is taken back").len(), 1);
    let new = claim(&store, 300).await;
    let lost = complete(&mut connection, old, true).expect_err("is somebody else's");
    assert!(matches!(lost, RepositoryError::LeaseLost(JobId(1))), "{lost:?}");
    assert_eq!(orders(&mut connection), 0);
    complete(&mut connection, new, true).expect("is done");
    assert_eq!(orders(&mut connection), 1);
}
