//! The final answer inside a structured step, as it streams in.

/// Picks the text of `final_summary` out of the JSON of a step that calls `finish`, piece by piece.
#[derive(Default)]
pub struct Answer {
    json: String,
    /// Where the text goes on in `json`, once its beginning has come.
    at: Option<usize>,
    closed: bool,
}

/// What begins the answer's text, spaces aside.
const KEYS: [&str; 2] = ["\"finish\"", "\"final_summary\""];

impl Answer {
    /// Takes in a piece of the JSON and gives what it adds to the answer.
    pub fn take(&mut self, piece: &str) -> String {
        self.json.push_str(piece);
        if self.at.is_none() {
            self.at = self.beginning();
        }
        let Some(at) = self.at.filter(|_| !self.closed) else { return String::new() };
        let (whole, closed) = whole_characters(&self.json[at..]);
        let text = serde_json::from_str(&format!("\"{}\"", &self.json[at..at + whole])).unwrap_or_default();
        self.at = Some(at + whole);
        self.closed = closed;
        text
    }

    fn beginning(&self) -> Option<usize> {
        let mut at = 0;
        for key in KEYS {
            at += self.json[at..].find(key)? + key.len();
        }
        let rest = self.json[at..].trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        Some(self.json.len() - rest.len())
    }
}

/// The length of what can be read of a JSON string's inside, and whether its end was reached.
fn whole_characters(text: &str) -> (usize, bool) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let length = match byte {
            b'"' => return (at, true),
            b'\\' => match bytes.get(at + 1) {
                // A character beyond the first 65,536 is two escapes.
                Some(b'u') if is_first_of_two(text.get(at + 2..at + 6)) => 12,
                Some(b'u') => 6,
                _ => 2,
            },
            _ => 1,
        };
        if at + length > bytes.len() {
            break;
        }
        at += length;
    }
    (at, false)
}

fn is_first_of_two(digits: Option<&str>) -> bool {
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).is_some_and(|unit| (0xd800..0xdc00).contains(&unit))
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn the_answer_comes_whole_however_it_is_cut() {
        let said = "Say \"hé\" to 😀\nand \\ go";
        for text in [said.to_owned(), "a".repeat(300)] {
            let arguments = serde_json::json!({"final_summary": text});
            let step = serde_json::json!({"thinking": "I \"finish\" now", "tool": "finish", "arguments": arguments});
            let escaped = step.to_string().replace('é', "\\u00e9").replace('😀', "\\ud83d\\ude00");
            for size in 1..40 {
                let chars: Vec<char> = escaped.chars().collect();
                let mut answer = Answer::default();
                let got: String =
                    chars.chunks(size).map(|piece| answer.take(&piece.iter().collect::<String>())).collect();
                assert_eq!(got, text, "in pieces of {size}");
            }
        }
    }

    #[test]
    fn other_steps_give_nothing() {
        let mut answer = Answer::default();
        assert_eq!(
            answer.take(r#"{"thinking": "final_summary", "tool": "read_file", "arguments": {"path": "x"}}"#),
            ""
        );
    }
}
