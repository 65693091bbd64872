//! The OpenAI chat API as JSON: what comes in, what goes out, and errors.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A `POST /v1/chat/completions` body. Fields that are not here are ignored.
#[derive(Debug, Default, Deserialize)]
pub struct ChatRequest {
    pub messages: Vec<Message>,
    #[serde(default)]
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub max_tokens: Option<u32>,
    pub max_completion_tokens: Option<u32>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub seed: Option<i64>,
    pub stop: Option<OneOrMany>,
    pub n: Option<u32>,
    pub response_format: Option<ResponseFormat>,
    pub tools: Option<Vec<Value>>,
    pub functions: Option<Vec<Value>>,
}

/// A `POST /tokenize` body. Fields that are not here are ignored: no token is put in front of a text, and none in it is
/// a control token.
#[derive(Debug, Deserialize)]
pub struct TokenizeRequest {
    pub content: String,
}

#[derive(Debug, Default, Deserialize)]
pub struct Message {
    pub role: String,
    pub content: Option<Content>,
    pub tool_calls: Option<Vec<ToolCall>>,
}

/// A message's content: text, or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// One part of a message; only text can be read here.
#[derive(Debug, Deserialize)]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub text: Option<String>,
}

/// A call that an earlier assistant message made.
#[derive(Debug, Deserialize)]
pub struct ToolCall {
    pub function: FunctionCall,
}

/// The function of a call; `arguments` is JSON, mostly as a string.
#[derive(Debug, Deserialize)]
pub struct FunctionCall {
    pub name: String,
    #[serde(default)]
    pub arguments: Value,
}

#[derive(Debug, Deserialize)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: bool,
}

/// `stop`: one string or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Debug, Deserialize)]
pub struct JsonSchema {
    pub schema: Value,
}

/// How to generate: a request's settings, checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// At most so many tokens; none means as many as fit.
    pub max_tokens: Option<u32>,
    /// 0 takes the likeliest token each time.
    pub temperature: f32,
    pub top_p: f32,
    /// None takes a new one each time.
    pub seed: Option<u32>,
    pub stop: Vec<String>,
    /// The answer is JSON of this schema.
    pub schema: Option<Value>,
}

impl ChatRequest {
    pub fn settings(&self) -> Result<Settings, ApiError> {
        let some = |list: &Option<Vec<Value>>| list.as_ref().is_some_and(|l| !l.is_empty());
        if some(&self.tools) || some(&self.functions) {
            return Err(ApiError::bad(
                "tools_unsupported",
                "this server has no native tool calls: send the choice of tools as a JSON schema in \
                 response_format (type json_schema) instead of tools",
            ));
        }
        if self.messages.is_empty() {
            return Err(ApiError::bad("invalid_value", "messages is empty"));
        }
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::bad("invalid_value", "n must be 1: this server gives one choice"));
        }
        let max_tokens = self.max_completion_tokens.or(self.max_tokens);
        if max_tokens == Some(0) {
            return Err(ApiError::bad("invalid_value", "max_tokens must be at least 1"));
        }
        let temperature = self.temperature.unwrap_or(0.0);
        if !(0.0..=10.0).contains(&temperature) {
            return Err(ApiError::bad("invalid_value", "temperature must be from 0 to 10"));
        }
        let top_p = self.top_p.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&top_p) {
            return Err(ApiError::bad("invalid_value", "top_p must be from 0 to 1"));
        }
        Ok(Settings {
            max_tokens,
            temperature,
            top_p,
            seed: self.seed.map(|seed| seed as u32),
            stop: match &self.stop {
                None => vec![],
                Some(OneOrMany::One(stop)) => vec![stop.clone()],
                Some(OneOrMany::Many(stops)) => stops.clone(),
            },
            schema: match &self.response_format {
                None | Some(ResponseFormat::Text) => None,
                Some(ResponseFormat::JsonObject) => Some(json!({"type": "object"})),
                Some(ResponseFormat::JsonSchema { json_schema }) => Some(json_schema.schema.clone()),
            },
        })
    }

    pub fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with the token counts.
    pub fn streams_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|o| o.include_usage)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done, or wrote a stop string.
    Stop,
    /// `max_tokens` or the context was used up.
    Length,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: usize,
    /// The part of the prompt that was still in memory.
    pub cached: usize,
    pub completion: usize,
}

impl Usage {
    /// As OpenAI writes it.
    pub fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// An error as the client sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: StatusCode,
    kind: &'static str,
    code: &'static str,
    message: String,
    /// The prompt's tokens and the context's, if the one did not fit into the other.
    sizes: Option<(usize, usize)>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            s if s.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        Self { status, kind, code, message: message.into(), sizes: None }
    }

    /// The client's mistake.
    pub fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The server's own failure.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// The server is about to exit.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is shutting down")
    }

    /// The prompt leaves no room for an answer.
    pub fn too_long(prompt_tokens: usize, n_ctx: usize) -> Self {
        let message = format!("the prompt has {prompt_tokens} tokens, but the context holds {n_ctx} with the answer");
        Self { sizes: Some((prompt_tokens, n_ctx)), ..Self::bad("exceed_context_size_error", message) }
    }

    /// The `{"error": …}` body.
    pub fn json(&self) -> Value {
        let mut error = json!({
            "message": self.message, "type": self.kind, "param": null, "code": self.code,
        });
        if let Some((prompt_tokens, n_ctx)) = self.sizes {
            error["n_prompt_tokens"] = prompt_tokens.into();
            error["n_ctx"] = n_ctx.into();
        }
        json!({ "error": error })
    }
}
