//! Tokenizers in files: the `tokenizer.json` that open models are published with.

use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::Tokenizer;

/// A tokenizer file, read when it is first asked something.
pub struct FileTokenizer {
    path: PathBuf,
    loaded: Arc<OnceLock<Result<tokenizers::Tokenizer, String>>>,
}

impl FileTokenizer {
    pub fn new(path: &Path) -> Result<Self, String> {
        if path.is_file() {
            return Ok(FileTokenizer { path: path.to_owned(), loaded: Arc::default() });
        }
        Err(format!(
            "its tokenizer {} is no file; write \"server\" or the path of a tokenizer.json, or leave it out",
            path.display()
        ))
    }
}

#[async_trait]
impl Tokenizer for FileTokenizer {
    async fn count(&self, text: &str) -> Result<u64, String> {
        let (loaded, path, text) = (Arc::clone(&self.loaded), self.path.clone(), text.to_owned());
        // Reading a large vocabulary takes half a second. It goes on when nobody waits any more.
        let count = move || {
            let failed = |error: tokenizers::Error| format!("{}: {error}", path.display());
            let read = || tokenizers::Tokenizer::from_file(&path).map_err(failed);
            let tokenizer = loaded.get_or_init(read).as_ref().map_err(Clone::clone)?;
            let encoded = tokenizer.encode_fast(text, false).map_err(failed)?;
            Ok(encoded.len() as u64)
        };
        tokio::task::spawn_blocking(count).await.map_err(|_| "it was not counted to the end".to_owned())?
    }
}
