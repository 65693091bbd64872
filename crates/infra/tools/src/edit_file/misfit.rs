//! A text that is not in the file: what it lacks or has too much, and which line may have been meant. Models quote what
//! they read with a full stop, a quotation mark or a line's number that is not part of it.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use posse_core::text::head;

use super::super::text::decode;
use super::{folded, occurrences};

/// How much of a line is shown, and how many of them.
const MAX_LINE: usize = 300;
const MAX_LINES: usize = 10;
/// In longer files no line is looked for that is only like the text.
const MAX_COMPARED: usize = 1 << 20;
/// How much of a text is compared.
const MAX_WANTED: usize = 4096;
/// Most characters at the ends of a text that may be too many.
const MAX_TOO_MANY: usize = 6;
/// How much of a text a line has to have to be told of.
const LEAST_LIKENESS: f64 = 0.5;

/// What is told of `old`, which does not occur in the file: the way to one that does.
pub(super) fn hint(path: &str, bytes: &[u8], old: &str) -> String {
    let line = old.trim_end_matches(['\r', '\n']);
    if line.len() < old.len() && !line.is_empty() && folded(bytes).ends_with(&folded(line.as_bytes())) {
        return "It ends with a line break and the file does not: leave that out".into();
    }
    let text = decode(&folded(bytes)).0;
    let file = Lines { path, text: text.trim_start_matches('\u{feff}').to_owned() };
    if let Some((without, lines)) = without_ends(&file.text, old).or_else(|| without_marks(&file.text, old)) {
        return format!("Without {without} it occurs once. Give old_text without that:\n{}", file.shown(lines));
    }
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let how = if squeeze(&file.text).contains(&squeeze(old)) {
        "It differs only in spaces or line breaks. Copy the text exactly"
    } else if file.text.to_lowercase().contains(&old.to_lowercase()) {
        "It differs only in upper and lower case. Copy the text exactly"
    } else {
        match missing_line(&file.text, old) {
            Missing::Line(line) => {
                return match file.nearest(line) {
                    Some(at) => file.nearest_told(at),
                    None => "No line of it is like that. Read the file and copy the text exactly".into(),
                };
            }
            Missing::None => "Each of its lines is there, but not one after the other. Copy the text exactly",
            Missing::Unknown => return "Read the file and copy the text exactly".into(),
        }
    };
    match old.lines().find(|line| !line.trim().is_empty()).and_then(|line| file.nearest(line)) {
        Some(at) => format!("{how}:\n{}", file.shown(at..=at + old.trim().lines().count().saturating_sub(1))),
        None => format!("{how}; read the file"),
    }
}

/// The text without the fewest characters at its ends without which it occurs once: what these are, and the lines where
/// it is.
fn without_ends(text: &str, old: &str) -> Option<(String, RangeInclusive<usize>)> {
    let is_around = |c: &char| c.is_whitespace() || "\"'`.,;:|“”„‘’«»".contains(*c);
    let ends: Vec<_> = old.char_indices().take_while(|(_, c)| is_around(c)).map(|(at, c)| at + c.len_utf8()).collect();
    let from: Vec<_> = [0].into_iter().chain(ends).take(MAX_TOO_MANY + 1).collect();
    let begins: Vec<_> = old.char_indices().rev().take_while(|(_, c)| is_around(c)).map(|(at, _)| at).collect();
    let to: Vec<_> = [old.len()].into_iter().chain(begins).take(MAX_TOO_MANY + 1).collect();
    let mut cuts: Vec<_> = (0..from.len()).flat_map(|from| (0..to.len()).map(move |to| (from, to))).skip(1).collect();
    cuts.sort_by_key(|(from, to)| from + to);
    let (from, to, lines) = cuts.into_iter().find_map(|(i, j)| {
        let (from, to) = (from[i], to[j]);
        let rest = old.get(from..to).filter(|rest| !rest.is_empty())?;
        Some((from, to, once(text, rest)?))
    })?;
    let named = |end: &str| match end.trim() {
        "" => "blanks".into(),
        "." => "full stop".into(),
        end if end.chars().all(|c| "\"'`“”„‘’«»".contains(c)) => "quotation mark".into(),
        end => format!("'{}'", end.escape_debug()),
    };
    let parts = [(&old[..from], "beginning"), (&old[to..], "end")];
    let parts =
        parts.iter().filter(|(end, _)| !end.is_empty()).map(|(end, at)| format!("the {} at its {at}", named(end)));
    Some((parts.collect::<Vec<_>>().join(" and "), lines))
}

/// The text without what tools and messages put before the lines of a file: its name and a number, or a bar.
fn without_marks(text: &str, old: &str) -> Option<(String, RangeInclusive<usize>)> {
    let numbered = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (number, rest) = rest.split_once(':')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| rest.strip_prefix(' ').unwrap_or(rest).to_owned())
    };
    let barred = |line: &str| Some(line.strip_prefix("| ").or_else(|| line.strip_prefix('|'))?.to_owned());
    let without = |mark: &dyn Fn(&str) -> Option<String>| old.lines().map(mark).collect::<Option<Vec<_>>>();
    let found = |lines: Vec<String>| once(text, &lines.join("\n"));
    if let Some(lines) = without(&numbered).and_then(found) {
        return Some(("the file's name and the number before each line".into(), lines));
    }
    without(&barred).and_then(found).map(|lines| ("the | before each line".into(), lines))
}

/// The lines that a text is in, counted from 1, if it occurs once and says anything.
fn once(text: &str, part: &str) -> Option<RangeInclusive<usize>> {
    if !part.contains(char::is_alphanumeric) {
        return None;
    }
    let mut places = occurrences(text.as_bytes(), part.as_bytes());
    let (at, None) = (places.next()?, places.next()) else { return None };
    let number = |at: usize| memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() + 1;
    Some(number(at)..=number(at + part.trim_end_matches('\n').len()))
}

/// Which line of a text the file does not have.
enum Missing<'a> {
    Line(&'a str),
    None,
    /// The file is too long to look.
    Unknown,
}

fn missing_line<'a>(text: &str, old: &'a str) -> Missing<'a> {
    if text.len() > MAX_COMPARED || text.len().saturating_mul(old.lines().count()) > 64 * MAX_COMPARED {
        return Missing::Unknown;
    }
    let is_there = |line: &&str| text.contains(line.trim());
    old.lines().find(|line| !is_there(line)).map_or(Missing::None, Missing::Line)
}

struct Lines<'a> {
    path: &'a str,
    text: String,
}

impl Lines<'_> {
    /// The number of the line that has most of the text, if one has enough of it.
    fn nearest(&self, wanted: &str) -> Option<usize> {
        let wanted = pairs(head(wanted, MAX_WANTED));
        let all = wanted.values().sum::<usize>();
        if all == 0 || self.text.len() > MAX_COMPARED {
            return None;
        }
        let likeness = |line: &str| {
            let line = pairs(line);
            let common: usize = wanted.iter().map(|(pair, n)| line.get(pair).map_or(0, |m| *n.min(m))).sum();
            let (of_text, of_line) = (common as f64 / all as f64, line.values().sum::<usize>().max(1) as f64);
            (of_text >= LEAST_LIKENESS).then_some((of_text, common as f64 / of_line))
        };
        let better = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)).is_gt();
        let mut best: Option<((f64, f64), usize)> = None;
        for (at, line) in self.text.lines().enumerate() {
            if let Some(like) = likeness(line).filter(|like| best.is_none_or(|(so_far, _)| better(like, &so_far))) {
                best = Some((like, at + 1));
            }
        }
        best.map(|(_, at)| at)
    }

    /// The line alone behind the words: small models copied the words beside it as well.
    fn nearest_told(&self, at: usize) -> String {
        let line = self.text.lines().nth(at - 1).unwrap_or_default();
        match line.len() > MAX_LINE {
            true => format!("Nearest to it is this line; copy the text exactly:\n{}", self.shown(at..=at)),
            false => format!("Nearest to it is line {at}. Call edit_file again with exactly this old_text:\n{line}"),
        }
    }

    /// Lines as `read_file` shows them.
    fn shown(&self, lines: RangeInclusive<usize>) -> String {
        let (first, last) = (*lines.start(), *lines.end().min(&(lines.start() + MAX_LINES - 1)));
        let of = self.text.lines().count();
        let last = last.min(of);
        let which = if first == last { format!("line {first}") } else { format!("lines {first} to {last}") };
        let cut = |line: &str| match line.len() > MAX_LINE {
            true => format!("{}…", head(line, MAX_LINE)),
            false => line.to_owned(),
        };
        let text: Vec<_> = self.text.lines().skip(first - 1).take(last + 1 - first).map(cut).collect();
        format!("[{}, {which} of {of}]\n{}", self.path, text.join("\n"))
    }
}

/// Letters and digits of a text two by two, with how often each pair is there.
fn pairs(text: &str) -> HashMap<(char, char), usize> {
    let plain: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect();
    let mut pairs = HashMap::new();
    for pair in plain.windows(2) {
        *pairs.entry((pair[0], pair[1])).or_default() += 1;
    }
    pairs
}
