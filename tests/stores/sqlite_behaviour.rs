//! The behaviour suite, on SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};

use super::behaviour::{self, Door, Store, behaviours, for_properties, shared_behaviours, suite};
use super::plans;
use super::statements::Noted;

/// Each store is a file of its own in a folder that goes with the door. Every statement that ran is looked at then.
struct SqliteDoor(Noted);

fn door() -> SqliteDoor {
    SqliteDoor(Noted::folder())
}

impl Drop for SqliteDoor {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            plans::judge(&self.0);
        }
    }
}

#[async_trait]
impl Door for SqliteDoor {
    async fn fresh(&self) -> Arc<dyn Store> {
        self.again().await
    }

    async fn again(&self) -> Arc<dyn Store> {
        let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
        Arc::new(SqliteStore::open(&self.0.database(), options).expect("opens"))
    }
}

suite!(door());

/// Before schema 0008 the kind stood in the JSON too, and so did what is left out now.
#[tokio::test]
async fn journals_of_earlier_versions_can_be_read() {
    use behaviour::journals::{read, save, whole_run};
    let door = door();
    let store = door.fresh().await;
    let lease = behaviour::running(&*store, "r", behaviour::T0).await;
    save(&*store, lease, &whole_run()).await;
    let kept = rusqlite::Connection::open(door.0.database()).expect("opens");
    kept.execute_batch(
        r#"UPDATE steps SET data = '{"kind":"' || kind || '"' || iif(data = '{}', '}', ',' || substr(data, 2))"#,
    )
    .expect("as it was");
    let (all, told): (i64, i64) = kept
        .query_row("SELECT count(*), sum(data ->> '$.kind' = kind) FROM steps", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("can be read");
    assert_eq!((all, told), (whole_run().len() as i64, all), "every row tells its kind in its JSON");
    assert_eq!(read(&*store, lease.job).await, whole_run());
}
