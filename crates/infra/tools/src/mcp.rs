//! Tools of MCP servers: programs that are started, or addresses that are asked, as the settings name them.
//!
//! What a server offers is known from what a person accepted of it, so nothing is started before the first call, and a
//! server that is down keeps nobody from beginning.

pub mod accepted;
mod backoff;
mod connection;
mod http;
mod lines;
mod result;
mod server;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posse_core::tool::mcp::Accepted;
use posse_core::tool::{EffectClass, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, Writes};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use super::ToolRegistry;
use super::own::{Environment, Means, OwnProblem};
use crate::sandbox::Commands;
use connection::Revisions;
use server::Reach;

pub use server::{Greeting, Server};

/// Bytes of a server's name: with a tool's it makes a name that providers take.
const MAX_NAME: usize = 32;

/// The `[mcp_servers.NAME]` table: how a server is reached, and what is thought of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTable {
    /// For `/bin/sh`, in the sandbox.
    pub command: Option<String>,
    /// What follows the command, word by word.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it is asked instead.
    pub url: Option<String>,
    /// Headers that it is sent; `${NAME}` is a variable.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    pub start_seconds: Option<u64>,
    pub call_seconds: Option<u64>,
    /// The newest revision of the protocol to speak.
    pub protocol: Option<String>,
    /// Whether what it says of its tools' effects is believed.
    #[serde(default)]
    pub trust_hints: bool,
    /// What happens if a tool runs twice, by the server's names of them.
    #[serde(default)]
    pub effects: BTreeMap<String, EffectClass>,
    #[serde(default)]
    pub sandbox: Means,
}

/// What is written with `${NAME}` in it, with what the variables say; or which one is not set.
pub type Expand<'a> = &'a dyn Fn(&str) -> Result<String, String>;

impl ServerTable {
    /// What is wrong with it, by key, as far as that can be seen without the project.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(legal) {
            return Err(format!("is no name of a server: use 1 to {MAX_NAME} of a-z, A-Z, 0-9, _ and -"));
        }
        match (&self.command, &self.url) {
            (Some(_), None) if self.headers.is_empty() => {}
            (Some(_), None) => return Err("headers are for servers with a url".into()),
            (None, Some(url)) => {
                let is_plain = url.starts_with("http://") || url.starts_with("https://");
                if !is_plain {
                    return Err(format!("url '{url}' must begin with http:// or https://"));
                }
                let means = &self.sandbox;
                let names = means.environment.len() + means.files.len() + means.see.len() + self.args.len();
                if means.network || names > 0 {
                    return Err("args and sandbox are for servers with a command".into());
                }
            }
            (None, None) => return Err("says neither command nor url; a server has one of them".into()),
            (Some(_), Some(_)) => return Err("says both command and url; a server has one of them".into()),
        }
        for (key, value, most) in
            [("start_seconds", self.start_seconds, 600), ("call_seconds", self.call_seconds, 86_400)]
        {
            if let Some(n) = value.filter(|n| !(1..=most).contains(n)) {
                return Err(format!("{key} is {n}; it must lie between 1 and {most}"));
            }
        }
        if self.sandbox.seconds.is_some() {
            return Err("sandbox.seconds is for tools; a server has start_seconds and call_seconds".into());
        }
        self.revisions().map(drop)
    }

    fn revisions(&self) -> Result<Revisions, String> {
        match self.protocol.as_deref() {
            None | Some("2026-07-28") => Ok(Revisions::All),
            Some("2025-11-25") => Ok(Revisions::WithHandshake),
            Some(other) => Err(format!(
                "protocol is '{other}'; it can be 2026-07-28, with older ones where a server knows no other, or 2025-11-25"
            )),
        }
    }

    /// The server that it is of. `folder` has the files that it brings.
    fn server(
        &self,
        name: &str,
        folder: &Path,
        commands: &Commands,
        environment: Environment<'_>,
        expand: Expand<'_>,
    ) -> Result<Server, String> {
        self.check(name)?;
        let reach = match (&self.command, &self.url) {
            (Some(command), _) => {
                let words = self.args.iter().map(|word| format!(" '{}'", word.replace('\'', r"'\''")));
                let begin = if self.args.is_empty() { "" } else { "exec " };
                let command = format!("{begin}{command}{}", words.collect::<String>());
                Reach::Program(Box::new(self.sandbox.command(&command, folder, commands, environment)?))
            }
            (None, url) => {
                let url = expand(url.as_deref().unwrap_or_default())?;
                let url = Url::parse(&url).map_err(|error| format!("url is none: {error}"))?;
                let mut headers = HashMap::new();
                for (name, written) in &self.headers {
                    let wrong = || format!("the header {name} cannot be sent");
                    let value = HeaderValue::from_str(&expand(written)?).map_err(|_| wrong())?;
                    headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, value);
                }
                Reach::Address(url, headers)
            }
        };
        let mut server = Server::new(name.to_owned(), reach);
        server.start = self.start_seconds.map_or(server.start, Duration::from_secs);
        server.call = self.call_seconds.map_or(server.call, Duration::from_secs);
        server.revisions = self.revisions()?;
        (server.trusts_hints, server.effects) = (self.trust_hints, self.effects.clone());
        Ok(server)
    }
}

/// The pack that the tools of a server are in.
pub fn pack(server: &str) -> String {
    format!("mcp:{server}")
}

/// The servers of a project.
#[derive(Default)]
pub struct Servers {
    servers: BTreeMap<String, Result<Arc<Server>, String>>,
}

impl Servers {
    /// Those that the tables name. Nothing is started.
    pub fn of(
        tables: &BTreeMap<String, ServerTable>,
        folder: &Path,
        commands: &Commands,
        environment: Environment<'_>,
        expand: Expand<'_>,
    ) -> Servers {
        let server = |(name, table): (&String, &ServerTable)| {
            let made = table.server(name, folder, commands, environment, expand).map(Arc::new);
            (name.clone(), made)
        };
        Servers { servers: tables.iter().map(server).collect() }
    }

    /// All of them by name, or why one cannot be used.
    pub fn all(&self) -> impl Iterator<Item = (&str, Result<&Arc<Server>, &str>)> {
        self.servers.iter().map(|(name, server)| (name.as_str(), server.as_ref().map_err(String::as_str)))
    }
}

struct McpTool {
    spec: ToolSpec,
    effect: EffectClass,
    accepted: Accepted,
    server: Arc<Server>,
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> EffectClass {
        self.effect
    }

    fn writes(&self) -> Writes {
        if self.effect == EffectClass::Pure { Writes::Nothing } else { Writes::Anything }
    }

    async fn call(&self, cx: &ToolContext, args: Value) -> Result<ToolOutput, ToolError> {
        self.server.call(cx, &self.accepted, self.effect, args).await
    }
}

impl ToolRegistry {
    /// The same with the tools that were accepted of these servers, each server's in a pack of its own ([`pack`]); and what is
    /// wrong with others. `folder` has the files of what was accepted, `settings` says which servers there are.
    pub fn with_mcp(mut self, servers: &Servers, folder: &Path, settings: &Path) -> (ToolRegistry, Vec<OwnProblem>) {
        let mut problems = Vec::new();
        for (name, server) in servers.all() {
            let server = match server {
                Ok(server) => server,
                Err(why) => {
                    let message = format!("[mcp_servers.{name}] {why}");
                    self.lacks(&pack(name), message.clone());
                    problems.push(OwnProblem { file: settings.to_owned(), line: None, message });
                    continue;
                }
            };
            let file = accepted::file(folder, name);
            let mut wrong = |line, message| problems.push(OwnProblem { file: file.clone(), line, message });
            let tools = accepted::read(folder, name).unwrap_or_else(|(line, message)| {
                wrong(line, message);
                Vec::new()
            });
            let pack = pack(name);
            for accepted in tools {
                let call = accepted.call.clone();
                let added = accepted.spec(name).and_then(|spec| {
                    let effect = server.effect(&accepted.announced);
                    let tool = McpTool { spec, effect, accepted, server: Arc::clone(server) };
                    self.add(&pack, Arc::new(tool)).map_err(|error| error.to_string())
                });
                if let Err(why) = added {
                    wrong(None, format!("the tool '{call}' is left out: {why}"));
                }
            }
            self.lacks(&pack, format!("nobody has accepted a tool of that MCP server yet (posse mcp accept {name})"));
        }
        (self, problems)
    }
}
