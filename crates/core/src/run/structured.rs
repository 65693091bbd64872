//! Tool calling without the provider's protocol: the model writes its next step as one JSON object
//! and the server's constrained decoding holds it to the schema.

use serde::Deserialize;
use serde_json::{Value, json};

use super::finish;
use crate::model::CallRequest;
use crate::tool::ToolSpec;

/// Most tokens of one step, unless the persona says otherwise.
pub const MAX_STEP_TOKENS: u32 = 2048;

/// What a step's thought may be. A small model that has nothing more to say repeats its last sentence until something
/// stops it: Qwen2.5-Coder-1.5B wrote 1,200 tokens of one. Held to these many characters, about 200 tokens, it goes on
/// to the call.
pub(super) fn thought() -> Value {
    json!({"type": "string", "maxLength": 800})
}

/// The schema of one step: exactly one of the offered tools, with its arguments, or `finish`. The
/// thought comes first so that the choice can follow from it.
///
/// Tools named by `without` are left out this once: their last calls were one too many of the same,
/// and a model that cannot leave a habit by itself can be made to. So is `finish`, unless nothing else is left.
pub fn schema(tools: &[ToolSpec], without: &[&str]) -> Value {
    let finish = finish::spec();
    let step = |spec: &ToolSpec| {
        json!({
            "type": "object",
            "properties": {
                "thinking": thought(),
                "tool": {"const": spec.name},
                "arguments": spec.parameters,
            },
            "required": ["thinking", "tool", "arguments"],
            "additionalProperties": false,
        })
    };
    let is_offered = |name: &str| !without.contains(&name);
    let mut steps: Vec<_> = tools.iter().filter(|tool| is_offered(&tool.name)).map(step).collect();
    if steps.is_empty() || is_offered(finish::FINISH) {
        steps.push(step(&finish));
    }
    json!({ "oneOf": steps })
}

/// One step as the model writes it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StructuredStep {
    /// Why this step; not shown as an answer.
    #[serde(default)]
    pub thinking: String,
    /// The tool's name.
    pub tool: String,
    /// What the tool is given.
    #[serde(default)]
    pub arguments: Value,
    /// Questions to people that a model wrote beside the call instead of into a call of `finish`.
    #[serde(default)]
    pub clarifying_questions: Vec<String>,
    /// The same of a wish for a new plan.
    #[serde(default)]
    pub request_replan: bool,
}

/// Reads a step, or says what is wrong with the text in words for the model.
pub fn parse(text: &str) -> Result<StructuredStep, String> {
    serde_json::from_str(object_in(text)).map_err(|e| {
        format!(
            "Your reply was not a valid step ({e}). Reply with exactly one JSON object: \
             {{\"thinking\": \"...\", \"tool\": \"<name>\", \"arguments\": {{...}}}}."
        )
    })
}

/// The text without the code fence that servers which do not enforce the schema wrap it in.
pub(crate) fn object_in(text: &str) -> &str {
    let body = text.trim();
    let body = body.strip_prefix("```json").or_else(|| body.strip_prefix("```")).unwrap_or(body);
    body.strip_suffix("```").unwrap_or(body).trim()
}

/// The calls that a step asks for: its own, and the `finish` that stands for what was written beside it.
pub fn calls(step: &StructuredStep) -> Vec<CallRequest> {
    let call = |name: &str, arguments| CallRequest { id: String::new(), name: name.into(), arguments, extra: None };
    let arguments = if step.arguments.is_null() { "{}".into() } else { step.arguments.to_string() };
    let mut calls = vec![call(&step.tool, arguments)];
    if !step.clarifying_questions.is_empty() {
        let asks = json!({"final_summary": "", "clarifying_questions": step.clarifying_questions});
        calls.push(call(finish::FINISH, asks.to_string()));
    } else if step.request_replan {
        let replans = json!({"final_summary": step.thinking, "request_replan": true});
        calls.push(call(finish::FINISH, replans.to_string()));
    }
    calls
}
