//! Finding out how a model is asked for tools, and how large its window is.

use posse_core::model::{Message, ModelError, ModelErrorKind, ModelProfile, ModelRequest, ToolCalling};
use posse_core::stop::Stop;
use posse_core::tool::ToolSpec;
use serde_json::{Map, Value, json};

use super::{OpenAiModel, ToolCallingChoice};
use crate::transport::ApiCall;
use crate::wire::{Purpose, lenient};

const PROBE_TOOL: &str = "report_ready";

/// Enough for a small call, and for the thoughts of a model that thinks before it.
const PROBE_TOKENS: u32 = 512;

/// Largest list of models that is read.
const MAX_LIST: usize = 8 << 20;

impl OpenAiModel {
    /// The profile, from the cheapest source that knows: the configuration, the host's name, the
    /// list of models, and last one small request.
    pub(super) async fn find_profile(&self) -> Result<ModelProfile, ModelError> {
        let chosen = match self.config.tool_calling {
            ToolCallingChoice::Native => Some(ToolCalling::Native),
            ToolCallingChoice::Structured => Some(ToolCalling::Structured),
            ToolCallingChoice::Auto => self.config.known_calling(),
        };
        let mut window = self.config.context_window;
        let mut listed = None;
        if (chosen.is_none() || window.is_none()) && self.config.lists_windows() {
            let entry = self.listed().await;
            window = window.or_else(|| window_of(&entry));
            // How the server says its model is asked for tools: a word of our own.
            listed = serde_json::from_value(entry["posse"]["tool_calling"].clone()).ok();
        }
        let tool_calling = match chosen.or(listed) {
            Some(known) => known,
            None => self.probe().await?,
        };
        Ok(ModelProfile {
            name: self.config.name.clone(),
            model: self.config.model.clone(),
            tool_calling,
            context_window: window,
        })
    }

    /// What the server's list says of the model; null where it says nothing. Nothing depends on it.
    async fn listed(&self) -> Value {
        let Ok(mut reply) = self.transport.send(ApiCall::Models).await else { return Value::Null };
        let body = reply.body(MAX_LIST).await.unwrap_or_else(|(_, partial)| partial);
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut entries = ["data", "models"].into_iter().flat_map(|key| lenient::list(&list[key]));
        entries
            .find(|entry| lenient::word(&entry["id"]).as_ref() == Some(&self.config.model))
            .cloned()
            .unwrap_or_default()
    }

    /// Asks the model for one call and looks whether one comes. That the endpoint cannot be asked
    /// at all is an error, and is not taken for an answer.
    async fn probe(&self) -> Result<ToolCalling, ModelError> {
        let request = ModelRequest {
            messages: vec![Message::User {
                text: format!("Call the tool {PROBE_TOOL} with ready set to true. Do nothing else."),
            }]
            .into(),
            tools: vec![ToolSpec {
                name: PROBE_TOOL.to_owned(),
                description: "Reports that you are ready.".to_owned(),
                parameters: json!({
                    "type": "object",
                    "properties": {"ready": {"type": "boolean"}},
                    "required": ["ready"],
                    "additionalProperties": false,
                }),
            }],
            max_tokens: Some(PROBE_TOKENS),
            ..ModelRequest::default()
        };
        let answer = self.ask(&request, Purpose::Probe, &|_| {}, &Stop::never()).await;
        let native = match answer {
            Ok(reply) => reply.calls.iter().any(|call| {
                call.name == PROBE_TOOL && serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok()
            }),
            Err(error) => match error.kind {
                // The server knows no tools, or cannot make a call of what its model writes.
                ModelErrorKind::Rejected | ModelErrorKind::InvalidToolCall => false,
                _ => return Err(error),
            },
        };
        let found = if native { ToolCalling::Native } else { ToolCalling::Structured };
        tracing::info!(model = %self.config.model, ?found, "asked the model once for a tool call");
        Ok(found)
    }
}

/// The window in tokens, under any of the names servers give it. `meta.n_ctx_train` is not among them: llama.cpp usually
/// serves less than a model was trained for.
fn window_of(entry: &Value) -> Option<u32> {
    const NAMES: [&str; 4] = ["context_window", "context_length", "max_model_len", "max_context_length"];
    let named = NAMES.iter().filter_map(|name| lenient::count(&entry[*name]));
    let tokens = named.chain(entry["meta"]["n_ctx"].as_u64()).find(|tokens| *tokens > 0)?;
    u32::try_from(tokens).ok()
}
