//! What a server tells of its models. All of it is optional, and most servers tell little.

use posse_core::model::ToolCalling;
use serde::Deserialize;
use serde_json::Value;

use super::lenient;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Models {
    #[serde(alias = "models", deserialize_with = "lenient::list")]
    data: Vec<ModelEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ModelEntry {
    #[serde(deserialize_with = "lenient::word")]
    id: Option<String>,
    #[serde(deserialize_with = "lenient::count")]
    context_window: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    context_length: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    max_model_len: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    max_context_length: Option<u64>,
    meta: Value,
    posse: Value,
}

impl Models {
    pub fn entry(&self, model: &str) -> Option<&ModelEntry> {
        self.data.iter().find(|entry| entry.id.as_deref() == Some(model))
    }
}

impl ModelEntry {
    /// The window in tokens, under any of the names servers give it. `meta.n_ctx_train` is not
    /// among them: llama.cpp usually serves less than a model was trained for.
    pub fn window(&self) -> Option<u32> {
        [self.context_window, self.context_length, self.max_model_len, self.max_context_length]
            .into_iter()
            .flatten()
            .chain(self.meta.get("n_ctx").and_then(Value::as_u64))
            .find(|tokens| *tokens > 0)
            .and_then(|tokens| u32::try_from(tokens).ok())
    }

    /// How the server says its model is asked for tools: a word of our own, `posse.tool_calling`.
    pub fn tool_calling(&self) -> Option<ToolCalling> {
        serde_json::from_value(self.posse.get("tool_calling")?.clone()).ok()
    }
}
