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

/// What one more token gave.
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

    /// Takes a token's bytes.
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
        loop {
            match std::str::from_utf8(&self.bytes) {
                Ok(text) => {
                    self.held.push_str(text);
                    self.bytes.clear();
                    return;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    self.held.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
                    let Some(broken) = error.error_len() else {
                        self.bytes.drain(..valid);
                        return;
                    };
                    self.held.push(char::REPLACEMENT_CHARACTER);
                    self.bytes.drain(..valid + broken);
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &mut TextOut, piece: &str) -> String {
        match out.push(piece.as_bytes()) {
            Pushed::Text(text) => text,
            Pushed::Stopped(text) => panic!("stopped after {text:?}"),
        }
    }

    #[test]
    fn a_character_split_over_tokens_comes_out_whole() {
        let mut out = TextOut::new(vec![]);
        let bytes = "a€b".as_bytes();
        assert_eq!(out.push(&bytes[..2]), Pushed::Text("a".into()));
        assert_eq!(out.push(&bytes[2..3]), Pushed::Text(String::new()));
        assert_eq!(out.push(&bytes[3..]), Pushed::Text("€b".into()));
    }

    #[test]
    fn broken_bytes_become_a_replacement_character() {
        let mut out = TextOut::new(vec![]);
        assert_eq!(out.push(b"a\xffb"), Pushed::Text("a\u{fffd}b".into()));
        assert_eq!(out.push(b"\xe2\x82"), Pushed::Text(String::new()));
        assert_eq!(out.finish(), "\u{fffd}");
    }

    #[test]
    fn a_stop_string_over_several_tokens_is_never_shown() {
        let mut out = TextOut::new(vec!["\nEND".into(), String::new()]);
        assert_eq!(text(&mut out, "one\n"), "one");
        assert_eq!(text(&mut out, "E"), "");
        assert_eq!(text(&mut out, "x\nEN"), "\nEx");
        assert_eq!(out.push(b"D more"), Pushed::Stopped(String::new()));
    }

    #[test]
    fn the_earliest_stop_wins_and_a_held_beginning_is_given_back() {
        let mut out = TextOut::new(vec!["zz".into(), "b".into()]);
        assert_eq!(out.push(b"abzz"), Pushed::Stopped("a".into()));
        let mut out = TextOut::new(vec!["zz".into()]);
        assert_eq!(text(&mut out, "az"), "a");
        assert_eq!(out.finish(), "z");
    }
}
