//! The embedder that needs no account: all-MiniLM-L6-v2, from the file that `posse model pull` fetches.

use std::path::PathBuf;

use async_trait::async_trait;
use posse_core::model::embedder::{Again, EmbedError, Embedder, EmbedderProfile};
use posse_local_model::cache::{find, models_dir};
use posse_local_model::catalogue::EMBEDDER;
use posse_minilm::{MiniLm, profile};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

/// The local embedder's file. The first time this hashes it, which takes half a second.
pub fn local_file() -> Result<PathBuf, EmbedError> {
    let folder = models_dir().ok_or_else(|| {
        mended("there is no place for model files, so there is no local embedder; set HOME or XDG_CACHE_HOME".into())
    })?;
    let unreadable = |error| mended(format!("the model files in {} cannot be read: {error}", folder.display()));
    find(&EMBEDDER, &folder).map_err(unreadable)?.ok_or_else(|| {
        let (name, size) = (EMBEDDER.name, posse_core::text::bytes(EMBEDDER.bytes));
        mended(format!(
            "the local embedder {name} is not here yet: fetch it with posse model pull {name} ({size}, once), or name \
             another in [embedder] of config/posse.toml"
        ))
    })
}

fn mended(message: String) -> EmbedError {
    EmbedError { again: Again::Mended, message }
}

/// The local embedder, read from its file once a text is to be embedded.
#[derive(Default)]
pub struct Local(OnceCell<MiniLm>);

#[async_trait]
impl Embedder for Local {
    async fn profile(&self) -> Result<EmbedderProfile, EmbedError> {
        if self.0.get().is_none() {
            aside(local_file).await?;
        }
        Ok(profile())
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let open = || MiniLm::open(&local_file()?).map_err(|error| mended(error.to_string()));
        self.0.get_or_try_init(|| aside(open)).await?.embed(texts).await
    }
}

async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EmbedError> + Send + 'static,
) -> Result<T, EmbedError> {
    let ended = |_| EmbedError { again: Again::Later { after: None }, message: "the embedder's thread ended".into() };
    spawn_blocking(work).await.map_err(ended)?
}
