//! `finish`: the end of a run. The run machine knows the name and ends the run itself; this is the
//! form of the answer.

use posse_core::tool::{EffectClass, ToolContext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FnTool;

/// The arguments of `finish`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishArgs {
    /// The complete answer to the goal, for the person who asked: results first, then what was done.
    #[schemars(length(min = 1))]
    pub final_summary: String,
}

pub(super) fn tool() -> FnTool {
    FnTool::new(
        "finish",
        "Ends the work and hands in the final answer. Call it once, alone, when the goal is reached \
         or cannot be reached.",
        EffectClass::Pure,
        |_cx: ToolContext, args: FinishArgs| async move { Ok(args.final_summary.into()) },
    )
}
