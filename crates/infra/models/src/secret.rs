//! A value that must not be seen.

use std::fmt;

/// A key or a header value. Shows itself nowhere: not in `Debug`, not in logs, not in errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a value into hiding. Surrounding white space goes: keys come from files and shells.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into().trim().to_owned())
    }

    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` with this value struck out, for words that come back from a provider.
    pub fn strike(&self, text: &str) -> String {
        // A very short value would strike ordinary words, and protects nothing.
        if self.0.len() < 6 || !text.contains(&self.0) {
            return text.to_owned();
        }
        text.replace(&self.0, "[secret]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
