//! all-MiniLM-L6-v2, run here: a text becomes 384 numbers, on one core, in this process.
//!
//! It is a small BERT: six layers over the pieces of a text, and the mean of what comes out. That is little enough to be
//! written down, so there is no runtime for models in Posse. The multiplications of matrices are matrixmultiply's.
//!
//! Reading order: [`MiniLm`] (a file, and texts to vectors), `pieces` (a text to numbers of pieces), `weights` (what is
//! in the file), `layers` (the model itself), `maths` (what it computes with).
//!
//! Invariant: a text's vector does not depend on the texts beside it, but for the last bits of its numbers.

mod layers;
mod maths;
mod pieces;
mod weights;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use posse_core::model::embedder::{Again, EmbedError, Embedder, EmbedderProfile, Space, unit};

use layers::Layers;
use pieces::Pieces;
use weights::{WIDTH, Weights};

/// The name of its space.
pub const MODEL: &str = "all-MiniLM-L6-v2";

/// Pieces of a text that it takes notice of, the two around it included: what it was trained with, half of what it
/// could take.
pub const MOST_TOKENS: usize = 256;

/// Pieces that go through the layers at once: many, so that weights are read once for all of them, and few enough that
/// what is computed of them stays in a few megabytes.
const AT_ONCE: usize = 1024;

/// What the model is, whether its file is there or not.
pub fn profile() -> EmbedderProfile {
    EmbedderProfile { space: Space { model: MODEL.into(), dimension: WIDTH }, most_tokens: Some(MOST_TOKENS) }
}

/// Why the model cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// The model, read from its file: about 45 MB of memory. The vectors of its pieces, as large again, stay in the file.
#[derive(Clone)]
pub struct MiniLm(Arc<Inner>);

struct Inner {
    pieces: Pieces,
    layers: Layers,
}

impl MiniLm {
    /// Reads the model's file: its weights (safetensors) and behind them its pieces (`vocab.txt`), one in each line.
    /// Whether it is the right file is for whoever fetched it to say.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let wrong = |why: String| LoadError(format!("the embedding model {} cannot be used: {why}", path.display()));
        let (weights, vocabulary) = Weights::open(path).map_err(wrong)?;
        let pieces = Pieces::new(&vocabulary).map_err(wrong)?;
        let layers = Layers::read(weights, pieces.len()).map_err(wrong)?;
        Ok(MiniLm(Arc::new(Inner { pieces, layers })))
    }

    /// A vector for each text, on this thread: a few milliseconds for a sentence, some fifty for 256 tokens.
    pub fn vectors(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let Inner { pieces, layers } = &*self.0;
        let texts: Vec<Vec<u32>> = texts.iter().map(|text| pieces.of(text, MOST_TOKENS)).collect();
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = &texts[..];
        while !rest.is_empty() {
            let mut total = 0;
            let count = rest.iter().take_while(|text| {
                total += text.len();
                total <= AT_ONCE
            });
            let (now, later) = rest.split_at(count.count().max(1));
            let means = layers.means(now).map_err(|error| failed(&format!("its file cannot be read: {error}")))?;
            for mean in means {
                vectors.push(unit(mean).ok_or_else(|| failed("a text has no vector"))?);
            }
            rest = later;
        }
        Ok(vectors)
    }
}

fn failed(why: &str) -> EmbedError {
    let message = format!("the local embedding model {MODEL} failed: {why}");
    EmbedError { again: Again::Later { after: None }, message }
}

#[async_trait]
impl Embedder for MiniLm {
    async fn profile(&self) -> Result<EmbedderProfile, EmbedError> {
        Ok(profile())
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let (model, texts) = (self.clone(), texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let computed = tokio::task::spawn_blocking(move || {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            model.vectors(&texts)
        });
        computed.await.map_err(|_| failed("its thread ended"))?
    }
}
