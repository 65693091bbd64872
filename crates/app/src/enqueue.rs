//! Work as somebody asks for it becomes a job: what it leaves open is filled in, and the whole is checked.

use posse_core::clock::Millis;
use posse_core::job::dependency::After;
use posse_core::job::enqueue::{EnqueueRequest, accept};
use posse_core::job::retry::{RetryPolicy, Strategy};
use posse_core::job::unique::Became;
use posse_core::job::{IfHeld, JobId, Meta, NewJob, Unique};
use posse_core::persona::Personas;
use posse_core::port::{Enqueued, Store};
use posse_core::queue::Queue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::personas::not_broken;
use crate::{Error, Result};

/// The model that runs on this machine, which every configuration has.
pub const LOCAL_MODEL: &str = "local";

/// What jobs are checked against before they are stored.
#[derive(Debug, Clone)]
pub struct Intake {
    /// Who can work them.
    pub personas: Personas,
    /// The models that are configured; where none is, any may be named.
    pub models: Vec<String>,
    /// How much waiting one step of priority is worth where its queue does not say.
    pub priority_step_ms: Millis,
    /// Deaths of workers that a job may meet where neither it nor its persona says.
    pub max_crashes: Option<u32>,
}

impl Intake {
    /// The job that is asked for, with what is said of its queue in `store`, checked.
    pub async fn job(&self, store: &dyn Store, request: EnqueueRequest, retry: &RetryAsked) -> Result<NewJob> {
        let queue = store.queue(request.queue.clone()).await?;
        self.accept(request, retry, &[queue])
    }

    /// The job that is asked for, checked. What nobody says, neither whoever asks for it nor its persona, is as the one
    /// of `queues` has it that it waits in.
    pub fn accept(&self, request: EnqueueRequest, retry: &RetryAsked, queues: &[Queue]) -> Result<NewJob> {
        // A broken file is a better answer than that there is none.
        not_broken(&self.personas, &request.role)?;
        let is_known = |model: &&str| self.models.iter().any(|known| known == model) || *model == LOCAL_MODEL;
        if let Some(model) = request.model.as_deref().filter(|model| !self.models.is_empty() && !is_known(model)) {
            let names = self.models.join(", ");
            let why = format!("model '{model}' is not in the settings; there are {names} (posse model list)");
            return Err(Error::invalid(why));
        }
        let persona = self.personas.get(&request.role).map(|file| &file.persona);
        let request = EnqueueRequest {
            priority_step_ms: self.priority_step_ms,
            max_crashes: request
                .max_crashes
                .or(persona.and_then(|persona| persona.limits.max_crashes))
                .or(self.max_crashes),
            retry: retry.over(persona.and_then(|persona| persona.retry)),
            ..request
        };
        let defaults = queues.iter().find(|queue| queue.name == request.queue).map(|queue| queue.defaults);
        Ok(accept(defaults.unwrap_or_default().fill(request), &self.personas.roles())?)
    }
}

/// What is asked about when a job is tried again; what is absent is as its persona says.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetryAsked {
    /// How waits grow.
    pub strategy: Option<Strategy>,
    /// The first wait.
    pub wait: Option<Millis>,
    /// No wait is longer.
    pub wait_most: Option<Millis>,
}

impl RetryAsked {
    /// This, and of `others` what it leaves open.
    pub fn or(self, others: &RetryAsked) -> RetryAsked {
        RetryAsked {
            strategy: self.strategy.or(others.strategy),
            wait: self.wait.or(others.wait),
            wait_most: self.wait_most.or(others.wait_most),
        }
    }

    /// The persona's policy, with what is asked over it.
    fn over(&self, persona: Option<RetryPolicy>) -> Option<RetryPolicy> {
        let RetryAsked { strategy, wait, wait_most } = self;
        if strategy.is_none() && wait.is_none() && wait_most.is_none() {
            return persona;
        }
        let mut policy = persona.unwrap_or_default();
        let seconds = |ms: &Millis| u32::try_from(ms / 1000).unwrap_or(u32::MAX);
        policy.base_seconds = wait.as_ref().map_or(policy.base_seconds, seconds);
        policy.max_seconds = match wait_most {
            Some(most) => seconds(most),
            // A first wait may be named without the longest.
            None => policy.max_seconds.max(policy.base_seconds),
        };
        policy.strategy = strategy.unwrap_or(policy.strategy);
        if policy.strategy == Strategy::None {
            policy.max_attempts = None;
        }
        Some(policy)
    }
}

/// What shall become of a job that holds the unique key and has not begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldChoice {
    /// Nothing.
    #[default]
    Keep,
    /// It becomes this job.
    Replace,
    /// And is due when this one is.
    Debounce,
}

impl HeldChoice {
    /// What the key's terms say of it.
    pub fn rule(self, debounce_at_most: Option<Millis>) -> Result<IfHeld> {
        if debounce_at_most.is_some() && self != HeldChoice::Debounce {
            let why = "debounce_at_most is for debounce; say that it is to debounce if held, or leave it out";
            return Err(Error::invalid(why));
        }
        Ok(match self {
            HeldChoice::Keep => IfHeld::Keep,
            HeldChoice::Replace => IfHeld::Replace,
            HeldChoice::Debounce => IfHeld::Debounce { at_most_ms: debounce_at_most },
        })
    }
}

/// A job that was enqueued, and what became of it: the document of `posse enqueue --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EnqueuedView {
    /// Its number.
    pub id: JobId,
    /// Whether a job with this unique key was there already; then it is that one's id.
    pub existing: bool,
    /// stored; or of the one that was there: kept, begun (neither was changed), replaced, debounced.
    pub became: Became,
    /// Who works it.
    pub role: String,
    /// The queue it waits in.
    pub queue: String,
    /// 1 (first) to 9 (last).
    pub priority: u8,
    /// Attempts it gets.
    pub max_attempts: u32,
    /// Milliseconds since 1970; null when it is due at once.
    pub run_at: Option<Millis>,
    /// The key of which there is one job at a time.
    pub unique: Option<Unique>,
    /// The key by which limits count it.
    pub concurrency_key: Option<String>,
    /// What is asked for.
    pub goal: String,
    /// Jobs that it waits for.
    pub after: Vec<JobId>,
    /// Groups that it waits for.
    pub after_groups: Vec<String>,
    /// The group it is counted in.
    pub group: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What its owner keeps with it.
    pub meta: Meta,
}

impl EnqueuedView {
    /// What was asked for, and what became of it.
    pub fn new(job: NewJob, enqueued: Enqueued) -> EnqueuedView {
        let (Enqueued { id, became }, existing) = (enqueued, enqueued.existed());
        let NewJob { role, queue, priority, max_attempts, run_at, unique, concurrency_key, payload, .. } = job;
        let after = job.after.iter().filter_map(|after| match after {
            After::Job(id) => Some(*id),
            After::Earlier(_) => None,
        });
        let after = after.collect();
        let (after_groups, group, tags, meta) = (job.after_groups, job.group, job.tags, job.meta);
        EnqueuedView {
            id,
            existing,
            became,
            role,
            queue,
            priority,
            max_attempts,
            run_at,
            unique,
            concurrency_key,
            goal: payload.goal,
            after,
            after_groups,
            group,
            tags,
            meta,
        }
    }
}
