//! Words, numbers and what others wrote, as people and programs read them: one function for each, so that
//! the same thing looks the same wherever it is shown.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::clock::Millis;

/// Names the values of an enum, as they are stored, shown and, where it is said what they are, read.
macro_rules! named {
    ($type:ident: $($variant:ident = $name:literal),+) => {
        impl $type {
            /// All of them, in order.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// Its name, as it is stored and shown.
            pub fn as_str(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
    ($type:ident, $what:literal: $($variant:ident = $name:literal),+) => {
        named!($type: $($variant = $name),+);

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = $type::ALL.into_iter().find(|known| known.as_str() == text);
                found.ok_or_else(|| format!(concat!("'{}' is no ", $what, "; there are", $(" ", $name),+), text))
            }
        }
    };
}

pub(crate) use named;

/// `text` with everything that would steer a terminal or hide text made visible: control characters,
/// escape sequences, bidi overrides, invisible marks. Line breaks stay. What is visible already stays
/// as it is, so doing it twice changes nothing.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = '\0';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\t' => out.push_str("    "),
            c => push_visible(&mut out, before, c, chars.peek().copied()),
        }
        before = c;
    }
    out
}

/// Adds one character of a text in which it stands between two others.
pub fn push_visible(out: &mut String, before: char, c: char, next: Option<char>) {
    match c {
        '\r' if next == Some('\n') => {}
        '\n' => out.push('\n'),
        // The control pictures of Unicode: ␛ for escape, ␀ for NUL.
        '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + c as u32)),
        '\x7f' => out.push('␡'),
        // Emoji and some scripts are written with joiners; between other letters they only hide.
        NON_JOINER | JOINER if !before.is_ascii() && next.is_some_and(|next| !next.is_ascii()) => out.push(c),
        c if steers(c) => {
            let _ = write!(out, "\\u{{{:x}}}", c as u32);
        }
        c => out.push(c),
    }
}

const NON_JOINER: char = '\u{200c}';
const JOINER: char = '\u{200d}';

/// The same on one line: line breaks are shown too.
pub fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "␊")
}

/// Whether a character is not seen itself and changes how others are, or what a terminal does.
pub fn steers(c: char) -> bool {
    matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// JSON in which every character that [`steers`] is written as `\uXXXX`, so that it says the same to
/// programs and does nothing to the terminal that shows it. Such characters stand in strings only: the
/// line breaks between values stay.
pub fn harmless_json(json: &str) -> Cow<'_, str> {
    let acts = |c: char| c != '\n' && steers(c);
    let Some(first) = json.find(acts) else { return Cow::Borrowed(json) };
    let mut out = String::with_capacity(json.len() + 64);
    out.push_str(&json[..first]);
    for c in json[first..].chars() {
        if acts(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// `text` on one line, with one space for each gap.
pub fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands before each line of a text that is data to whoever reads it.
pub const QUOTE: &str = "| ";

/// A text as data: each line of it stands behind [`QUOTE`], and nothing in it steers a terminal.
pub fn quoted(text: &str) -> String {
    let is_break = |c: char| matches!(c, '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let text = text.replace("\r\n", "\n");
    let lines = text.split(is_break).map(|line| {
        let line: String = line.chars().map(shown).collect();
        format!("{QUOTE}{line}").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A character, or the mark for one that would steer a terminal.
pub(crate) fn shown(c: char) -> char {
    let steers = (c.is_control() && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if steers { '\u{fffd}' } else { c }
}

/// The beginning of `text`: at most `most` bytes, whole characters.
pub fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// `head: reason`, or the reason alone where it begins with those words itself.
pub fn because(head: &str, reason: &str) -> String {
    let reason = reason.trim();
    let begins = reason.get(..head.len()).is_some_and(|start| start.eq_ignore_ascii_case(head))
        && !reason[head.len()..].starts_with(|c: char| c.is_alphanumeric());
    match (begins, reason.is_empty()) {
        (true, _) => reason.to_owned(),
        (_, true) => head.to_owned(),
        _ => format!("{head}: {reason}"),
    }
}

/// Whether a text has no NUL, and if it has, where.
pub(crate) fn check_nul(text: &str) -> Result<(), String> {
    text.find('\0').map_or(Ok(()), |at| Err(format!("contains a NUL character at byte {at}; remove it")))
}

/// Whether a value may be left out of JSON: it is the one that its absence stands for.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A count with its thousands apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 turn`, `2 turns`, `1 query`, `2 queries`, `1 match`, `2 matches`. Every count of something in a sentence is
/// written by this, and a test of the sources (`crates/core/tests/sentences.rs`) looks for those that are not.
pub fn plural(n: u64, one: &str) -> String {
    let number = count(n);
    match (n, one.strip_suffix('y')) {
        (1, _) => format!("{number} {one}"),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end)) => format!("{number} {one}es"),
        _ => format!("{number} {one}s"),
    }
}

/// `has 70,000 bytes; at most 65,536 are allowed`.
pub fn has_too_many(n: usize, one: &str, most: usize) -> String {
    format!("has {}; at most {} are allowed", plural(n as u64, one), count(most as u64))
}

/// A size in bytes, by units of a thousand.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut size = n as f64 / 1e3;
    let mut unit = 0;
    // What would round up to a thousand is one of the next.
    while size >= 999.95 && unit + 1 < UNITS.len() {
        size /= 1e3;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// A length of time: `3 ms`, `1.8 s`, `2 min 5 s`, `3 h 10 min`, `4 d 2 h`.
pub fn duration(ms: Millis) -> String {
    let ms = ms.max(0);
    let s = ms / 1000;
    match s {
        0 if ms == 0 => "<1 ms".into(),
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", s, ms % 1000 / 100),
        60..3600 => pair(s / 60, "min", s % 60, "s"),
        3600..86_400 => pair(s / 3600, "h", s % 3600 / 60, "min"),
        _ => pair(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

fn pair(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{big} {big_unit}") } else { format!("{big} {big_unit} {small} {small_unit}") }
}

/// A length of time by its largest unit.
pub fn rough_duration(ms: Millis) -> String {
    match ms / 1000 {
        s @ ..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min", s / 60),
        s @ 3600..86_400 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// How long ago `at` was, or in how long it will be.
pub fn ago(at: Millis, now: Millis) -> String {
    match now - at {
        ..=-1000 => format!("in {}", duration((at - now) / 1000 * 1000)),
        -999..1000 => "just now".into(),
        past => format!("{} ago", rough_duration(past)),
    }
}

/// A point in time by RFC 3339, in UTC with milliseconds; none if no calendar has it.
pub fn rfc3339(at: Millis) -> Option<String> {
    jiff::Timestamp::from_millisecond(at).ok().map(|at| format!("{at:.3}"))
}

/// Of `known`, the word that a slip of the pen may have turned into `word`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    let most = (word.len() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|other| (strsim::levenshtein(&word, &other.to_lowercase()), other));
    scored.filter(|(d, _)| *d <= most).min_by_key(|(d, _)| *d).map(|(_, other)| other)
}
