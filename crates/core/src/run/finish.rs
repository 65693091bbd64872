//! The final answer, given by calling `finish`: a tool that nothing runs, because the run machine
//! acts on it. With it a model can also ask people something, or ask for a new plan.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::plural;
use crate::tool::{ToolError, ToolErrorCategory, ToolSpec, schema_of};

/// The name of the call that ends a run.
pub const FINISH: &str = "finish";

/// Most questions asked at once.
pub const MAX_QUESTIONS: usize = 8;

/// In place of the reason for a new plan, where none is given.
const NO_REASON: &str = "the agent gave no reason";

/// What stands in the conversation as the result of calls that the end of the run overtook.
pub(crate) const RUN_ENDED: &str = "The run ended here.";

/// The structured end of a run, or of a try.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishArgs {
    /// The complete answer to the task, as the person who asked will read it.
    // Who asks people has no answer yet, and must not be sent back for the want of an empty one.
    #[serde(default)]
    #[schemars(required, !default)]
    pub final_summary: String,
    /// Only when the task cannot be done without something that a person alone knows: the questions
    /// to ask. The work goes on once they are answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clarifying_questions: Vec<String>,
    /// Only when the approach has failed for good: true to begin anew with another plan. Say why in
    /// final_summary.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub request_replan: bool,
}

/// What a `finish` call asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Finishing {
    /// The answer to the task.
    Answer(String),
    /// Questions to people.
    Questions(Vec<String>),
    /// A new plan, for the reason given.
    Replan(String),
}

/// What the model is told of `finish`.
pub fn spec() -> ToolSpec {
    ToolSpec {
        name: FINISH.into(),
        description: "Give the final answer and end the work. Call it alone, once everything the task asks for \
                      has been done and you have seen the results."
            .into(),
        parameters: schema_of::<FinishArgs>(),
    }
}

/// Reads the arguments of a `finish` call.
pub fn read(arguments: &str) -> Result<Finishing, ToolError> {
    let wrong = |what: String| {
        ToolError::new(
            ToolErrorCategory::InvalidArguments,
            format!("finish was not accepted: {what}. Call it with {{\"final_summary\": \"<your complete answer>\"}}."),
        )
    };
    let args: FinishArgs = serde_json::from_str(arguments).map_err(|e| wrong(e.to_string()))?;
    let text = args.final_summary.trim();
    let mut questions = args.clarifying_questions;
    questions.retain(|question| !question.trim().is_empty());
    if questions.len() > MAX_QUESTIONS {
        return Err(wrong(format!(
            "it has {}; ask at most {MAX_QUESTIONS}",
            plural(questions.len() as u64, "question")
        )));
    }
    if !questions.is_empty() {
        return Ok(Finishing::Questions(questions));
    }
    if args.request_replan {
        return Ok(Finishing::Replan(if text.is_empty() { NO_REASON } else { text }.to_owned()));
    }
    if text.is_empty() {
        return Err(wrong("final_summary is empty".into()));
    }
    Ok(Finishing::Answer(text.to_owned()))
}
