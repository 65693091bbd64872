//! An OpenAI-compatible server on loopback that plays a script, keeps every request, and judges
//! their JSON as a strict provider would.

use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One answer, byte for byte.
#[derive(Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    end: End,
}

#[derive(Clone, PartialEq)]
enum End {
    /// The connection closes behind the body, which is how the body ends.
    Close,
    /// The body is chunked, its chunks of these sizes in turn, so that they are read one by one.
    Pieces(Vec<usize>),
    /// The body is chunked and its last chunk never comes: a connection that broke.
    Break,
    /// Nothing more comes, and the connection stays open.
    Hold,
}

impl Answer {
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Answer { status, headers, body: body.into(), end: End::Close }
    }

    pub fn json(status: u16, body: Value) -> Self {
        Answer::new(status, "application/json", body.to_string())
    }

    /// A file of `tests/fixtures/llm` with status 200, its type by its name.
    pub fn file(name: &str) -> Self {
        let path = format!("{}/tests/fixtures/llm/{name}", env!("CARGO_MANIFEST_DIR"));
        let body = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let kind = if name.ends_with(".sse") { "text/event-stream" } else { "application/json" };
        Answer::new(200, kind, body)
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn holding(mut self) -> Self {
        self.end = End::Hold;
        self
    }

    pub fn breaking(mut self) -> Self {
        self.end = End::Break;
        self
    }

    pub fn in_pieces(mut self, sizes: &[usize]) -> Self {
        self.end = End::Pieces(sizes.to_vec());
        self
    }
}

/// One request as it came.
#[derive(Clone)]
pub struct Received {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
}

type Script = Box<dyn FnMut(&Value) -> Answer + Send>;

struct Shared {
    script: Mutex<Script>,
    models: Option<Value>,
    tokenize: Mutex<Option<Script>>,
    embed: Mutex<Option<Script>>,
    received: Mutex<Vec<Received>>,
    violations: Mutex<Vec<String>>,
    /// How many connections the client has closed while they were held open.
    dropped: watch::Sender<usize>,
}

pub struct ModelServer {
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl ModelServer {
    /// Plays these answers in order; the last one repeats.
    pub async fn play(answers: Vec<Answer>) -> Self {
        let mut at = 0;
        ModelServer::start(None, move |_| {
            at += 1;
            answers[(at - 1).min(answers.len() - 1)].clone()
        })
        .await
    }

    /// Answers chats by `script` on their body, and `GET /models` with `models`.
    pub async fn start(models: Option<Value>, script: impl FnMut(&Value) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            models,
            tokenize: Mutex::default(),
            embed: Mutex::default(),
            received: Mutex::default(),
            violations: Mutex::default(),
            dropped: watch::Sender::new(0),
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        ModelServer { shared, address, task }
    }

    /// Answers `POST /tokenize` by `script` on its body from now on.
    pub fn tokenize(&self, script: impl FnMut(&Value) -> Answer + Send + 'static) {
        *self.shared.tokenize.lock().expect("not poisoned") = Some(Box::new(script));
    }

    /// Answers `POST /v1/embeddings` by `script` on its body from now on.
    pub fn embed(&self, script: impl FnMut(&Value) -> Answer + Send + 'static) {
        *self.shared.embed.lock().expect("not poisoned") = Some(Box::new(script));
    }

    /// The bodies of the requests for embeddings.
    pub fn embedded(&self) -> Vec<Value> {
        let is_embed = |r: &Received| r.line.starts_with("POST /v1/embeddings ");
        self.received().into_iter().filter(is_embed).map(|r| r.body).collect()
    }

    /// The bodies of the requests for tokens.
    pub fn tokenized(&self) -> Vec<Value> {
        let is_tokenize = |r: &Received| r.line.starts_with("POST /tokenize ");
        self.received().into_iter().filter(is_tokenize).map(|r| r.body).collect()
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().expect("not poisoned").clone()
    }

    /// The bodies of the chats.
    pub fn chats(&self) -> Vec<Value> {
        let is_chat = |r: &Received| r.line.starts_with("POST /v1/chat/completions ");
        self.received().into_iter().filter(is_chat).map(|r| r.body).collect()
    }

    /// Waits until the client has closed a connection that was held open.
    pub async fn connection_dropped(&self) {
        let mut dropped = self.shared.dropped.subscribe();
        tokio::time::timeout(Duration::from_secs(5), dropped.wait_for(|count| *count > 0))
            .await
            .expect("the client closes its connection")
            .expect("the server lives");
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
        let violations = self.shared.violations.lock().map(|v| v.clone()).unwrap_or_default();
        if !violations.is_empty() && !std::thread::panicking() {
            panic!("requests no provider would take:\n{}", violations.join("\n"));
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    let Some(request) = receive(&mut stream).await else { return };
    shared.received.lock().expect("not poisoned").push(request.clone());
    let answer = if request.line.starts_with("POST /v1/chat/completions ") {
        let wrong = judge(&request.body);
        if wrong.is_empty() {
            (shared.script.lock().expect("not poisoned"))(&request.body)
        } else {
            let message = wrong.join("; ");
            shared.violations.lock().expect("not poisoned").extend(wrong);
            Answer::json(400, json!({"error": {"message": message, "type": "invalid_request_error"}}))
        }
    } else if let Some(script) = [("POST /tokenize ", &shared.tokenize), ("POST /v1/embeddings ", &shared.embed)]
        .into_iter()
        .find_map(|(line, script)| request.line.starts_with(line).then_some(script))
    {
        match script.lock().expect("not poisoned").as_mut() {
            Some(script) => script(&request.body),
            None => Answer::json(404, json!({"detail": "Not Found"})),
        }
    } else {
        match (&shared.models, request.line.starts_with("GET /v1/models ")) {
            (Some(models), true) => Answer::json(200, models.clone()),
            _ => Answer::json(404, json!({"detail": "Not Found"})),
        }
    };
    let mut head = format!("HTTP/1.1 {} Any\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let bytes = match &answer.end {
        End::Close | End::Hold => answer.body,
        End::Break => chunk(&answer.body),
        End::Pieces(sizes) => {
            let (mut rest, mut chunks) = (answer.body.as_slice(), Vec::new());
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                chunks.extend(chunk(piece));
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            [chunks, b"0\r\n\r\n".to_vec()].concat()
        }
    };
    if matches!(answer.end, End::Break | End::Pieces(_)) {
        head += "transfer-encoding: chunked\r\n";
    }
    let head = head + "connection: close\r\n\r\n";
    if stream.write_all(&[head.into_bytes(), bytes].concat()).await.is_err() {
        return;
    }
    if answer.end == End::Hold {
        // Returns when the client closes its end; it has nothing more to send.
        let _ = stream.read(&mut [0; 16]).await;
        shared.dropped.send_modify(|count| *count += 1);
    } else {
        let _ = stream.shutdown().await;
    }
}

async fn receive(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Received { line: line.trim_end().to_owned(), headers, body })
}

/// What a strict provider would refuse.
fn judge(body: &Value) -> Vec<String> {
    const FIELDS: &[&str] = &[
        "model",
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "stream",
        "stream_options",
    ];
    let mut wrong = Vec::new();
    for field in body.as_object().into_iter().flat_map(|object| object.keys()) {
        if !FIELDS.contains(&field.as_str()) {
            wrong.push(format!("unknown field {field}"));
        }
    }
    if body["tools"].as_array().is_some_and(Vec::is_empty) {
        wrong.push("tools is an empty list".to_owned());
    }
    if body["stream"] != true && body.get("stream_options").is_some() {
        wrong.push("stream_options without stream".to_owned());
    }
    let name_ok = |name: &str| {
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let mut used = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    if messages.is_empty() {
        wrong.push("no messages".to_owned());
    }
    for (at, message) in messages.iter().enumerate() {
        let text = message["content"].as_str().unwrap_or_default();
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|open| open == id) {
                Some(place) => drop(open.remove(place)),
                None => wrong.push(format!("message {at}: {id:?} answers no call")),
            }
        } else {
            wrong.extend(open.drain(..).map(|id| format!("message {at}: {id:?} has no result")));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            if id.is_empty() || !used.insert(id.clone()) {
                wrong.push(format!("message {at}: the id {id:?} is missing or repeated"));
            }
            let function = &call["function"];
            if !function["name"].as_str().is_some_and(name_ok) {
                wrong.push(format!("message {at}: the name {} may not be sent", function["name"]));
            }
            let arguments = function["arguments"].as_str().unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                wrong.push(format!("message {at}: the arguments {arguments:?} are no object"));
            }
            open.push(id);
        }
        let calls = message.get("tool_calls").is_some();
        if text.is_empty() && !(role == "assistant" && calls) {
            wrong.push(format!("message {at} is empty"));
        }
        // Whether a second one is taken in front is for a test to say.
        if role == "system" && at > 0 && messages[at - 1]["role"] != "system" {
            wrong.push(format!("message {at}: system is not first"));
        }
    }
    wrong.extend(open.iter().map(|id| format!("{id:?} has no result")));
    wrong
}
