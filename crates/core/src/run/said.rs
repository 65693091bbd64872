//! What a conversation has said so far, for the case that it ends without an answer.

/// Most bytes that are kept: the newest.
const MAX_BYTES: usize = 32 * 1024;

const LEFT_OUT: &str = "[what was said before is left out]\n\n";

/// The visible words of all replies, bounded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Said {
    text: String,
    /// Where the last reply's begin.
    last: usize,
    is_cut: bool,
}

impl Said {
    /// Takes in the words of the next reply; said twice in a row they are kept once.
    pub fn push(&mut self, words: &str) {
        let words = words.trim();
        if words.is_empty() || words == self.last() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
        self.last = self.text.len();
        self.text.push_str(words);
        if self.text.len() > MAX_BYTES {
            let cut = self.text.ceil_char_boundary(self.text.len() - MAX_BYTES);
            self.text.drain(..cut);
            self.last = self.last.saturating_sub(cut);
            self.is_cut = true;
        }
    }

    /// All of it, as far as it is kept.
    pub fn text(&self) -> String {
        if self.is_cut { format!("{LEFT_OUT}{}", self.text) } else { self.text.clone() }
    }

    /// The words of the last reply that had any.
    pub fn last(&self) -> &str {
        &self.text[self.last..]
    }
}
