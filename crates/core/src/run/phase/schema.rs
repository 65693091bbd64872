//! The schemas of a step: one that names all phases, for tool calling by the provider, and one that
//! allows only valid steps, for constrained decoding.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{AGENT_STEP, MAX_FACTS, NewPlan, Phase, StepArgs, SubTaskOutcome, WorkStatus};
use crate::run::structured::thought;
use crate::tool::{ToolSpec, schema_of};

/// What the model is told of `agent_step`, where it calls tools by the provider's protocol. Its
/// schema cannot say which fields go with which phase; [`super::parse`] does.
pub fn spec() -> ToolSpec {
    ToolSpec {
        name: AGENT_STEP.into(),
        description: "Take the next step of your work. Call it alone, once for each step, with the fields of the \
                      step's phase."
            .into(),
        parameters: schema_of::<StepArgs>(),
    }
}

pub(super) fn phase(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "enum": Phase::ALL,
        "description": "plan: lay out sub-tasks, when the task has several goals that build on each other. \
                        reason: think, when the way forward is unclear. \
                        act: call a tool; then verify. \
                        verify: check what the act gave, record key_facts, mark the sub-task. \
                        reflect: after a failure, find out why and choose a different way. \
                        feedback: ask the user for what no tool can find. \
                        end: finish with end_status and end_message.",
    })
}

pub(super) fn sub_task_outcome(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [SubTaskOutcome::Done, SubTaskOutcome::Failed]})
}

pub(super) fn end_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [WorkStatus::Solved, WorkStatus::Partial, WorkStatus::Stuck]})
}

/// The schema of one step in phases: one branch for each phase with exactly its fields, and for act
/// one for each offered tool with its arguments. The thought comes first so that the choice can
/// follow from it.
///
/// Tools named by `without` are left out this once, as in [`crate::run::structured::schema`], and so
/// are phases that could only repeat what the steps taken so far, `history`, have done: a second
/// thought with nothing new to think about, a second plan before the first was tried, a check of
/// nothing. A small model that is told of it in words goes on all the same.
pub fn step_schema(tools: &[ToolSpec], without: &[&str], history: &[Phase]) -> Value {
    let offered = tools.iter().filter(|spec| !without.contains(&spec.name.as_str()));
    let acts = offered.map(|spec| {
        let action = object([("tool_name", json!({"const": spec.name})), ("tool_input", spec.parameters.clone())]);
        step(Phase::Act, true, [("action", action)])
    });
    let text = || json!({"type": "string", "minLength": 1});
    let facts = json!({"type": "array", "items": text(), "maxItems": MAX_FACTS});
    let outcome = json!({"enum": [SubTaskOutcome::Done, SubTaskOutcome::Failed, Value::Null]});
    let status = json!({"enum": [WorkStatus::Solved, WorkStatus::Partial, WorkStatus::Stuck]});
    let mut steps = Vec::new();
    if !history.contains(&Phase::Plan) || since(history, Phase::Plan).contains(&Phase::Act) {
        steps.push(step(Phase::Plan, true, [("plan", schema_of::<NewPlan>())]));
    }
    let thought = matches!(history.last(), Some(Phase::Reason | Phase::Reflect));
    if !thought {
        steps.push(step(Phase::Reason, true, []));
    }
    steps.extend(acts);
    if since(history, Phase::Verify).contains(&Phase::Act) {
        steps.push(step(Phase::Verify, true, [("key_facts", facts), ("sub_task_outcome", outcome)]));
    }
    if !thought && history.contains(&Phase::Act) {
        steps.push(step(Phase::Reflect, true, []));
    }
    steps.extend([
        step(Phase::Feedback, false, [("feedback_message", text())]),
        step(Phase::End, false, [("end_status", status), ("end_message", text())]),
    ]);
    json!({ "oneOf": steps })
}

/// The steps after the last of this phase: all, if there was none.
fn since(history: &[Phase], phase: Phase) -> &[Phase] {
    let after = history.iter().rposition(|taken| *taken == phase).map_or(0, |at| at + 1);
    &history[after..]
}

/// A step of one phase. Where a message says it all, there is no summary beside it.
fn step<const N: usize>(phase: Phase, summary: bool, fields: [(&str, Value); N]) -> Value {
    let head = [("thinking", thought()), ("phase", json!({"const": phase}))];
    let summary = summary.then(|| ("summary", json!({"type": "string", "minLength": 1})));
    object(head.into_iter().chain(summary).chain(fields))
}

/// An object with these fields, all of them and no others, in this order.
fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let properties: Map<_, _> = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let required: Vec<_> = properties.keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
