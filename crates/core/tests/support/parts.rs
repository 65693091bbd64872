//! What the tests of the run machine make runs of.

use posse_core::model::{CallRequest, Finish, ModelReply, Usage};
use posse_core::run::journal::OfferedTool;
use posse_core::tool::{EffectClass, ToolSpec, Writes};
use serde_json::json;

/// A tool that takes any object.
pub fn tool(name: &str, effect: EffectClass) -> OfferedTool {
    let parameters = json!({"type": "object", "properties": {}});
    OfferedTool {
        spec: ToolSpec { name: name.into(), description: "does it".into(), parameters },
        effect,
        writes: Writes::default(),
        own_words: false,
    }
}

/// A reply of words and calls, of 15 tokens.
pub fn reply(text: &str, calls: Vec<CallRequest>) -> ModelReply {
    ModelReply {
        text: text.into(),
        reasoning: None,
        calls,
        refusal: None,
        finish: Finish::Stop,
        usage: Usage { input: 10, output: 5, ..Usage::default() },
        model: "m".into(),
        cost_microusd: None,
        failed_tries: Vec::new(),
    }
}
