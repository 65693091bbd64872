//! What requests cost, in tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens of one request. Counts are of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Tokens written, reasoning included.
    pub output: u64,
    /// Of `input`, how many the provider had cached.
    #[serde(default)]
    pub cached: u64,
    /// True where the provider did not say and the numbers are our estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Tokens in both directions.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Adds another request's tokens; the sum is an estimate if either part is.
    pub fn add(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.estimated |= other.estimated;
    }

    /// A deliberately rough count for when a provider says nothing: four bytes of text to a token.
    pub fn estimate(read_bytes: usize, written_bytes: usize) -> Usage {
        let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
        Usage { input: tokens(read_bytes), output: tokens(written_bytes), cached: 0, estimated: true }
    }
}
