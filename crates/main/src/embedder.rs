//! Which embedder there is: what turns texts into vectors, so that they are found by their meaning.

use std::sync::Arc;

use posse_app::models::{EmbedderView, Origin};
use posse_core::model::embedder::{Again, EmbedError, Embedder};
use posse_core::worker::ChosenEmbedder;
use posse_infra::embedder::{Local, local_file};
use posse_infra::local_model::catalogue::EMBEDDER;
use posse_infra::minilm;
use posse_infra::model::embedder::{BATCH, EmbedderOptions, EndpointEmbedder};

use crate::env::{self, Env, text};
use crate::models::{Known, OPENAI_URL, config};
use crate::settings::{EmbedderKind, FileModel, Settings};

/// The provider's model where an OpenAI key is all that is known.
pub const OPENAI_EMBEDDER: &str = "text-embedding-3-small";

/// Which embedder a project has, before it is asked anything.
#[derive(Debug, Clone)]
pub enum Chosen {
    /// None: the settings say so.
    None,
    /// The one in this program, whose file is fetched.
    Local {
        origin: Origin,
    },
    Endpoint(Box<Known>, EmbedderOptions),
}

impl Chosen {
    /// What the settings say; else OpenAI's where there is a key for it, else the local one.
    pub fn of(settings: &Settings, env: Env<'_>) -> Self {
        let said = &settings.embedder;
        let origin = if said.kind().is_some() { Origin::File } else { Origin::Environment };
        match said.kind() {
            Some(EmbedderKind::None) => Chosen::None,
            Some(EmbedderKind::Local) => Chosen::Local { origin },
            None if !has_openai_key(settings, env) => Chosen::Local { origin: Origin::BuiltIn },
            Some(EmbedderKind::Endpoint) | None => {
                let table = FileModel {
                    base_url: Some(said.base_url.clone().unwrap_or_else(|| OPENAI_URL.into())),
                    model: Some(said.model.clone().unwrap_or_else(|| OPENAI_EMBEDDER.into())),
                    api_key_env: said.api_key_env.clone(),
                    headers: said.headers.clone(),
                    retries: said.retries,
                    idle_timeout_seconds: said.idle_timeout_seconds,
                    ..FileModel::default()
                };
                let options = EmbedderOptions {
                    dimension: said.dimension,
                    batch: said.batch.unwrap_or(BATCH),
                    most_tokens: said.max_tokens,
                };
                Chosen::Endpoint(Box::new(Known { table, origin }), options)
            }
        }
    }

    /// It, ready to be asked; nothing where there is to be none. Asks nothing yet, but looks for the local one's file.
    pub fn build(&self, env: Env<'_>) -> Result<Option<Arc<dyn Embedder>>, EmbedError> {
        match self {
            Chosen::None => Ok(None),
            Chosen::Local { .. } => {
                local_file()?;
                Ok(Some(Arc::new(Local::default())))
            }
            Chosen::Endpoint(known, options) => {
                let mended = |message| EmbedError { again: Again::Mended, message };
                let mut config = config("embedder", known, env).map_err(|error| mended(error.message))?;
                let from =
                    if known.origin == Origin::File { "[embedder] in config/posse.toml" } else { "OPENAI_API_KEY" };
                config.base_url_from = Some(from.into());
                Ok(Some(Arc::new(EndpointEmbedder::new(config, options.clone())?)))
            }
        }
    }

    /// As it is shown; nothing where there is to be none.
    pub fn view(&self, env: Env<'_>) -> Option<EmbedderView> {
        match self {
            Chosen::None => None,
            Chosen::Local { origin } => Some(EmbedderView {
                kind: "local",
                model: minilm::MODEL.into(),
                place: "on this machine".into(),
                origin: *origin,
                key_env: None,
                key_set: None,
                file: Some(EMBEDDER.name),
            }),
            Chosen::Endpoint(known, _) => {
                let key_env = known.key_env(env);
                Some(EmbedderView {
                    kind: "endpoint",
                    model: known.table.model.clone().unwrap_or_default(),
                    place: known.place(),
                    origin: known.origin,
                    key_set: key_env.as_deref().map(|variable| env(variable).is_some_and(|v| !v.is_empty())),
                    key_env,
                    file: None,
                })
            }
        }
    }
}

/// The embedder of this process, asked and read once there is something to embed; none where there is to be none, or the
/// settings of it are wrong, which is told.
pub fn of_process(settings: &Settings) -> Option<ChosenEmbedder> {
    let chosen = Chosen::of(settings, &env::own);
    let is_chosen = match &chosen {
        Chosen::None => return None,
        // Its file may be fetched while this process is at work.
        Chosen::Local { origin } => {
            return Some(ChosenEmbedder {
                embedder: Arc::new(Local::default()),
                is_chosen: *origin != Origin::BuiltIn,
            });
        }
        Chosen::Endpoint(known, _) => known.origin != Origin::BuiltIn,
    };
    match chosen.build(&env::own) {
        Ok(embedder) => embedder.map(|embedder| ChosenEmbedder { embedder, is_chosen }),
        Err(error) => {
            tracing::warn!("what is remembered is found by its words alone: {error}");
            None
        }
    }
}

/// Whether OPENAI_API_KEY is OpenAI's: where an address is named beside it, the key is for that.
fn has_openai_key(settings: &Settings, env: Env<'_>) -> bool {
    let set = |name| text(env, name).ok().flatten().filter(|value| !value.trim().is_empty());
    let url = settings.endpoint.base_url.clone().or_else(|| set("OPENAI_BASE_URL"));
    set("OPENAI_API_KEY").is_some() && url.is_none_or(|url| url.starts_with(OPENAI_URL))
}
