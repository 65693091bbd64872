//! The HTTP side: routes, the token check, and answers whole or as a stream.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt as _, stream};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use tokio::sync::mpsc;

use crate::engine::{Engine, Event, Job};
use crate::prompt;
use crate::wire::{ApiError, ChatRequest, Finish, TokenizeRequest, Usage};

/// Far more than any context holds.
const LARGEST_BODY: usize = 8 << 20;

pub struct Server {
    pub engine: Engine,
    pub model: String,
    pub token: Option<String>,
    pub activity: Arc<Activity>,
}

pub fn router(server: Server) -> Router {
    let server = Arc::new(server);
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        .route("/tokenize", post(tokenize))
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "not_found", "no such path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not with this method")
        })
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), admit))
        // After the layers: health needs no token, and asking for it keeps no idle server alive.
        .route("/health", get(async || json_response(StatusCode::OK, &json!({"status": "ok"}))))
        .with_state(server)
}

async fn admit(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    // A page in a browser can reach loopback under a name of its own; it has no business here.
    if !is_loopback(request.headers()) {
        return ApiError::new(StatusCode::FORBIDDEN, "forbidden_host", "the Host header must name loopback")
            .into_response();
    }
    if let Some(token) = &server.token
        && !has_token(request.headers(), token)
    {
        return ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "a valid bearer token is needed")
            .into_response();
    }
    next.run(request).await
}

fn is_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let host = host.to_str().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
    matches!(name, "127.0.0.1" | "localhost")
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).map_or(&b""[..], |v| v.as_bytes());
    let (scheme, given) = given.split_at(given.len().min("Bearer ".len()));
    scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(given.ct_eq(token.as_bytes()))
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    let _busy = server.activity.begin();
    json_response(
        StatusCode::OK,
        &json!({
            "object": "list",
            "data": [{
                "id": server.model,
                "object": "model",
                "created": unix_time(),
                "owned_by": "posse-local",
                "context_window": server.engine.n_ctx,
                // How to make this model use tools: a response_format that describes the call.
                "posse": { "tool_calling": "structured" },
            }],
        }),
    )
}

/// As llama.cpp's own server has it, with the number of tokens besides.
async fn tokenize(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let _busy = server.activity.begin();
    let request: TokenizeRequest = read(body, "a request for tokens")?;
    let tokenizer = Arc::clone(&server.engine.tokenizer);
    // A long text takes its time, and this thread has others to serve.
    let tokens = tokio::task::spawn_blocking(move || tokenizer.text(&request.content)).await;
    let tokens = tokens.map_err(|_| ApiError::internal("the text could not be counted"))?;
    Ok(json_response(StatusCode::OK, &json!({"count": tokens.len(), "tokens": tokens})))
}

fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>, what: &str) -> Result<T, ApiError> {
    let body = body.map_err(|e| match e.status() {
        too_large @ StatusCode::PAYLOAD_TOO_LARGE => {
            let limit = LARGEST_BODY >> 20;
            ApiError::new(
                too_large,
                "invalid_body",
                format!("the body is over {limit} MiB; send {what} that is smaller"),
            )
        }
        status => ApiError::new(status, "invalid_body", e.body_text()),
    })?;
    serde_json::from_slice(&body).map_err(|e| ApiError::bad("invalid_json", format!("the body is not {what}: {e}")))
}

async fn chat(State(server): State<Arc<Server>>, body: Result<Bytes, BytesRejection>) -> Result<Response, ApiError> {
    let busy = server.activity.begin();
    let request: ChatRequest = read(body, "a chat completion request")?;
    let (sender, mut events) = mpsc::unbounded_channel();
    server.engine.submit(Job {
        settings: request.settings()?,
        turns: prompt::turns(&request.messages)?,
        events: sender,
    })?;
    let reply = Reply::new(server.model.clone());
    // Until it starts, a job can still be refused with a status of its own.
    match events.recv().await {
        Some(Event::Failed(error)) => return Err(error),
        None => return Err(ApiError::stopping()),
        Some(_) => {}
    }
    if request.streams() {
        return Ok(streamed(reply, events, request.streams_usage(), busy));
    }
    let mut text = String::new();
    while let Some(event) = events.recv().await {
        match event {
            Event::Started => {}
            Event::Text(more) => text.push_str(&more),
            Event::Done(finish, usage) => return Ok(json_response(StatusCode::OK, &reply.whole(&text, finish, usage))),
            Event::Failed(error) => return Err(error),
        }
    }
    Err(ApiError::internal("the model's thread ended"))
}

fn streamed(reply: Reply, events: mpsc::UnboundedReceiver<Event>, with_usage: bool, busy: Busy) -> Response {
    let first = stream::iter([reply.chunk(json!({"role": "assistant", "content": ""}), None).to_string()]);
    let rest = frames(reply, events, with_usage, busy);
    let frames = first.chain(rest).map(|data| Ok::<_, Infallible>(sse::Event::default().data(data)));
    // Reading a long prompt takes minutes on a small machine; silence would look like a dead connection.
    Sse::new(frames).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))).into_response()
}

/// What follows the first chunk. It owns the receiver, so that dropping the stream ends the job.
fn frames(
    reply: Reply,
    events: mpsc::UnboundedReceiver<Event>,
    with_usage: bool,
    busy: Busy,
) -> impl Stream<Item = String> {
    stream::unfold((events, busy), async |(mut events, busy)| Some((events.recv().await?, (events, busy)))).flat_map(
        move |event| {
            stream::iter(match event {
                Event::Started => vec![],
                Event::Text(text) => vec![reply.chunk(json!({"content": text}), None).to_string()],
                Event::Failed(error) => vec![error.json().to_string()],
                Event::Done(finish, usage) => {
                    let mut last = vec![reply.chunk(json!({}), Some(finish)).to_string()];
                    last.extend(with_usage.then(|| reply.usage(usage).to_string()));
                    last.push("[DONE]".into());
                    last
                }
            })
        },
    )
}

/// What all JSON of one answer has in common.
struct Reply {
    id: String,
    created: u64,
    model: String,
}

impl Reply {
    fn new(model: String) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let created = unix_time();
        let id = format!("chatcmpl-{created:x}-{:x}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self { id, created, model }
    }

    fn json(&self, object: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    fn whole(&self, text: &str, finish: Finish, usage: Usage) -> Value {
        let message = json!({"role": "assistant", "content": text});
        let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
        let mut reply = self.json("chat.completion", json!([choice]));
        reply["usage"] = usage.json();
        reply
    }

    fn chunk(&self, delta: Value, finish: Option<Finish>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        self.json("chat.completion.chunk", json!([choice]))
    }

    fn usage(&self, usage: Usage) -> Value {
        let mut chunk = self.json("chat.completion.chunk", json!([]));
        chunk["usage"] = usage.json();
        chunk
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.json());
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(body.to_string())).into_response()
}

fn unix_time() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs())
}

/// Knows how long nothing has been asked.
pub struct Activity(Mutex<(usize, Instant)>);

/// A request in flight, as long as this lives.
pub struct Busy(Arc<Activity>);

impl Activity {
    /// Idle from now on.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((0, Instant::now()))))
    }

    fn begin(self: &Arc<Self>) -> Busy {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 += 1;
        Busy(Arc::clone(self))
    }

    /// Completes when there was no request in flight for so long.
    pub async fn idle_for(&self, limit: Duration) {
        loop {
            let (in_flight, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = if in_flight == 0 { since.elapsed() } else { Duration::ZERO };
            match limit.checked_sub(idle) {
                None | Some(Duration::ZERO) => return,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (state.0 - 1, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, header::HeaderValue::from_static(value))])
    }

    #[test]
    fn only_the_right_bearer_token_is_let_in() {
        let check = |value| has_token(&headers(header::AUTHORIZATION, value), "secret");
        assert!(check("Bearer secret") && check("bearer secret"));
        assert!(!check("Bearer secre") && !check("Bearer secret2") && !check("Basic secret") && !check("secret"));
        assert!(!has_token(&HeaderMap::new(), "secret"));
    }

    #[test]
    fn only_loopback_hosts_are_let_in() {
        let check = |value| is_loopback(&headers(header::HOST, value));
        assert!(check("127.0.0.1:80") && check("localhost:1") && check("localhost"));
        assert!(!check("evil.example:80") && !check("127.0.0.1.evil.example"));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_request() {
        let activity = Activity::new();
        let busy = activity.begin();
        let limit = Duration::from_millis(20);
        assert!(tokio::time::timeout(Duration::from_secs(5), activity.idle_for(limit)).await.is_err());
        drop(busy);
        std::thread::sleep(limit);
        activity.idle_for(limit).await;
    }
}
