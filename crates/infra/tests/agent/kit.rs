//! A worker process in miniature.

use posse_core::clock::{Clock, ManualClock};
use posse_core::job::{Job, JobId, NewJob, Payload};
use posse_core::model::{Model, ModelError, Models};
use posse_core::persona::PersonaTemplate;
use posse_core::port::{JobQueries, JobRepository, WorkerRecord};
use posse_core::run::hook::{RunHook, compose};
use posse_core::run::journal::{CallState, Entry, LedgerChange, ledger_changes};
use posse_core::skill::Skill;
use posse_core::tool::{EffectClass, Tool, ToolError};
use posse_core::worker::executor::Delegation;
use posse_core::worker::{Fleet, FleetOptions, Progress, WorkerService, maintain};
use posse_infra::agent::GenericAgentExecutor;
use posse_infra::process::{LinuxProcessProbe, SystemClock, this_process};
use posse_infra::sqlite::{Options, SqliteStore};
use posse_infra::tool::{FnTool, ToolRegistry};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::support::wait::wait_async;

pub const ROLE: &str = "tester";

pub fn persona() -> PersonaTemplate {
    PersonaTemplate {
        role: ROLE.into(),
        goal: "do only what the input says".into(),
        tools: vec!["filesystem".into(), "annotations".into()],
        ..PersonaTemplate::default()
    }
}

struct OneModel(Arc<dyn Model>);

impl Models for OneModel {
    fn get(&self, _name: Option<&str>) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.0.clone())
    }
}

/// A folder with a database and a workspace in it.
pub struct Home {
    pub folder: TempDir,
    pub store: Arc<SqliteStore>,
}

impl Home {
    pub fn new() -> Home {
        let folder = TempDir::new().expect("a temporary folder");
        let workspace = folder.path().join("ws");
        std::fs::create_dir(&workspace).expect("a workspace");
        for (name, text) in [("alpha.txt", "ALPHA-7"), ("beta.txt", "BETA-9"), ("one.txt", "1"), ("two.txt", "2")] {
            std::fs::write(workspace.join(name), text).expect("a file");
        }
        let store = SqliteStore::open(&folder.path().join("posse.db"), Options::default()).expect("a new database");
        Home { folder, store: Arc::new(store) }
    }

    /// The database, opened once more, as another process does.
    pub fn another_store(&self) -> Arc<SqliteStore> {
        let path = self.folder.path().join("posse.db");
        Arc::new(SqliteStore::open(&path, Options::default()).expect("the database opens again"))
    }

    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("ws")
    }

    pub async fn enqueue(&self, goal: &str) -> JobId {
        let job = NewJob {
            role: ROLE.into(),
            payload: Payload {
                goal: goal.into(),
                workspace: self.workspace().display().to_string(),
                ..Payload::default()
            },
            ..NewJob::default()
        };
        self.store.enqueue(vec![job], SystemClock.now()).await.expect("enqueued")[0].id
    }

    pub async fn job(&self, id: JobId) -> Job {
        self.store.job(id).await.expect("readable").expect("the job is there")
    }

    pub async fn entries(&self, id: JobId) -> Vec<Entry> {
        self.store.journal(id, 0).await.expect("readable").into_iter().map(|r| r.entry).collect()
    }

    /// The ledger's states by call, from the table; checked against what the journal says.
    pub async fn ledger(&self, id: JobId) -> HashMap<String, CallState> {
        let rows = self.store.ledger(id).await.expect("readable");
        let table: HashMap<_, _> = rows.into_iter().map(|row| (row.call_id, row.state)).collect();
        let mut folded = HashMap::new();
        for entry in self.entries(id).await {
            for change in ledger_changes(&entry) {
                match change {
                    LedgerChange::Propose { call_id, .. } => {
                        folded.insert(call_id, CallState::Proposed);
                    }
                    LedgerChange::Move { call_id, to } => {
                        folded.entry(call_id).and_modify(|state| *state = to);
                    }
                }
            }
        }
        assert_eq!(table, folded, "the ledger is the journal's");
        table
    }
}

/// One worker process. Dropping it is its sudden death: nothing is given back.
pub struct Worker {
    pub id: String,
    pub fleet: Arc<Fleet>,
    pub watch: broadcast::Receiver<Progress>,
    tasks: Vec<JoinHandle<()>>,
    store: Arc<SqliteStore>,
    /// What others know of it; none once it has left.
    record: Option<WorkerRecord>,
}

static WORKERS: AtomicU64 = AtomicU64::new(0);

/// How long a worker has a job for without saying that it lives.
const LEASE_MS: i64 = 30_000;

pub struct WorkerOptions {
    pub persona: PersonaTemplate,
    pub tools: Vec<Arc<dyn Tool>>,
    pub hooks: Vec<Arc<dyn RunHook>>,
    pub skills: Vec<Skill>,
    pub delegation: Delegation,
    pub slots: usize,
    pub clock: Arc<dyn Clock>,
}

impl WorkerOptions {
    /// The same for a worker that comes when the leases of those before it are over.
    pub fn after_the_lease(self) -> WorkerOptions {
        let over = SystemClock.now() + 2 * LEASE_MS;
        WorkerOptions { clock: Arc::new(ManualClock::at(over)), ..self }
    }
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            persona: persona(),
            tools: Vec::new(),
            hooks: Vec::new(),
            skills: Vec::new(),
            delegation: Delegation::default(),
            slots: 4,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Worker {
    pub async fn start(home: &Home, model: Arc<dyn Model>) -> Worker {
        Worker::start_with(home, model, WorkerOptions::default()).await
    }

    pub async fn start_with(home: &Home, model: Arc<dyn Model>, options: WorkerOptions) -> Worker {
        let WorkerOptions { mut persona, tools, hooks, skills, delegation, slots, clock } = options;
        let mut registry = ToolRegistry::builtin();
        for tool in tools {
            if !persona.tools.contains(&tool.spec().name) {
                persona.tools.push(tool.spec().name.clone());
            }
            registry.register("test", tool).expect("a free name");
        }
        let (host, pid, pid_started) = this_process();
        let number = WORKERS.fetch_add(1, Ordering::Relaxed);
        let worker = WorkerRecord {
            id: format!("worker-{number}"),
            host,
            pid,
            pid_started,
            roles: vec![ROLE.into()],
            slots: slots as u32,
            started_at: clock.now(),
            heartbeat_at: clock.now(),
            lease_ms: LEASE_MS,
            drain_requested_at: None,
        };
        let (id, record) = (worker.id.clone(), Some(worker.clone()));
        let fleet = Fleet::start(FleetOptions {
            store: home.store.clone(),
            clock,
            processes: Arc::new(LinuxProcessProbe),
            worker,
            embedder: None,
        })
        .await
        .expect("a fleet");
        let watch = fleet.watch();
        let models = Arc::new(OneModel(model));
        let executor = GenericAgentExecutor::new(persona, Arc::new(registry), models, home.workspace());
        let executor = executor.expect("known tools").with_hooks(compose(hooks)).with_skills(skills);
        let service = Arc::new(WorkerService {
            handles_role: ROLE.into(),
            queues: Vec::new(),
            slots,
            executor: Arc::new(executor.with_delegation(delegation)),
            fleet: Arc::clone(&fleet),
        });
        let tasks = vec![tokio::spawn(service.run()), tokio::spawn(maintain(Arc::clone(&fleet)))];
        Worker { id, fleet, watch, tasks, store: Arc::clone(&home.store), record }
    }

    /// Waits until a job's attempt ends.
    pub async fn until_ended(&mut self, id: JobId) {
        self.until(|p| matches!(p, Progress::Ended { job, .. } if *job == id)).await;
    }

    /// Waits until something happens.
    pub async fn until(&mut self, wanted: impl Fn(&Progress) -> bool) {
        let found = async {
            loop {
                let progress = self.watch.recv().await.expect("the worker lives");
                if wanted(&progress) {
                    return;
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), found).await.expect("it happens within 20 s");
    }

    /// Shuts down as on SIGTERM, and waits for the end.
    pub async fn shut_down(mut self) {
        self.fleet.drain();
        self.fleet.stop();
        self.tasks.remove(0).await.expect("the service ends");
        self.fleet.leave().await;
        self.record = None;
    }

    /// Ends all it does, and stays on the list as a process that lives.
    pub fn stand_still(mut self) {
        self.record = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        // As if it had been a process of its own, which ended: another one has its number now.
        if let Some(record) = self.record.take() {
            let record = WorkerRecord { pid_started: record.pid_started + 1, ..record };
            let _ = futures::executor::block_on(self.store.register_worker(record));
        }
    }
}

/// A tool that waits at a gate: it says when it has begun, and ends when it is let go.
pub struct Gate {
    pub begun: tokio::sync::mpsc::UnboundedReceiver<String>,
    pub let_go: Arc<tokio::sync::Semaphore>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct GateArgs {
    line: String,
}

/// A tool named `gate` that appends `line` to `ledger.txt` in the workspace and then waits.
pub fn gate(effect: EffectClass) -> (Arc<dyn Tool>, Gate) {
    let (begin, begun) = tokio::sync::mpsc::unbounded_channel();
    let let_go = Arc::new(tokio::sync::Semaphore::new(0));
    let wait = Arc::clone(&let_go);
    let tool = FnTool::new("gate", "Appends a line, then waits.", effect, move |cx, args: GateArgs| {
        let (begin, wait) = (begin.clone(), Arc::clone(&wait));
        let ledger = cx.workspace.join("ledger.txt");
        async move {
            append_line(&ledger, &args.line);
            let _ = begin.send(args.line);
            wait.acquire().await.expect("never closed").forget();
            Ok::<_, ToolError>("done".to_owned().into())
        }
    });
    (Arc::new(tool), Gate { begun, let_go })
}

pub fn append_line(path: &Path, line: &str) {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    writeln!(file.expect("the ledger opens"), "{line}").expect("the ledger takes a line");
}

pub fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until something is so.
pub async fn until(mut is_so: impl FnMut() -> bool) {
    let waited = wait_async(std::time::Duration::from_secs(60), async || is_so().then_some(()).ok_or(()));
    waited.await.expect("it is so within a minute");
}
