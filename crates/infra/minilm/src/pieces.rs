//! A text as the model reads it: words in lower case without accents, and rare ones in pieces (WordPiece).
//!
//! Text is data: `[SEP]` in a text is three pieces, and not the mark that ends it.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

/// A word of more characters is not looked for.
const MOST_CHARS: usize = 100;

pub(crate) struct Pieces {
    /// Those that a word begins with.
    first: HashMap<Box<str>, u32>,
    /// Those that a word goes on with.
    next: HashMap<Box<str>, u32>,
    count: usize,
    begin: u32,
    end: u32,
    unknown: u32,
}

impl Pieces {
    /// Of a list of pieces, one in each line; those that go on begin with `##`.
    pub fn new(vocabulary: &str) -> Result<Self, String> {
        let (mut first, mut next) = (HashMap::new(), HashMap::new());
        for (number, line) in (0..).zip(vocabulary.lines()) {
            match line.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => next.insert(rest.into(), number),
                _ => first.insert(line.into(), number),
            };
        }
        let mark = |mark: &str| first.get(mark).copied().ok_or_else(|| format!("{mark} is not among its pieces"));
        let (begin, end, unknown) = (mark("[CLS]")?, mark("[SEP]")?, mark("[UNK]")?);
        Ok(Pieces { first, next, count: vocabulary.lines().count(), begin, end, unknown })
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The numbers of a text's pieces, at most `most` with the marks at both ends. What is behind is not read.
    pub fn of(&self, text: &str, most: usize) -> Vec<u32> {
        let mut numbers = vec![self.begin];
        let mut word = Word::default();
        for c in plain(text) {
            if numbers.len() >= most {
                break;
            }
            let is_mark = is_punctuation(c);
            if is_mark || c.is_whitespace() {
                self.add(&mut word, &mut numbers);
            } else {
                word.push(c);
            }
            if is_mark {
                word.push(c);
                self.add(&mut word, &mut numbers);
            }
        }
        self.add(&mut word, &mut numbers);
        numbers.truncate(most - 1);
        numbers.push(self.end);
        numbers
    }

    /// Adds a word in the longest pieces, from its front; one that has a part that is no piece is unknown as a whole.
    fn add(&self, word: &mut Word, numbers: &mut Vec<u32>) {
        let Word { text, chars } = std::mem::take(word);
        if chars == 0 {
            return;
        }
        let before = numbers.len();
        let mut rest = if chars > MOST_CHARS { "" } else { &text[..] };
        while !rest.is_empty() {
            let pieces = if numbers.len() == before { &self.first } else { &self.next };
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
            let Some((end, number)) = ends.rev().find_map(|end| Some((end, *pieces.get(&rest[..end])?))) else {
                numbers.truncate(before);
                break;
            };
            numbers.push(number);
            rest = &rest[end..];
        }
        if numbers.len() == before {
            numbers.push(self.unknown);
        }
    }
}

/// A word on its way; of one that is too long, only how long it is.
#[derive(Default)]
struct Word {
    text: String,
    chars: usize,
}

impl Word {
    fn push(&mut self, c: char) {
        self.chars += 1;
        if self.chars <= MOST_CHARS {
            self.text.push(c);
        }
    }
}

/// The text without what steers, without accents, in lower case, and with every Chinese character a word of its own.
fn plain(text: &str) -> impl Iterator<Item = char> {
    let kept = text.chars().filter(|c| !is_control(*c)).map(|c| if c.is_whitespace() { ' ' } else { c });
    let apart = kept.flat_map(|c| {
        let space = is_chinese(c).then_some(' ');
        space.into_iter().chain([c]).chain(space)
    });
    apart.nfd().filter(|c| !is_accent(*c)).flat_map(char::to_lowercase)
}

fn is_in(class: &Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

#[allow(clippy::unwrap_used)]
fn is_control(c: char) -> bool {
    static OTHER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\p{Cc}\p{Cf}\p{Co}]").unwrap());
    match c {
        '\t' | '\n' | '\r' => false,
        '\u{fffd}' => true,
        c if c.is_ascii() => c.is_ascii_control(),
        c => is_in(&OTHER, c),
    }
}

#[allow(clippy::unwrap_used)]
fn is_accent(c: char) -> bool {
    static ACCENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\p{Mn}").unwrap());
    !c.is_ascii() && is_in(&ACCENT, c)
}

#[allow(clippy::unwrap_used)]
fn is_punctuation(c: char) -> bool {
    static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\p{P}").unwrap());
    if c.is_ascii() { c.is_ascii_punctuation() } else { is_in(&PUNCTUATION, c) }
}

fn is_chinese(c: char) -> bool {
    matches!(c,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, most: usize) -> Vec<u32> {
        let vocabulary = ["[CLS]", "[SEP]", "[UNK]", "un", "##aff", "##able", "cafe", "!", "山", "[", "]", "sep", "a"];
        Pieces::new(&vocabulary.join("\n")).expect("whole").of(text, most)
    }

    #[test]
    fn words_fall_into_the_longest_pieces() {
        assert_eq!(read("", 9), [0, 1]);
        assert_eq!(read("unaffable", 9), [0, 3, 4, 5, 1]);
        assert_eq!(read("UN\taffable", 9), [0, 3, 2, 1]);
        assert_eq!(read("Café!Cafe\u{301}", 9), [0, 6, 7, 6, 1]);
        assert_eq!(read("山a山", 9), [0, 8, 12, 8, 1]);
        assert_eq!(read("ca\u{200d}fe \u{0}\u{fffd}", 9), [0, 6, 1]);
    }

    #[test]
    fn a_mark_in_a_text_is_text() {
        assert_eq!(read("[SEP]", 9), [0, 9, 11, 10, 1]);
    }

    #[test]
    fn what_is_too_long_is_left_out() {
        assert_eq!(read("a a a a a a", 4), [0, 12, 12, 1]);
        assert_eq!(read("unaffable", 4), [0, 3, 4, 1]);
        assert_eq!(read(&"a".repeat(101), 9), [0, 2, 1]);
        assert!(Pieces::new("[CLS]\n[SEP]").is_err_and(|why| why.contains("[UNK]")));
    }
}
