//! `posse.toml`, as people write it. Unknown keys are refused with their line and the known ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use posse_app::{Code, times};
use posse_core::model::conversation::ReasoningBack;
use posse_core::queue::retention::{Keep, Kept};
use posse_infra::persona::nearest;
use posse_infra::sandbox::CommandLimits;
use serde::Deserialize;

use crate::exit::{fail, usage};
use crate::local;

/// Everything the file may say. Paths are relative to the project's folder.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// The SQLite database.
    pub database: Option<PathBuf>,
    /// The folder of personas.
    pub personas: Option<PathBuf>,
    /// The folder tools are confined to where a job names none.
    pub workspace: Option<PathBuf>,
    /// Jobs each role works at once.
    pub slots: Option<usize>,
    /// How long a lease stands without a heartbeat.
    pub lease_seconds: Option<u64>,
    /// How long steps in progress may take to end on shutdown.
    pub grace_seconds: Option<u64>,
    /// How durable a commit is.
    pub synchronous: Option<Synchronous>,
    /// Deaths of workers in a row that a job may meet without getting any further.
    pub max_crashes: Option<u32>,
    /// How much waiting one step of priority is worth.
    pub priority_step_minutes: Option<u32>,
    /// Of how many runs files are kept beside the database; 0 for none.
    pub run_files: Option<usize>,
    /// How long jobs are kept after their end.
    #[serde(default)]
    pub retention: FileRetention,
    /// What texts in the database are sealed with.
    #[serde(default)]
    pub sealing: FileSealing,
    /// What a command of an agent may use.
    #[serde(default)]
    pub commands: FileCommands,
    /// The model used where none is named.
    pub default_model: Option<String>,
    /// Models by name.
    #[serde(default)]
    pub models: BTreeMap<String, FileModel>,
}

/// The `[sealing]` table.
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
    /// Jobs that are done.
    pub completed: Option<String>,
    /// Jobs that were stopped on request.
    pub cancelled: Option<String>,
    /// Jobs that were given up.
    pub discarded: Option<String>,
    /// Sessions, since they were last used.
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
            times::keep(text).map(|keep| (kind, keep)).map_err(wrong)
        })
        .collect()
    }
}

/// The `[commands]` table: what one command of `run_command` may use. 1 MB is 1,048,576 bytes.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileCommands {
    /// How long it may take unless it asks for another time.
    pub default_seconds: Option<u64>,
    /// The longest time it may ask for.
    pub max_seconds: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u32>,
    /// Memory of all its processes together.
    pub memory_mb: Option<u64>,
    /// What it may write to the disk altogether.
    pub written_mb: Option<u64>,
    /// What fits into its `/tmp`.
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

/// How durable a commit is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Synchronous {
    /// Survives a power cut.
    #[default]
    Full,
    /// Survives a crash of the process; a power cut may take the last commits.
    Normal,
}

/// One `[models.NAME]` table.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileModel {
    /// What stands behind it.
    #[serde(default)]
    pub kind: ModelKind,
    /// The endpoint, up to and including `/v1`.
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// The provider's name of the model.
    pub model: Option<String>,
    /// The organisation billed.
    pub organization: Option<String>,
    /// The project billed.
    pub project: Option<String>,
    /// Further headers; `${NAME}` in a value stands for an environment variable.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How it is asked for tool calls.
    #[serde(default)]
    pub tool_calling: Calling,
    /// Whether replies are streamed.
    pub stream: Option<bool>,
    /// The window in tokens.
    pub context_window: Option<u32>,
    /// What counts its tokens; they are estimated when absent.
    pub tokenizer: Option<Tokenizer>,
    /// US dollars for a million tokens read.
    pub price_input: Option<f64>,
    /// US dollars for a million tokens written.
    pub price_output: Option<f64>,
    /// The model asked when this one cannot answer.
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
    /// How often a failed request is made again.
    pub retries: Option<u32>,
    /// Requests it may be sent in a minute, by all processes together.
    pub requests_per_minute: Option<u64>,
    /// Tokens it may read and write in a minute, for all processes together.
    pub tokens_per_minute: Option<u64>,
}

/// What stands behind a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// An OpenAI-compatible endpoint.
    #[default]
    #[serde(alias = "openai")]
    Endpoint,
    /// A model file run on this machine.
    Local,
}

/// What counts a model's tokens: the word `server`, or the path of a `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Tokenizer {
    /// The server that runs the model.
    Server,
    /// A file.
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

/// How a model is asked for tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calling {
    /// Finds out what the model can do.
    #[default]
    Auto,
    /// The provider's protocol.
    Native,
    /// A JSON Schema of the next step.
    Structured,
}

/// Most bytes of the file.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads and checks the file at `path`.
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
    if let Err(what) = settings.retention.resolve().map(drop).and(settings.commands.resolve().map(drop)) {
        return Err(usage(format!("{}: {what}", path.display())));
    }
    for (name, model) in &settings.models {
        if let Err(what) = check_model(name, model, &settings.models) {
            return Err(usage(format!("{}: [models.{name}] {what}", path.display())));
        }
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

/// Refuses a secret that is written out.
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
    name == local::NAME || all.contains_key(name)
}

fn there_are(all: &BTreeMap<String, FileModel>) -> String {
    let other = all.keys().map(String::as_str).filter(|name| *name != local::NAME);
    other.chain([local::NAME]).collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let error = parse(Path::new("posse.toml"), text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}\nlacks {expected}");
        assert!(!error.contains("sk-"), "shows a key: {error}");
    }

    #[test]
    fn messages_name_line_key_and_known_keys() {
        check("\nslot = 2", "posse.toml:2: unknown key 'slot'; did you mean 'slots'? Known here: database, personas");
        check("[models.a]\napi_key = 'sk-1234567'", "posse.toml:2: keys do not belong in this file, so 'api_key'");
        check("[models.a]\nurl = 'x'", "posse.toml:2: unknown key 'url'. Known here: kind, base_url");
        check("slots = 'two'", "posse.toml:1: invalid type: string \"two\", expected usize");
        check("slots = ", "posse.toml:1: ");
        check(
            "[retention]\ncompleted = 'soon'",
            "[retention] completed is 'soon'; write a time like 12h or 30d, or forever",
        );
        check("[retention]\nfailed = '1d'", "posse.toml:2: unknown key 'failed'. Known here: completed, cancelled");
        check("[commands]\nmemory = 1", "posse.toml:2: unknown key 'memory'. Known here: default_seconds, max");
        check("[commands]\nprocesses = 1", "[commands] processes is 1; it must lie between 4 and 10000");
        check(
            "[commands]\nmax_seconds = 30\ndefault_seconds = 40",
            "default_seconds is 40; it must lie between 1 and 30",
        );
        check("synchronous = 'off'", "expected 'full' or 'normal'");
        check("default_model = 'b'\n[models.a]", "default_model 'b' has no [models.b] table; there are: a, local");
        check("[models.a]\nfallback = 'b'\n[models.b]\nfallback = 'a'", "goes round in a circle: a -> b -> a");
        check("[models.a]\nfallback = 'b'", "fallback 'b' has no [models.b] table; there are: a, local");
        check("[models.a]\nheaders = { Authorization = 'Bearer sk-1' }", "header Authorization holds a secret");
        check("[models.a]\nbase_url = 'localhost'", "must begin with http://");
        check("[models.a]\nkind = 'local'\ntokenizer = 'server'", "takes no tokenizer");
        check("[models.a]\ntokenizer = ''", "tokenizer is empty; write \"server\" or the path");
        check("[models.a]\nprice_input = -1", "price_input must be a price");
        check("[models.a]\ntokens_per_minute = 0", "tokens_per_minute is 0, so it could never be asked");
        check("[models.a]\nkind = 'local'\nrequests_per_minute = 1", "takes no requests_per_minute");
        check(
            "[models.a]\nreasoning = 'yes'",
            "posse.toml:2: unknown variant 'yes', expected one of 'required', 'optional'",
        );
    }

    #[test]
    fn a_full_file_is_read() {
        let file = parse(Path::new("posse.toml"), include_str!("../init/posse.toml")).expect("the one init writes");
        assert_eq!(file.models.len(), 0);
        let text = "default_model = 'a'\n[models.a]\nmodel = 'm'\ntool_calling = 'native'\nheaders = { X = '${Y}' }\nreasoning = 'optional'";
        let file = parse(Path::new("posse.toml"), text).expect("legal");
        assert_eq!(file.models["a"].tool_calling, Calling::Native);
        assert_eq!(file.models["a"].reasoning, Some(ReasoningBack::Optional));
        let limited = parse(Path::new("posse.toml"), "[commands]\nmax_seconds = 30\nmemory_mb = 512").expect("legal");
        let limits = limited.commands.resolve().expect("legal");
        assert_eq!(limits, CommandLimits { seconds: 30, max_seconds: 30, memory_mb: 512, ..CommandLimits::default() });
        let kept =
            parse(Path::new("posse.toml"), "[retention]\ncompleted = '7d'\ndiscarded = 'forever'").expect("legal");
        let retention = kept.retention.resolve().expect("legal");
        assert_eq!(retention, [(Kept::Completed, Some(7 * 86_400_000)), (Kept::Discarded, None)]);
    }
}
