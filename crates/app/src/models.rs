//! Models as they are shown.

use std::path::PathBuf;

use posse_core::queue::rate::EndpointState;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// How we know of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// From the settings file.
    File,
    /// From OPENAI_API_KEY, OPENAI_BASE_URL or `--base-url`.
    Environment,
    /// A running Ollama was found.
    Ollama,
    /// It is always there.
    BuiltIn,
}

/// How we know how many tokens a text has for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Counting {
    /// The server that runs it counts.
    Server,
    /// Its tokenizer is in a file.
    File {
        /// The file.
        path: PathBuf,
    },
    /// They are estimated, and what replies say corrects the estimate.
    Estimate,
}

impl Counting {
    /// In a word or a file's name, for people.
    pub fn brief(&self) -> String {
        match self {
            Counting::Server => "server".into(),
            Counting::File { path } => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Counting::Estimate => "estimated".into(),
        }
    }
}

/// A model that can be used: an item of `posse model list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ModelView {
    /// Its name here.
    pub name: String,
    /// Whether it is used where none is named.
    pub default: bool,
    /// `local` or `endpoint`.
    pub kind: &'static str,
    /// Where it is asked.
    pub place: String,
    /// Its name there.
    pub model: Option<String>,
    /// How we know of it.
    pub origin: Origin,
    /// The environment variable that holds its key.
    pub key_env: Option<String>,
    /// Whether that is set.
    pub key_set: Option<bool>,
    /// How its tokens are counted.
    pub tokens: Counting,
    /// How its endpoint has been doing, where it has failed since it last answered.
    pub failing: Option<EndpointState>,
}

/// A model file that can be fetched.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LocalFile {
    /// Its name.
    pub name: &'static str,
    /// `ready`, `damaged`, `partly here` or `not here`.
    pub status: &'static str,
    /// Its size.
    pub bytes: u64,
    /// What it is good for.
    pub good_for: &'static str,
    /// What it did of small jobs; null where nobody has measured it.
    pub measured: Option<Measured>,
}

/// What a model did of small jobs that nothing was tuned for, each with a few files (`scripts/efficacy` of the sources).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Measured {
    /// So many were done right.
    pub right: u32,
    /// Of so many.
    pub of: u32,
    /// Tokens read and written, for each.
    pub tokens: u32,
    /// The seconds that each took, on 2 cores.
    pub seconds: u32,
}

impl Measured {
    /// Right answers and speed in two cells of a table, for people.
    pub fn brief(one: Option<Measured>) -> (String, String) {
        let unknown = || ("-".to_owned(), "-".to_owned());
        one.map_or_else(unknown, |Measured { right, of, seconds, .. }| {
            (format!("{right} of {of}"), format!("{seconds} s"))
        })
    }
}

/// What turns texts into vectors, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EmbedderView {
    /// `local` or `endpoint`.
    pub kind: &'static str,
    /// The model, as its vectors are known by.
    pub model: String,
    /// Where it is asked.
    pub place: String,
    /// How we know of it.
    pub origin: Origin,
    /// The environment variable that holds its key.
    pub key_env: Option<String>,
    /// Whether that is set.
    pub key_set: Option<bool>,
    /// The model file that it is run from, one of `local_files`.
    pub file: Option<&'static str>,
}

/// The document of `posse model list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ModelList {
    /// The models, their long texts cut.
    #[schemars(with = "Vec<ModelView>")]
    pub models: Vec<Value>,
    /// Always null: there is one page.
    pub next: Option<i64>,
    /// Model files that can be fetched.
    pub local_files: Vec<LocalFile>,
    /// What turns texts into vectors; null where the settings want none.
    pub embedder: Option<EmbedderView>,
}
