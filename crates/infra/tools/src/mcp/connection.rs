//! One connection with a server: made, asked what tools there are, asked to run them, and left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posse_core::tool::mcp::{Announced, MOST_TOOLS};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, ErrorData, Implementation,
    InputResponses, ListToolsRequest, PaginatedRequestParams, ProtocolVersion, RequestMetaObject, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, PeerRequestOptions, RequestHandle, RoleClient,
    RunningService, ServiceError, serve_client_with_lifecycle,
};
use rmcp::transport::IntoTransport;
use rmcp::{ClientHandler, Peer};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::lines::Ended;

/// Pages of tools that are asked for.
const MOST_PAGES: usize = 100;

/// How often a server may ask for something before it does what it was called for.
const MOST_ROUNDS: usize = 5;

/// Who we are, to a server. It is offered nothing that it could ask of us: no answers of people, no requests to models, no
/// folders.
struct Client {
    /// The tools may be others since they were last asked for.
    is_stale: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    fn get_info(&self) -> ClientConfig {
        let mut config =
            ClientConfig::new(ClientCapabilities::default(), Implementation::new("posse", env!("CARGO_PKG_VERSION")));
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }
}

/// Which revisions of the protocol are spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Revisions {
    /// The newest, or those with a handshake where the server knows no other.
    #[default]
    All,
    /// Only those with a handshake.
    WithHandshake,
}

impl Revisions {
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Revisions::All => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Revisions::WithHandshake => ClientLifecycleMode::Initialize,
        }
    }
}

pub(super) struct Connection {
    service: RunningService<RoleClient, Client>,
    announced: Mutex<BTreeMap<String, Announced>>,
    is_stale: Arc<AtomicBool>,
    /// Nothing more is asked of it.
    is_left: AtomicBool,
    ended: Ended,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unanswered {
    /// The connection is gone, for this reason.
    Gone(String),
    /// Nothing came in time.
    Late,
    /// The server says no.
    Refused { code: i32, message: String },
}

impl Connection {
    /// Makes a connection over `transport`, and asks for the tools.
    pub async fn make<T, E, A>(transport: T, revisions: Revisions, ended: Ended) -> Result<Connection, Unanswered>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let is_stale = Arc::new(AtomicBool::new(false));
        let client = Client { is_stale: Arc::clone(&is_stale) };
        let service = serve_client_with_lifecycle(client, transport, revisions.lifecycle()).await;
        let service = service.map_err(|error| not_begun(&error, &ended))?;
        let announced = listed(service.peer(), &ended).await?;
        Ok(Connection { service, announced: Mutex::new(announced), is_stale, is_left: AtomicBool::new(false), ended })
    }

    /// Whether it can be asked for anything.
    pub fn is_open(&self) -> bool {
        !self.is_left.load(Ordering::Relaxed) && !self.service.peer().is_transport_closed()
    }

    /// Asks nothing more of it. Who waits for an answer may go on waiting.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// The tools that there are now, by the server's names.
    pub async fn announced(&self) -> Result<BTreeMap<String, Announced>, Unanswered> {
        let mut announced = self.announced.lock().await;
        if self.is_stale.swap(false, Ordering::Relaxed) {
            let now = listed(self.service.peer(), &self.ended).await;
            // Until it says, nothing is known.
            *announced = now.inspect_err(|_| self.is_stale.store(true, Ordering::Relaxed))?;
        }
        Ok(announced.clone())
    }

    /// The server's name and version, and the revision of the protocol that is spoken.
    pub fn peer(&self) -> (String, String) {
        let Some(info) = self.service.peer().peer_info() else { return Default::default() };
        let name = info.server_info.as_ref().map(|it| format!("{} {}", it.name, it.version));
        (name.unwrap_or_default(), info.protocol_version.to_string())
    }

    /// Runs a tool. `time` is all that it may take, whatever it says meanwhile; `key` is the same on each retry of the call.
    /// What the server asks for on the way is declined.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        key: &str,
        time: Duration,
    ) -> Result<Value, Unanswered> {
        let until = Instant::now() + time;
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        for _ in 0..MOST_ROUNDS {
            let said = self.ask(params.clone(), key, until).await?;
            let Some((responses, state)) = declined(&said) else { return Ok(said) };
            (params.input_responses, params.request_state) = (Some(responses), state);
        }
        let message = format!("it asked for something {MOST_ROUNDS} times, and was always declined");
        Err(Unanswered::Refused { code: 0, message })
    }

    async fn ask(&self, params: CallToolRequestParams, key: &str, until: Instant) -> Result<Value, Unanswered> {
        let mut meta = RequestMetaObject::default();
        meta.0.0.insert("posse/effect-key".into(), key.into());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let peer = self.service.peer();
        let asked = peer.send_request_with_option(request, options).await;
        let mut asked = asked.map_err(|error| unanswered(&error, &self.ended))?;
        match tokio::time::timeout_at(until, &mut asked.rx).await {
            Ok(answer) => answered(answer.unwrap_or(Err(ServiceError::TransportClosed)), &self.ended),
            Err(_) => {
                forget(asked);
                Err(Unanswered::Late)
            }
        }
    }
}

/// What is answered to a result that asks for something first: that no person is asked, and that there are no folders. None
/// where it asks for nothing, or for what nobody can decline.
fn declined(result: &Value) -> Option<(InputResponses, Option<String>)> {
    if result.get("resultType")? != "input_required" {
        return None;
    }
    let asked = result.get("inputRequests").and_then(Value::as_object);
    let answer = |(name, asked): (&String, &Value)| match asked.get("method")?.as_str()? {
        "elicitation/create" => Some((name.clone(), json!({"action": "decline"}))),
        "roots/list" => Some((name.clone(), json!({"roots": []}))),
        _ => None,
    };
    let answers = asked.into_iter().flatten().map(answer).collect::<Option<InputResponses>>()?;
    let state = result.get("requestState").and_then(Value::as_str).map(str::to_owned);
    Some((answers, state))
}

/// Tells the server that nobody waits any more; nobody waits for that either.
fn forget(asked: RequestHandle<RoleClient>) {
    tokio::spawn(async move {
        let telling = asked.cancel(Some("it took too long".into()));
        let _ = tokio::time::timeout(Duration::from_secs(5), telling).await;
    });
}

/// All tools, page by page; of two with one name the first.
async fn listed(peer: &Peer<RoleClient>, ended: &Ended) -> Result<BTreeMap<String, Announced>, Unanswered> {
    let (mut tools, mut cursor, mut seen) = (BTreeMap::new(), None::<String>, BTreeSet::new());
    for _ in 0..MOST_PAGES {
        let mut params = PaginatedRequestParams::default();
        params.cursor.clone_from(&cursor);
        let request = ListToolsRequest { params: Some(params), ..ListToolsRequest::default() };
        let page = answered(peer.send_request(ClientRequest::ListToolsRequest(request)).await, ended)?;
        let Some(page_tools) = page.get("tools").and_then(Value::as_array) else {
            return Err(Unanswered::Refused { code: 0, message: "it gave no list when asked for its tools".into() });
        };
        for tool in page_tools.iter().filter_map(Announced::read) {
            if tools.len() < MOST_TOOLS {
                tools.entry(tool.name.clone()).or_insert(tool);
            }
        }
        cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
        match &cursor {
            Some(next) if tools.len() < MOST_TOOLS && seen.insert(next.clone()) => {}
            _ => break,
        }
    }
    Ok(tools)
}

/// A result as it came: what of it is read is for who asked.
fn answered(answer: Result<ServerResult, ServiceError>, ended: &Ended) -> Result<Value, Unanswered> {
    let result = answer.map_err(|error| unanswered(&error, ended))?;
    serde_json::to_value(&result).map_err(|error| Unanswered::Gone(format!("its answer cannot be read: {error}")))
}

fn unanswered(error: &ServiceError, ended: &Ended) -> Unanswered {
    match error {
        ServiceError::McpError(error) => refused(error),
        ServiceError::TransportClosed => Unanswered::Gone(ended.why().unwrap_or_else(|| "it ended".into())),
        error => Unanswered::Gone(format!("it could not be asked: {error}")),
    }
}

fn refused(error: &ErrorData) -> Unanswered {
    Unanswered::Refused { code: error.code.0, message: error.message.to_string() }
}

fn not_begun(error: &ClientInitializeError, ended: &Ended) -> Unanswered {
    match error {
        ClientInitializeError::JsonRpcError(error) => refused(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => not_begun(fallback, ended),
        ClientInitializeError::ConnectionClosed(_) => {
            Unanswered::Gone(ended.why().unwrap_or_else(|| "it ended before it had answered".into()))
        }
        error => Unanswered::Gone(ended.why().unwrap_or_else(|| format!("it could not be spoken with: {error}"))),
    }
}
