//! The local model: a model file run on this machine by `posse-local`, started when first asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posse_core::model::{
    DeltaSink, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest, TokenCounter, ToolCalling,
};
use posse_core::stop::Stop;
use posse_local_model::cache::{find, models_dir};
use posse_local_model::catalogue::{MODELS, by_name, default_model};
use posse_local_model::server::{Endpoint, ServerOptions, ensure_running};
use posse_models::openai::{OpenAiConfig, OpenAiModel, ToolCallingChoice};
use posse_models::secret::Secret;
use posse_models::tokenizer::{PatientCounter, Tokenizer};
use tokio::sync::Mutex;

/// Reading a long prompt is slow without a graphics card, and nothing is said meanwhile.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// How long a count may take. Whoever counts asks the model next, so a server that has to be started
/// for it is not started in vain.
const STARTING: Duration = Duration::from_secs(60);

/// The model of that name: `file` is a known short name or the path of a GGUF file, the usual one when absent; `window` is
/// in tokens. Nothing is started yet.
pub fn model(name: &str, file: Option<&str>, window: Option<u32>) -> Result<Arc<dyn Model>, ModelError> {
    let file = match file {
        None => known_file(default_model().name)?,
        Some(path) if path.contains('/') => PathBuf::from(path),
        Some(short) => known_file(short)?,
    };
    let stem = file.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let context = window.unwrap_or(ServerOptions::default().context);
    let server = Arc::new(LocalServer { name: name.into(), file, stem, context, running: Mutex::new(None) });
    let tokenizer = PatientCounter::new(Arc::clone(&server), name, STARTING);
    Ok(Arc::new(LocalModel { server, tokenizer: Arc::new(tokenizer) }))
}

fn known_file(short: &str) -> Result<PathBuf, ModelError> {
    let known = by_name(short).ok_or_else(|| {
        let names = MODELS.iter().map(|m| m.name).collect::<Vec<_>>().join(", ");
        unusable(format!("there is no local model '{short}'; there are {names}, or give the path of a GGUF file"))
    })?;
    let Some(folder) = models_dir() else {
        return Err(unusable("there is no place for model files; set HOME or XDG_CACHE_HOME".into()));
    };
    match find(known, &folder) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(unusable(format!(
            "the local model {short} is not here yet: fetch it with posse model pull {short} ({}, once), or set \
             OPENAI_API_KEY (and OPENAI_BASE_URL) to use a provider",
            posse_core::text::bytes(known.bytes)
        ))),
        Err(error) => Err(unusable(format!("the model files in {} cannot be read: {error}", folder.display()))),
    }
}

struct LocalModel {
    server: Arc<LocalServer>,
    tokenizer: Arc<dyn TokenCounter>,
}

struct LocalServer {
    name: String,
    file: PathBuf,
    stem: String,
    context: u32,
    /// Where it was last time, and the client for it.
    running: Mutex<Option<(Endpoint, Arc<OpenAiModel>)>>,
}

impl LocalServer {
    /// The client of a running server. Looks each time, because a server ends when nobody has asked
    /// it for a while.
    async fn client(&self) -> Result<Arc<OpenAiModel>, ModelError> {
        let mut running = self.running.lock().await;
        let options = ServerOptions { context: self.context, ..ServerOptions::default() };
        // A server that does not come up is this machine's trouble, and not the job's.
        let found = ensure_running(&self.file, &self.stem, options).await;
        let found = found.map_err(|error| unusable(error.to_string()))?;
        if let Some((endpoint, client)) = running.as_ref()
            && (endpoint.pid, &endpoint.token) == (found.pid, &found.token)
        {
            return Ok(Arc::clone(client));
        }
        let mut config = OpenAiConfig::new(&self.name, &found.base_url, &self.stem);
        config.api_key = Some(Secret::new(found.token.clone()));
        config.tool_calling = ToolCallingChoice::Structured;
        config.context_window = Some(found.context);
        config.idle_timeout = IDLE_TIMEOUT;
        let client = Arc::new(OpenAiModel::new(config)?);
        *running = Some((found, Arc::clone(&client)));
        Ok(client)
    }
}

#[async_trait]
impl Model for LocalModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        Ok(ModelProfile {
            name: self.server.name.clone(),
            model: self.server.stem.clone(),
            tool_calling: ToolCalling::Structured,
            context_window: Some(self.server.context),
        })
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let client = tokio::select! {
            client = self.server.client() => client?,
            _ = stop.stopped() => {
                let message = "stopped while the local model was starting".into();
                return Err(ModelError { kind: ModelErrorKind::Stopped, ..unusable(message) });
            }
        };
        client.complete(request, deltas, stop).await
    }

    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        Some(Arc::clone(&self.tokenizer))
    }
}

#[async_trait]
impl Tokenizer for LocalServer {
    async fn count(&self, text: &str) -> Result<u64, String> {
        let client = self.client().await.map_err(|error| error.message)?;
        client.server_tokenizer().count(text).await
    }
}

fn unusable(message: String) -> ModelError {
    let (kind, failed_tries) = (ModelErrorKind::WorkerUnfit, Vec::new());
    ModelError { kind, message, retry_after: None, context_window: None, failed_tries }
}
