//! Steps that name their phase: the call `agent_step`, what each phase must bring along, and what
//! the agent is answered.

use crate::text::{has_too_many, named};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::structured;
use crate::model::CallRequest;

pub mod guide;
mod plan;
mod schema;

pub use plan::{MAX_SUB_TASKS, NewPlan, NewSubTask};
pub use schema::{spec, step_schema};

/// The name of the call that a step is.
pub const AGENT_STEP: &str = "agent_step";

/// Facts recorded in one step.
pub const MAX_FACTS: usize = 20;

/// Bytes of a plan's goal, a sub-task's title, or a fact.
pub const MAX_LINE_BYTES: usize = 1_000;

/// Bytes of a step's summary.
pub const MAX_SUMMARY_BYTES: usize = 4_000;

/// What kind of step it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Lay out sub-tasks.
    Plan,
    /// Think, where the way is not clear.
    Reason,
    /// Call a tool.
    Act,
    /// Check what an act gave.
    Verify,
    /// Understand a failure and choose another way.
    Reflect,
    /// Ask the user.
    Feedback,
    /// End the work.
    End,
}

named!(
    Phase: Plan = "plan", Reason = "reason", Act = "act", Verify = "verify", Reflect = "reflect",
        Feedback = "feedback", End = "end"
);

/// The call to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// The name of the tool.
    #[schemars(length(min = 1))]
    pub tool_name: String,
    /// Its arguments, as its schema asks for them.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>", !default)]
    pub tool_input: Value,
}

/// How the agent judges the sub-task it worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubTaskOutcome {
    /// It is done.
    Done,
    /// It has failed.
    Failed,
}

/// How the agent judges its work at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkStatus {
    /// All goals are achieved.
    Solved,
    /// Some are.
    Partial,
    /// No further progress is possible.
    Stuck,
}

named!(WorkStatus: Solved = "solved", Partial = "partial", Stuck = "stuck");

/// A step that is fit to be taken.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStep {
    /// The agent's reasoning.
    pub thinking: String,
    /// The step in a sentence. May be empty where there is a message.
    pub summary: String,
    /// Its phase, with what that brings along.
    pub content: Content,
}

/// What a step of each phase brings along.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A plan that can be carried out.
    Plan(NewPlan),
    /// Nothing.
    Reason,
    /// The call to make.
    Act(Action),
    /// What was learned, and how the current sub-task stands.
    Verify {
        /// Facts worth keeping.
        key_facts: Vec<String>,
        /// Whether the current sub-task is done or failed, if it is either.
        sub_task_outcome: Option<SubTaskOutcome>,
    },
    /// Nothing.
    Reflect,
    /// A question to the user.
    Feedback {
        /// The question, as the user will read it.
        message: String,
    },
    /// The answer, and how far it goes.
    End {
        /// How far the work came.
        status: WorkStatus,
        /// The answer, as the user will read it.
        message: String,
    },
}

impl AgentStep {
    /// What kind of step it is.
    pub fn phase(&self) -> Phase {
        match self.content {
            Content::Plan(_) => Phase::Plan,
            Content::Reason => Phase::Reason,
            Content::Act(_) => Phase::Act,
            Content::Verify { .. } => Phase::Verify,
            Content::Reflect => Phase::Reflect,
            Content::Feedback { .. } => Phase::Feedback,
            Content::End { .. } => Phase::End,
        }
    }
}

// The arguments of `agent_step` as they arrive: every field of every phase. What follows is read by
// the model, as descriptions in the schema.
/// A step of your work: its phase, and the fields of that phase.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StepArgs {
    #[schemars(schema_with = "schema::phase")]
    phase: Phase,
    /// Why this step, and what it builds on.
    #[serde(default)]
    #[schemars(!default)]
    thinking: String,
    /// The step in one sentence. It stands in your working memory from now on.
    #[serde(default)]
    #[schemars(!default)]
    summary: String,
    /// Required in phase act: the call to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Action")]
    action: Option<Action>,
    /// Required in phase plan: the plan for this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NewPlan")]
    plan: Option<NewPlan>,
    /// Optional, in phase verify: facts learned from the last act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", length(max = MAX_FACTS))]
    key_facts: Option<Vec<String>>,
    /// Optional, in phase verify: whether the current sub-task is done or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::sub_task_outcome")]
    sub_task_outcome: Option<SubTaskOutcome>,
    /// Required in phase feedback: the question to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    feedback_message: Option<String>,
    /// Required in phase end: solved, partial or stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::end_status")]
    end_status: Option<WorkStatus>,
    /// Required in phase end: the complete answer, as the user will read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    end_message: Option<String>,
}

/// The call inside a step of phase `act`, under the id of the step.
pub(crate) fn action(request: &CallRequest) -> Option<CallRequest> {
    if request.name != AGENT_STEP {
        return None;
    }
    let Content::Act(action) = parse(&request.arguments).ok()?.content else { return None };
    let (name, arguments) = (action.tool_name, action.tool_input.to_string());
    Some(CallRequest { name, arguments, ..request.clone() })
}

/// Reads the arguments of `agent_step`, or a step written as text, or says what is wrong with them
/// in words for the model. Nothing of a step that is wrong is done.
///
/// A field of another phase is an error where the agent would take for done what was not (a call in
/// a verify, an answer in an act); an empty one, or a bare status, is passed over, because some
/// models fill in every field they are shown.
pub fn parse(arguments: &str) -> Result<AgentStep, String> {
    let mut args: StepArgs = serde_json::from_str(structured::object_in(arguments)).map_err(|e| {
        format!(
            "agent_step was not accepted: {e}. Give one JSON object: {{\"phase\": \"<one of {}>\", \
             \"thinking\": \"...\", \"summary\": \"...\"}}, and the fields of that phase.",
            Phase::ALL.map(Phase::as_str).join(", ")
        )
    })?;
    args.drop_empty();
    args.check_misplaced()?;
    let phase = args.phase.as_str();
    let content = match args.phase {
        Phase::Plan => {
            let plan = args.plan.ok_or(
                "plan phase requires a plan object: {\"goal\": \"...\", \"sub_tasks\": [{\"id\": 1, \"title\": \"...\"}, \
                 {\"id\": 2, \"title\": \"...\", \"depends_on\": [1]}]}",
            )?;
            plan.check()?;
            Content::Plan(plan)
        }
        Phase::Reason => Content::Reason,
        Phase::Act => {
            let action = args.action.ok_or(
                "act phase requires an action object: {\"tool_name\": \"<name of a tool>\", \"tool_input\": {...}}",
            )?;
            Content::Act(with_object_input(action)?)
        }
        Phase::Verify => {
            let key_facts = args.key_facts.unwrap_or_default();
            check_facts(&key_facts)?;
            Content::Verify { key_facts, sub_task_outcome: args.sub_task_outcome }
        }
        Phase::Reflect => Content::Reflect,
        Phase::Feedback => Content::Feedback {
            message: args
                .feedback_message
                .ok_or("feedback phase requires feedback_message: the question to the user")?,
        },
        Phase::End => Content::End {
            status: args.end_status.ok_or("end phase requires end_status: \"solved\", \"partial\" or \"stuck\"")?,
            message: args
                .end_message
                .ok_or("end phase requires end_message: the complete answer, as the user will read it")?,
        },
    };
    let speaks_for_itself = matches!(content, Content::Feedback { .. } | Content::End { .. });
    if args.summary.trim().is_empty() && !speaks_for_itself {
        return Err(format!("{phase} phase requires a summary: this step in one sentence"));
    }
    check_size("summary", &args.summary, MAX_SUMMARY_BYTES)?;
    Ok(AgentStep { thinking: args.thinking, summary: args.summary, content })
}

impl StepArgs {
    fn drop_empty(&mut self) {
        let blank = |text: &String| text.trim().is_empty();
        self.action.take_if(|action| blank(&action.tool_name));
        self.plan.take_if(|plan| blank(&plan.goal) && plan.sub_tasks.is_empty());
        self.key_facts.take_if(|facts| facts.is_empty());
        self.feedback_message.take_if(|text| blank(text));
        self.end_message.take_if(|text| blank(text));
    }

    fn check_misplaced(&self) -> Result<(), String> {
        let fields = [
            ("action", Phase::Act, self.action.is_some()),
            ("plan", Phase::Plan, self.plan.is_some()),
            ("key_facts", Phase::Verify, self.key_facts.is_some()),
            ("feedback_message", Phase::Feedback, self.feedback_message.is_some()),
            ("end_message", Phase::End, self.end_message.is_some()),
        ];
        match fields.iter().find(|(_, owner, given)| *given && *owner != self.phase) {
            None => Ok(()),
            Some((field, owner, _)) => Err(format!(
                "{field} belongs to phase {owner}, and this step is of phase {phase}, so nothing of it was done. \
                 Leave {field} out here, or take a step of phase {owner}: one phase at a time.",
                owner = owner.as_str(),
                phase = self.phase.as_str(),
            )),
        }
    }
}

/// The action with an object for its input: none is empty, and an object written as text is read.
fn with_object_input(mut action: Action) -> Result<Action, String> {
    if let Value::String(text) = &action.tool_input
        && let Ok(inner @ Value::Object(_)) = serde_json::from_str(text)
    {
        action.tool_input = inner;
    }
    match action.tool_input {
        Value::Null => action.tool_input = json!({}),
        Value::Object(_) => {}
        _ => {
            return Err(format!(
                "action.tool_input must be an object with the arguments of {}: {{\"<argument>\": ...}}",
                action.tool_name
            ));
        }
    }
    Ok(action)
}

fn check_size(field: &str, text: &str, max: usize) -> Result<(), String> {
    match text.len() {
        size if size > max => Err(format!("{field} {}: shorten it", has_too_many(size, "byte", max))),
        _ => Ok(()),
    }
}

fn check_facts(facts: &[String]) -> Result<(), String> {
    if facts.len() > MAX_FACTS {
        return Err(format!(
            "key_facts {} in one step: keep those that matter",
            has_too_many(facts.len(), "fact", MAX_FACTS)
        ));
    }
    for (at, fact) in facts.iter().enumerate() {
        if fact.trim().is_empty() {
            return Err(format!("key_facts[{at}] is empty: leave it out"));
        }
        check_size(&format!("key_facts[{at}]"), fact, MAX_LINE_BYTES)?;
    }
    Ok(())
}

/// What the agent is answered to a step with this `number`; a plan becomes the one of `plan_version`.
/// None where something else is the answer: the tool's result to an act, the user's words to a
/// question; and nothing follows an end.
pub fn acknowledge(number: u32, step: &AgentStep, plan_version: u32) -> Option<String> {
    let answer = match &step.content {
        Content::Plan(plan) => json!({
            "acknowledged": true,
            "plan_version": plan_version,
            "sub_tasks": plan.sub_tasks.len(),
        }),
        Content::Reason => json!({"acknowledged": true, "step": number}),
        Content::Verify { key_facts, sub_task_outcome } => json!({
            "acknowledged": true,
            "facts_recorded": key_facts.len(),
            "sub_task_outcome": sub_task_outcome,
        }),
        Content::Reflect => json!({"acknowledged": true}),
        Content::Act(_) | Content::Feedback { .. } | Content::End { .. } => return None,
    };
    Some(answer.to_string())
}
