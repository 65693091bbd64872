//! A worker process of the test: the real service, fleet and store, and an agent that needs no model.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posse_core::clock::{Clock, Millis};
use posse_core::job::Output;
use posse_core::model::{CallRequest, Finish, Usage};
use posse_core::port::{RepositoryError, WorkerRecord};
use posse_core::run::journal::{Call, CallOutcome, Entry, Turn};
use posse_core::tool::EffectClass;
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_core::worker::{Fleet, Phase, Progress, WorkerService, maintain};
use posse_infra::process::SystemClock;
use posse_infra::sqlite::{Options, SqliteStore, Synchronous};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;

use super::host::LOST;
use super::world;

pub const ROLE: &str = "striker";
/// The role of jobs that take ten milliseconds and do nothing else.
pub const SLEEPER: &str = "sleeper";
pub const LEASE: Duration = Duration::from_secs(3);

/// The host's clock: the real one, set by what stands in a file that all processes of the host have open.
struct HostClock(File);

impl HostClock {
    fn of(root: &Path) -> HostClock {
        HostClock(File::open(clock_file(root)).expect("the clock is there"))
    }
}

/// The file holds the number of milliseconds.
fn clock_file(root: &Path) -> PathBuf {
    root.join("clock")
}

/// Sets the clock of the host in `root`, for all of its processes at once.
pub fn set_host_clock(root: &Path, by: Millis) {
    let clock = File::options().create(true).truncate(false).write(true).open(clock_file(root)).expect("a clock");
    clock.write_all_at(&by.to_ne_bytes(), 0).expect("is set");
}

/// What the clock of the host in `root` shows.
pub fn host_now(root: &Path) -> Millis {
    HostClock::of(root).now()
}

impl Clock for HostClock {
    fn now(&self) -> Millis {
        let mut set_by = [0; 8];
        self.0.read_exact_at(&mut set_by, 0).expect("the clock is there");
        SystemClock.now() + Millis::from_ne_bytes(set_by)
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
    world: Arc<File>,
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
    async fn work(&self, cx: &mut JobContext) -> Result<(), posse_core::worker::executor::Halt> {
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

    async fn strike(&self, cx: &JobContext) {
        world::strike(&self.world, cx.job.id);
        let id = cx.job.id.0;
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

/// How long steps may go on after a worker was asked to end, and how long after they were told to stop.
const GRACE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

/// Not a test of its own: the program of the worker processes.
#[test]
fn works_until_it_is_ended() {
    let Some(root) = std::env::var_os("POSSE_FLEET_HOST").map(PathBuf::from) else { return };
    posse_infra::process::outlive_file_limits();
    let log =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(tracing::Level::WARN);
    log.log_internal_errors(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    if let Err(error) = runtime.expect("a runtime").block_on(work(root)) {
        tracing::error!("{error}");
        std::process::exit(LOST);
    }
}

/// Works as `posse work` does, until it is asked to end or its database is lost.
async fn work(root: PathBuf) -> Result<(), RepositoryError> {
    let mut terminate = signal(SignalKind::terminate()).expect("is heard");
    let world = Arc::new(world::reach(&root));
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    let store = Arc::new(SqliteStore::open(&root.join("posse.db"), options)?);
    let clock = Arc::new(HostClock::of(&root));
    let id = format!("w-{}-{}", clock.now(), std::process::id());
    let roles = vec![ROLE.into(), SLEEPER.into()];
    let lease_ms = LEASE.as_millis() as i64;
    let worker = WorkerRecord { lease_ms, ..posse_infra::fleet::record(id, roles, 8, &*clock) };
    let fleet = Fleet::start(posse_infra::fleet::options(&store, worker, clock)).await?;
    let telling = tokio::spawn(tell(fleet.watch(), Arc::clone(&world)));
    let maintenance = tokio::spawn(maintain(Arc::clone(&fleet)));
    let service = |role: &str, executor: Arc<dyn AgentExecutor>| {
        let (handles_role, fleet) = (role.into(), Arc::clone(&fleet));
        tokio::spawn(Arc::new(WorkerService { handles_role, queues: Vec::new(), slots: 8, executor, fleet }).run())
    };
    let services =
        [service(ROLE, Arc::new(Striker { root: root.clone(), world })), service(SLEEPER, Arc::new(Sleeper { root }))];
    let mut phase = fleet.phase();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = phase.wait_for(|phase| *phase != Phase::Working) => {}
    }
    fleet.drain();
    let mut ended = std::pin::pin!(futures::future::join_all(services));
    if tokio::time::timeout(GRACE[0], &mut ended).await.is_err() {
        fleet.stop();
        let _ = tokio::time::timeout(GRACE[1], &mut ended).await;
    }
    fleet.leave().await;
    let lost = fleet.lost().cloned();
    maintenance.abort();
    let _ = maintenance.await;
    // The last that can happen is told when the last who could tell is gone.
    drop(fleet);
    let _ = tokio::time::timeout(GRACE[0], telling).await;
    lost.map_or(Ok(()), Err)
}

/// Tells the world which jobs ended, as one does who is told of it.
async fn tell(mut heard: broadcast::Receiver<Progress>, world: Arc<File>) {
    loop {
        match heard.recv().await {
            Ok(Progress::Ended { job, state, .. }) => world::tell(&world, job, state),
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
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
