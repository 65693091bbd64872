//! What is asked of a model that turns texts into vectors, so that texts of like meaning lie near each other.
//!
//! Vectors of one model mean nothing to another, also where they are of one length: whoever keeps vectors keeps with
//! each the [`Space`] that it lies in, and compares only what lies in the same.

use std::time::Duration;

use async_trait::async_trait;

/// What the vectors of an embedder are comparable by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Space {
    /// The model's name, as its provider calls it.
    pub model: String,
    /// How many numbers a vector has.
    pub dimension: usize,
}

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

/// The vector made as long as 1; none where it has no direction (nothing but zeros), or is no vector of numbers.
pub fn unit(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    // In f64, so that no square of a large number is lost.
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !(length.is_finite() && length > 0.0) {
        return None;
    }
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    Some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_is_kept_and_nothing_else_has_one() {
        assert_eq!(unit(vec![3.0, -4.0]), Some(vec![0.6, -0.8]));
        assert_eq!(unit(vec![f32::MAX, 0.0]), Some(vec![1.0, 0.0]));
        for none in [vec![], vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0]] {
            assert_eq!(unit(none), None);
        }
    }
}
