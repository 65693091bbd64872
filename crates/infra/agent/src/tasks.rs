//! Tasks that a run gives to others: to whom, and what its end means for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posse_core::job::{Job, JobId};
use posse_core::run::journal::OfferedTool;
use posse_core::run::machine::Step;
use posse_core::run::{Run, tasks};
use posse_core::tool::Reader;
use posse_core::tool::calls::Calls;
use posse_core::tool::tasks::{TASK_CREATE, Tasks};
use posse_core::worker::executor::{Delegation, Halt, JobContext, StepOutcome};

use super::GenericAgentExecutor;

/// The tools of tasks begin so.
const PREFIX: &str = "task_";

/// What calls came to that were run.
pub(super) enum Ran {
    /// The run goes on.
    Step(Step),
    /// It waits for these jobs, without a slot.
    Waits(Vec<JobId>),
}

/// What calls are told of the run that makes them.
#[derive(Clone)]
pub(super) struct Told {
    pub skill_folder: Option<PathBuf>,
    pub reader: Reader,
    pub time_left: Option<Duration>,
    pub tasks: Option<Arc<dyn Tasks>>,
    pub calls: Option<Arc<dyn Calls>>,
    pub step: u64,
    pub heard: Vec<String>,
}

/// A run that waits for other jobs.
pub(super) fn suspended(mut waits_for: Vec<JobId>) -> StepOutcome {
    waits_for.sort();
    waits_for.dedup();
    let reason = tasks::waits_for(&waits_for);
    StepOutcome::Suspended { reason, children: Vec::new(), waits_for, entries: Vec::new() }
}

impl GenericAgentExecutor {
    /// The same, whose agents may give tasks to these.
    pub fn with_delegation(self, delegation: Delegation) -> Self {
        let roles = delegation.roles();
        let offer = |mut tool: OfferedTool| {
            if tool.spec.name == TASK_CREATE {
                tool.spec = tasks::offered(&tool.spec, &roles);
            }
            tool
        };
        let tools = self.tools.into_iter().map(offer).collect();
        GenericAgentExecutor { tools, delegation: Arc::new(delegation), ..self }
    }

    /// The tools that a run of `job` is offered: of tasks only where there is somebody to give one to, and room for it.
    pub(super) fn tools_for(&self, job: &Job) -> Vec<OfferedTool> {
        let mut tools = self.tools.clone();
        if !self.may_delegate(job) {
            tools.retain(|tool| !is_of_tasks(tool));
        }
        tools
    }

    fn may_delegate(&self, job: &Job) -> bool {
        let own = self.persona.limits.tasks();
        let (bounds, depth) = match &job.payload.task {
            Some(task) => (own.within(task.bounds), task.depth),
            None => (own, 0),
        };
        !self.delegation.to.is_empty() && depth < bounds.depth && bounds.open > 0 && bounds.all > 0
    }

    /// Where the run's tools ask about tasks, if it was offered any of these.
    pub(super) fn task_desk(&self, cx: &JobContext, run: &Run) -> Option<Arc<dyn Tasks>> {
        gives_tasks(run).then(|| Arc::new(cx.task_desk(Arc::clone(&self.delegation), run)) as _)
    }

    /// The tasks of the run that have not ended.
    pub(super) async fn open_tasks(&self, cx: &JobContext, run: &Run) -> Result<Vec<JobId>, Halt> {
        if gives_tasks(run) { cx.open_tasks().await } else { Ok(Vec::new()) }
    }

    /// Ends the tasks of a run that has ended: nobody is left who would read their answers. Before its end is stored, so
    /// that a worker which dies in between does both.
    pub(super) async fn end_tasks(&self, cx: &JobContext, run: &Run) -> Result<(), Halt> {
        for task in self.open_tasks(cx, run).await? {
            cx.cancel_task(task, &format!("job {}, for which it was to be done, has ended", cx.job.id)).await?;
        }
        Ok(())
    }
}

fn is_of_tasks(tool: &OfferedTool) -> bool {
    tool.spec.name.starts_with(PREFIX)
}

fn gives_tasks(run: &Run) -> bool {
    run.opening().is_some_and(|opening| opening.tools.iter().any(|tool| tool.spec.name == TASK_CREATE))
}
