//! A worker process of the test: the real service, fleet and store, and an agent that needs no model.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posse_core::clock::{Clock, Millis};
use posse_core::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_core::job::Output;
use posse_core::journal::{Call, CallOutcome, Entry, Turn};
use posse_core::model::{CallRequest, Finish, Usage};
use posse_core::port::WorkerRecord;
use posse_core::tool::EffectClass;
use posse_core::worker::{Fleet, WorkerService, maintain};
use posse_infra::process::SystemClock;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};

pub const ROLE: &str = "striker";
/// The role of jobs that take ten milliseconds and do nothing else.
pub const SLEEPER: &str = "sleeper";
pub const LEASE: Duration = Duration::from_secs(3);

/// The host's clock: the real one, set by what stands in a file that all processes of the host read.
struct HostClock(PathBuf);

/// The file holds the number of milliseconds.
fn clock_file(root: &Path) -> PathBuf {
    root.join("clock")
}

/// Sets the clock of the host in `root`, for all of its processes at once.
pub fn set_host_clock(root: &Path, by: Millis) {
    let part = root.join("clock.part");
    std::fs::write(&part, by.to_string()).expect("is written");
    std::fs::rename(part, clock_file(root)).expect("is set");
}

/// What the clock of the host in `root` shows.
pub fn host_now(root: &Path) -> Millis {
    HostClock(clock_file(root)).now()
}

impl Clock for HostClock {
    fn now(&self) -> Millis {
        let set_by = std::fs::read_to_string(&self.0).ok().and_then(|text| text.parse::<Millis>().ok());
        SystemClock.now() + set_by.expect("the clock is there")
    }

    fn elapsed(&self) -> Millis {
        SystemClock.elapsed()
    }
}

/// The goal of a job that ends its process.
pub const KILLER: &str = "kill";

/// Takes ten milliseconds, and leaves word if more than [`AT_ONCE`] did so at a time.
struct Sleeper {
    root: PathBuf,
}

/// How many sleepers there may be at a time, where somebody sets that limit.
pub const AT_ONCE: usize = 8;

#[async_trait]
impl AgentExecutor for Sleeper {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        if cx.job.payload.goal == KILLER {
            std::process::abort();
        }
        let busy = self.root.join("busy");
        std::fs::create_dir_all(&busy).expect("a folder");
        let own = busy.join(cx.job.id.to_string());
        std::fs::write(&own, "").expect("is written");
        // Whoever came later counts those before it.
        if std::fs::read_dir(&busy).expect("can be listed").count() > AT_ONCE {
            std::fs::write(self.root.join("crowded"), "").expect("is written");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        std::fs::remove_file(own).expect("is there");
        StepOutcome::Completed { output: Output::default(), entries: Vec::new() }
    }
}

/// Takes one step with an effect in the world, and completes.
struct Striker {
    root: PathBuf,
}

#[async_trait]
impl AgentExecutor for Striker {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        match self.work(cx).await {
            Ok(()) => StepOutcome::Completed { output: Output::default(), entries: Vec::new() },
            Err(halt) => halt.into(),
        }
    }
}

impl Striker {
    async fn work(&self, cx: &mut JobContext) -> Result<(), posse_core::executor::Halt> {
        let journal = cx.journal().await?;
        let ended = |outcome| Entry::CallEnded {
            call_id: "strike".into(),
            outcome,
            text: "struck".into(),
            annotations: Vec::new(),
            ms: 0,
        };
        match journal.len() {
            0 => {
                cx.check()?;
                cx.append(0, vec![turn(), Entry::CallStarted { call_id: "strike".into() }]).await?;
                self.strike(cx).await;
                cx.append(2, vec![ended(CallOutcome::Done)]).await
            }
            // It was in flight when its worker ended, and must not run twice.
            2 => cx.append(2, vec![ended(CallOutcome::Unknown)]).await,
            _ => Ok(()),
        }
    }

    /// The effect: one line, in one write.
    async fn strike(&self, cx: &JobContext) {
        let id = cx.job.id.0;
        let line = format!("{id}\n");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.root.join("effects.log"));
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the world takes it");
        // Stretches of short jobs, which are claimed ahead, and of longer ones.
        if (id / 200) % 2 == 1 {
            tokio::time::sleep(Duration::from_millis(id.unsigned_abs() % 15)).await;
        }
        while self.root.join("hold").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn turn() -> Entry {
    let request = CallRequest { id: "strike".into(), name: "strike".into(), arguments: "{}".into(), extra: None };
    Entry::Turn(Turn {
        text: String::new(),
        reasoning: None,
        calls: vec![Call { request, effect: Some(EffectClass::Once) }],
        cut_calls: Vec::new(),
        finish: Finish::ToolCalls,
        usage: Usage::default(),
        model: "none".into(),
        cost_microusd: None,
        failed_tries: Vec::new(),
        ms: 0,
    })
}

/// Not a test of its own: the program of the worker processes.
#[test]
fn works_until_it_is_ended() {
    let Some(root) = std::env::var_os("POSSE_FLEET_HOST").map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work(root));
}

async fn work(root: PathBuf) {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("is heard");
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    let store = Arc::new(SqliteStore::open(&root.join("posse.db"), options).expect("opens"));
    let clock = Arc::new(HostClock(clock_file(&root)));
    let id = format!("w-{}-{}", clock.now(), std::process::id());
    let roles = vec![ROLE.into(), SLEEPER.into()];
    let lease_ms = LEASE.as_millis() as i64;
    let worker = WorkerRecord { lease_ms, ..posse_infra::fleet::record(id, roles, 8, &*clock) };
    let fleet = Fleet::start(posse_infra::fleet::options(&store, worker, clock));
    let fleet = fleet.await.expect("is on the list");
    let maintenance = tokio::spawn(maintain(Arc::clone(&fleet)));
    let service = |role: &str, executor: Arc<dyn AgentExecutor>| {
        let (handles_role, fleet) = (role.into(), Arc::clone(&fleet));
        tokio::spawn(Arc::new(WorkerService { handles_role, queues: Vec::new(), slots: 8, executor, fleet }).run())
    };
    let services =
        [service(ROLE, Arc::new(Striker { root: root.clone() })), service(SLEEPER, Arc::new(Sleeper { root }))];
    terminate.recv().await;
    fleet.drain();
    for service in services {
        service.await.expect("ends");
    }
    fleet.leave().await;
    maintenance.abort();
}

/// Not a test of its own: another program that takes the write lock and is killed holding it.
#[test]
fn holds_the_write_lock() {
    let Some(root) = std::env::var_os("POSSE_FLEET_LOCK").map(PathBuf::from) else { return };
    let connection = rusqlite::Connection::open(root.join("posse.db")).expect("opens");
    connection.busy_timeout(Duration::from_secs(10)).expect("is set");
    connection.execute_batch("BEGIN IMMEDIATE").expect("locks");
    std::fs::write(root.join("locked"), "").expect("is told");
    std::thread::sleep(Duration::from_secs(60));
}
