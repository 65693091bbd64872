//! Counts of texts that were counted lately.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Counts in the younger half, after which the older one is forgotten: 160 KiB in all.
const HALF: usize = 4_096;

/// Counts by the texts they are of. Keeps no texts: two of them that hash alike, to 64 bits and with
/// the same length, would be taken for one.
#[derive(Default)]
pub(super) struct Remembered {
    hasher: RandomState,
    young: HashMap<(u64, usize), u64>,
    old: HashMap<(u64, usize), u64>,
}

impl Remembered {
    fn key(&self, text: &str) -> (u64, usize) {
        (self.hasher.hash_one(text), text.len())
    }

    pub fn get(&self, text: &str) -> Option<u64> {
        let key = self.key(text);
        self.young.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    pub fn put(&mut self, text: &str, tokens: u64) {
        if self.young.len() >= HALF {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(self.key(text), tokens);
    }
}
