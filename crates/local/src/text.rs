//! From token bytes to text: whole characters only, and never past a stop string.

/// Gathers a generation's bytes and lets go of them as text as soon as that is safe.
#[derive(Debug, Default)]
pub struct TextOut {
    /// Bytes of a character that is not complete yet.
    bytes: Vec<u8>,
    /// Text that may turn out to be the beginning of a stop string.
    held: String,
    stops: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Text to pass on, perhaps none.
    Text(String),
    /// The text before a stop string; the generation ends here.
    Stopped(String),
}

impl TextOut {
    /// Ends at any of `stops`; empty ones are ignored.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops: stops.into_iter().filter(|s| !s.is_empty()).collect(), ..Self::default() }
    }

    pub fn push(&mut self, piece: &[u8]) -> Pushed {
        self.bytes.extend_from_slice(piece);
        self.take_whole_characters();
        if let Some(at) = self.stops.iter().filter_map(|s| self.held.find(s)).min() {
            self.held.truncate(at);
            return Pushed::Stopped(std::mem::take(&mut self.held));
        }
        let kept = self.possible_stop();
        let rest = self.held.split_off(self.held.len() - kept);
        Pushed::Text(std::mem::replace(&mut self.held, rest))
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> String {
        self.held.push_str(&String::from_utf8_lossy(&self.bytes));
        self.bytes.clear();
        std::mem::take(&mut self.held)
    }

    fn take_whole_characters(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.held.push_str(chunk.valid());
            let broken = chunk.invalid();
            if chunks.peek().is_none() && std::str::from_utf8(broken).is_err_and(|error| error.error_len().is_none()) {
                self.bytes = broken.to_vec();
            } else if !broken.is_empty() {
                self.held.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// Length of the longest end of `held` that begins a stop string.
    fn possible_stop(&self) -> usize {
        let begins = |stop: &String| {
            (1..stop.len()).rev().find(|&n| stop.is_char_boundary(n) && self.held.ends_with(&stop[..n]))
        };
        self.stops.iter().filter_map(begins).max().unwrap_or(0)
    }
}
