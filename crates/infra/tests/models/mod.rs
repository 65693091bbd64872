//! Language models behind OpenAI-compatible endpoints, against servers on loopback.

mod adapting;
mod embedder;
mod failures;
mod fallback;
mod outage;
mod profiles;
mod quirks;
mod rate_limited;
mod replies;
mod requests;
mod retries;
mod shapes;
mod streams;
mod thoughts;
mod tokenizer;
mod too_long;
mod waits;

use crate::support::model_server::{Answer, ModelServer};
use posse_core::model::{CallRequest, Message, Model, ModelError, ModelReply, ModelRequest};
use posse_core::stop::Stop;
use posse_core::tool::ToolSpec;
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, ToolCallingChoice};
use serde_json::{Value, json};
use std::time::Duration;

fn config(server: &ModelServer) -> OpenAiConfig {
    OpenAiConfig {
        tool_calling: ToolCallingChoice::Native,
        idle_timeout: Duration::from_secs(10),
        backoff: Duration::from_millis(1),
        ..OpenAiConfig::new("default", server.base_url(), "mock-1")
    }
}

fn model(config: OpenAiConfig) -> OpenAiModel {
    OpenAiModel::new(config).expect("a usable configuration")
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn says(text: &str) -> Message {
    Message::Assistant { text: text.to_owned(), reasoning: None, calls: Vec::new() }
}

fn tool(name: &str) -> ToolSpec {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ToolSpec { name: name.to_owned(), description: "Reads a file.".to_owned(), parameters }
}

fn request() -> ModelRequest {
    let system = Message::System { text: "Be brief.".to_owned() };
    let messages = vec![system, user("Read both files.")].into();
    ModelRequest { messages, tools: vec![tool("files_read")], ..ModelRequest::default() }
}

async fn ask(model: &OpenAiModel, request: &ModelRequest) -> Result<ModelReply, ModelError> {
    model.complete(request, &|_| {}, &Stop::never()).await
}

/// What comes of one answer: it is not asked for again.
async fn outcome(answer: Answer) -> Result<ModelReply, ModelError> {
    let server = ModelServer::play(vec![answer]).await;
    ask(&model(OpenAiConfig { retries: 0, ..config(&server) }), &request()).await
}

/// The error that an answer with this status comes to.
async fn failure(status: u16, body: impl Into<Vec<u8>>) -> ModelError {
    outcome(Answer::new(status, "application/json", body)).await.expect_err("an error")
}

/// The conversation after `reply` and results for its calls, ids made ours as the core does.
fn followed(request: &ModelRequest, reply: &ModelReply) -> ModelRequest {
    let mut next = request.clone();
    let id = |n: usize| format!("aaaaaaa{n:02}");
    let calls = reply.calls.iter().cloned().enumerate();
    let calls: Vec<_> = calls.map(|(n, call)| CallRequest { id: id(n), ..call }).collect();
    let (text, reasoning) = (reply.text.clone(), reply.reasoning.clone());
    next.messages.push(Message::Assistant { text, reasoning, calls: calls.clone() });
    for CallRequest { id, name, .. } in calls {
        next.messages.push(Message::Tool { call_id: id, name, text: "ok".to_owned() });
    }
    next
}

fn refused(status: u16, message: &str) -> Answer {
    Answer::json(status, json!({"error": {"message": message, "type": "invalid_request_error"}}))
}

/// An event of a stream that says this.
fn piece(delta: Value, finish: Value) -> String {
    event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string())
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn streamed(events: impl Into<Vec<u8>>) -> Answer {
    Answer::new(200, "text/event-stream", events)
}

/// A whole reply that says this.
fn whole(message: Value, finish: Value) -> Answer {
    Answer::json(200, json!({"choices": [{"message": message, "finish_reason": finish}]}))
}

/// The reasoning of a reply, empty where there is none.
fn thoughts(reply: &ModelReply) -> &str {
    reply.reasoning.as_ref().map_or("", |reasoning| &reasoning.text)
}
