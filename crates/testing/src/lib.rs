//! A fleet in a test: the real queue in a temporary file, real workers, a model that plays a script,
//! and a clock that the test moves.
//!
//! ```
//! use posse_testing::{JobState, ScriptedModel, TestFleet};
//! use std::time::Duration;
//!
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! let model = ScriptedModel::new().say("Fjordtex ships to Norway.");
//! let fleet = TestFleet::start(model).await;
//!
//! let job = fleet.enqueue("Which supplier ships to Norway?").await;
//! let later = fleet.enqueue_after(Duration::from_secs(3600), "And to Sweden?").await;
//! fleet.drain().await;
//! assert_eq!(fleet.answer(job).await, "Fjordtex ships to Norway.");
//! assert_eq!(fleet.job(later).await.state, JobState::Scheduled);
//!
//! fleet.script(|model| model.say("So does Linnea.")).await;
//! fleet.advance(Duration::from_secs(3600)).await;
//! assert_eq!(fleet.answer(later).await, "So does Linnea.");
//! # });
//! ```
//!
//! What a job does with tools it does in [`TestFleet::workspace`]. A program with an executor of its
//! own, in place of a model, begins with [`Builder::executor`].

pub mod scripted;
pub mod validate;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posse_core::clock::{Clock, ManualClock, Millis};
use posse_core::job::Payload;
use posse_core::model::{Model, ModelError, Models};
use posse_core::persona::PersonaTemplate;
use posse_core::port::Rules as _;
use posse_core::port::{JobFilter, JobQueries, JobRepository, JobSearch};
use posse_core::tool::Tool;
use posse_core::worker::executor::AgentExecutor;
use posse_core::worker::{Fleet, WorkerService, maintain};
use posse_infra::agent::GenericAgentExecutor;
use posse_infra::sqlite::{Options, SqliteStore, notify};
use posse_infra::tool::ToolRegistry;
use tokio::task::JoinHandle;

pub use posse_core::job::{Job, JobId, JobState, NewJob};
pub use posse_core::queue::rules::Held;
pub use scripted::ScriptedModel;

/// The role of jobs for which none is named.
pub const ROLE: &str = "tester";

/// The time at which every fleet begins: 2027-01-15T08:00:00Z.
pub const BEGINNING: Millis = 1_800_000_000_000;

/// How long [`TestFleet::drain`] waits, by the real clock, for jobs at work that do not end.
const PATIENCE: Duration = Duration::from_secs(60);

static FLEETS: AtomicU64 = AtomicU64::new(0);

/// What a fleet is made of.
pub struct Builder {
    persona: PersonaTemplate,
    tools: Vec<Arc<dyn Tool>>,
    executors: Vec<(String, Arc<dyn AgentExecutor>)>,
    slots: usize,
    database: Option<PathBuf>,
}

impl Default for Builder {
    fn default() -> Self {
        let persona = PersonaTemplate {
            role: ROLE.into(),
            goal: "do what the input says".into(),
            tools: vec!["filesystem".into(), "annotations".into()],
            ..PersonaTemplate::default()
        };
        Builder { persona, tools: Vec::new(), executors: Vec::new(), slots: 4, database: None }
    }
}

impl Builder {
    /// Works with this persona instead of a plain one of role [`ROLE`].
    pub fn persona(mut self, persona: PersonaTemplate) -> Self {
        self.persona = persona;
        self
    }

    /// Gives the persona a tool.
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Has jobs of `role` worked by this, without a model.
    pub fn executor(mut self, role: &str, executor: Arc<dyn AgentExecutor>) -> Self {
        self.executors.push((role.into(), executor));
        self
    }

    /// Works so many jobs of a role at once; 4 unless said.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Keeps the database in this file, for an executor that opens it too; otherwise in a folder that is
    /// deleted with the fleet.
    pub fn database(mut self, path: impl Into<PathBuf>) -> Self {
        self.database = Some(path.into());
        self
    }

    /// Starts the fleet; `model` is asked in jobs of the persona.
    pub async fn start(self, model: impl Into<Arc<ScriptedModel>>) -> TestFleet {
        let Builder { mut persona, tools, mut executors, slots, database } = self;
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace).expect("a folder can be made in it");
        let database = database.unwrap_or_else(|| folder.path().join("posse.db"));
        let store = SqliteStore::open(&database, Options::default());
        let store = Arc::new(store.expect("a new database can be made"));

        let model = Arc::new(Stage(Mutex::new(model.into())));
        let mut registry = ToolRegistry::builtin();
        for tool in tools {
            persona.tools.push(tool.spec().name.clone());
            registry.register("test", tool).expect("no other tool has the name");
        }
        let role = persona.role.clone();
        let agent = GenericAgentExecutor::new(persona, Arc::new(registry), Arc::clone(&model) as _, workspace.clone());
        executors.push((role.clone(), Arc::new(agent.expect("the persona's tools are known"))));

        let clock = Arc::new(ManualClock::at(BEGINNING));
        let roles: Vec<String> = executors.iter().map(|(role, _)| role.clone()).collect();
        let id = format!("test-{}", FLEETS.fetch_add(1, Ordering::Relaxed));
        let worker = posse_infra::fleet::record(id, roles.clone(), slots, &*clock);
        let options = posse_infra::fleet::options(&store, worker, Arc::clone(&clock) as _);
        let fleet = Fleet::start(options).await.expect("a new database can be written");
        let mut tasks = vec![tokio::spawn(maintain(Arc::clone(&fleet)))];
        for (role, executor) in executors {
            let fleet = Arc::clone(&fleet);
            let service = WorkerService { handles_role: role, queues: Vec::new(), slots, executor, fleet };
            tasks.push(tokio::spawn(Arc::new(service).run()));
        }
        TestFleet { store, clock, model, workspace, role, roles, tasks, _folder: folder }
    }
}

/// A queue with workers, for a test. Ends when it is dropped, as a process that is killed.
pub struct TestFleet {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    model: Arc<Stage>,
    workspace: PathBuf,
    role: String,
    roles: Vec<String>,
    tasks: Vec<JoinHandle<()>>,
    // Last: what is above writes into it.
    _folder: tempfile::TempDir,
}

impl Drop for TestFleet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl TestFleet {
    /// A fleet of one plain persona.
    pub async fn start(model: impl Into<Arc<ScriptedModel>>) -> TestFleet {
        Builder::default().start(model).await
    }

    /// A fleet that is made of something else.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Enqueues a goal for the persona, due at once.
    pub async fn enqueue(&self, goal: &str) -> JobId {
        self.enqueue_after(Duration::ZERO, goal).await
    }

    /// Enqueues a goal for the persona, due so long from now.
    pub async fn enqueue_after(&self, delay: Duration, goal: &str) -> JobId {
        let payload = Payload { goal: goal.into(), ..Payload::default() };
        let run_at = Some(self.clock.now() + millis(delay));
        self.enqueue_job(NewJob { role: self.role.clone(), payload, run_at, ..NewJob::default() }).await
    }

    /// Enqueues any job.
    pub async fn enqueue_job(&self, job: NewJob) -> JobId {
        self.store.enqueue(vec![job], self.clock.now()).await.expect("the job is stored")[0].id
    }

    /// Runs until nothing happens by itself: each job has ended, or waits for a time, a person or another
    /// job, or is held by a pause or a limit ([`TestFleet::held`]). Time stands still meanwhile. Panics,
    /// naming the jobs, when that takes a minute.
    pub async fn drain(&self) {
        let mut commits = self.store.committed();
        let drained = async {
            loop {
                commits.borrow_and_update();
                if !self.is_busy().await {
                    return;
                }
                commits.changed().await.expect("the store is open");
            }
        };
        if tokio::time::timeout(PATIENCE, drained).await.is_err() {
            let (_, live) = self.store.live(None).await.expect("the jobs can be read");
            panic!("jobs did not come to rest within {PATIENCE:?}: {live:?}");
        }
    }

    /// Jobs that are due and may not start, each with the rule that holds it: what [`TestFleet::drain`]
    /// left where it was.
    pub async fn held(&self) -> Vec<(JobId, Held)> {
        let mut held = Vec::new();
        for job in self.available().await {
            if let Some(rule) = self.store.held(job, self.clock.now()).await.expect("the rules can be read") {
                held.push((job, rule));
            }
        }
        held
    }

    /// Moves the clock, stopping at each time at which something is due, and drains each time.
    pub async fn advance(&self, by: Duration) {
        self.drain().await;
        let until = self.clock.now() + millis(by);
        while let Some(due) = self.next_due().await.filter(|due| *due <= until) {
            self.clock.advance((due - self.clock.now()).max(0));
            notify(self.store.path());
            self.drain().await;
        }
        self.clock.advance(until - self.clock.now());
    }

    /// The time in this fleet.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// The job as it is stored.
    pub async fn job(&self, id: JobId) -> Job {
        self.store.job(id).await.expect("the job can be read").unwrap_or_else(|| panic!("there is no job {id}"))
    }

    /// The answer of a completed job. Panics with its state and the reason if it is not.
    pub async fn answer(&self, id: JobId) -> String {
        let job = self.job(id).await;
        let held = self.store.held(id, self.clock.now()).await.expect("the rules can be read");
        let why = held.map(|rule| format!("it is held: {rule}")).or(job.reason).unwrap_or_default();
        assert_eq!(job.state, JobState::Completed, "job {id}: {why}");
        job.output.map(|output| output.text).unwrap_or_default()
    }

    /// Has the model play another script from now on: `script` adds to an empty one. Panics if what was
    /// asked of the model so far broke a rule.
    pub async fn script(&self, script: impl FnOnce(ScriptedModel) -> ScriptedModel) {
        let new = Arc::new(script(ScriptedModel::new()));
        std::mem::replace(&mut *self.model.on(), new).assert_clean();
    }

    /// The model as it plays now.
    pub fn model(&self) -> Arc<ScriptedModel> {
        Arc::clone(&self.model.on())
    }

    /// The folder in which tools work.
    pub fn workspace(&self) -> &std::path::Path {
        &self.workspace
    }

    /// The store, for all that this kit has no word for.
    pub fn store(&self) -> &Arc<SqliteStore> {
        &self.store
    }

    async fn is_busy(&self) -> bool {
        let now = self.clock.now();
        let rules = self.store.rules().await.expect("the rules can be read");
        // While nothing runs, only somebody else can let those start that are held. They are counted first:
        // one that starts meanwhile is seen to run.
        let held = if rules.is_empty() { 0 } else { self.held().await.len() as u64 };
        // Before the counts too: a job that is due now and then claimed is seen by one of both.
        let is_due = self.next_due().await.is_some_and(|due| due <= now);
        let counts = self.store.counts().await.expect("the jobs can be counted");
        let many = |of: JobState| {
            let ours = counts.iter().filter(|(role, state, _)| *state == of && self.roles.contains(role));
            ours.map(|(_, _, jobs)| jobs).sum::<u64>()
        };
        is_due || many(JobState::Running) > 0 || many(JobState::Available) > held
    }

    /// Jobs that may be claimed and that somebody here would work.
    async fn available(&self) -> Vec<JobId> {
        let mut available = Vec::new();
        for role in &self.roles {
            let (states, role, limit) = (vec![JobState::Available], Some(role.clone()), u32::MAX);
            let filter = JobFilter { states, role, limit, ..JobFilter::default() };
            available.extend(self.store.ids(filter).await.expect("the jobs can be read"));
        }
        available.sort();
        available
    }

    /// While nothing runs, deadlines are of jobs that wait for a time.
    async fn next_due(&self) -> Option<Millis> {
        self.store.next_deadline(self.clock.now()).await.expect("the jobs can be read")
    }
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

/// The model that every job asks; another one may take its place.
struct Stage(Mutex<Arc<ScriptedModel>>);

impl Stage {
    fn on(&self) -> MutexGuard<'_, Arc<ScriptedModel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Models for Stage {
    fn get(&self, _name: Option<&str>) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::clone(&self.on()) as _)
    }
}
