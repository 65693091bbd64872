//! The desk at which a run asks about its tasks: jobs that it gives to others.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::fleet::Fleet;
use super::halt::{Halt, until_available};
use crate::clock::Millis;
use crate::job::enqueue::{EnqueueRequest, accept};
use crate::job::lease::Lease;
use crate::job::task::{Given, TaskBounds, TaskOf};
use crate::job::{DEFAULT_PRIORITY_STEP_MS, Job, JobId, NewJob};
use crate::persona::PersonaTemplate;
use crate::port::{Cancelled, RepositoryError};
use crate::run::{Run, tasks};
use crate::stop::Stop;
use crate::tool::tasks::{TaskAsk, Tasks};
use crate::tool::{ToolContext, ToolError, ToolErrorCategory, ToolOutput};

/// To whom an agent may give tasks, and what these begin with.
#[derive(Debug, Clone, PartialEq)]
pub struct Delegation {
    /// The personas that may be given tasks.
    pub to: Vec<PersonaTemplate>,
    /// How much waiting one step of priority is worth; see [`rank`](crate::job::rank).
    pub priority_step_ms: Millis,
    /// Deaths of workers that a task may meet where its persona does not say.
    pub max_crashes: Option<u32>,
}

impl Default for Delegation {
    fn default() -> Self {
        Delegation { to: Vec::new(), priority_step_ms: DEFAULT_PRIORITY_STEP_MS, max_crashes: None }
    }
}

impl Delegation {
    /// The roles that may be given tasks, each with what it is for.
    pub fn roles(&self) -> Vec<(&str, &str)> {
        self.to.iter().map(|persona| (persona.role.as_str(), persona.goal.as_str())).collect()
    }

    /// The job that a task is: in the queue, at the priority and in the workspace of the job `from` which it comes from,
    /// and asked of the model that was chosen for that.
    fn job(&self, from: &Job, persona: &PersonaTemplate, goal: String, task: TaskOf) -> Result<NewJob, ToolError> {
        let request = EnqueueRequest {
            role: persona.role.clone(),
            goal,
            queue: from.queue.clone(),
            priority: Some(from.priority),
            priority_step_ms: self.priority_step_ms,
            max_crashes: persona.limits.max_crashes.or(self.max_crashes),
            retry: persona.retry,
            workspace: from.payload.workspace.clone(),
            workspace_id: from.payload.workspace_id,
            model: from.payload.model.clone(),
            ..EnqueueRequest::default()
        };
        let refused = |why: crate::job::enqueue::Refused| {
            ToolError::new(ToolErrorCategory::InvalidArguments, format!("the task cannot be given: {why}"))
        };
        let mut job = accept(request, std::slice::from_ref(&persona.role)).map_err(refused)?;
        job.payload.task = Some(task);
        Ok(job)
    }
}

/// Where one run asks, on behalf of one attempt at its job.
pub struct TaskDesk {
    fleet: Arc<Fleet>,
    stop: Stop,
    lease: Lease,
    /// Whose run it is.
    job: Job,
    delegation: Arc<Delegation>,
    bounds: TaskBounds,
    /// What its tasks may use.
    tokens: Option<u64>,
    seconds: Option<u64>,
    /// Whether it has read what others wrote.
    heard: bool,
}

impl fmt::Debug for TaskDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskDesk({})", self.job.id)
    }
}

impl TaskDesk {
    pub(super) fn new(
        (fleet, stop, lease): (Arc<Fleet>, Stop, Lease),
        job: &Job,
        delegation: Arc<Delegation>,
        run: &Run,
    ) -> TaskDesk {
        let bounds = run.task_bounds(job.payload.task.as_ref().map(|task| task.bounds));
        // Less than a second is none, and none would be no limit.
        let seconds = run.time_left().map(|ms| u64::try_from(ms / 1000).unwrap_or(0).max(1));
        let tokens = run.tokens_left().map(|left| left.max(1));
        let heard = !run.heard().is_empty();
        TaskDesk { fleet, stop, lease, job: job.clone(), delegation, bounds, tokens, seconds, heard }
    }

    async fn create(&self, key: &str, role: &str, goal: String) -> Result<ToolOutput, ToolError> {
        let Some(persona) = self.delegation.to.iter().find(|persona| persona.role == role) else {
            let roles: Vec<_> = self.delegation.roles().into_iter().map(|(role, _)| role).collect();
            return Err(tasks::may_not(role, &roles));
        };
        let task = TaskOf {
            key: key.to_owned(),
            depth: self.depth() + 1,
            bounds: self.bounds,
            max_tokens: self.tokens,
            max_seconds: self.seconds,
            heard: self.heard,
        };
        let job = self.delegation.job(&self.job, persona, goal, task)?;
        let give = || self.fleet.store.give_task(self.lease, job.clone(), self.fleet.clock.now());
        match until_available(&self.fleet, &self.stop, give).await.map_err(halted)? {
            Given::Task(id) => Ok(tasks::given(id, role).into()),
            Given::Refused(why) => Err(ToolError::new(ToolErrorCategory::LimitExceeded, why.told())),
            Given::Stopped => Err(stopped()),
        }
    }

    fn depth(&self) -> u32 {
        self.job.payload.task.as_ref().map_or(0, |task| task.depth)
    }

    /// The run's tasks, oldest first.
    async fn tasks(&self) -> Result<Vec<Job>, ToolError> {
        let children = || self.fleet.store.children(self.job.id);
        until_available(&self.fleet, &self.stop, children).await.map_err(halted)
    }

    async fn cancel(&self, task: JobId, reason: &str) -> Result<ToolOutput, ToolError> {
        let mut all = self.tasks().await?;
        let Some(at) = all.iter().position(|one| one.id == task) else { return Err(tasks::not_yours(task, &all)) };
        let reason = match reason.trim() {
            "" => format!("job {} needs it no more", self.job.id),
            why => format!("job {} needs it no more: {why}", self.job.id),
        };
        let cancel = || async {
            let cancelled =
                self.fleet.store.cancel_task(self.lease, task, reason.clone(), self.fleet.clock.now()).await;
            match cancelled {
                Err(RepositoryError::NoSuchJob(_)) => Ok(None),
                other => other.map(Some),
            }
        };
        let told = match until_available(&self.fleet, &self.stop, cancel).await.map_err(halted)? {
            None => return Err(tasks::not_yours(task, &[])),
            Some(Cancelled::Now | Cancelled::Already) => format!("Task {task} is cancelled."),
            Some(Cancelled::Requested) => format!("Task {task} ends at its next step."),
            Some(Cancelled::TooLate(_)) => {
                format!("Task {task} had ended before.\n{}", tasks::status(&all.swap_remove(at), 0))
            }
        };
        Ok(told.into())
    }

    /// What tasks came to, or which of them have to end before.
    async fn wait(&self, named: &[JobId], room: Option<usize>) -> Result<ToolOutput, ToolError> {
        let mut all = self.tasks().await?;
        if let Some(other) = named.iter().find(|id| all.iter().all(|task| task.id != **id)) {
            return Err(tasks::not_yours(*other, &all));
        }
        all.retain(|task| named.is_empty() || named.contains(&task.id));
        if all.is_empty() {
            return Err(ToolError::new(ToolErrorCategory::NotFound, tasks::list(&all)));
        }
        let open: Vec<_> = all.iter().filter(|task| !task.state.is_final()).map(|task| task.id).collect();
        match open.is_empty() {
            true => Ok(tasks::answers(&all, room).into()),
            false => Ok(ToolOutput { waits_for: open, ..ToolOutput::default() }),
        }
    }
}

#[async_trait]
impl Tasks for TaskDesk {
    async fn ask(&self, cx: &ToolContext, ask: TaskAsk) -> Result<ToolOutput, ToolError> {
        match ask {
            TaskAsk::Create { role, goal } => self.create(&cx.effect_key, &role, goal).await,
            TaskAsk::List => Ok(tasks::list(&self.tasks().await?).into()),
            TaskAsk::Status { task, offset } => {
                let all = self.tasks().await?;
                match all.iter().find(|one| one.id == task) {
                    Some(found) => Ok(tasks::status(found, offset).into()),
                    None => Err(tasks::not_yours(task, &all)),
                }
            }
            TaskAsk::Cancel { task, reason } => self.cancel(task, &reason).await,
            TaskAsk::Wait { tasks } => self.wait(&tasks, cx.reader.room).await,
        }
    }
}

/// Asked twice with one effect key, there is one task: a call that was cut off is simply made again.
fn stopped() -> ToolError {
    ToolError::new(ToolErrorCategory::Interrupted, "the call was stopped")
}

fn halted(halt: Halt) -> ToolError {
    match halt {
        Halt::Stop(_) => stopped(),
        Halt::Broken(why) => ToolError::new(ToolErrorCategory::Failed, why),
    }
}
