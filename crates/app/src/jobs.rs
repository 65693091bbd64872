//! Jobs as they are shown: lists by page, and everything about one.

use posse_core::annotation::Annotation;
use posse_core::clock::Millis;
use posse_core::job::dependency::{Dependency, GroupWait};
use posse_core::job::question::{Question, QuestionId};
use posse_core::job::{Attempt, Job, JobId, JobState, Output};
use posse_core::port::{JobFilter, QuestionFilter, RepositoryError, Store};
use posse_core::run::journal::{LedgerRow, Recorded};
use posse_core::text::head;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::waits::{Waits, why};

/// A job with what keeps it from running: an item of `posse job list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct JobItem {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// What it waits for; null where it waits for nothing.
    pub waits: Option<Waits>,
}

/// Jobs read at once: their texts may be large, and of each only the beginning is kept.
const AT_ONCE: u32 = 100;

/// Gives `take` the jobs that fit, newest first, as many as the filter's limit allows; gives the number below which the
/// next page begins, where there is one.
pub async fn each(
    store: &dyn Store,
    filter: JobFilter,
    now: Millis,
    take: &mut (dyn FnMut(JobItem) -> Result<()> + Send),
) -> Result<Option<JobId>> {
    let searched = is_searched(&filter);
    let mut left = filter.limit;
    let mut last = None;
    // One more than is shown tells whether there is a next page.
    let most = if searched { left + 1 } else { (left + 1).min(AT_ONCE) };
    let mut page = JobFilter { limit: most, ..filter };
    loop {
        let found = store.jobs(page.clone()).await?;
        let is_last = found.len() < page.limit as usize || searched;
        for item in items(store, found, now).await? {
            if left == 0 {
                return Ok(last);
            }
            left -= 1;
            last = Some(item.job.id);
            take(item)?;
        }
        if is_last {
            return Ok(None);
        }
        page = JobFilter { before: last, limit: (left + 1).min(AT_ONCE), ..page };
    }
}

/// Jobs with what keeps each from running.
pub async fn items(store: &dyn Store, jobs: Vec<Job>, now: Millis) -> Result<Vec<JobItem>> {
    let mut waits = why(store, &jobs, now).await?;
    Ok(jobs.into_iter().map(|job| JobItem { waits: waits.remove(&job.id), job }).collect())
}

/// Whether a filter looks into texts, which only the newest [`SEARCHED_AT_MOST`](posse_core::port::SEARCHED_AT_MOST) jobs
/// are searched for.
pub fn is_searched(filter: &JobFilter) -> bool {
    filter.text.is_some() || filter.meta.is_some()
}

/// A job that another one made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Child {
    /// Its number.
    pub id: JobId,
    /// Who works it.
    pub role: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Its answer, or what there is of it.
    pub output: Option<Output>,
}

/// A job with what belongs to it: the document of `posse job show --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct JobDocument {
    /// As in a list.
    pub job: JobItem,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// What happened in its run, in order.
    pub journal: Vec<Recorded>,
    /// Its tool calls, in order.
    pub ledger: Vec<LedgerRow>,
    /// Remarks about it, oldest first.
    pub annotations: Vec<Annotation>,
    /// What its run asked people, oldest first.
    pub questions: Vec<Question>,
    /// Jobs that it waited for by name.
    pub dependencies: Vec<Dependency>,
    /// Groups that it waited for.
    pub awaited_groups: Vec<GroupWait>,
    /// Jobs that it made.
    pub children: Vec<Child>,
    /// All jobs beneath it, each before those it made; the first [`MAX_BENEATH`].
    pub beneath: Vec<Beneath>,
}

/// Most jobs beneath another that are told of.
pub const MAX_BENEATH: usize = 200;

/// A job beneath another one.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Beneath {
    /// Its number.
    pub id: JobId,
    /// How far beneath, from 1.
    pub depth: u32,
    /// The job that made it.
    pub parent: JobId,
    /// Who works it.
    pub role: String,
    /// Where it is in its life.
    pub state: JobState,
    /// The beginning of what is asked for.
    pub goal: String,
    /// Its questions that people have not answered.
    pub questions: Vec<QuestionId>,
}

/// Bytes of a goal that are told where a job is one of many.
const GOAL_BYTES: usize = 200;

/// The jobs beneath one whose own are `children`, each before those it made.
async fn beneath(store: &dyn Store, children: &[Job]) -> Result<Vec<Beneath>> {
    let of = |job: &Job, depth: u32| {
        let goal = head(&job.payload.goal, GOAL_BYTES).to_owned();
        let parent = job.parent.unwrap_or(JobId(0));
        Beneath { id: job.id, depth, parent, role: job.role.clone(), state: job.state, goal, questions: Vec::new() }
    };
    let mut ahead: Vec<_> = children.iter().rev().map(|job| of(job, 1)).collect();
    let mut found = Vec::new();
    while let Some(mut next) = ahead.pop() {
        if found.len() == MAX_BENEATH {
            break;
        }
        if next.state == JobState::Suspended {
            let open = QuestionFilter { settled: false, job: Some(next.id), limit: 20 };
            next.questions = store.questions(open).await?.into_iter().map(|question| question.id).collect();
        }
        ahead.extend(store.children(next.id).await?.iter().rev().map(|job| of(job, next.depth + 1)));
        found.push(next);
    }
    Ok(found)
}

/// How much of a job is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What it belongs to and what is asked of people now; no attempts, journal or ledger.
    Head,
    /// All of it, and questions that are settled.
    Whole,
}

impl JobDocument {
    /// Reads it.
    pub async fn read(store: &dyn Store, id: JobId, depth: Depth, now: Millis) -> Result<JobDocument> {
        let job = store.job(id).await?.ok_or(RepositoryError::NoSuchJob(id))?;
        let whole = depth == Depth::Whole;
        let (annotations, dependencies) = (store.annotations(id).await?, store.dependencies(id).await?);
        let awaited_groups = store.awaited_groups(id).await?;
        let child = |job: Job| Child { id: job.id, role: job.role, state: job.state, output: job.output };
        let children = store.children(id).await?;
        let beneath = beneath(store, &children).await?;
        let children = children.into_iter().map(child).collect();
        let questions = store.questions(QuestionFilter { settled: whole, job: Some(id), limit: 1000 }).await?;
        let waits = why(store, std::slice::from_ref(&job), now).await?.remove(&id);
        let (attempts, journal, ledger) = match depth {
            Depth::Head => Default::default(),
            Depth::Whole => (store.attempts(id).await?, store.journal(id, 0).await?, store.ledger(id).await?),
        };
        let job = JobItem { job, waits };
        Ok(JobDocument {
            job,
            attempts,
            journal,
            ledger,
            annotations,
            questions,
            dependencies,
            awaited_groups,
            children,
            beneath,
        })
    }
}
