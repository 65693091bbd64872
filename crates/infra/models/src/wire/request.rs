//! What is sent: exactly what the chat completions API allows, and nothing that is empty.

use posse_core::model::conversation::Rules;
use posse_core::model::{CallRequest, Message, ModelRequest};
use posse_core::tool::ToolSpec;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::sync::Arc;

/// Which field limits the tokens generated.
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
    /// Not at all.
    Nothing,
}

/// What one server takes. Starts from the configuration and learns from refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Which field limits the tokens generated, if any is taken.
    pub max_tokens: Option<MaxTokens>,
    /// Whether `temperature` is taken.
    pub temperature: bool,
    /// Whether `stream_options` is taken.
    pub stream_options: bool,
    /// How a schema is sent.
    pub format: Format,
    /// Whether `tool_choice: "required"` is taken; `"auto"` is sent otherwise.
    pub required_choice: bool,
    /// What it takes in a conversation.
    pub rules: Rules,
}

/// Why a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For a job.
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
    /// Those behind them.
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

/// One message of the body.
#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(crate) enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
    },
    Assistant {
        // Present even when null: several servers ask for the field beside calls.
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Debug, Serialize)]
pub(crate) struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Debug, Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: &'a str,
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
    match format {
        Format::Strict => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": "step", "strict": true, "schema": schema},
        })),
        Format::Schema => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": "step", "schema": schema},
        })),
        Format::Object => Some(json!({"type": "json_object"})),
        Format::Nothing => None,
    }
}

impl<'a> WireMessage<'a> {
    /// A message that has been made legal, as JSON spells it.
    pub fn of(message: &'a Message) -> Self {
        match message {
            Message::System { text } => WireMessage::System { content: text },
            Message::User { text } => WireMessage::User { content: text },
            Message::Assistant { text, reasoning, calls } => WireMessage::Assistant {
                content: Some(text.as_str()).filter(|text| !text.is_empty()),
                reasoning_content: reasoning.as_ref().map(|reasoning| reasoning.text.as_str()),
                tool_calls: calls.iter().map(call).collect(),
            },
            Message::Tool { call_id, text, .. } => WireMessage::Tool { tool_call_id: call_id, content: text },
        }
    }
}

fn call(call: &CallRequest) -> WireCall<'_> {
    WireCall {
        id: &call.id,
        kind: "function",
        function: WireFunction { name: &call.name, arguments: &call.arguments },
        extra_content: call.extra.as_ref().map(|extra| &extra.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posse_core::model::conversation::ReasoningBack;
    use posse_core::model::{Author, Extra, Reasoning};

    const OPENAI: Dialect = Dialect {
        max_tokens: Some(MaxTokens::MaxCompletionTokens),
        temperature: true,
        stream_options: true,
        format: Format::Strict,
        required_choice: true,
        rules: Rules {
            user_after_tool: true,
            take_turns: false,
            reasoning: ReasoningBack::Forbidden,
            several_systems: true,
            signed_calls: false,
        },
    };

    fn text(request: &ModelRequest, stream: bool, dialect: &Dialect) -> String {
        let raw = |message| to_raw_value(&WireMessage::of(message)).expect("a message is JSON");
        let messages = Messages { settled: Arc::default(), rest: request.messages.iter().map(raw).collect() };
        let body = Body::new("m", request, messages, stream, Purpose::Work, dialect).expect("parts are JSON");
        serde_json::to_string(&body).expect("a body is JSON")
    }

    fn sent(request: &ModelRequest, stream: bool, dialect: &Dialect) -> Value {
        serde_json::from_str(&text(request, stream, dialect)).expect("JSON")
    }

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: "d".to_owned(), parameters: json!({"type": "object"}) }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    #[test]
    fn the_least_request_holds_the_least_fields() {
        let request = ModelRequest { messages: vec![user("hi")].into(), ..ModelRequest::default() };
        assert_eq!(
            sent(&request, false, &OPENAI),
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": false})
        );
    }

    #[test]
    fn every_field_at_once() {
        let request = ModelRequest {
            messages: vec![user("hi")].into(),
            tools: vec![tool("b"), tool("a")],
            schema: Some(json!({"type": "object"})),
            max_tokens: Some(64),
            temperature: Some(0.7),
            ..ModelRequest::default()
        };
        let body = sent(&request, true, &OPENAI);
        assert_eq!(body["tools"][0]["function"]["name"], "a");
        assert_eq!(body["tools"][1]["type"], "function");
        assert_eq!(body["response_format"]["json_schema"]["name"], "step");
        assert_eq!(body["response_format"]["json_schema"]["strict"], true);
        assert_eq!(body["max_completion_tokens"], 64);
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        assert!(body.get("max_tokens").is_none() && body.get("tool_choice").is_none());
        let text = text(&request, true, &OPENAI);
        assert!(text.contains("\"temperature\":0.7,"), "{text}");
    }

    #[test]
    fn a_poor_dialect_leaves_out_what_it_must() {
        let request = ModelRequest {
            messages: vec![user("hi")].into(),
            schema: Some(json!({})),
            max_tokens: Some(64),
            temperature: Some(0.0),
            ..ModelRequest::default()
        };
        let poor = Dialect {
            max_tokens: Some(MaxTokens::MaxTokens),
            temperature: false,
            stream_options: false,
            format: Format::Object,
            ..OPENAI
        };
        assert_eq!(
            sent(&request, true, &poor),
            json!({
                "model": "m",
                "messages": [{"role": "user", "content": "hi"}],
                "response_format": {"type": "json_object"},
                "max_tokens": 64,
                "stream": true,
            })
        );
    }

    #[test]
    fn a_turn_with_calls() {
        let call = |id: &str, extra| CallRequest {
            id: id.to_owned(),
            name: "read_file".to_owned(),
            arguments: "{\"path\":1}".to_owned(),
            extra,
        };
        let extra = Extra { value: json!({"g": {"s": "x"}}), provider: "p".to_owned() };
        let by = Author { provider: "p".to_owned(), model: "m".to_owned() };
        let request = ModelRequest {
            messages: vec![
                Message::System { text: "s".to_owned() },
                Message::Assistant {
                    text: String::new(),
                    reasoning: Some(Reasoning { text: "because".to_owned(), by }),
                    calls: vec![call("aaaaaaaa1", Some(extra)), call("aaaaaaaa2", None)],
                },
                Message::Tool { call_id: "aaaaaaaa1".to_owned(), name: "read_file".to_owned(), text: "r".to_owned() },
            ]
            .into(),
            ..ModelRequest::default()
        };
        let wanted = json!([
            {"role": "system", "content": "s"},
            {"role": "assistant", "content": null, "reasoning_content": "because", "tool_calls": [
                {"id": "aaaaaaaa1", "type": "function",
                 "function": {"name": "read_file", "arguments": "{\"path\":1}"},
                 "extra_content": {"g": {"s": "x"}}},
                {"id": "aaaaaaaa2", "type": "function",
                 "function": {"name": "read_file", "arguments": "{\"path\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "r"},
        ]);
        assert_eq!(sent(&request, false, &OPENAI)["messages"], wanted);
    }
}
