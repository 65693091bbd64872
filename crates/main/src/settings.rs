//! Flags, environment and file become checked settings, once.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults. Paths
//! in the file are relative to the project's folder; paths in flags and variables to the current one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use posse_core::job::DEFAULT_PRIORITY_STEP_MS;
use posse_core::job::deaths::MOST_CRASHES;
use posse_core::job::enqueue::MAX_PRIORITY_STEP_MS;
use posse_core::queue::retention::Keep;
use posse_core::store::seal::{KEYS_VARIABLE, Keys};
use posse_infra::sandbox::CommandLimits;
use posse_infra::tool::mcp::ServerTable;
use posse_infra::tool::web::WebSettings;

use crate::env::{self, Env, text};
use crate::exit::usage;
use crate::trust::{Extent, Trust, Untrusted, found_in};

pub mod file;

pub use file::{Calling, EmbedderKind, FileEmbedder, FileModel, ModelKind, Synchronous, Tokenizer};

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub organization: Option<String>,
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub database: Option<PathBuf>,
    pub model: Option<String>,
    pub endpoint: Endpoint,
    pub slots: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub root: PathBuf,
    pub file: Option<PathBuf>,
    /// Whether the project's own skills and libraries are used; without it there is no project but a folder.
    pub is_trusted: bool,
    pub trust: Trust,
    pub database: PathBuf,
    pub personas: PathBuf,
    /// Whether somebody named that folder, so that its absence is an error.
    pub personas_named: bool,
    /// The folder tools are confined to where a job names none; absolute.
    pub workspace: PathBuf,
    pub slots: usize,
    pub lease: Duration,
    pub grace: Duration,
    pub synchronous: Synchronous,
    /// How much waiting one step of priority is worth, to jobs enqueued from here.
    pub priority_step: Duration,
    /// Deaths of workers in a row that a job may meet without getting any further, where its persona does not say.
    pub max_crashes: Option<u32>,
    /// Of how many runs files are kept beside the database; 0 for none.
    pub run_files: usize,
    /// How long what has ended is to be kept, as far as the file says. The database decides.
    pub retention: Vec<Keep>,
    pub keys: Keys,
    pub key_file: Option<PathBuf>,
    pub commands: CommandLimits,
    pub web: WebSettings,
    pub embedder: FileEmbedder,
    pub models: BTreeMap<String, FileModel>,
    pub default_model: Option<String>,
    pub endpoint: Endpoint,
    pub mcp_servers: BTreeMap<String, ServerTable>,
}

/// `path` as seen from `folder`, without the steps that lead nowhere (`/.`); `..` stays, for it may lead through a link.
fn joined(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path).components().collect()
}

pub const DEFAULT_DATABASE: &str = ".posse/posse.db";

/// Jobs each role works at once unless configured: a model's answer is waited for, not computed.
const DEFAULT_SLOTS: usize = 4;

const RUN_FILES: usize = 200;

const KEY_FILE_BYTES: u64 = 64 << 10;

const DEFAULT_PRIORITY_STEP: Duration = Duration::from_millis(DEFAULT_PRIORITY_STEP_MS as u64);

impl Settings {
    pub fn resolve(cwd: &Path, env: Env<'_>, overrides: &Overrides) -> Result<Settings> {
        let given = overrides.config.clone().or_else(|| env("POSSE_CONFIG").filter(|v| !v.is_empty()).map(Into::into));
        let trust = Trust::load(env)?;
        let untrusted = |folder: &Path, why| Untrusted { folder: folder.into(), found: found_in(folder), why };
        let (root, file, is_trusted) = match given {
            // Whoever names it trusts it.
            Some(path) => {
                let path = joined(cwd, &path);
                (root_of(&path), Some(path), true)
            }
            None => match find_project(cwd) {
                Some((root, file)) => match trust.of_project(&root) {
                    Ok(()) => (root, file, true),
                    Err(why) => return Err(untrusted(&root, why).into()),
                },
                None => (cwd.into(), None, trust.of_project(cwd).is_ok()),
            },
        };
        let mut said = file.as_deref().map(file::read).transpose()?.unwrap_or_default();
        let in_root = |path: &Path| joined(&root, path);
        for model in said.models.values_mut() {
            if let Some(Tokenizer::File(path)) = &mut model.tokenizer {
                *path = in_root(path);
            }
        }
        let database = match overrides.database.clone().or_else(|| env("POSSE_DB").map(Into::into)) {
            Some(path) if path.as_os_str().is_empty() => {
                return Err(usage("the database's path is empty (--db, POSSE_DB)"));
            }
            Some(path) => joined(cwd, &path),
            // A database says what agents shall do, and where. Where there is no project, somebody may have put it here.
            None if !is_trusted && root.join(".posse").symlink_metadata().is_ok() => match trust.of(&root) {
                Ok(Extent::Database | Extent::Project) => in_root(Path::new(DEFAULT_DATABASE)),
                Err(why) => return Err(untrusted(&root, why).into()),
            },
            None => in_root(said.database.as_deref().unwrap_or(Path::new(DEFAULT_DATABASE))),
        };
        let key_file = said.sealing.key_file.as_deref().map(in_root);
        let model = overrides.model.clone().or(text(env, "POSSE_MODEL")?).filter(|name| !name.is_empty());
        let settings = Settings {
            database,
            personas: in_root(said.personas.as_deref().unwrap_or(Path::new("config/personas"))),
            personas_named: said.personas.is_some(),
            workspace: in_root(said.workspace.as_deref().unwrap_or(Path::new("."))),
            slots: overrides.slots.or(said.slots).unwrap_or(DEFAULT_SLOTS),
            lease: Duration::from_secs(said.lease_seconds.unwrap_or(30)),
            grace: Duration::from_secs(said.grace_seconds.unwrap_or(10)),
            synchronous: said.synchronous.unwrap_or_default(),
            priority_step: said
                .priority_step_minutes
                .map_or(DEFAULT_PRIORITY_STEP, |m| Duration::from_secs(60 * u64::from(m))),
            max_crashes: said.max_crashes,
            run_files: said.run_files.unwrap_or(RUN_FILES),
            retention: said.retention.resolve().map_err(usage)?,
            keys: keys(env, key_file.as_deref())?,
            key_file,
            commands: said.commands.resolve().map_err(usage)?,
            web: said
                .web
                .resolve(&|written| expanded("a header of [web.headers] in config/posse.toml", written, env))
                .map_err(usage)?,
            embedder: said.embedder,
            models: said.models,
            default_model: model.or(said.default_model),
            endpoint: overrides.endpoint.clone(),
            mcp_servers: said.mcp_servers,
            root,
            file,
            is_trusted,
            trust,
        };
        settings.check()?;
        Ok(settings)
    }

    /// A folder beside the database, and under its name where that is not the usual one.
    pub fn beside_database(&self, what: &str) -> PathBuf {
        let name = self.database.file_name().unwrap_or_default().to_string_lossy();
        match &*name {
            "posse.db" => self.database.with_file_name(what),
            other => self.database.with_file_name(format!("{other}.{what}")),
        }
    }

    fn check(&self) -> Result<()> {
        let file = self.file.as_ref().map(|f| f.display().to_string()).unwrap_or_else(|| "the settings".into());
        let (slots, lease, grace) = (self.slots, self.lease.as_secs(), self.grace.as_secs());
        let (minutes, most_minutes) = (self.priority_step.as_millis() / 60_000, MAX_PRIORITY_STEP_MS as u128 / 60_000);
        let is_http = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        let wrong = if !(1..=1000).contains(&slots) {
            format!("slots is {slots}; a role works 1 to 1000 jobs at once (--slots, {file})")
        } else if !(1..=3600).contains(&lease) {
            format!("{file}: lease_seconds is {lease}; it must lie between 1 and 3600")
        } else if grace > 3600 {
            format!("{file}: grace_seconds is {grace}; at most 3600 are allowed")
        } else if let Some(n) = self.max_crashes.filter(|n| !(1..=MOST_CRASHES).contains(n)) {
            format!("{file}: max_crashes is {n}; it must lie between 1 and {MOST_CRASHES}")
        } else if minutes > most_minutes {
            format!("{file}: priority_step_minutes is {minutes}; at most {most_minutes} are allowed")
        } else if let Some(url) = self.endpoint.base_url.as_deref().filter(|url| !is_http(url)) {
            format!("--base-url '{url}' must begin with http:// or https://")
        } else {
            return Ok(());
        };
        Err(usage(wrong))
    }
}

/// The nearest folder, upwards from `cwd`, that has a `config` of ours in it.
fn find_project(cwd: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    for folder in cwd.ancestors() {
        let file = folder.join("config/posse.toml");
        if file.is_file() {
            return Some((folder.into(), Some(file)));
        }
        if folder.join("config/personas").is_dir() {
            return Some((folder.into(), None));
        }
    }
    None
}

/// The project's folder of a settings file: the one that has `config/` in it, else the file's own.
fn root_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new("/"));
    match folder.file_name() {
        Some(name) if name == "config" => folder.parent().unwrap_or(folder).into(),
        _ => folder.into(),
    }
}

/// The keys that texts are sealed with: of `POSSE_SEAL_KEYS`, else of a file that only its owner may read; none where
/// neither is named. An error says where it
/// is and nothing of a key.
pub fn keys(env: Env<'_>, file: Option<&Path>) -> Result<Keys> {
    if let Some(said) = text(env, KEYS_VARIABLE)?.filter(|said| !said.trim().is_empty()) {
        return Keys::parse(&said).map_err(|why| usage(format!("{KEYS_VARIABLE}: {why}")));
    }
    let Some(path) = file else { return Ok(Keys::default()) };
    let shown = path.display();
    let unreadable = |error| usage(format!("the keys in {shown} ([sealing] key_file) cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let data = file.metadata().map_err(unreadable)?;
    if !data.is_file() {
        return Err(usage(format!("{shown} ([sealing] key_file) is no file")));
    }
    if data.mode() & 0o077 != 0 {
        return Err(usage(format!(
            "the keys in {shown} ([sealing] key_file) may be read by others than their owner; chmod 600 {shown}"
        )));
    }
    let mut said = String::new();
    file.take(KEY_FILE_BYTES).read_to_string(&mut said).map_err(unreadable)?;
    Keys::parse(&said).map_err(|why| usage(format!("{shown} ([sealing] key_file): {why}")))
}

/// The value of `what` with `${NAME}` replaced by the variable NAME, or which one is not set.
pub fn expanded(what: &str, written: &str, env: Env<'_>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), written);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else { break };
        let value = env(name).and_then(|value| value.into_string().ok()).filter(|value| !value.trim().is_empty());
        let value = value.ok_or_else(|| format!("{what} takes its value from {name}, which is not set"))?;
        out.push_str(before);
        out.push_str(value.trim());
        rest = after;
    }
    Ok(out + rest)
}

pub fn load(overrides: &Overrides) -> Result<Settings> {
    let cwd = std::env::current_dir().context("the current folder cannot be found; it may have been removed")?;
    Settings::resolve(&cwd, &env::own, overrides)
}
