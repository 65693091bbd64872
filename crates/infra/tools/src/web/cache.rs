//! Answers that are kept while the process lives, and asked about again by what the server calls them. In memory alone:
//! nothing that was read is in any file.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH};

/// Most bytes that are kept.
const MOST_BYTES: usize = 32 << 20;

/// What one answer costs beside its body.
const EACH: usize = 1024;

#[derive(Default)]
pub(super) struct Cache {
    kept: HashMap<String, (u64, Kept)>,
    bytes: usize,
    used: u64,
}

/// An answer, and what the server calls it.
#[derive(Clone)]
pub(super) struct Kept {
    pub etag: Option<String>,
    pub modified: Option<String>,
    pub content_type: String,
    pub body: Arc<[u8]>,
}

impl Kept {
    /// The headers that ask for another answer than this one.
    pub fn conditions(&self) -> HeaderMap {
        let value = |text: &Option<String>| text.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        let pairs = [(IF_NONE_MATCH, value(&self.etag)), (IF_MODIFIED_SINCE, value(&self.modified))];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    fn cost(&self) -> usize {
        self.body.len() + EACH
    }
}

impl Cache {
    pub fn get(&mut self, url: &str) -> Option<Kept> {
        self.used += 1;
        let (used, kept) = self.kept.get_mut(url)?;
        *used = self.used;
        Some(kept.clone())
    }

    /// Keeps what the server has a name for; the least lately used goes where there is no room.
    pub fn keep(&mut self, url: &str, kept: Kept) {
        self.forget(url);
        if kept.etag.is_none() && kept.modified.is_none() || kept.cost() > MOST_BYTES / 4 {
            return;
        }
        while self.bytes + kept.cost() > MOST_BYTES {
            let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(url, _)| url.clone());
            let Some(oldest) = oldest else { break };
            self.forget(&oldest);
        }
        self.used += 1;
        self.bytes += kept.cost();
        self.kept.insert(url.to_owned(), (self.used, kept));
    }

    fn forget(&mut self, url: &str) {
        if let Some((_, gone)) = self.kept.remove(url) {
            self.bytes -= gone.cost();
        }
    }
}
