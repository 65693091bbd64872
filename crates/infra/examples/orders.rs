//! A program that keeps its own tables in Posse's file: an order and the job that packs it are committed
//! together or not at all, and so are the parcel and the end of that job; an executor of its own works the
//! jobs; a stream tells what becomes of them.
//!
//!     cargo run -p posse-infra --example orders

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use posse_core::clock::Clock;
use posse_core::events::states::{Followed, StateChanges};
use posse_core::job::{JobId, NewJob, Output, Payload};
use posse_core::port::JobQueries;
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_core::worker::{Fleet, WorkerService, maintain};
use posse_infra::fleet;
use posse_infra::process::SystemClock;
use posse_infra::sqlite::{Keys, Options, SqliteStore, complete_in, enqueue_in, notify};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The role of the jobs that pack orders.
const PACKER: &str = "packer";

/// Packs an order. Each job is one step here; one with more of them gives `Continue` in between, and one
/// that has nothing of its own to store gives `Completed` at its end.
struct Packer {
    path: PathBuf,
}

#[async_trait]
impl AgentExecutor for Packer {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        match self.pack(cx) {
            Ok(()) => {
                notify(&self.path);
                StepOutcome::AlreadyCompleted
            }
            Err(error) => StepOutcome::Failed { reason: error.to_string() },
        }
    }
}

impl Packer {
    /// Writes the parcel down and completes the job, in one transaction: however often it is tried, by
    /// whichever worker, there is one parcel.
    fn pack(&self, cx: &JobContext) -> Result<(), Failure> {
        let text = format!("packed: {}", cx.job.payload.goal);
        open(&self.path)?.immediate_transaction(|shop| {
            diesel::sql_query("INSERT INTO parcels (what) VALUES (?)")
                .bind::<diesel::sql_types::Text, _>(&cx.job.payload.goal)
                .execute(shop)?;
            Ok(complete_in(shop, &Keys::default(), cx.lease(), Output { text, ..Output::default() }, cx.now())?)
        })
    }
}

/// The shop's own tables, in Posse's file.
fn open(path: &Path) -> Result<SqliteConnection, Failure> {
    let mut shop = SqliteConnection::establish(&path.to_string_lossy())?;
    shop.batch_execute(
        "PRAGMA busy_timeout = 5000;
         CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, what TEXT NOT NULL) STRICT;
         CREATE TABLE IF NOT EXISTS parcels (id INTEGER PRIMARY KEY, what TEXT NOT NULL) STRICT",
    )?;
    Ok(shop)
}

/// Writes an order down and enqueues its job, in one transaction of the program's own.
fn place_order(shop: &mut SqliteConnection, what: &str) -> Result<JobId, Failure> {
    shop.immediate_transaction(|shop| {
        diesel::sql_query("INSERT INTO orders (what) VALUES (?)")
            .bind::<diesel::sql_types::Text, _>(what)
            .execute(shop)?;
        let payload = Payload { goal: what.into(), ..Payload::default() };
        let job = NewJob { role: PACKER.into(), payload, ..NewJob::default() };
        // Whatever fails from here on takes the order back too.
        Ok(enqueue_in(shop, &Keys::default(), vec![job], SystemClock.now())?[0].id)
    })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let store = Arc::new(SqliteStore::open(&path, Options::default())?);
    let mut shop = open(&path)?;

    // A worker in this process. `posse work` in another one would do as well, for jobs of personas.
    let clock = Arc::new(SystemClock);
    let name = format!("shop-{}-{}", std::process::id(), clock.now());
    let worker = fleet::record(name, vec![PACKER.into()], 4, &*clock);
    let fleet = Fleet::start(fleet::options(&store, worker, clock)).await?;
    let maintenance = tokio::spawn(maintain(Arc::clone(&fleet)));
    let service = WorkerService {
        handles_role: PACKER.into(),
        queues: Vec::new(),
        slots: 4,
        executor: Arc::new(Packer { path: path.clone() }),
        fleet: Arc::clone(&fleet),
    };
    let service = tokio::spawn(Arc::new(service).run());

    let orders = ["two kettles", "a lamp", "seven spoons"].map(|what| place_order(&mut shop, what));
    let orders: Vec<JobId> = orders.into_iter().collect::<Result<_, _>>()?;
    // The commits are not the store's own, so it is told of them.
    notify(&path);

    // Until all three have ended, whichever process works them.
    let mut events = StateChanges::follow(Arc::clone(&store) as _, Followed::Jobs(orders.clone())).await?;
    while let Some(event) = events.next().await {
        let event = event?;
        println!("job {} is {}", event.job, event.to.map_or("gone", |state| state.as_str()));
    }
    for id in orders {
        let output = store.job(id).await?.and_then(|job| job.output).ok_or("it was packed")?;
        println!("job {id}: {}", output.text);
    }

    // Jobs in hand would be given back; there are none any more.
    fleet.drain();
    service.await?;
    fleet.leave().await;
    maintenance.abort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use posse_testing::{ScriptedModel, TestFleet};

    #[test]
    fn the_example_runs() {
        main().expect("runs");
    }

    /// How such an executor is tested: a fleet with a clock that stands still, and no model.
    #[tokio::test]
    async fn an_order_is_packed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop.db");
        let packer = Arc::new(Packer { path: path.clone() });
        let fleet = TestFleet::builder().database(path).executor(PACKER, packer).start(ScriptedModel::new()).await;
        let payload = Payload { goal: "a lamp".into(), ..Payload::default() };
        let id = fleet.enqueue_job(NewJob { role: PACKER.into(), payload, ..NewJob::default() }).await;
        fleet.drain().await;
        assert_eq!(fleet.answer(id).await, "packed: a lamp");
    }
}
