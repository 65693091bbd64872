//! A worker process: starts its services, hears signals, ends cleanly.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use futures::FutureExt as _;
use posse_app::retention;
use posse_core::job::JobState;
use posse_core::metrics::{MetricsSource, ModelTallies};
use posse_core::port::{JobFilter, JobQueries, Store, WorkerRecord};
use posse_core::worker::executor::{AgentExecutor, JobContext, StepOutcome};
use posse_core::worker::{Fleet, FleetOptions, Phase, Progress, WorkerService, maintain};
use posse_infra::process::{LinuxProcessProbe, SystemClock};
use tokio::sync::{broadcast, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::embedder;
use crate::output::Out;
use crate::process::{Signals, random};
use crate::records::{Recorder, RunFiles};
use crate::session_files::remove_strays;
use crate::settings::Settings;

/// How long steps that were asked to stop are waited for: a tool may take 5 s to end.
const AFTER_STOP: Duration = Duration::from_secs(8);

const SWEEP_EVERY: Duration = Duration::from_secs(600);

pub struct RoleWork {
    pub role: String,
    pub executor: Arc<dyn AgentExecutor>,
}

pub struct Plan {
    /// Only jobs of these queues; all when empty.
    pub queues: Vec<String>,
    pub slots: usize,
    /// Whether somebody wants to hear what happens.
    pub watched: bool,
}

struct Served {
    executor: Arc<Latest>,
    _retire: oneshot::Sender<()>,
}

/// Works by the newest executor there is. What a run began with stands in its journal, so a step by another one goes on
/// with that.
struct Latest(RwLock<Arc<dyn AgentExecutor>>);

impl Latest {
    fn replace(&self, executor: Arc<dyn AgentExecutor>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = executor;
    }
}

#[async_trait]
impl AgentExecutor for Latest {
    async fn process_job(&self, cx: &mut JobContext) -> StepOutcome {
        let now = Arc::clone(&*self.0.read().unwrap_or_else(PoisonError::into_inner));
        now.process_job(cx).await
    }
}

pub struct WorkerProcess {
    fleet: Arc<Fleet>,
    services: JoinSet<()>,
    served: BTreeMap<String, Served>,
    queues: Vec<String>,
    slots: usize,
    maintenance: JoinHandle<()>,
    recorder: Option<Recorder>,
    sweeping: JoinHandle<()>,
    queries: Arc<dyn JobQueries>,
    worker: String,
    heard: Option<broadcast::Receiver<Progress>>,
}

impl WorkerProcess {
    /// Announces this process and puts a service to each role.
    pub async fn start(
        store: &Arc<dyn Store>,
        settings: &Settings,
        work: Vec<RoleWork>,
        Plan { queues, slots, watched }: Plan,
    ) -> Result<WorkerProcess> {
        let roles: Vec<_> = work.iter().map(|one| one.role.clone()).collect();
        let id = format!("{}-{}-{:06x}", host_name(), std::process::id(), random() & 0xff_ffff);
        let lease_ms = settings.lease.as_millis() as i64;
        let worker = posse_infra::fleet::record(id.clone(), roles, slots, &SystemClock);
        let worker = WorkerRecord { lease_ms, ..worker };
        let options = FleetOptions {
            store: store.clone(),
            clock: Arc::new(SystemClock),
            processes: Arc::new(LinuxProcessProbe),
            worker,
            embedder: embedder::of_process(settings),
        };
        // By what the database says this process deletes all the same.
        let stored = store.retention().await?.unwrap_or_default();
        if let Some((what, way_out)) = retention::disagreement(&stored, &settings.retention) {
            tracing::warn!("{what}; {way_out}");
        }
        let fleet = Fleet::start(options).await?;
        // Before the first claim, so that nothing is missed.
        let heard = watched.then(|| fleet.watch());
        let recorder = RunFiles::of(settings).map(|files| Recorder::start(files, store.clone(), fleet.watch()));
        let maintenance = tokio::spawn(maintain(Arc::clone(&fleet)));
        let sweeping = tokio::spawn(sweep(store.clone(), settings.beside_database("sessions")));
        let (services, served, queries) = (JoinSet::new(), BTreeMap::new(), store.clone());
        let mut process = WorkerProcess {
            fleet,
            services,
            served,
            queues,
            slots,
            maintenance,
            recorder,
            sweeping,
            queries,
            worker: id,
            heard,
        };
        work.into_iter().for_each(|one| process.serve(one));
        Ok(process)
    }

    pub fn serve(&mut self, RoleWork { role, executor }: RoleWork) {
        let executor = Arc::new(Latest(RwLock::new(executor)));
        let service = WorkerService {
            handles_role: role.clone(),
            queues: self.queues.clone(),
            slots: self.slots,
            executor: executor.clone(),
            fleet: Arc::clone(&self.fleet),
        };
        let (retire, retired) = oneshot::channel::<()>();
        // Dropping the sender retires it.
        let retired = retired.map(drop);
        self.services.spawn(Arc::new(service).run_until(retired));
        self.served.insert(role, Served { executor, _retire: retire });
    }

    /// Has the jobs of a role worked by another executor.
    pub fn change(&mut self, one: RoleWork) {
        match self.served.get(&one.role) {
            Some(served) => served.executor.replace(one.executor),
            None => self.serve(one),
        }
    }

    /// Begins no more jobs of a role; those in hand go on.
    pub fn retire(&mut self, role: &str) {
        self.served.remove(role);
    }

    pub async fn announce(&self) -> Result<()> {
        Ok(self.fleet.serve(self.served.keys().cloned().collect()).await?)
    }

    pub fn worker(&self) -> &str {
        &self.worker
    }

    pub fn metrics(&self, store: &Arc<dyn Store>, models: Arc<ModelTallies>) -> Arc<MetricsSource> {
        Arc::new(MetricsSource::new(store.clone(), self.fleet.tally(), models, Arc::new(SystemClock)))
    }

    /// What happens in this process from its beginning, if it is watched; given once.
    pub fn heard(&mut self) -> Option<broadcast::Receiver<Progress>> {
        self.heard.take()
    }

    /// Waits until somebody asks this process to end (`posse worker drain`).
    pub fn asked_to_end(&self) -> impl Future<Output = ()> + use<> {
        let mut phase = self.fleet.phase();
        async move {
            // The sender lives as long as the fleet.
            let _ = phase.wait_for(|phase| *phase != Phase::Working).await;
        }
    }

    /// Waits until the jobs in hand have ended, after it was asked to end.
    pub async fn drained(&mut self, out: &Out) {
        if self.fleet.lost().is_some() {
            return all(&mut self.services).await;
        }
        let jobs = self.jobs_in_hand().await;
        let until = if jobs.is_empty() { String::new() } else { format!(" after job {}", jobs.join(", ")) };
        out.note(format!("asked to end: claiming nothing more, and ending{until} (Ctrl-C ends it sooner)"));
        all(&mut self.services).await;
    }

    /// Ends: claims nothing more, gives steps in progress `grace` to end, then stops them. Jobs in
    /// hand go back to the queue with their attempt. A signal in between cuts the grace short, one
    /// more ends the process. Fails if its database was lost.
    pub async fn shut_down(mut self, out: &Out, grace: Duration, signals: &mut Signals) -> Result<()> {
        self.fleet.drain();
        let jobs = match self.fleet.lost() {
            Some(_) => Vec::new(),
            None => self.jobs_in_hand().await,
        };
        if !jobs.is_empty() {
            out.note(format!(
                "shutting down: waiting up to {} s for the step in progress of job {} (again to stop at once)",
                grace.as_secs(),
                jobs.join(", ")
            ));
        }
        let ended = tokio::select! {
            () = all(&mut self.services) => true,
            () = tokio::time::sleep(grace) => false,
            () = signals.next() => false,
        };
        if !ended {
            out.note("stopping the steps in progress; their jobs go back to the queue as they were last saved");
            self.fleet.stop();
            tokio::select! {
                () = all(&mut self.services) => {}
                () = tokio::time::sleep(AFTER_STOP) => out.warn("a step did not stop; its lease will run out and the job is taken back then"),
                () = signals.next() => {
                    self.fleet.leave_word();
                    std::process::exit(crate::exit::Exit::Interrupted as i32)
                }
            }
        }
        self.fleet.leave().await;
        self.maintenance.abort();
        self.sweeping.abort();
        if let Some(recorder) = self.recorder {
            recorder.end().await;
        }
        match self.fleet.lost() {
            Some(lost) => Err(lost.clone().into()),
            None => Ok(()),
        }
    }

    async fn jobs_in_hand(&self) -> Vec<String> {
        let filter = JobFilter { states: vec![JobState::Running], limit: 1000, ..JobFilter::default() };
        // Only words depend on it.
        let running = self.queries.jobs(filter).await.unwrap_or_default();
        let ours = running.into_iter().filter(|job| job.leased_by.as_deref() == Some(&self.worker));
        ours.map(|job| job.id.to_string()).collect()
    }
}

/// Has the files of sessions follow the database, from the beginning and every now and then.
async fn sweep(queries: Arc<dyn JobQueries>, sessions: PathBuf) {
    loop {
        if let Err(error) = remove_strays(&queries, &sessions).await {
            tracing::warn!("the files of sessions that are gone are still in {}: {error:#}", sessions.display());
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

async fn all(services: &mut JoinSet<()>) {
    while let Some(ended) = services.join_next().await {
        if let Err(error) = ended {
            tracing::error!("a worker service ended in a way it never should: {error}");
        }
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let legal = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let name: String = name.trim().chars().filter(legal).take(32).collect();
    if name.is_empty() { "host".into() } else { name }
}

/// The next thing heard; for ever nothing where nobody speaks. `None` after a gap: look again.
pub async fn hear(heard: &mut Option<broadcast::Receiver<Progress>>) -> Option<Progress> {
    let Some(receiver) = heard else { return std::future::pending().await };
    match receiver.recv().await {
        Ok(progress) => Some(progress),
        Err(broadcast::error::RecvError::Lagged(_)) => None,
        Err(broadcast::error::RecvError::Closed) => {
            *heard = None;
            None
        }
    }
}
