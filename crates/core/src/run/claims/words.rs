//! Sentences and the files that they name, in what a person asks for and in what a model says.

use super::super::wish::Words;

/// Endings that names of files have and hardly anything else: `example.com`, `Node.js` and `user.name` are no files here.
const ENDINGS: Words = Words(
    "adoc bash bat bib c cfg conf cpp cs css csv dat diff doc docx geojson go gpx h hpp htm html ics ini ipynb java json \
     jsonl jsx kt lock log lua markdown md ndjson odt patch pdf php pl properties ps1 py rb rs rst rtf sh sql srt svg \
     swift tex toml ts tsv tsx txt vcf xlsx xml yaml yml",
);

/// A word of a sentence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    /// In small letters, without what stands around it.
    pub text: String,
    /// The file that it names, as it is written.
    pub path: Option<String>,
    /// A mark behind it ends a part of the sentence.
    pub ends_part: bool,
}

/// A sentence, or an item of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sentence {
    pub words: Vec<Word>,
    pub is_item: bool,
}

impl Sentence {
    /// The word at a place, empty where there is none.
    pub fn at(&self, at: usize) -> &str {
        self.words.get(at).map_or("", |word| word.text.as_str())
    }

    pub fn has(&self, any: Words) -> bool {
        self.words.iter().any(|word| any.has(&word.text))
    }

    /// The files that it names.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter_map(|word| word.path.as_deref())
    }
}

/// The sentences of a text, without those that it quotes: blocks of code, lines behind `>` or `|`, and what stands in
/// quotation marks, unless that is one word.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let mut sentences = vec![Sentence::default()];
    let mut in_code = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            in_code = !in_code;
            continue;
        }
        if in_code || line.starts_with(['>', '|']) {
            continue;
        }
        take_line(line, &mut sentences);
        if sentences.last().is_some_and(|last| !last.words.is_empty()) {
            sentences.push(Sentence::default());
        }
    }
    sentences.retain(|sentence| !sentence.words.is_empty());
    sentences
}

fn take_line(line: &str, sentences: &mut Vec<Sentence>) {
    let mut raws: Vec<&str> = line.split_whitespace().collect();
    let is_number = |raw: &str| raw.ends_with(['.', ')']) && raw[..raw.len() - 1].parse::<u32>().is_ok();
    let is_item = raws.first().is_some_and(|first| matches!(*first, "-" | "*" | "•" | "–") || is_number(first));
    if is_item {
        raws.remove(0);
    }
    if let Some(sentence) = sentences.last_mut() {
        sentence.is_item = is_item;
    }
    let mut at = 0;
    while at < raws.len() {
        let raw = raws[at];
        let quoted = quoted_words(&raws[at..]);
        at += quoted.max(1);
        let Some(sentence) = sentences.last_mut() else { return };
        let last = if quoted > 0 { raws[at - 1] } else { raw };
        let end = last.trim_end_matches(is_around).chars().next_back();
        let ends_part = end.is_some_and(|end| matches!(end, ',' | ';' | ':')) || matches!(raw, "-" | "–" | "—");
        let ends = end.is_some_and(|end| matches!(end, '.' | '?' | '!'));
        let text = if quoted > 0 { String::new() } else { trimmed(raw).to_lowercase() };
        // What is quoted stands for one word that says nothing.
        if quoted > 0 || !text.is_empty() {
            let path = (quoted == 0).then(|| path_in(raw)).flatten();
            sentence.words.push(Word { text, path, ends_part: ends_part || ends });
        } else if let Some(last) = sentence.words.last_mut() {
            last.ends_part |= ends_part;
        }
        if ends && !sentence.words.is_empty() {
            sentences.push(Sentence { is_item, ..Sentence::default() });
        }
    }
}

/// Marks that are farther apart do not belong together.
const MOST_QUOTED: usize = 200;

/// How many words, more than one, stand in the quotation marks that open at the first of them.
fn quoted_words(raws: &[&str]) -> usize {
    let opens = raws[0].trim_start_matches(['(', '[', '*']);
    let close = match opens.chars().next() {
        Some('"') => '"',
        Some('“' | '„') => '”',
        Some('«') => '»',
        Some('`') => '`',
        _ => return 0,
    };
    let closes = |raw: &str, close: char| {
        raw.trim_end_matches(is_mark).ends_with([close, if close == '”' { '“' } else { close }])
    };
    if opens.chars().count() > 1 && closes(raws[0], close) {
        return 0;
    }
    raws.iter().skip(1).take(MOST_QUOTED).position(|raw| closes(raw, close)).map_or(0, |at| at + 2)
}

fn is_mark(c: char) -> bool {
    matches!(c, '.' | ',' | ';' | ':' | '!' | '?' | ')' | ']' | '*')
}

fn is_around(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '(' | ')' | '[' | ']' | '*' | '“' | '”' | '„' | '‘' | '’' | '«' | '»')
}

fn trimmed(raw: &str) -> &str {
    raw.trim_matches(|c: char| is_around(c) || is_mark(c) || matches!(c, '-' | '–' | '—' | '_' | '<' | '>'))
}

/// The path of a file that a word is, if it is one.
fn path_in(raw: &str) -> Option<String> {
    let trimmed = raw.trim_matches(|c: char| is_around(c) || is_mark(c));
    let path = trimmed.strip_suffix("'s").or_else(|| trimmed.strip_suffix("’s")).unwrap_or(trimmed);
    let path = path.trim_end_matches(is_around).trim_start_matches("./");
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    let name = path.rsplit('/').next()?;
    let (stem, ending) = name.rsplit_once('.')?;
    let is_file = ENDINGS.has(&ending.to_lowercase()) && stem.contains(char::is_alphanumeric);
    (is_file && path.chars().all(is_part) && !path.contains("//")).then(|| path.to_owned())
}

/// A file by its own name, the same however the path to it is written.
pub(super) fn name_of(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_lowercase()
}
