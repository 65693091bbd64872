//! Words and numbers as people read them, fitted to lines.

use posse_core::clock::Millis;
use posse_core::text::push_visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use posse_core::text::{ago, because, bytes, count, duration, head, plural, visible};

/// What goes to people: [`visible`], but tabs and line ends stay, and so do the colours of [`super::Paint`]
/// where `colours` are on. What is shown was made visible where it was put together; nothing that was
/// forgotten there gets past this.
pub fn harmless(text: &str, colours: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = '\0';
    let mut rest = text.chars();
    loop {
        let ours = PAINTS.iter().find(|code| colours && rest.as_str().starts_with(**code));
        if let Some(code) = ours {
            out.push_str(code);
            rest = rest.as_str()[code.len()..].chars();
            continue;
        }
        match rest.next() {
            None => return out,
            Some('\t') => out.push('\t'),
            Some(c) => {
                push_visible(&mut out, before, c, rest.clone().next());
                before = c;
            }
        }
    }
}

const PAINTS: [&str; 7] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"];

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

/// A line broken at spaces so that none has more than `width` columns; all but the first begin at `column`.
/// It may have the colours of [`super::Paint`], which take no room.
pub fn fold(line: &str, width: usize, column: usize) -> String {
    let indent = " ".repeat(column.min(width / 2));
    let mut out = String::new();
    let mut used = 0;
    let mut rest = line;
    while !rest.is_empty() {
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[spaces..].find(' ').map_or(rest.len(), |gap| spaces + gap);
        let (gap, word) = (&rest[..spaces], &rest[spaces..end]);
        rest = &rest[end..];
        let room = painted_columns(word);
        if used + gap.len() + room <= width {
            out.push_str(gap);
            used += gap.len();
        } else if used > indent.len() {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        }
        if used + room <= width {
            out.push_str(word);
            used += room;
            continue;
        }
        let mut left = word;
        while let Some(c) = left.chars().next() {
            let colour = PAINTS.iter().find(|code| left.starts_with(**code)).map(|code| code.len());
            let (length, columns) = colour.map_or((c.len_utf8(), c.width().unwrap_or(0)), |length| (length, 0));
            if used + columns > width {
                out.push('\n');
                out.push_str(&indent);
                used = indent.len();
            }
            out.push_str(&left[..length]);
            used += columns;
            left = &left[length..];
        }
    }
    out
}

/// The columns of a text with colours. Characters count one by one, as terminals do that join none of them.
fn painted_columns(text: &str) -> usize {
    let bare = PAINTS.iter().fold(text.to_owned(), |text, code| text.replace(code, ""));
    bare.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// `text` in at most `most` lines of `width` columns, or all of it if `full`; where lines are left out, how long the whole is.
pub fn excerpt(text: &str, width: usize, most: usize, full: bool) -> String {
    let text = text.trim();
    let beginning = if full { text } else { head(text, most * width * 4) };
    let mut lines = wrap(&visible(beginning), width);
    if !full && (lines.len() > most || beginning.len() < text.len()) {
        lines.truncate(most);
        lines.push(format!("… ({} in all; --full shows them)", bytes(text.len() as u64)));
    }
    lines.join("\n")
}

pub fn moment(at: Millis) -> String {
    match jiff::Timestamp::from_millisecond(at) {
        Ok(at) => at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => format!("{at} ms"),
    }
}

pub fn tokens(usage: &posse_core::model::Usage) -> String {
    let about = if usage.estimated { "about " } else { "" };
    let cached = if usage.cached > 0 { format!(" ({} cached)", count(usage.cached)) } else { String::new() };
    format!("{about}{} in{cached} + {}", count(usage.input), plural(usage.output, "out token"))
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
    fn what_goes_out_is_harmless_whoever_forgot_to_make_it_so() {
        let painted = "\x1b[2mdim\x1b[0m \x1b[2J\x1b[31m\u{9b}x\u{202e}\tä👩\u{200d}💻\na\u{200b}b\r\n";
        assert_eq!(
            harmless(painted, true),
            "\x1b[2mdim\x1b[0m ␛[2J\x1b[31m\\u{9b}x\\u{202e}\tä👩\u{200d}💻\na\\u{200b}b\n"
        );
        assert_eq!(harmless("\x1b[2mdim\x1b[0m", false), "␛[2mdim␛[0m");
        assert_eq!(harmless("a\x1b\x1b[1mb\x1b", true), "a␛\x1b[1mb␛");
        assert_eq!(one_line("a\n b\t\x1b c", 40), "a b ␛ c");
    }
}
