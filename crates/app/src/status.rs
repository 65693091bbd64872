//! How all of it stands: what runs, what waits and why, and what needs a person.

use posse_core::clock::Millis;
use posse_core::job::question::Question;
use posse_core::job::{Job, JobState};
use posse_core::port::{DueJobs, HeldJob, JobFilter, ProcessProbe, QuestionFilter, Store, WorkerRecord};
use posse_core::queue::rate::EndpointState;
use posse_core::queue::rules::Rule;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Result;
use crate::jobs::{JobItem, items};
use crate::workers::{WorkerStatus, with_status};

/// For how long a job that was discarded is told of.
const LATELY_MS: Millis = 24 * 3_600_000;

/// The document of `posse status --json`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Standing {
    /// When it was so.
    pub at: Millis,
    /// Jobs in each state, in the order of a job's life.
    pub jobs: Map<String, Value>,
    /// Jobs in hand.
    pub running: Vec<HeldJob>,
    /// Jobs that wait, newest first.
    pub waiting: Vec<JobItem>,
    /// What a person has to see to.
    pub needs_a_person: NeedsAPerson,
    /// Worker processes on the list.
    pub workers: Vec<WorkerItem>,
}

/// What a person has to see to.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct NeedsAPerson {
    /// Questions that wait for an answer, oldest first.
    pub questions: Vec<Question>,
    /// Jobs that were discarded within a day.
    pub discarded: Vec<Job>,
    /// Endpoints of models that are out.
    pub endpoints_out: Vec<EndpointState>,
    /// What is paused.
    pub paused: Vec<Rule>,
    /// Roles whose due jobs nobody works.
    pub unserved: Vec<DueJobs>,
    /// Worker processes that are on the list and not heard of.
    pub workers: Vec<LostWorker>,
}

/// A worker process that is on the list and not heard of.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LostWorker {
    /// Its id.
    pub id: String,
    /// Whether it is silent or gone.
    pub status: WorkerStatus,
    /// Its last sign of life.
    #[serde(skip)]
    pub heartbeat_at: Millis,
}

/// A worker process and what it is doing.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WorkerItem {
    /// The process.
    #[serde(flatten)]
    pub worker: WorkerRecord,
    /// What it is doing.
    pub status: WorkerStatus,
}

impl Standing {
    /// Reads it, at most `limit` of each list of jobs.
    pub async fn read(store: &dyn Store, processes: &dyn ProcessProbe, limit: u32, now: Millis) -> Result<Standing> {
        let counts = store.counts().await?;
        let workers = with_status(store, processes, now).await?;
        let serves = |role: &String| {
            workers.iter().any(|(worker, status)| *status == WorkerStatus::Working && worker.roles.contains(role))
        };
        let states = vec![JobState::Available, JobState::Scheduled, JobState::Retryable, JobState::Suspended];
        let waiting = store.jobs(JobFilter { states, limit, ..JobFilter::default() }).await?;
        let discarded = JobFilter {
            states: vec![JobState::Discarded],
            ended_from: Some(now - LATELY_MS),
            limit,
            ..JobFilter::default()
        };
        let is_lost = |status: &WorkerStatus| matches!(status, WorkerStatus::Gone | WorkerStatus::Silent);
        let lost = workers.iter().filter(|(_, status)| is_lost(status)).map(|(worker, status)| LostWorker {
            id: worker.id.clone(),
            status: *status,
            heartbeat_at: worker.heartbeat_at,
        });
        let running = store.held_jobs().await?;
        let needs_a_person = NeedsAPerson {
            unserved: store.due_jobs(now).await?.into_iter().filter(|due| !serves(&due.role)).collect(),
            questions: store.questions(QuestionFilter { limit, ..QuestionFilter::default() }).await?,
            discarded: store.jobs(discarded).await?,
            endpoints_out: store
                .failing_endpoints()
                .await?
                .into_iter()
                .filter(|state| state.breaker.is_out())
                .collect(),
            paused: store.rules().await?.into_iter().filter(|rule| rule.paused_at.is_some()).collect(),
            workers: lost.collect(),
        };
        Ok(Standing {
            at: now,
            jobs: counted(&counts),
            running,
            waiting: items(store, waiting, now).await?,
            needs_a_person,
            workers: workers.into_iter().map(|(worker, status)| WorkerItem { worker, status }).collect(),
        })
    }

    /// Jobs in a state.
    pub fn count(&self, state: JobState) -> u64 {
        self.jobs.get(state.as_str()).and_then(Value::as_u64).unwrap_or_default()
    }
}

fn counted(counts: &[(String, JobState, u64)]) -> Map<String, Value> {
    let of_state = |state| counts.iter().filter(|(_, s, _)| *s == state).map(|(_, _, n)| n).sum::<u64>();
    JobState::ALL.into_iter().map(|state| (state.to_string(), of_state(state).into())).collect()
}
