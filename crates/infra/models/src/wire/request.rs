//! What is sent: exactly what the chat completions API allows, and nothing that is empty.

use posse_core::model::conversation::Rules;
use posse_core::model::{CallRequest, Message, ModelRequest};
use posse_core::tool::ToolSpec;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxTokens {
    /// `max_tokens`: almost every server.
    MaxTokens,
    /// `max_completion_tokens`: OpenAI's own models of the newer kind refuse the other.
    MaxCompletionTokens,
}

/// How a JSON Schema for the answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    /// As `json_schema` with `strict: true`.
    Strict,
    /// As `json_schema` without the word `strict`.
    Schema,
    /// As `json_object`: the server promises JSON and no more.
    Object,
    Nothing,
}

/// What one server takes. Starts from the configuration and learns from refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub max_tokens: Option<MaxTokens>,
    pub temperature: bool,
    pub stream_options: bool,
    pub format: Format,
    /// Whether `tool_choice: "required"` is taken; `"auto"` is sent otherwise.
    pub required_choice: bool,
    pub rules: Rules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Work,
    /// To learn whether the model makes tool calls: it is told to make one.
    Probe,
}

/// The body of `POST /chat/completions`.
#[derive(Debug, Serialize)]
pub(crate) struct Body<'a> {
    model: &'a str,
    messages: Messages,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
}

/// The messages of a body, ready made.
#[derive(Debug)]
pub(crate) struct Messages {
    /// Those that later requests begin with too.
    pub settled: Arc<Vec<Box<RawValue>>>,
    pub rest: Vec<Box<RawValue>>,
}

impl Messages {
    fn iter(&self) -> impl Iterator<Item = &RawValue> {
        self.settled.iter().chain(&self.rest).map(AsRef::as_ref)
    }
}

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[derive(Debug, Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: &'a ToolSpec,
}

impl<'a> Body<'a> {
    /// The body for `request` in the given dialect, with `messages` for its conversation.
    pub fn new(
        model: &'a str,
        request: &'a ModelRequest,
        messages: Messages,
        stream: bool,
        purpose: Purpose,
        dialect: &Dialect,
    ) -> serde_json::Result<Self> {
        let mut tools: Vec<_> =
            request.tools.iter().map(|spec| WireTool { kind: "function", function: spec }).collect();
        // The same tools are the same bytes, whatever order they were registered in: a provider's
        // prompt cache starts with them.
        tools.sort_by(|a, b| a.function.name.cmp(&b.function.name));
        let tools = if tools.is_empty() { None } else { Some(to_raw_value(&tools)?) };
        let response_format = request.schema.as_ref().and_then(|schema| response_format(schema, dialect.format));
        let limit = |field| request.max_tokens.filter(|_| dialect.max_tokens == Some(field));
        Ok(Body {
            model,
            messages,
            tools,
            tool_choice: match (purpose, dialect.required_choice) {
                (Purpose::Work, _) => None,
                (Purpose::Probe, true) => Some("required"),
                (Purpose::Probe, false) => Some("auto"),
            },
            response_format: response_format.as_ref().map(to_raw_value).transpose()?,
            max_tokens: limit(MaxTokens::MaxTokens),
            max_completion_tokens: limit(MaxTokens::MaxCompletionTokens),
            temperature: request.temperature.filter(|_| dialect.temperature),
            stream,
            stream_options: (stream && dialect.stream_options).then(|| json!({"include_usage": true})),
        })
    }

    /// Bytes of all that the model reads.
    pub fn bytes(&self) -> usize {
        let parts = self.messages.iter().chain(self.tools.as_deref()).chain(self.response_format.as_deref());
        parts.map(|part| part.get().len()).sum()
    }
}

fn response_format(schema: &Value, format: Format) -> Option<Value> {
    let named = match format {
        Format::Strict => json!({"name": "step", "strict": true, "schema": schema}),
        Format::Schema => json!({"name": "step", "schema": schema}),
        Format::Object => return Some(json!({"type": "json_object"})),
        Format::Nothing => return None,
    };
    Some(json!({"type": "json_schema", "json_schema": named}))
}

/// A message that has been made legal, as JSON spells it.
pub(crate) fn wire_message(message: &Message) -> Value {
    match message {
        Message::System { text } => json!({"role": "system", "content": text}),
        Message::User { text } => json!({"role": "user", "content": text}),
        Message::Assistant { text, reasoning, calls } => {
            // The content is there even when it is null: several servers ask for the field beside calls.
            let mut said = json!({"role": "assistant", "content": Some(text).filter(|text| !text.is_empty())});
            if let Some(reasoning) = reasoning {
                said["reasoning_content"] = json!(reasoning.text);
            }
            if !calls.is_empty() {
                said["tool_calls"] = calls.iter().map(call).collect();
            }
            said
        }
        Message::Tool { call_id, text, .. } => json!({"role": "tool", "tool_call_id": call_id, "content": text}),
    }
}

fn call(call: &CallRequest) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    let mut made = json!({"id": call.id, "type": "function", "function": function});
    if let Some(extra) = &call.extra {
        made["extra_content"] = extra.value.clone();
    }
    made
}
