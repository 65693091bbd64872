//! The words of a question, and what is searched for them.
//!
//! Whatever is asked becomes a legal expression of a full-text index: words, each in quotes, any of which will do.
//! Characters of scripts that set no spaces between words are words of their own, here and in what is indexed.

/// Most words that are searched for.
pub const MAX_WORDS: usize = 64;

/// How much a word beside an item counts, against one in it.
pub const AROUND: f64 = 0.3;

/// Most bytes of what stands on either side of an item that count as its context.
pub const MAX_AROUND_BYTES: usize = 2000;

/// Words that tell nothing of what is asked for.
const STOP_WORDS: &str = " a about after again all also am an and any anyone are as at be because been before being but by \
    can could did do does doing don done for from get gets got had has have having he her here hers him his how i if in \
    into is it its just let like me my no not of off on once one or our ours out over own please s she should so some \
    such t tell than that the their theirs them then there these they this those to too up us very was we were what \
    when where which while who whom whose why will with would you your yours ";

/// What a question is searched by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its words, each once, in their order.
    pub words: Vec<String>,
    /// Those that were left out because they tell nothing.
    pub left_out: Vec<String>,
    /// How many more there were than [`MAX_WORDS`].
    pub too_many: usize,
}

/// The words of a question. One of nothing but words that tell nothing is searched by those.
pub fn asked(question: &str) -> Asked {
    let mut asked = Asked::default();
    let spread = spread(question);
    for word in spread.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty()) {
        let word = word.to_lowercase();
        let told = match STOP_WORDS.split_whitespace().any(|stop| stop == word) {
            true => &mut asked.left_out,
            false => &mut asked.words,
        };
        if told.contains(&word) {
            continue;
        }
        if told.len() == MAX_WORDS {
            asked.too_many += 1;
            continue;
        }
        told.push(word);
    }
    if asked.words.is_empty() {
        asked.words = std::mem::take(&mut asked.left_out);
    }
    asked
}

impl Asked {
    /// The expression that finds whatever has any of the words; none where there is no word.
    pub fn expression(&self) -> Option<String> {
        let quoted: Vec<_> = self.words.iter().map(|word| quoted(word)).collect();
        (!quoted.is_empty()).then(|| quoted.join(" OR "))
    }
}

/// A word as a part of an expression. It has no quotes in it.
pub fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// A text as it is indexed: characters of scripts without spaces stand apart.
pub fn spread(text: &str) -> String {
    if !text.chars().any(stands_alone) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(2 * text.len());
    for c in text.chars() {
        match stands_alone(c) {
            true => out.extend([' ', c, ' ']),
            false => out.push(c),
        }
    }
    out
}

/// What stands beside an item in its conversation, as it is indexed.
pub fn around(before: Option<&str>, after: Option<&str>) -> String {
    let last = |text: &str| spread(&text[text.ceil_char_boundary(text.len().saturating_sub(MAX_AROUND_BYTES))..]);
    let first = |text: &str| spread(&text[..text.floor_char_boundary(MAX_AROUND_BYTES)]);
    [before.map(last), after.map(first)].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Letters, digits, and marks that are set on letters.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '\u{300}'..='\u{36f}')
}

/// Scripts of East and South-East Asia that set no spaces between words.
fn stands_alone(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2fa1f}')
}
