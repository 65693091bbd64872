//! What is sent: exactly what the chat completions API allows, and nothing that is empty.

use posse_core::model::{CallRequest, Message, ModelRequest};
use posse_core::tool::ToolSpec;
use serde::Serialize;
use serde_json::{Value, json};

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
pub(in crate::model) enum Format {
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
pub(in crate::model) struct Dialect {
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
    /// Whether an assistant's reasoning is sent back, as `reasoning_content`.
    pub reasoning: bool,
}

/// Why a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Purpose {
    /// For a job.
    Work,
    /// To learn whether the model makes tool calls: it is told to make one.
    Probe,
}

/// The body of `POST /chat/completions`.
#[derive(Debug, Serialize)]
pub(in crate::model) struct Body<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
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

#[derive(Debug, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
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
struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: WireFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Debug, Serialize)]
struct WireFunction<'a> {
    name: String,
    arguments: std::borrow::Cow<'a, str>,
}

#[derive(Debug, Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: &'a ToolSpec,
}

impl<'a> Body<'a> {
    /// The body for `request` in the given dialect.
    pub fn new(model: &'a str, request: &'a ModelRequest, stream: bool, purpose: Purpose, dialect: &Dialect) -> Self {
        let mut tools: Vec<_> =
            request.tools.iter().map(|spec| WireTool { kind: "function", function: spec }).collect();
        // The same tools are the same bytes, whatever order they were registered in: a provider's
        // prompt cache starts with them.
        tools.sort_by(|a, b| a.function.name.cmp(&b.function.name));
        let limit = |field| request.max_tokens.filter(|_| dialect.max_tokens == Some(field));
        Body {
            model,
            messages: request.messages.iter().filter_map(|m| message(m, dialect)).collect(),
            tools,
            tool_choice: match (purpose, dialect.required_choice) {
                (Purpose::Work, _) => None,
                (Purpose::Probe, true) => Some("required"),
                (Purpose::Probe, false) => Some("auto"),
            },
            response_format: request.schema.as_ref().and_then(|s| response_format(s, dialect.format)),
            max_tokens: limit(MaxTokens::MaxTokens),
            max_completion_tokens: limit(MaxTokens::MaxCompletionTokens),
            temperature: request.temperature.filter(|_| dialect.temperature),
            stream,
            stream_options: (stream && dialect.stream_options).then(|| json!({"include_usage": true})),
        }
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

/// `None` for a message with nothing in it: providers refuse the whole request over one.
fn message<'a>(message: &'a Message, dialect: &Dialect) -> Option<WireMessage<'a>> {
    let filled = |text: &'a str| (!text.trim().is_empty()).then_some(text);
    Some(match message {
        Message::System { text } => WireMessage::System { content: filled(text)? },
        Message::User { text } => WireMessage::User { content: filled(text)? },
        Message::Assistant { text, reasoning, calls } => {
            let content = filled(text);
            if content.is_none() && calls.is_empty() {
                return None;
            }
            WireMessage::Assistant {
                content,
                reasoning_content: reasoning.as_deref().filter(|reasoning| dialect.reasoning && !reasoning.is_empty()),
                tool_calls: calls.iter().map(call).collect(),
            }
        }
        // A result cannot be left out: its call would have none.
        Message::Tool { call_id, text, .. } => {
            WireMessage::Tool { tool_call_id: call_id, content: filled(text).unwrap_or("(no output)") }
        }
    })
}

fn call(call: &CallRequest) -> WireCall<'_> {
    WireCall {
        id: &call.id,
        kind: "function",
        function: WireFunction { name: sendable_name(&call.name), arguments: sendable_arguments(&call.arguments) },
        extra_content: call.extra.as_ref(),
    }
}

/// A name the model made up may hold anything; providers check it when it comes back.
fn sendable_name(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(64).map(allowed).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Servers that render a chat template parse old arguments and fail on what is not an object. The
/// model still sees what it wrote; what was wrong with it is in the result.
fn sendable_arguments(arguments: &str) -> std::borrow::Cow<'_, str> {
    if arguments.trim().is_empty() {
        return "{}".into();
    }
    match serde_json::from_str::<serde_json::Map<String, Value>>(arguments) {
        Ok(_) => arguments.into(),
        Err(_) => json!({"not_a_json_object": arguments}).to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENAI: Dialect = Dialect {
        max_tokens: Some(MaxTokens::MaxCompletionTokens),
        temperature: true,
        stream_options: true,
        format: Format::Strict,
        required_choice: true,
        reasoning: false,
    };

    fn sent(request: &ModelRequest, stream: bool, dialect: &Dialect) -> Value {
        serde_json::to_value(Body::new("m", request, stream, Purpose::Work, dialect)).expect("a body is JSON")
    }

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: "d".to_owned(), parameters: json!({"type": "object"}) }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.to_owned() }
    }

    #[test]
    fn the_least_request_holds_the_least_fields() {
        let request = ModelRequest { messages: vec![user("hi")], ..ModelRequest::default() };
        assert_eq!(
            sent(&request, false, &OPENAI),
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": false})
        );
    }

    #[test]
    fn every_field_at_once() {
        let request = ModelRequest {
            messages: vec![user("hi")],
            tools: vec![tool("b"), tool("a")],
            schema: Some(json!({"type": "object"})),
            max_tokens: Some(64),
            temperature: Some(0.7),
        };
        let body = sent(&request, true, &OPENAI);
        assert_eq!(body["tools"][0]["function"]["name"], "a");
        assert_eq!(body["tools"][1]["type"], "function");
        assert_eq!(body["response_format"]["json_schema"]["name"], "step");
        assert_eq!(body["response_format"]["json_schema"]["strict"], true);
        assert_eq!(body["max_completion_tokens"], 64);
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        assert!(body.get("max_tokens").is_none() && body.get("tool_choice").is_none());
        let text =
            serde_json::to_string(&Body::new("m", &request, true, Purpose::Work, &OPENAI)).expect("a body is JSON");
        assert!(text.contains("\"temperature\":0.7,"), "{text}");
    }

    #[test]
    fn a_poor_dialect_leaves_out_what_it_must() {
        let request = ModelRequest {
            messages: vec![user("hi")],
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
        let call = |id: &str, name: &str, arguments: &str, extra| CallRequest {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            extra,
        };
        let request = ModelRequest {
            messages: vec![
                Message::System { text: "s".to_owned() },
                user("  "),
                Message::Assistant {
                    text: String::new(),
                    reasoning: Some("because".to_owned()),
                    calls: vec![
                        call("aaaaaaaa1", "files_read", "{\"path\":1}", Some(json!({"g": {"s": "x"}}))),
                        call("aaaaaaaa2", "functions.größe", "{\"path\":\"cu", None),
                        call("aaaaaaaa3", "now", "", None),
                    ],
                },
                Message::Tool { call_id: "aaaaaaaa1".to_owned(), name: "files_read".to_owned(), text: String::new() },
                Message::Assistant { text: String::new(), reasoning: Some("only thought".to_owned()), calls: vec![] },
            ],
            ..ModelRequest::default()
        };
        let wanted = json!([
            {"role": "system", "content": "s"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "aaaaaaaa1", "type": "function",
                 "function": {"name": "files_read", "arguments": "{\"path\":1}"},
                 "extra_content": {"g": {"s": "x"}}},
                {"id": "aaaaaaaa2", "type": "function",
                 "function": {"name": "functions_gr__e",
                              "arguments": "{\"not_a_json_object\":\"{\\\"path\\\":\\\"cu\"}"}},
                {"id": "aaaaaaaa3", "type": "function",
                 "function": {"name": "now", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "(no output)"},
        ]);
        assert_eq!(sent(&request, false, &OPENAI)["messages"], wanted);

        let thinking = sent(&request, false, &Dialect { reasoning: true, ..OPENAI });
        assert_eq!(thinking["messages"][1]["reasoning_content"], "because");
    }
}
