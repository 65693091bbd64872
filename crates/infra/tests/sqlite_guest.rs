//! Enqueueing inside the caller's own transaction.

use std::path::Path;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use posse_core::job::dependency::After;
use posse_core::job::{JobId, JobState, NewJob};
use posse_core::port::{JobQueries, JobRepository, RepositoryError};
use posse_infra::sqlite::{Options, SqliteStore, enqueue_in, ring};

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
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::open(&path, Options::default()).expect("opens");
    let mut connection = guest(&path);
    let enqueued = connection
        .immediate_transaction(|connection| {
            diesel::sql_query("INSERT INTO orders VALUES (1)").execute(connection)?;
            let chain = vec![job(), NewJob { after: vec![After::Earlier(0)], ..job() }];
            Ok::<_, diesel::result::Error>(enqueue_in(connection, chain, 5).expect("is stored"))
        })
        .expect("commits");
    let ids: Vec<JobId> = enqueued.into_iter().map(|one| one.id).collect();
    assert_eq!(orders(&mut connection), 1);
    let state = async |id| store.job(id).await.expect("can be read").map(|job| job.state);
    assert_eq!((state(ids[0]).await, state(ids[1]).await), (Some(JobState::Available), Some(JobState::Suspended)));

    // The caller thinks better of it.
    let undone = connection.immediate_transaction(|connection| {
        diesel::sql_query("INSERT INTO orders VALUES (2)").execute(connection)?;
        let ids = enqueue_in(connection, vec![job()], 5).expect("is stored");
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
            let refused = enqueue_in(connection, unknown, 5);
            assert!(matches!(refused, Err(RepositoryError::NoSuchJob(JobId(99)))), "{refused:?}");
            Ok::<_, diesel::result::Error>(())
        })
        .expect("commits");
    assert_eq!((orders(&mut connection), state(JobId(3)).await), (2, None));

    // Without a transaction it makes one.
    assert_eq!(enqueue_in(&mut connection, vec![job()], 5).expect("is stored")[0].id, JobId(3));
    drop(connection);
    assert_eq!(store.enqueue(vec![job()], 5).await.expect("the store goes on")[0].id, JobId(4));
    drop(store);
    SqliteStore::open(&path, Options::default()).expect("a guest's table keeps nobody out");
}

#[tokio::test]
async fn workers_are_told_after_the_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    let store = SqliteStore::open(&path, Options::default()).expect("opens");
    let mut connection = guest(&path);
    let mut wakes = store.wakes();
    let mut woken = async |rung: bool| {
        wakes.mark_unchanged();
        connection
            .immediate_transaction(|c| enqueue_in(c, vec![job()], 5).map_err(|_| diesel::NotFound))
            .expect("commits");
        let began = Instant::now();
        if rung {
            ring(&path);
        }
        tokio::time::timeout(Duration::from_secs(10), wakes.changed()).await.expect("are told").expect("is open");
        began.elapsed()
    };
    // The store has looked at least once, and sees from then on what others commit.
    let (rung, alone) = (woken(true).await, woken(false).await);
    assert!(rung < Duration::from_millis(500), "told after {rung:?}");
    assert!(alone < Duration::from_secs(5), "found after {alone:?}");
}
