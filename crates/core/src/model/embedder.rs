//! What is asked of a model that turns texts into vectors, so that texts of like meaning lie near each other.

use std::time::Duration;

use async_trait::async_trait;

pub use crate::memory::meaning::{Space, unit};

/// An embedder as it knows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedderProfile {
    /// Where its vectors lie.
    pub space: Space,
    /// Of how many tokens of a text it takes notice, where that is known; what comes behind them is left out.
    pub most_tokens: Option<usize>,
}

/// Turns texts into vectors.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// What it is. May have to ask it once; is then known.
    async fn profile(&self) -> Result<EmbedderProfile, EmbedError>;

    /// One vector of length 1 for each text, in their order, all in the space of [`Embedder::profile`]. Any text has one,
    /// an empty one too; of a long one, its beginning. Any number of texts may be given: they are sent in requests of a
    /// size that the model takes. All fail where one does.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;
}

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EmbedError {
    /// Whether to try again.
    pub again: Again,
    /// What failed, in words for people; holds no key and no text that was to be embedded.
    pub message: String,
}

/// Whether the same texts are worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Later, by itself.
    Later {
        /// No sooner than this, where the provider said so.
        after: Option<Duration>,
    },
    /// Once a person has mended something: a key, an address, a file that is not there.
    Mended,
    /// Not with these texts.
    Never,
}
