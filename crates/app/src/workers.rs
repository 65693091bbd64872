//! Worker processes as they are shown, and asking one to end.

use posse_core::clock::Millis;
use posse_core::job::lease::WorkerId;
use posse_core::port::{HeldJob, ProcessProbe, Store, WorkerRecord};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Code, Error, Result};

/// What a worker process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// It claims and works.
    Working,
    /// It was asked to end, and finishes what it has.
    Draining,
    /// It was not heard of for two leases.
    Silent,
    /// Its process is not there any more.
    Gone,
}

impl WorkerStatus {
    /// What a process on the list is doing.
    pub fn of(worker: &WorkerRecord, is_gone: bool, now: Millis) -> WorkerStatus {
        match worker {
            _ if is_gone => WorkerStatus::Gone,
            worker if now - worker.heartbeat_at > 2 * worker.lease_ms.max(1) => WorkerStatus::Silent,
            worker if worker.drain_requested_at.is_some() => WorkerStatus::Draining,
            _ => WorkerStatus::Working,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerStatus::Working => "working",
            WorkerStatus::Draining => "draining",
            WorkerStatus::Silent => "silent",
            WorkerStatus::Gone => "gone",
        }
    }
}

/// A worker process with what it has in hand: an item of `posse worker list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WorkerView {
    /// The process.
    #[serde(flatten)]
    pub worker: WorkerRecord,
    /// What it is doing.
    pub status: WorkerStatus,
    /// Jobs in its hands.
    pub jobs: Vec<HeldJob>,
    /// Jobs it can have in its hands at once, over all roles.
    pub slots_in_all: u64,
}

/// Worker processes on the list, with what each is doing.
pub async fn list(store: &dyn Store, processes: &dyn ProcessProbe, now: Millis) -> Result<Vec<WorkerView>> {
    let held = store.held_jobs().await?;
    let view = |(worker, status): (WorkerRecord, WorkerStatus)| {
        let jobs = held.iter().filter(|job| job.worker == worker.id).cloned().collect();
        let slots_in_all = u64::from(worker.slots) * worker.roles.len() as u64;
        WorkerView { worker, status, jobs, slots_in_all }
    };
    Ok(with_status(store, processes, now).await?.into_iter().map(view).collect())
}

/// Worker processes on the list, with what each is doing, without their jobs.
pub(crate) async fn with_status(
    store: &dyn Store,
    processes: &dyn ProcessProbe,
    now: Millis,
) -> Result<Vec<(WorkerRecord, WorkerStatus)>> {
    let workers = store.workers().await?;
    let gone = processes.dead(&workers);
    let with = |worker: WorkerRecord| {
        let status = WorkerStatus::of(&worker, gone.iter().any(|gone| gone.0 == worker.id), now);
        (worker, status)
    };
    Ok(workers.into_iter().map(with).collect())
}

/// Those of `workers` that live. One of this host is known by its process, one of another host (or of this one before it
/// was started anew) by its sign of life.
pub fn alive<'a>(workers: &'a [WorkerRecord], processes: &dyn ProcessProbe, now: Millis) -> Vec<&'a WorkerRecord> {
    let (gone, alive) = (processes.dead(workers), processes.alive(workers));
    let lives = |worker: &&WorkerRecord| {
        let has_said_so = now - worker.heartbeat_at < 2 * worker.lease_ms.max(30_000);
        let is = |ids: &[WorkerId]| ids.iter().any(|id| id.0 == worker.id);
        is(&alive) || (!is(&gone) && has_said_so)
    };
    workers.iter().filter(lives).collect()
}

/// The worker that is to be drained: the one named, none for `all`, else the only one there is.
pub fn to_drain(workers: &[WorkerRecord], named: Option<String>, all: bool) -> Result<Option<WorkerId>> {
    match (named, workers) {
        (_, []) => Err(none_there()),
        (Some(id), _) => Ok(Some(WorkerId(id))),
        (None, _) if all => Ok(None),
        (None, [only]) => Ok(Some(WorkerId(only.id.clone()))),
        (None, several) => {
            let ids: Vec<_> = several.iter().map(|worker| worker.id.as_str()).collect();
            let what = format!("name the worker, or all of them by --all; there are {}", ids.join(", "));
            Err(Error::invalid(what))
        }
    }
}

/// That there is no worker.
pub fn none_there() -> Error {
    Error::new(Code::WorkerNotFound, "no worker is on the list")
}

/// Asks a worker, or all, to finish what is in hand and end; gives who was asked.
pub async fn drain(store: &dyn Store, worker: Option<WorkerId>, now: Millis) -> Result<Vec<String>> {
    let asked = store.request_drain(worker.clone(), now).await?;
    match worker.filter(|_| asked.is_empty()) {
        Some(WorkerId(id)) => {
            Err(Error::new(Code::WorkerNotFound, format!("there is no worker '{id}' (posse worker list)")))
        }
        None => Ok(asked),
    }
}

/// Fails while one of these workers lives, and says how to end it: what is to be done is done while nobody is at work.
pub fn nobody_at_work(workers: &[WorkerRecord], processes: &dyn ProcessProbe, now: Millis) -> Result<()> {
    let there = alive(workers, processes, now);
    let Some(first) = there.first() else { return Ok(()) };
    let more = if there.len() > 1 { format!(" and {} more", there.len() - 1) } else { String::new() };
    let way_out = "posse worker drain --all ends them when their jobs in hand have ended";
    Err(Error::invalid(format!("worker {}{more} would have to wait; {way_out}", first.id)))
}
