//! Which models there are, found once at the start and built when they are first asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use posse_app::enqueue::LOCAL_MODEL;
use posse_app::models::{Counting, Origin};
use posse_core::clock::Clock as _;
use posse_core::job::{Job, JobState};
use posse_core::metrics::ModelTallies;
use posse_core::model::{Model, ModelError, ModelErrorKind, Models};
use posse_core::port::RateLimiter;
use posse_core::queue::rate::ModelRates;
use posse_infra::local;
use posse_infra::model::fallback::FallbackModel;
use posse_infra::model::openai::{OpenAiConfig, OpenAiModel, TokenizerChoice, ToolCallingChoice};
use posse_infra::model::outage::Outages;
use posse_infra::model::rate_limited::{LimiterSlot, RateLimitedModel};
use posse_infra::model::secret::Secret;
use posse_infra::model::watched::{Answered, LastFailure, WatchedModel};
use posse_infra::process::SystemClock;

use crate::env::{self, Env, text};
use crate::exit::usage;
use crate::output::text::moment;
use crate::settings::{Calling, Endpoint, FileModel, ModelKind, Settings, Tokenizer, file};

mod probe;

/// The provider's model where an OpenAI key is all that is known.
pub const OPENAI_DEFAULT_MODEL: &str = "gpt-4.1-mini";

pub const OPENAI_URL: &str = "https://api.openai.com/v1";

#[derive(Debug, Clone)]
pub struct Known {
    pub table: FileModel,
    pub origin: Origin,
}

impl Known {
    pub fn place(&self) -> String {
        match self.table.kind {
            ModelKind::Local => "on this machine".into(),
            ModelKind::Endpoint => self.table.base_url.clone().unwrap_or_else(|| OPENAI_URL.into()),
        }
    }

    /// Its endpoint, as what is known of it is kept; none for a model on this machine.
    pub fn endpoint(&self) -> Option<String> {
        (self.table.kind == ModelKind::Endpoint).then(|| OpenAiConfig::new("", self.place(), "").endpoint())
    }

    pub fn counting(&self) -> Counting {
        match (&self.table.tokenizer, self.table.kind) {
            (Some(Tokenizer::File(path)), _) => Counting::File { path: path.clone() },
            (Some(Tokenizer::Server), _) | (None, ModelKind::Local) => Counting::Server,
            (None, ModelKind::Endpoint) => Counting::Estimate,
        }
    }

    pub fn key_env(&self, env: Env<'_>) -> Option<String> {
        match &self.table.api_key_env {
            Some(name) => Some(name.clone()).filter(|name| !name.is_empty()),
            // A key goes only where it belongs: to its provider, or to the endpoint that was named
            // beside it. Any other endpoint must name its variable.
            None => {
                let url = self.table.base_url.as_deref().unwrap_or(OPENAI_URL);
                let named = text(env, "OPENAI_BASE_URL").ok().flatten().is_some_and(|named| named == url);
                let belongs = self.origin == Origin::Environment || url.starts_with("https://api.openai.com/") || named;
                (self.table.kind == ModelKind::Endpoint && belongs).then(|| "OPENAI_API_KEY".into())
            }
        }
    }
}

/// The names that a persona may give for a model: those configured, and the local one. Where none is
/// configured, what is found at the start has one of two names, and which is known only then.
pub fn names(settings: &Settings) -> BTreeSet<String> {
    let found: &[&str] = match settings.models.is_empty() || settings.endpoint.base_url.is_some() {
        true => &[LOCAL_MODEL, "openai", "ollama"],
        false => &[LOCAL_MODEL],
    };
    let named = settings.models.keys().chain(&settings.default_model).cloned();
    named.chain(found.iter().map(|&name| name.to_owned())).collect()
}

pub struct Catalog {
    pub known: BTreeMap<String, Known>,
    default: Option<String>,
    built: Mutex<BTreeMap<String, Arc<dyn Model>>>,
    limiter: LimiterSlot,
    pub tallies: Arc<ModelTallies>,
    pub outages: Arc<Outages>,
    /// Whether a person waits for what is asked here.
    insists: Arc<AtomicBool>,
    last: Arc<LastFailure>,
    /// Names that were asked for in vain, and told of.
    missed: Mutex<BTreeSet<String>>,
}

impl Catalog {
    /// Finds the models: in the settings, else in the environment, else a running Ollama, else the
    /// local one, which is always there.
    pub async fn find(settings: &Settings, env: Env<'_>) -> Result<Catalog> {
        let mut known: BTreeMap<String, Known> = settings
            .models
            .iter()
            .map(|(name, table)| (name.clone(), Known { table: table.clone(), origin: Origin::File }))
            .collect();
        let mut default = settings.default_model.clone();
        if settings.models.is_empty() || settings.endpoint.base_url.is_some() {
            if let Some((name, found)) = from_environment(settings, env).await? {
                known.insert(name.clone(), found);
                default = default.filter(|d| known.contains_key(d)).or(Some(name));
            } else if let Some(model) = probe::ollama(env).await? {
                let base_url = Some(format!("{}/v1", probe::ollama_url(env)?));
                // "" says on purpose that no key is sent.
                let table = FileModel {
                    base_url,
                    model: Some(model),
                    api_key_env: Some(String::new()),
                    ..FileModel::default()
                };
                known.insert("ollama".into(), Known { table, origin: Origin::Ollama });
                default = default.filter(|d| known.contains_key(d)).or(Some("ollama".into()));
            }
        }
        let local = FileModel { kind: ModelKind::Local, ..FileModel::default() };
        known.entry(LOCAL_MODEL.into()).or_insert(Known { table: local, origin: Origin::BuiltIn });
        if let Some(name) = &settings.default_model
            && !known.contains_key(name)
        {
            name_at_endpoint(&mut known, default.as_deref(), name)?;
            default = Some(name.clone());
        }
        if default.is_none() {
            let mut named = settings.models.keys();
            default = match (named.next(), named.next()) {
                (None, _) => Some(LOCAL_MODEL.into()),
                (Some(only), None) => Some(only.clone()),
                _ => settings.models.contains_key("default").then(|| "default".into()),
            };
        }
        say_over(&mut known, default.as_deref(), &settings.endpoint)?;
        Ok(Catalog {
            known,
            default,
            built: Mutex::default(),
            limiter: LimiterSlot::default(),
            tallies: Arc::default(),
            outages: Arc::new(Outages::new(Arc::new(SystemClock))),
            insists: Arc::default(),
            last: Arc::default(),
            missed: Mutex::default(),
        })
    }

    pub fn default_name(&self) -> Option<&str> {
        self.default.as_deref()
    }

    /// Has all models asked through `limiter` from now on, those that are built already too.
    pub fn share(&self, limiter: Arc<dyn RateLimiter>) {
        // A process has one database; the first is the one.
        let _ = self.limiter.set(limiter);
    }

    /// A person waits for what is asked: endpoints that are out are asked for them all the same.
    pub fn insist(&self) {
        self.insists.store(true, Ordering::Relaxed);
    }

    pub fn last_failure(&self) -> Option<ModelErrorKind> {
        self.last.kind()
    }

    fn build(&self, name: &str, known: &Known) -> Result<Arc<dyn Model>, ModelError> {
        let clock = Arc::new(SystemClock);
        let (primary, (endpoint, model)): (Arc<dyn Model>, _) = match known.table.kind {
            ModelKind::Local => (
                local::model(name, known.table.model.as_deref(), known.table.context_window)?,
                ("local".to_owned(), name.to_owned()),
            ),
            ModelKind::Endpoint => {
                let mut config = config(name, known, &env::own)?;
                // Each try asks leave, so tries are made where that is done.
                let (retries, backoff) = (std::mem::take(&mut config.retries), config.backoff);
                let place = (config.endpoint(), config.model.clone());
                let FileModel { requests_per_minute, tokens_per_minute, .. } = known.table;
                let rates = ModelRates { requests_per_minute, tokens_per_minute };
                let inner = Arc::new(OpenAiModel::new(config)?);
                let limiter = Arc::clone(&self.limiter);
                let limited = RateLimitedModel::new(inner, place.clone(), rates, limiter, clock.clone())
                    .with_retries(retries, backoff)
                    .with_outages(Arc::clone(&self.outages))
                    .insisting(Arc::clone(&self.insists));
                (Arc::new(limited), place)
            }
        };
        let tally = self.tallies.model(&endpoint, &model);
        let count = move |answered: Answered<'_>| match answered {
            Answered::Request(answer, took) => tally.count(took, answer),
            Answered::Profile(_) => {}
        };
        let primary = Arc::new(WatchedModel { inner: primary, clock: clock.clone(), watch: count });
        let model: Arc<dyn Model> = match &known.table.fallback {
            Some(fallback) => Arc::new(FallbackModel::new(primary, self.get(Some(fallback))?)),
            None => primary,
        };
        let last = Arc::clone(&self.last);
        let note = move |answered: Answered<'_>| last.note(answered.failure());
        Ok(Arc::new(WatchedModel { inner: model, clock, watch: note }))
    }

    /// The error of a model that this worker has not got, told of once.
    fn missed(&self, name: &str, error: ModelError) -> ModelError {
        self.last.note(Some(error.kind));
        let is_news = self.missed.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        // A person who waits reads the error itself.
        if is_news && !self.insists.load(Ordering::Relaxed) {
            tracing::warn!("{}; jobs that need it wait, and spend no attempts", error.message);
        }
        error
    }
}

/// A job that is due later than in so many milliseconds is not waited for by a person.
const PATIENCE_MS: i64 = 30_000;

/// Whether a job whose attempt has ended, worked with these models in this process, waits for something that a
/// person has to mend: a key, an account, an address, a server that is not there.
pub fn is_helpless(models: &Catalog, job: &Job) -> bool {
    use ModelErrorKind::{OutOfCredit, Unauthorized, Unreachable, WorkerUnfit};
    let waits = matches!(job.state, JobState::Scheduled | JobState::Retryable);
    let is_theirs = matches!(models.last_failure(), Some(OutOfCredit | Unauthorized | Unreachable | WorkerUnfit));
    let is_long = job.state == JobState::Scheduled && job.run_at - SystemClock.now() > PATIENCE_MS;
    waits && (is_theirs || is_long)
}

/// What a person is told of such a job, with the way out.
pub fn waits_for_a_person(job: &Job) -> String {
    let Job { id, run_at, .. } = job;
    let reason = job.reason.as_deref().unwrap_or("its model cannot be asked now");
    format!(
        "job {id} waits, and is tried again at {}, because {reason}. It is kept as it was last saved. Mend that, and \
         see that posse model test gets an answer; then posse job edit {id} --in 0s and posse work go on with it at once \
         (posse work alone when it is due), and posse job cancel {id} ends it",
        moment(*run_at)
    )
}

impl Models for Catalog {
    fn get(&self, name: Option<&str>) -> Result<Arc<dyn Model>, ModelError> {
        let names = || self.known.keys().cloned().collect::<Vec<_>>().join(", ");
        let name = name.or(self.default.as_deref()).ok_or_else(|| {
            unfit(format!(
                "it is not clear which model to use; set default_model in config/posse.toml to one of {}",
                names()
            ))
        })?;
        if let Some(model) = self.built.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(Arc::clone(model));
        }
        let known = self.known.get(name).ok_or_else(|| {
            let why =
                format!("this worker has no model '{name}'; it has {} (config/posse.toml, posse model list)", names());
            self.missed(name, unfit(why))
        })?;
        let model = self.build(name, known).map_err(|error| self.missed(name, error))?;
        self.built.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), Arc::clone(&model));
        Ok(model)
    }
}

async fn from_environment(settings: &Settings, env: Env<'_>) -> Result<Option<(String, Known)>> {
    let set = |name| text(env, name).map(|value| value.filter(|v| !v.trim().is_empty()));
    let (key, url) = (set("OPENAI_API_KEY")?, set("OPENAI_BASE_URL")?);
    let from = if settings.endpoint.base_url.is_some() { "--base-url" } else { "OPENAI_BASE_URL" };
    let url = settings.endpoint.base_url.clone().or(url);
    if key.is_none() && url.is_none() {
        return Ok(None);
    }
    let base_url = url.unwrap_or_else(|| OPENAI_URL.into());
    let model = match settings.default_model.clone().or(set("OPENAI_MODEL")?) {
        Some(model) => model,
        None if base_url.starts_with(OPENAI_URL) => OPENAI_DEFAULT_MODEL.into(),
        None => probe::first_model(&base_url, key.as_deref()).await.map_err(|why| {
            usage(format!(
                "which model shall {base_url} ({from}) run? It could not be asked ({why}); set OPENAI_MODEL or --model"
            ))
        })?,
    };
    // A local server wants no key; where one is set, it goes to the endpoint it was set beside.
    let api_key_env = Some(if key.is_some() { "OPENAI_API_KEY" } else { "" }.to_owned());
    let table = FileModel {
        base_url: Some(base_url),
        model: Some(model),
        api_key_env,
        organization: set("OPENAI_ORG_ID")?,
        project: set("OPENAI_PROJECT_ID")?,
        ..FileModel::default()
    };
    Ok(Some(("openai".into(), Known { table, origin: Origin::Environment })))
}

/// What the command line says of the endpoint holds for the default model, wherever it was found.
fn say_over(known: &mut BTreeMap<String, Known>, default: Option<&str>, said: &Endpoint) -> Result<()> {
    let Endpoint { base_url: _, api_key_env, organization, headers } = said;
    if api_key_env.is_none() && organization.is_none() && headers.is_empty() {
        return Ok(());
    }
    let model = default.and_then(|name| known.get_mut(name));
    let Some(model) = model.filter(|model| model.table.kind == ModelKind::Endpoint) else {
        return Err(usage(
            "--api-key-env, --organization and --header are about an endpoint, and the default model has none; add \
             --base-url, or name a model of config/posse.toml with --model",
        ));
    };
    if api_key_env.is_some() {
        model.table.api_key_env.clone_from(api_key_env);
    }
    if organization.is_some() {
        model.table.organization.clone_from(organization);
    }
    model.table.headers.extend(headers.clone());
    file::check_headers(&model.table.headers).map_err(|why| usage(format!("--header: {why}")))
}

/// `--model` may name a provider's model at an endpoint that was found rather than configured.
fn name_at_endpoint(known: &mut BTreeMap<String, Known>, at: Option<&str>, model: &str) -> Result<()> {
    let endpoint =
        at.and_then(|name| known.get(name)).filter(|k| matches!(k.origin, Origin::Environment | Origin::Ollama));
    let Some(endpoint) = endpoint else {
        let names = known.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(usage(format!(
            "there is no model '{model}'; there are {names}. Add [models.{model}] to config/posse.toml"
        )));
    };
    let mut named = endpoint.clone();
    named.table.model = Some(model.into());
    known.insert(model.into(), named);
    Ok(())
}

/// Everything the adapter needs to know about an endpoint.
/// How the endpoint of a model is asked, its key read.
pub fn config(name: &str, known: &Known, env: Env<'_>) -> Result<OpenAiConfig, ModelError> {
    let table = &known.table;
    let base_url = table.base_url.as_deref().unwrap_or(OPENAI_URL);
    let model = match &table.model {
        Some(model) => model.as_str(),
        None if base_url.starts_with(OPENAI_URL) => OPENAI_DEFAULT_MODEL,
        None => return Err(unfit(format!("[models.{name}] says no model; add model = \"<the provider's name>\""))),
    };
    let mut config = OpenAiConfig::new(name, base_url, model);
    config.api_key = match known.key_env(env) {
        Some(variable) => Some(from_variable(name, &variable, env)?),
        None => None,
    };
    for (header, value) in &table.headers {
        config.headers.push((header.clone(), Secret::new(expand(name, value, env)?)));
    }
    config.base_url_from = table.base_url.as_ref().map(|url| match known.origin {
        Origin::File => format!("[models.{name}] in config/posse.toml"),
        Origin::Ollama => "found on this machine".into(),
        _ if text(env, "OPENAI_BASE_URL").ok().flatten().as_ref() == Some(url) => "OPENAI_BASE_URL".into(),
        _ if url == OPENAI_URL => "OPENAI_API_KEY".into(),
        _ => "--base-url".into(),
    });
    config.organization = table.organization.clone();
    config.project = table.project.clone();
    config.tool_calling = match table.tool_calling {
        Calling::Auto => ToolCallingChoice::Auto,
        Calling::Native => ToolCallingChoice::Native,
        Calling::Structured => ToolCallingChoice::Structured,
    };
    config.stream = table.stream.unwrap_or(config.stream);
    config.context_window = table.context_window;
    config.tokenizer = match known.counting() {
        Counting::Server => TokenizerChoice::Server,
        Counting::File { path } => TokenizerChoice::File(path),
        Counting::Estimate => TokenizerChoice::None,
    };
    config.reasoning = table.reasoning;
    config.user_after_tool = table.user_after_tool;
    config.take_turns = table.take_turns;
    config.several_systems = table.several_systems;
    config.price_input = table.price_input;
    config.price_output = table.price_output;
    config.retries = table.retries.unwrap_or(config.retries);
    config.idle_timeout = table.idle_timeout_seconds.map_or(config.idle_timeout, Duration::from_secs);
    Ok(config)
}

fn from_variable(model: &str, variable: &str, env: Env<'_>) -> Result<Secret, ModelError> {
    let value = env(variable).and_then(|v| v.into_string().ok()).map(Secret::new).filter(|s| !s.is_empty());
    value.ok_or_else(|| {
        unfit(format!(
            "the model '{model}' takes its key from {variable}, which is not set; set it, or name another variable \
             with api_key_env (\"\" for no key)"
        ))
    })
}

/// `value` with `${NAME}` replaced by the variable NAME.
fn expand(model: &str, value: &str, env: Env<'_>) -> Result<String, ModelError> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((variable, after)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(from_variable(model, variable, env)?.expose());
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// An error of this worker's settings: whoever has others may be able to ask.
fn unfit(message: String) -> ModelError {
    let (kind, failed_tries) = (ModelErrorKind::WorkerUnfit, Vec::new());
    ModelError { kind, message, retry_after: None, context_window: None, failed_tries }
}
