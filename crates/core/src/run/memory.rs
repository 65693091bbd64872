//! The working memory of a run that goes by phases: plan, steps, errors and key facts, and the view
//! of them that stands before the model at every step.
//!
//! It lives as long as the run and is never stored: like everything else about a run it is added up
//! from the journal. Nothing in it is cut; only a view may be ([`WorkingMemory::render_view_within`]).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

use super::phase::{AgentStep, Content, NewPlan, Phase, SubTaskOutcome};

mod view;

pub(super) use view::StepTokens;

/// Where a sub-task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubTaskStatus {
    /// Not begun. Every sub-task of a new plan but the current one.
    Pending,
    /// The current one, being worked on.
    InProgress,
    /// Verified as done; those that need it may begin.
    Done,
    /// Verified as failed. It stays current, to be done in another way or planned around.
    Failed,
}

/// One part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubTask {
    /// Unique within the plan; chosen by the agent.
    pub id: u32,
    /// What is to be done.
    pub title: String,
    /// Where it is in its life.
    pub status: SubTaskStatus,
    /// Sub-tasks that must be done before it begins.
    pub depends_on: Vec<u32>,
}

/// What the agent set out to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What all sub-tasks together are for.
    pub goal: String,
    /// In the agent's order.
    pub sub_tasks: Vec<SubTask>,
    /// The one being worked on; none when no sub-task can begin.
    pub current_sub_task: Option<u32>,
    /// 1 for a run's first plan, one more for each that replaced it.
    pub plan_version: u32,
}

/// A call as its step remembers it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRecord {
    /// The tool's name.
    pub tool: String,
    /// What it was given.
    pub input: Value,
    /// What it gave, whole; why it failed, if it did.
    pub output: String,
    /// Whether it failed, or was refused.
    pub failed: bool,
    /// How long it ran, in milliseconds, where that is known.
    pub ms: Option<u64>,
}

/// A step the agent took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRecord {
    /// Its number, from 1.
    pub step: u32,
    /// What kind of step it was.
    pub phase: Phase,
    /// The agent's reasoning; no view shows it.
    pub thinking: String,
    /// The step in a sentence, in the agent's words.
    pub summary: String,
    /// The call it made, in an act.
    pub call: Option<CallRecord>,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorRecord {
    /// The step that made it.
    pub step: u32,
    /// The tool, where one was called.
    pub tool: Option<String>,
    /// What went wrong.
    pub message: String,
    /// What the agent made of it, once it has reflected.
    pub resolution: Option<String>,
}

/// Something the agent learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyFact {
    /// In the agent's words.
    pub fact: String,
    /// The step that recorded it.
    pub source_step: u32,
    /// The tool of the act it was learned from.
    pub source_tool: Option<String>,
}

/// What a run that goes by phases knows of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WorkingMemory {
    plan: Option<Plan>,
    steps: Vec<StepRecord>,
    error_register: Vec<ErrorRecord>,
    key_facts: Vec<KeyFact>,
}

impl WorkingMemory {
    /// The plan, once there is one.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Every step, oldest first.
    pub fn steps(&self) -> &[StepRecord] {
        &self.steps
    }

    /// Every failed call, oldest first.
    pub fn error_register(&self) -> &[ErrorRecord] {
        &self.error_register
    }

    /// Every fact, oldest first.
    pub fn key_facts(&self) -> &[KeyFact] {
        &self.key_facts
    }

    /// Takes in a step that calls no tool; an act comes with its result ([`WorkingMemory::take_call`]).
    pub fn take_step(&mut self, number: u32, step: &AgentStep) {
        let mut summary = step.summary.as_str();
        match &step.content {
            Content::Act(_) => return,
            Content::Reason => {}
            Content::Plan(plan) => {
                self.set_plan(plan);
            }
            Content::Verify { key_facts, sub_task_outcome } => {
                let last_act = self.steps.iter().rev().find_map(|step| step.call.as_ref());
                let source_tool = last_act.map(|call| call.tool.clone());
                self.add_key_facts(key_facts.iter().map(|fact| KeyFact {
                    fact: fact.clone(),
                    source_step: number,
                    source_tool: source_tool.clone(),
                }));
                let current = self.plan.as_ref().and_then(|plan| plan.current_sub_task);
                if let (Some(outcome), Some(id)) = (sub_task_outcome, current) {
                    match outcome {
                        SubTaskOutcome::Failed => self.update_sub_task_status(id, SubTaskStatus::Failed),
                        SubTaskOutcome::Done => {
                            self.update_sub_task_status(id, SubTaskStatus::Done);
                            self.advance_to_next_sub_task();
                        }
                    }
                }
            }
            Content::Reflect => {
                let open = self.error_register.iter().rev().find(|error| error.resolution.is_none());
                if let Some(step) = open.map(|error| error.step) {
                    self.resolve_error(step, summary);
                }
            }
            Content::Feedback { message } | Content::End { message, .. } => summary = message,
        }
        self.steps.push(StepRecord {
            step: number,
            phase: step.phase(),
            thinking: step.thinking.clone(),
            summary: summary.to_owned(),
            call: None,
        });
    }

    /// Takes in an act with its result; one that failed is an error until a reflection resolves it.
    pub fn take_call(&mut self, number: u32, thinking: &str, summary: &str, call: CallRecord) {
        if call.failed {
            self.add_error(ErrorRecord {
                step: number,
                tool: Some(call.tool.clone()),
                message: call.output.clone(),
                resolution: None,
            });
        }
        self.steps.push(StepRecord {
            step: number,
            phase: Phase::Act,
            thinking: thinking.to_owned(),
            summary: summary.to_owned(),
            call: Some(call),
        });
    }

    /// The version that the next plan will have.
    pub fn next_plan_version(&self) -> u32 {
        self.plan.as_ref().map_or(0, |plan| plan.plan_version) + 1
    }

    /// Makes `plan` the plan, its first sub-task that can begin the current one; gives the plan's version.
    pub fn set_plan(&mut self, plan: &NewPlan) -> u32 {
        let plan_version = self.next_plan_version();
        let sub_tasks = plan.sub_tasks.iter().map(|sub_task| SubTask {
            id: sub_task.id,
            title: sub_task.title.clone(),
            status: SubTaskStatus::Pending,
            depends_on: sub_task.depends_on.clone(),
        });
        let (goal, sub_tasks) = (plan.goal.clone(), sub_tasks.collect());
        self.plan = Some(Plan { goal, sub_tasks, current_sub_task: None, plan_version });
        self.advance_to_next_sub_task();
        plan_version
    }

    /// Sets the status of a sub-task. Without a plan, or a sub-task of this id, nothing changes.
    pub fn update_sub_task_status(&mut self, id: u32, status: SubTaskStatus) {
        let sub_tasks = self.plan.iter_mut().flat_map(|plan| &mut plan.sub_tasks);
        for sub_task in sub_tasks.filter(|sub_task| sub_task.id == id) {
            sub_task.status = status;
        }
    }

    /// Leaves a current sub-task that is done or failed for the first pending one whose needs are
    /// all done, and gives its id. None if the current one is still in progress, and stays current;
    /// none, too, if no sub-task can begin.
    pub fn advance_to_next_sub_task(&mut self) -> Option<u32> {
        let plan = self.plan.as_mut()?;
        let current = plan.sub_tasks.iter().find(|sub_task| Some(sub_task.id) == plan.current_sub_task);
        if current.is_some_and(|sub_task| sub_task.status == SubTaskStatus::InProgress) {
            return None;
        }
        let done = plan.sub_tasks.iter().filter(|sub_task| sub_task.status == SubTaskStatus::Done);
        let done: BTreeSet<u32> = done.map(|sub_task| sub_task.id).collect();
        let next = plan.sub_tasks.iter_mut().find(|sub_task| {
            sub_task.status == SubTaskStatus::Pending && sub_task.depends_on.iter().all(|id| done.contains(id))
        });
        plan.current_sub_task = next.map(|sub_task| {
            sub_task.status = SubTaskStatus::InProgress;
            sub_task.id
        });
        plan.current_sub_task
    }

    /// Appends an error.
    pub fn add_error(&mut self, error: ErrorRecord) {
        self.error_register.push(error);
    }

    /// Notes what became of the errors of a step that are still open.
    pub fn resolve_error(&mut self, step: u32, summary: &str) {
        let of_step = self.error_register.iter_mut().filter(|error| error.step == step);
        for error in of_step.filter(|error| error.resolution.is_none()) {
            error.resolution = Some(summary.to_owned());
        }
    }

    /// Appends facts.
    pub fn add_key_facts(&mut self, facts: impl IntoIterator<Item = KeyFact>) {
        self.key_facts.extend(facts);
    }

    /// The view that the model is given before a step: all steps with their whole output. `signals` are lines about the
    /// run ([`super::signals::Signals::render`]). Where it would be larger than `max_bytes`, the outputs of the oldest
    /// steps give way to a mark that says how much is left out; if that is not enough, they become one marked line.
    /// Plan, facts, errors and signals are never left out: no view is smaller than the one for 0 bytes.
    pub fn render_view_within(&self, signals: &str, max_bytes: usize) -> String {
        view::render(self, signals, max_bytes)
    }
}
