//! The behaviour suite, on SQLite.

use std::sync::Arc;

use async_trait::async_trait;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::behaviour::{self, Door, Store, behaviours, shared_behaviours, suite};
use super::plans;

/// Each store is a file of its own in a folder that goes with the door. Every statement that ran is looked at then.
struct SqliteDoor(tempfile::TempDir);

fn door() -> SqliteDoor {
    SqliteDoor(plans::heard_folder())
}

impl Drop for SqliteDoor {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            plans::judge(&self.0.path().join("jobs.db"));
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
        Arc::new(SqliteStore::open(&self.0.path().join("jobs.db"), options).expect("opens"))
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
    let kept = rusqlite::Connection::open(door.0.path().join("jobs.db")).expect("opens");
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

/// `PROPTEST_CASES` asks for more. What failed once is kept beside this file.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48);
    let kept = FileFailurePersistence::WithSource("proptest-regressions");
    ProptestConfig { failure_persistence: Some(Box::new(kept)), ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_sequence_of_operations_follows_the_transition_function(ops in behaviour::model::ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let door = door();
            behaviour::model::agrees(door.fresh().await, ops).await;
        });
    }

    #[test]
    fn any_sequence_on_jobs_that_belong_together_follows_a_simple_model(ops in behaviour::world::ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let door = door();
            behaviour::world::agree(door.fresh().await, ops).await;
        });
    }

    #[test]
    fn every_job_ends_or_is_explained((nodes, order) in behaviour::any_waits::plans()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let door = door();
            behaviour::any_waits::every_job_ends_or_is_explained(door.fresh().await, nodes, order).await;
        });
    }

    #[test]
    fn no_limit_is_ever_exceeded_and_no_place_is_lost(ops in behaviour::limited::ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let door = door();
            behaviour::limited::holds([door.fresh().await, door.again().await, door.again().await], ops).await;
        });
    }
}
