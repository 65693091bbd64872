//! The embedder that needs no account: all-MiniLM-L6-v2, from the file that `posse model pull` fetches.

use posse_core::model::embedder::{Again, EmbedError};
use posse_local_model::cache::{find, models_dir};
use posse_local_model::catalogue::EMBEDDER;
use posse_minilm::MiniLm;

/// The local embedder, read from its file. The first time this hashes the file, which takes half a second.
pub fn local() -> Result<MiniLm, EmbedError> {
    let mended = |message| EmbedError { again: Again::Mended, message };
    let folder = models_dir().ok_or_else(|| {
        mended("there is no place for model files, so there is no local embedder; set HOME or XDG_CACHE_HOME".into())
    })?;
    let unreadable = |error| mended(format!("the model files in {} cannot be read: {error}", folder.display()));
    let file = find(&EMBEDDER, &folder).map_err(unreadable)?.ok_or_else(|| {
        let (name, size) = (EMBEDDER.name, posse_core::text::bytes(EMBEDDER.bytes));
        mended(format!(
            "the local embedder {name} is not here yet: fetch it with posse model pull {name} ({size}, once), or name \
             another in [embedder] of config/posse.toml"
        ))
    })?;
    MiniLm::open(&file).map_err(|error| mended(error.to_string()))
}
