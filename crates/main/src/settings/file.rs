//! `posse.toml`, as people write it. Unknown keys are refused with their line and the known ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use posse_app::enqueue::LOCAL_MODEL;
use posse_app::{Code, times};
use posse_core::model::conversation::ReasoningBack;
use posse_core::queue::retention::{Keep, Kept};
use posse_core::text::nearest;
use posse_infra::model::embedder::MOST_BATCH;
use posse_infra::sandbox::CommandLimits;
use posse_infra::tool::mcp::ServerTable;
use posse_infra::tool::web::{Secrets, WebSettings};
use serde::Deserialize;

use crate::exit::{fail, usage};

/// Everything the file may say. Paths are relative to the project's folder.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    pub database: Option<PathBuf>,
    pub personas: Option<PathBuf>,
    pub workspace: Option<PathBuf>,
    pub slots: Option<usize>,
    pub lease_seconds: Option<u64>,
    pub grace_seconds: Option<u64>,
    pub synchronous: Option<Synchronous>,
    pub max_crashes: Option<u32>,
    pub priority_step_minutes: Option<u32>,
    /// Of how many runs files are kept beside the database; 0 for none.
    pub run_files: Option<usize>,
    #[serde(default)]
    pub retention: FileRetention,
    #[serde(default)]
    pub sealing: FileSealing,
    #[serde(default)]
    pub commands: FileCommands,
    #[serde(default)]
    pub web: FileWeb,
    #[serde(default)]
    pub embedder: FileEmbedder,
    pub default_model: Option<String>,
    #[serde(default)]
    pub models: BTreeMap<String, FileModel>,
    #[serde(default)]
    pub mcp_servers: BTreeMap<String, ServerTable>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSealing {
    /// The file with the keys, one in each line; the first one seals, all open.
    pub key_file: Option<PathBuf>,
}

/// The `[retention]` table: a length of time for each final state and for sessions, or `forever`. A database takes it
/// when it is made; later it has its own (`posse db retention`).
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRetention {
    pub completed: Option<String>,
    pub cancelled: Option<String>,
    pub discarded: Option<String>,
    pub sessions: Option<String>,
}

impl FileRetention {
    /// What is said here; or which key is wrong, and how.
    pub fn resolve(&self) -> Result<Vec<Keep>, String> {
        let said = |kind| match kind {
            Kept::Completed => &self.completed,
            Kept::Cancelled => &self.cancelled,
            Kept::Discarded => &self.discarded,
            Kept::Sessions => &self.sessions,
        };
        let all = Kept::ALL.into_iter().filter_map(|kind| Some((kind, said(kind).as_deref()?)));
        all.map(|(kind, text)| {
            let wrong = |why| format!("[retention] {} is '{text}'; {why}", kind.as_str());
            Ok((kind, times::keep(text).map_err(wrong)?))
        })
        .collect()
    }
}

/// The `[commands]` table: what one command of `run_command` may use. 1 MB is 1,048,576 bytes.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCommands {
    pub default_seconds: Option<u64>,
    pub max_seconds: Option<u64>,
    pub processes: Option<u32>,
    pub memory_mb: Option<u64>,
    pub written_mb: Option<u64>,
    pub tmp_mb: Option<u64>,
}

impl FileCommands {
    /// What is said here, over the defaults; or which key is wrong, and how.
    pub fn resolve(&self) -> Result<CommandLimits, String> {
        let usual = CommandLimits::default();
        let max_seconds = self.max_seconds.unwrap_or(usual.max_seconds);
        let limits = CommandLimits {
            seconds: self.default_seconds.unwrap_or(usual.seconds.min(max_seconds)),
            max_seconds,
            processes: self.processes.unwrap_or(usual.processes),
            memory_mb: self.memory_mb.unwrap_or(usual.memory_mb),
            written_mb: self.written_mb.unwrap_or(usual.written_mb),
            tmp_mb: self.tmp_mb.unwrap_or(usual.tmp_mb),
        };
        for (key, value, least, most) in [
            ("max_seconds", limits.max_seconds, 1, 86_400),
            ("default_seconds", limits.seconds, 1, limits.max_seconds),
            ("processes", u64::from(limits.processes), 4, 10_000),
            ("memory_mb", limits.memory_mb, 16, 1 << 20),
            ("written_mb", limits.written_mb, 1, 1 << 20),
            ("tmp_mb", limits.tmp_mb, 1, 1 << 20),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("[commands] {key} is {value}; it must lie between {least} and {most}"));
            }
        }
        Ok(limits)
    }
}

/// The `[web]` table: what holds for all requests of agents (`http_fetch`). 1 kB is 1,024 bytes.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileWeb {
    pub seconds: Option<u64>,
    pub max_kb: Option<usize>,
    /// Whether `robots.txt` is honoured.
    pub robots: Option<bool>,
    /// Addresses beside the public internet that may be reached.
    #[serde(default)]
    pub reach: Vec<String>,
    /// Headers by origin, whose values may name variables.
    #[serde(default)]
    pub headers: BTreeMap<String, BTreeMap<String, String>>,
}

impl FileWeb {
    /// What is said here, over the defaults; or which key is wrong, and how. `value` gives a header's value for what is
    /// written, or why there is none.
    pub fn resolve(&self, value: &dyn Fn(&str) -> Result<String, String>) -> Result<WebSettings, String> {
        let usual = WebSettings::default();
        let seconds = self.seconds.unwrap_or(usual.seconds);
        let max_kb = self.max_kb.unwrap_or(usual.max_bytes >> 10);
        if !(1..=600).contains(&seconds) {
            return Err(format!("[web] seconds is {seconds}; it must lie between 1 and 600"));
        }
        if !(1..=102_400).contains(&max_kb) {
            return Err(format!("[web] max_kb is {max_kb}; it must lie between 1 and 102400"));
        }
        let reach = self.reach.iter().map(|range| range.parse().map_err(|why| format!("[web] reach: {why}")));
        let mut headers = BTreeMap::new();
        for (origin, named) in &self.headers {
            let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            if host.is_none_or(|host| host.is_empty() || host.contains('/')) {
                return Err(format!("[web.headers] '{origin}' is no origin; write \"https://api.example.com\""));
            }
            check_headers(named).map_err(|what| format!("[web.headers] {what}"))?;
            let all = named.iter().map(|(name, written)| Ok((name.clone(), value(written)?)));
            let all: Result<_, String> = all.collect();
            headers.insert(origin.clone(), all.map(Secrets));
        }
        let (reach, robots) = (reach.collect::<Result<_, String>>()?, self.robots.unwrap_or(usual.robots));
        Ok(WebSettings { seconds, max_bytes: max_kb << 10, robots, reach, headers })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Survives a power cut.
    #[default]
    Full,
    /// Survives a crash of the process; a power cut may take the last commits.
    Normal,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileModel {
    #[serde(default)]
    pub kind: ModelKind,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub model: Option<String>,
    pub organization: Option<String>,
    pub project: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub tool_calling: Calling,
    pub stream: Option<bool>,
    /// The window in tokens.
    pub context_window: Option<u32>,
    pub tokenizer: Option<Tokenizer>,
    /// US dollars for a million tokens read.
    pub price_input: Option<f64>,
    /// US dollars for a million tokens written.
    pub price_output: Option<f64>,
    pub fallback: Option<String>,
    /// Whether its reasoning goes back to it; known of the host, or learned, when absent.
    pub reasoning: Option<ReasoningBack>,
    /// Whether it takes a user message directly behind a tool's result; known or learned when absent.
    pub user_after_tool: Option<bool>,
    /// Whether user and assistant must take turns; known or learned when absent.
    pub take_turns: Option<bool>,
    /// Whether several system messages may stand in front; known or learned when absent.
    pub several_systems: Option<bool>,
    /// Longest silence in the middle of a reply.
    pub idle_timeout_seconds: Option<u64>,
    pub retries: Option<u32>,
    /// Requests it may be sent in a minute, by all processes together.
    pub requests_per_minute: Option<u64>,
    /// Tokens it may read and write in a minute, for all processes together.
    pub tokens_per_minute: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    #[default]
    #[serde(alias = "openai")]
    Endpoint,
    Local,
}

/// What counts a model's tokens: the word `server`, or the path of a `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Tokenizer {
    Server,
    File(PathBuf),
}

impl From<String> for Tokenizer {
    fn from(text: String) -> Self {
        match text.as_str() {
            "server" => Tokenizer::Server,
            path => Tokenizer::File(path.into()),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calling {
    #[default]
    Auto,
    Native,
    Structured,
}

/// The `[embedder]` table: what turns texts into vectors. All of it is optional.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEmbedder {
    kind: Option<EmbedderKind>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub model: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Numbers in a vector, asked of a model that makes them of any length.
    pub dimension: Option<usize>,
    /// Texts in a request.
    pub batch: Option<usize>,
    /// Tokens of a text that the model reads; longer texts are cut.
    pub max_tokens: Option<usize>,
    pub retries: Option<u32>,
    pub idle_timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmbedderKind {
    #[serde(alias = "openai")]
    Endpoint,
    Local,
    /// Texts are found by their words alone.
    None,
}

impl FileEmbedder {
    /// What is said here: whoever says anything else means an endpoint. None where nothing is said.
    pub fn kind(&self) -> Option<EmbedderKind> {
        self.kind.or((*self != Self::default()).then_some(EmbedderKind::Endpoint))
    }

    /// What is wrong here, by key.
    fn check(&self) -> Result<(), String> {
        check_headers(&self.headers)?;
        let is_endpoint = self.kind() == Some(EmbedderKind::Endpoint);
        if self.kind.is_some() && !is_endpoint && *self != (Self { kind: self.kind, ..Self::default() }) {
            return Err("asks no endpoint, by its kind, so it takes no other key; leave kind out".into());
        }
        if let Some(url) = &self.base_url {
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return Err(format!("base_url '{url}' must begin with http:// or https://"));
            }
            if self.model.is_none() {
                return Err("says no model; add model = \"<the provider's name>\"".into());
            }
        }
        let within = |key: &str, value: Option<usize>, least: usize, most: usize| match value {
            Some(n) if !(least..=most).contains(&n) => {
                Err(format!("{key} is {n}; it must lie between {least} and {most}"))
            }
            _ => Ok(()),
        };
        within("dimension", self.dimension, 1, 8192)?;
        within("batch", self.batch, 1, MOST_BATCH)?;
        within("max_tokens", self.max_tokens, 16, 1 << 20)
    }
}

const MAX_BYTES: u64 = 1024 * 1024;

pub fn read(path: &Path) -> Result<FileSettings> {
    let shown = path.display();
    let meta = std::fs::metadata(path)
        .map_err(|e| fail(Code::NotFound, format!("settings file {shown} cannot be read: {e}")))?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return Err(usage(format!("{shown} is no settings file: it must be a TOML file of at most {MAX_BYTES} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|e| usage(format!("settings file {shown} cannot be read: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|_| usage(format!("{shown} is not UTF-8 text; save it as UTF-8")))?;
    parse(path, &text)
}

/// What `text` says; `path` is only used to speak of it.
pub fn parse(path: &Path, text: &str) -> Result<FileSettings> {
    let settings: FileSettings = toml::from_str(text).map_err(|error| usage(explain(path, text, &error)))?;
    let web = settings.web.resolve(&|_| Ok(String::new())).map(drop);
    if let Err(what) = settings.retention.resolve().map(drop).and(settings.commands.resolve().map(drop)).and(web) {
        return Err(usage(format!("{}: {what}", path.display())));
    }
    for (name, model) in &settings.models {
        if let Err(what) = check_model(name, model, &settings.models) {
            return Err(usage(format!("{}: [models.{name}] {what}", path.display())));
        }
    }
    for (name, server) in &settings.mcp_servers {
        if let Err(what) = check_headers(&server.headers).and_then(|()| server.check(name)) {
            return Err(usage(format!("{}: [mcp_servers.{name}] {what}", path.display())));
        }
    }
    if let Err(what) = settings.embedder.check() {
        return Err(usage(format!("{}: [embedder] {what}", path.display())));
    }
    if let Some(name) = &settings.default_model
        && !is_there(name, &settings.models)
    {
        let there_are = there_are(&settings.models);
        return Err(usage(format!(
            "{}: default_model '{name}' has no [models.{name}] table; there are: {there_are}",
            path.display()
        )));
    }
    Ok(settings)
}

pub fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), String> {
    let secret = |header: &str| {
        let header = header.to_ascii_lowercase();
        ["authorization", "api-key", "x-api-key", "cookie"].contains(&header.as_str())
    };
    match headers.iter().find(|(header, value)| secret(header) && !value.contains("${")) {
        Some((header, _)) => {
            Err(format!("header {header} holds a secret; write \"${{NAME}}\" and put it into the variable NAME"))
        }
        None => Ok(()),
    }
}

fn check_model(name: &str, model: &FileModel, all: &BTreeMap<String, FileModel>) -> Result<(), String> {
    check_headers(&model.headers)?;
    if let Some(url) = &model.base_url
        && !(url.starts_with("http://") || url.starts_with("https://"))
    {
        return Err(format!("base_url '{url}' must begin with http:// or https://"));
    }
    if model.kind == ModelKind::Local && (model.base_url.is_some() || model.api_key_env.is_some()) {
        return Err("is kind = \"local\", so it takes no base_url and no api_key_env".into());
    }
    if model.kind == ModelKind::Local && model.tokenizer.is_some() {
        return Err("is kind = \"local\", whose own server counts its tokens, so it takes no tokenizer".into());
    }
    if model.tokenizer == Some(Tokenizer::File(PathBuf::new())) {
        return Err("tokenizer is empty; write \"server\" or the path of a tokenizer.json".into());
    }
    for (key, rate) in
        [("requests_per_minute", model.requests_per_minute), ("tokens_per_minute", model.tokens_per_minute)]
    {
        if rate == Some(0) {
            return Err(format!("{key} is 0, so it could never be asked; leave it out for no limit"));
        }
        if rate.is_some() && model.kind == ModelKind::Local {
            return Err(format!("is kind = \"local\", so it takes no {key}"));
        }
    }
    for (key, price) in [("price_input", model.price_input), ("price_output", model.price_output)] {
        if price.is_some_and(|p| !(p.is_finite() && p >= 0.0)) {
            return Err(format!("{key} must be a price in US dollars for a million tokens, 0 or more"));
        }
    }
    let mut seen = vec![name];
    let mut next = model.fallback.as_deref();
    while let Some(fallback) = next {
        if seen.contains(&fallback) {
            return Err(format!("fallback goes round in a circle: {} -> {fallback}", seen.join(" -> ")));
        }
        if !is_there(fallback, all) {
            let there_are = there_are(all);
            return Err(format!("fallback '{fallback}' has no [models.{fallback}] table; there are: {there_are}"));
        }
        seen.push(fallback);
        next = all.get(fallback).and_then(|model| model.fallback.as_deref());
    }
    Ok(())
}

/// Whether there is such a model. The local one needs no table.
fn is_there(name: &str, all: &BTreeMap<String, FileModel>) -> bool {
    name == LOCAL_MODEL || all.contains_key(name)
}

fn there_are(all: &BTreeMap<String, FileModel>) -> String {
    let other = all.keys().map(String::as_str).filter(|name| *name != LOCAL_MODEL);
    other.chain([LOCAL_MODEL]).collect::<Vec<_>>().join(", ")
}

/// The parser's words, without the line's text: it may hold a key.
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let said = error.message().to_owned();
    let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()));
    let quoted = said.split('`').nth(1).unwrap_or_default();
    if said.starts_with("unknown field") && ["api_key", "apikey", "api-key", "key", "token", "secret"].contains(&quoted)
    {
        return format!(
            "{place}: keys do not belong in this file, so '{quoted}' is refused. Put the key into an environment \
             variable and name that: api_key_env = \"OPENAI_API_KEY\""
        );
    }
    match said.split_once("expected one of ") {
        Some((_, allowed)) if said.starts_with("unknown field") => {
            let allowed: Vec<_> = allowed.split(", ").map(|name| name.trim_matches('`')).collect();
            let near = nearest(quoted, allowed.iter().copied()).map(|n| format!("; did you mean '{n}'?"));
            format!(
                "{place}: unknown key '{quoted}'{} Known here: {}",
                near.unwrap_or_else(|| ".".into()),
                allowed.join(", ")
            )
        }
        _ => format!("{place}: {}", said.replace('`', "'")),
    }
}
