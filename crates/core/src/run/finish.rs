//! The final answer, given by calling `finish`: a tool that nothing runs, because the run machine
//! ends the run on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool::{ToolError, ToolErrorCategory, ToolSpec, schema_of};

/// The name of the call that ends a run.
pub const FINISH: &str = "finish";

/// What stands in the conversation as the result of calls that the end of the run overtook.
pub(crate) const RUN_ENDED: &str = "The run ended here.";

/// The final answer of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishArgs {
    /// The complete answer to the task, as the person who asked will read it.
    pub final_summary: String,
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

/// The answer in the arguments of a `finish` call.
pub fn answer(arguments: &str) -> Result<String, ToolError> {
    let wrong = |what: String| {
        ToolError::new(
            ToolErrorCategory::InvalidArguments,
            format!("finish was not accepted: {what}. Call it with {{\"final_summary\": \"<your complete answer>\"}}."),
        )
    };
    let args: FinishArgs = serde_json::from_str(arguments).map_err(|e| wrong(e.to_string()))?;
    let text = args.final_summary.trim();
    if text.is_empty() {
        return Err(wrong("final_summary is empty".into()));
    }
    Ok(text.to_owned())
}
