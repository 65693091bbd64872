//! Models' own tokenizers, asked as seldom as can be.
//!
//! No request waits long for a count, and none fails without one. A tokenizer that fails or is slow is left alone for
//! a while, and tokens are estimated.

#[cfg(feature = "tokenizer-files")]
mod file;
mod server;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use posse_core::model::TokenCounter;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

use super::locked;

pub use server::ServerTokenizer;

/// Longest time that a request for counts may take, where nothing has to be started for it.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How long a tokenizer that failed is left alone.
const REST: Duration = Duration::from_secs(60);

/// Texts that are counted at once.
const AT_ONCE: usize = 4;

/// Most bytes that are counted as one text; a longer one is counted in pieces, each of which may have
/// a token more for it.
const MAX_BYTES: usize = 256 << 10;

#[async_trait]
pub trait Tokenizer: Send + Sync {
    /// Tokens of the text by itself, without any that a template adds; or why that is not known.
    async fn count(&self, text: &str) -> Result<u64, String>;
}

#[async_trait]
impl<T: Tokenizer + ?Sized> Tokenizer for Arc<T> {
    async fn count(&self, text: &str) -> Result<u64, String> {
        (**self).count(text).await
    }
}

/// The tokenizer in a file, or why there is none.
#[cfg(feature = "tokenizer-files")]
pub(crate) fn of_file(path: &Path) -> Result<Arc<dyn Tokenizer>, String> {
    Ok(Arc::new(file::FileTokenizer::new(path)?))
}

#[cfg(not(feature = "tokenizer-files"))]
pub(crate) fn of_file(path: &Path) -> Result<Arc<dyn Tokenizer>, String> {
    Err(format!(
        "this program cannot read its tokenizer {}; build it with cargo build --release -p posse --features \
         tokenizer-files, or leave tokenizer out, and tokens are estimated",
        path.display()
    ))
}

/// Remembers what a tokenizer has counted, so that it is asked about new texts only, and lets it rest
/// when it fails.
pub struct PatientCounter<T> {
    tokenizer: T,
    /// Of which model, for the log.
    model: String,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    remembered: Remembered,
    /// Not asked before then.
    rests_until: Option<Instant>,
    /// Whether its failure was logged as a warning, which happens once.
    told: bool,
}

impl<T: Tokenizer> PatientCounter<T> {
    /// Counts for `model` with `tokenizer`, waiting for `patience` at most.
    pub fn new(tokenizer: T, model: impl Into<String>, patience: Duration) -> Self {
        PatientCounter { tokenizer, model: model.into(), patience, state: Mutex::default() }
    }

    async fn count_new(&self, texts: &[&str]) -> Result<(), String> {
        let new: BTreeSet<&str> = {
            let state = locked(&self.state);
            texts.iter().flat_map(|text| pieces(text)).filter(|piece| state.remembered.get(piece).is_none()).collect()
        };
        let counts: Vec<_> = new.into_iter().map(|piece| self.count_one(piece)).collect();
        let all = stream::iter(counts).buffer_unordered(AT_ONCE).try_collect::<()>();
        let late = |_| Err(format!("it had not answered after {:?}", self.patience));
        tokio::time::timeout(self.patience, all).await.unwrap_or_else(late)
    }

    async fn count_one(&self, piece: &str) -> Result<(), String> {
        let tokens = self.tokenizer.count(piece).await?;
        locked(&self.state).remembered.put(piece, tokens);
        Ok(())
    }

    fn is_resting(&self) -> bool {
        locked(&self.state).rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn rest(&self, why: &str) {
        let mut state = locked(&self.state);
        state.rests_until = Some(Instant::now() + REST);
        let (model, rest) = (&self.model, REST);
        match std::mem::replace(&mut state.told, true) {
            false => tracing::warn!(%model, ?rest, "tokens are estimated for a while: its tokenizer failed: {why}"),
            true => tracing::debug!(%model, ?rest, "tokens are estimated for a while: its tokenizer failed: {why}"),
        }
    }
}

#[async_trait]
impl<T: Tokenizer> TokenCounter for PatientCounter<T> {
    async fn count(&self, texts: &[&str]) -> Option<Vec<u64>> {
        if !self.is_resting()
            && let Err(why) = self.count_new(texts).await
        {
            self.rest(&why);
        }
        let state = locked(&self.state);
        texts.iter().map(|text| pieces(text).map(|piece| state.remembered.get(piece)).sum()).collect()
    }
}

/// A text in pieces that may be counted.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(MAX_BYTES));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Counts in the younger half, after which the older one is forgotten: 160 KiB in all.
const HALF: usize = 4_096;

/// Counts by the texts they are of. Keeps no texts: two of them that hash alike, to 64 bits and with
/// the same length, would be taken for one.
#[derive(Default)]
struct Remembered {
    hasher: RandomState,
    young: HashMap<(u64, usize), u64>,
    old: HashMap<(u64, usize), u64>,
}

impl Remembered {
    fn key(&self, text: &str) -> (u64, usize) {
        (self.hasher.hash_one(text), text.len())
    }

    fn get(&self, text: &str) -> Option<u64> {
        let key = self.key(text);
        self.young.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    fn put(&mut self, text: &str, tokens: u64) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(self.key(text), tokens);
    }
}
