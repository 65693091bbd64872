//! A server as it is used: a connection for each attempt of a job, made at its first call and gone with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use posse_core::stop::Stop;
use posse_core::text::{plural, quoted, visible_line};
use posse_core::tool::mcp::{Accepted, Announced, Standing};
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::backoff::Backoff;
use super::connection::{Connection, Revisions, Unanswered};
use super::lines::{Ended, Lines};
use super::{http, result};
use crate::failure::{check, denied, failed, invalid, missing, over_limit, unfit};
use crate::own::{OwnCommand, Place};
use crate::sandbox::{End, Kept};

/// Bytes of what went wrong that are told.
const MAX_WHY: usize = 500;

/// How a server is reached.
pub(super) enum Reach {
    Program(Box<OwnCommand>),
    Address(Url, HashMap<HeaderName, HeaderValue>),
}

/// A server, as the settings name it.
pub struct Server {
    pub(super) name: String,
    pub(super) reach: Reach,
    /// The most time from its start until it has said what tools it has.
    pub(super) start: Duration,
    /// The most time for a call, whatever is said meanwhile.
    pub(super) call: Duration,
    pub(super) revisions: Revisions,
    pub(super) trusts_hints: bool,
    /// What the operator says of tools, by the server's names.
    pub(super) effects: BTreeMap<String, EffectClass>,
    backoff: Backoff,
    open: Arc<Mutex<Vec<Attempt>>>,
    /// What the last one that was started said on standard error.
    complaints: Mutex<Arc<Mutex<Kept>>>,
}

/// The connection of an attempt, which is known by what stops it.
type Attempt = (Stop, Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>);

/// What came of asking a server who it is.
#[derive(Debug, Clone)]
pub struct Greeting {
    /// Its own name and version.
    pub name: String,
    /// The revision of the protocol that is spoken.
    pub protocol: String,
    /// The tools that it announces.
    pub tools: Vec<Announced>,
    /// How long that took.
    pub took: Duration,
}

impl Server {
    pub(super) fn new(name: String, reach: Reach) -> Server {
        Server {
            name,
            reach,
            start: Duration::from_secs(15),
            call: Duration::from_secs(120),
            revisions: Revisions::default(),
            trusts_hints: false,
            effects: BTreeMap::new(),
            backoff: Backoff::default(),
            open: Arc::default(),
            complaints: Mutex::default(),
        }
    }

    /// What happens if a tool of it runs twice.
    pub fn effect(&self, tool: &Announced) -> EffectClass {
        tool.effect(self.effects.get(&tool.name).copied(), self.trusts_hints)
    }

    /// Asks who it is and what tools it has, and takes leave. An error says what went wrong.
    pub async fn greet(&self, place: &Place<'_>) -> Result<Greeting, ToolError> {
        let began = Instant::now();
        let connection = self.connect(place).await?;
        let tools = connection.announced().await.map_err(|why| self.told(why, "nothing", EffectClass::Pure))?;
        let ((name, protocol), took) = (connection.peer(), began.elapsed());
        Ok(Greeting { name, protocol, tools: tools.into_values().collect(), took })
    }

    /// What the one that was started last said on standard error; nothing of what it was given.
    pub fn complaints(&self) -> String {
        let last = Arc::clone(&self.complaints.lock().unwrap_or_else(PoisonError::into_inner));
        let said = last.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() { String::new() } else { self.without_secrets(&said.shown()) }
    }

    /// Runs a tool that a person accepted, as that.
    pub(super) async fn call(
        &self,
        cx: &ToolContext,
        tool: &Accepted,
        effect: EffectClass,
        args: Value,
    ) -> Result<ToolOutput, ToolError> {
        let is_sent = AtomicBool::new(false);
        tokio::select! {
            biased;
            ended = self.run(cx, tool, effect, args, &is_sent) => ended,
            reason = cx.stop.stopped() => {
                let category = match is_sent.load(Ordering::Relaxed) && effect != EffectClass::Pure {
                    true => ToolErrorCategory::Interrupted,
                    false => ToolErrorCategory::Stopped,
                };
                Err(ToolError::new(category, format!("stopped ({reason:?}) before '{}' had answered", self.name)))
            }
        }
    }

    async fn run(
        &self,
        cx: &ToolContext,
        tool: &Accepted,
        effect: EffectClass,
        args: Value,
        is_sent: &AtomicBool,
    ) -> Result<ToolOutput, ToolError> {
        let Value::Object(args) = args else { return Err(invalid("the arguments are no object")) };
        let place = Place {
            workspace: &cx.workspace,
            workspace_id: cx.workspace_id,
            rules_file: cx.rules_file.as_deref(),
            time_left: cx.time_left,
            stop: &cx.stop,
        };
        let connection = self.connection(&place).await?;
        let name = &tool.announced.name;
        let announced = match tokio::time::timeout(self.start, connection.announced()).await {
            Ok(announced) => announced,
            Err(_) => Err(Unanswered::Late),
        };
        let announced = announced.map_err(|why| {
            connection.leave();
            self.told(why, name, EffectClass::Pure)
        })?;
        self.accepted(tool, announced.get(name))?;
        let time = self.call.min(cx.time_left.unwrap_or(Duration::MAX));
        check(&cx.stop)?;
        is_sent.store(true, Ordering::Relaxed);
        match connection.call(name, args, &cx.effect_key, time).await {
            Ok(said) => {
                self.backoff.worked();
                result::told(&self.name, name, &said, cx.reader.room)
            }
            Err(why) => {
                if !matches!(why, Unanswered::Refused { .. }) {
                    connection.leave();
                }
                Err(self.told(why, name, effect))
            }
        }
    }

    /// Fails where a tool is not what was accepted.
    fn accepted(&self, tool: &Accepted, now: Option<&Announced>) -> Result<(), ToolError> {
        let (name, server) = (&tool.call, &self.name);
        match tool.standing(now) {
            Standing::Changed(parts) => Err(denied(format!(
                "{name} is not run: the MCP server '{server}' announces it otherwise than a person accepted it ({} changed). \
                 Nothing was called. Until a person has looked at it (posse mcp accept {server}), go on without it",
                parts.join(", ")
            ))),
            Standing::Gone => {
                Err(missing(format!("the MCP server '{server}' has no such tool any more. Go on without {name}")))
            }
            Standing::Accepted | Standing::New => Ok(()),
        }
    }

    /// The connection of the attempt that calls, which is made if there is none.
    async fn connection(&self, place: &Place<'_>) -> Result<Arc<Connection>, ToolError> {
        let slot = self.slot(place.stop);
        let mut slot = slot.lock().await;
        if let Some(open) = slot.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(open));
        }
        if let Some(why) = self.backoff.refuses() {
            return Err(missing(format!(
                "the MCP server '{}' cannot be used now: {why}. Nothing was called; go on without it",
                self.name
            )));
        }
        let made = Arc::new(self.connect(place).await?);
        *slot = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Where the connection of an attempt is kept until that is over.
    fn slot(&self, stop: &Stop) -> Arc<tokio::sync::Mutex<Option<Arc<Connection>>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, slot)) = open.iter().find(|(one, _)| one.is_same(stop)) {
            return Arc::clone(slot);
        }
        let slot = Arc::default();
        open.push((stop.clone(), Arc::clone(&slot)));
        let (all, stop): (Weak<_>, _) = (Arc::downgrade(&self.open), stop.clone());
        tokio::spawn(async move {
            stop.over().await;
            if let Some(all) = all.upgrade() {
                all.lock().unwrap_or_else(PoisonError::into_inner).retain(|(one, _)| !one.is_same(&stop));
            }
        });
        slot
    }

    async fn connect(&self, place: &Place<'_>) -> Result<Connection, ToolError> {
        let time = self.start.min(place.time_left.unwrap_or(Duration::MAX));
        let why = match tokio::time::timeout(time, self.open(place)).await {
            Ok(Ok(Ok(connection))) => return Ok(connection),
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Err(Unanswered::Gone(why)))) => why,
            Ok(Ok(Err(Unanswered::Refused { message, .. }))) => format!("it refuses: {message}"),
            Ok(Ok(Err(Unanswered::Late))) | Err(_) => {
                format!("it did not say what tools it has within {}", plural(time.as_secs(), "second"))
            }
        };
        let why = self.shown(&why);
        self.backoff.failed(&why);
        Err(missing(format!(
            "the MCP server '{0}' cannot be used: {why}. Nothing was called; go on without it (posse mcp test {0} shows more)",
            self.name
        )))
    }

    /// Reaches it and asks for its tools, however long that takes.
    async fn open(&self, place: &Place<'_>) -> Result<Result<Connection, Unanswered>, ToolError> {
        let ended = Ended::default();
        match &self.reach {
            Reach::Program(command) => {
                let serving = command.serve(place).await.map_err(|end| match end {
                    End::Lacking(why) => unfit(format!("an MCP server could not be started: {why}")),
                    End::Refused(why) => denied(format!("MCP servers cannot run here: {why}. Go on without it")),
                    end => failed(format!("the MCP server '{}' could not be started: {end:?}", self.name)),
                })?;
                *self.complaints.lock().unwrap_or_else(PoisonError::into_inner) = serving.complaints();
                let lines = Lines::of(serving, ended.clone());
                let lines = lines.ok_or_else(|| unfit("an MCP server was started without its streams"))?;
                Ok(Connection::make(lines, self.revisions, ended).await)
            }
            Reach::Address(url, headers) => match http::transport(url, headers.clone()) {
                Ok(transport) => Ok(Connection::make(transport, self.revisions, ended).await),
                Err(why) => Ok(Err(Unanswered::Gone(why))),
            },
        }
    }

    /// What a model is told of a call without a result.
    fn told(&self, why: Unanswered, tool: &str, effect: EffectClass) -> ToolError {
        let server = &self.name;
        let fate = match effect {
            EffectClass::Pure => "",
            _ => " What it was to do may or may not have happened: find out before you call it again.",
        };
        match why {
            Unanswered::Gone(why) => {
                let why = self.shown(&why);
                self.backoff.failed(&why);
                failed(format!("the MCP server '{server}' had not answered to '{}': {why}.{fate}", visible_line(tool)))
            }
            Unanswered::Late => {
                self.backoff.failed("it took too long to answer");
                let most = plural(self.call.as_secs(), "second");
                over_limit(format!(
                    "the MCP server '{server}' had not answered to '{}' within {most} (call_seconds), and was given up.{fate}",
                    visible_line(tool)
                ))
            }
            Unanswered::Refused { code, message } => {
                let kind: fn(String) -> ToolError = if code == -32602 { invalid } else { failed };
                let message = self.shown(&message);
                kind(format!("the MCP server '{server}' refuses the call, in its words:\n{}", quoted(&message)))
            }
        }
    }

    /// Why something went wrong, as it may be told: not too long, and without what is secret.
    fn shown(&self, why: &str) -> String {
        let why = visible_line(&self.without_secrets(why));
        match why.len() {
            ..=MAX_WHY => why,
            _ => format!("{}…", &why[..why.floor_char_boundary(MAX_WHY)]),
        }
    }

    fn without_secrets(&self, text: &str) -> String {
        let hide = |text: String, secret: &str| if secret.len() < 4 { text } else { text.replace(secret, "[…]") };
        match &self.reach {
            Reach::Program(command) => command.secrets().fold(text.to_owned(), hide),
            Reach::Address(url, headers) => {
                let values = headers.values().filter_map(|value| value.to_str().ok());
                let text = text.replace(url.as_str(), &url.origin().ascii_serialization());
                let parts = values.flat_map(|value| value.split_whitespace()).chain(url.query());
                parts.fold(text, hide)
            }
        }
    }
}
