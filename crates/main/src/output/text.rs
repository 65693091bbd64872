//! Words and numbers as people read them.

use std::fmt::Write as _;

use posse_core::clock::Millis;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `text` with everything that would steer a terminal or hide text made visible: control characters,
/// escape sequences, bidi overrides, invisible marks. Line breaks stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            // The control pictures of Unicode: ␛ for escape, ␀ for NUL.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + c as u32)),
            '\x7f' => out.push('␡'),
            c if misleads(c) => {
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// Characters that are not seen and change how others are.
fn misleads(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// `text` on one line of at most `width` columns, its end cut by an ellipsis.
pub fn one_line(text: &str, width: usize) -> String {
    // A goal may be long; only its beginning can be shown.
    let start: String = text.trim().chars().take(width * 4 + 16).collect();
    let mut words = String::new();
    for word in visible(&start).split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
    let cut = start.len() < text.trim().len();
    truncate(&words, width, cut)
}

/// `text` cut to `width` columns; ends in an ellipsis when something is missing or `cut` says so.
pub fn truncate(text: &str, width: usize, cut: bool) -> String {
    if !cut && text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used >= width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// The columns `text` takes.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// `text` broken at spaces into lines of at most `width` columns. Words that are longer are broken
/// where they must be.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(10);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let indent: String = paragraph.chars().take_while(|c| *c == ' ').take(width / 2).collect();
        let mut line = indent.clone();
        let mut used = line.width();
        let mut empty = true;
        for word in paragraph.split_whitespace() {
            if !empty && used + 1 + word.width() > width {
                lines.push(std::mem::replace(&mut line, indent.clone()));
                used = line.width();
                empty = true;
            }
            if !empty {
                line.push(' ');
                used += 1;
            }
            for c in word.chars() {
                let columns = c.width().unwrap_or(0);
                if used + columns > width {
                    lines.push(std::mem::replace(&mut line, indent.clone()));
                    used = line.width();
                }
                line.push(c);
                used += columns;
            }
            empty = false;
        }
        lines.push(line);
    }
    lines
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

/// How long ago `at` was, or in how long it will be.
pub fn ago(at: Millis, now: Millis) -> String {
    match now - at {
        ..=-1000 => format!("in {}", duration((at - now) / 1000 * 1000)),
        -999..1000 => "just now".into(),
        past => format!("{} ago", rough(past)),
    }
}

/// A length of time by its largest unit.
fn rough(ms: Millis) -> String {
    let s = ms / 1000;
    match s {
        ..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86_400 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

/// A point in time in the reader's zone.
pub fn moment(at: Millis) -> String {
    match jiff::Timestamp::from_millisecond(at) {
        Ok(at) => at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => format!("{at} ms"),
    }
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

/// `1 turn`, `2 turns`.
pub fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A size of text.
pub fn bytes(n: usize) -> String {
    match n {
        ..1000 => format!("{n} B"),
        1000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// Tokens in both directions; estimates are marked.
pub fn tokens(usage: &posse_core::model::Usage) -> String {
    let about = if usage.estimated { "about " } else { "" };
    let cached = if usage.cached > 0 { format!(" ({} cached)", count(usage.cached)) } else { String::new() };
    format!("{about}{} in{cached} + {} out tokens", count(usage.input), count(usage.output))
}

/// A price; `free` where the model runs on this machine.
pub fn cost(microusd: Option<u64>, free: bool) -> String {
    match microusd {
        Some(0) => "free".into(),
        Some(micro) if micro >= 1_000_000 => format!("${:.2}", micro as f64 / 1e6),
        Some(micro) if micro >= 100 => format!("${:.4}", micro as f64 / 1e6),
        Some(micro) => format!("${:.6}", micro as f64 / 1e6),
        None if free => "free (local)".into(),
        None => "cost unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(
            visible("a\x1b[31mred\x07\u{9b}2J\u{202e}gpj.exe\u{200b}\r\nb\tc\r"),
            "a␛[31mred␇\\u{9b}2J\\u{202e}gpj.exe\\u{200b}\nb    c␍"
        );
        assert_eq!(visible("häß 👩\u{200d}💻 e\u{301}"), "häß 👩\u{200d}💻 e\u{301}");
        assert_eq!(one_line("a\n b\t\x1b c", 40), "a b ␛ c");
    }

    #[test]
    fn text_fits_its_width() {
        assert_eq!(one_line("one two three", 8), "one two…");
        assert_eq!(one_line("日本語日本語", 7), "日本語…");
        assert_eq!(
            wrap("one two three four\n\n  five six seven", 10),
            ["one two", "three four", "", "  five six", "  seven"]
        );
        assert_eq!(wrap("abcdefghijklmn", 10), ["abcdefghij", "klmn"]);
    }

    #[test]
    fn numbers_are_human() {
        let all = [0, 999, 1_850, 59_999, 60_000, 125_000, 3_600_000, 90_061_000].map(duration);
        assert_eq!(all, ["<1 ms", "999 ms", "1.8 s", "59.9 s", "1 min", "2 min 5 s", "1 h", "1 d 1 h"]);
        assert_eq!([ago(0, 90_000), ago(5_000, 0), ago(0, 10)], ["1 min ago", "in 5.0 s", "just now"]);
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [cost(Some(1200), false), cost(Some(3), false), cost(Some(2_500_000), false)],
            ["$0.0012", "$0.000003", "$2.50"]
        );
        assert_eq!([cost(None, true), cost(None, false)], ["free (local)", "cost unknown"]);
        assert_eq!([bytes(12), bytes(1_500), bytes(2_500_000)], ["12 B", "1.5 kB", "2.5 MB"]);
    }
}
