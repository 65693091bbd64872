//! What is shown of a file that is too long for its reader: the beginning, and what is nearest to the task.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use super::super::text::BOM;

/// Lines that are shown of the beginning: a table has its names there.
const FIRST: usize = 5;
/// Lines that are shown before and behind one that is near.
const BESIDE: usize = 2;
/// The shortest words that are looked for.
const LEAST_WORD: usize = 3;

/// Parts of a text file as they are shown, with the numbers of their lines; none where all of it is to be shown from its
/// beginning, as any file is.
pub(super) fn excerpt(path: &str, bytes: &[u8], task: &str, room: usize) -> Option<String> {
    // The others need words about themselves.
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
    let shown = lines_to_show(text, task, room)?;
    let lines: Vec<&str> = text.lines().collect();
    let of = lines.len();
    let mut out = format!(
        "[{path} is long: shown are its beginning and what is nearest to the task; read the other lines with start_line \
         and end_line]"
    );
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for at in shown {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => parts.push((at, at)),
        }
    }
    for (first, last) in parts {
        let which =
            if first == last { format!("line {}", first + 1) } else { format!("lines {} to {}", first + 1, last + 1) };
        let _ = write!(out, "\n[{path}, {which} of {of}]\n{}", lines[first..=last].join("\n"));
    }
    Some(out)
}

/// The numbers of lines to show, counted from 0, of about `room` bytes together; none where no line has a word of the
/// task.
fn lines_to_show(text: &str, task: &str, room: usize) -> Option<BTreeSet<usize>> {
    let lines: Vec<&str> = text.lines().collect();
    let wanted: HashSet<String> = words(task).collect();
    let mut having: HashMap<String, f64> = HashMap::new();
    // In the order of the words, so that their sum is always the same.
    let found: Vec<BTreeSet<String>> =
        lines.iter().map(|line| words(line).filter(|w| wanted.contains(w)).collect()).collect();
    for word in found.iter().flatten() {
        *having.entry(word.clone()).or_default() += 1.0;
    }
    // A word that stands in every second line tells nothing of where to look.
    let rare = |word: &String| {
        let share = having.get(word).copied().unwrap_or_default() / lines.len() as f64;
        if share > 0.5 { 0.0 } else { -share.ln() }
    };
    let mut near: Vec<(f64, usize)> = found.iter().map(|words| words.iter().map(rare).sum()).zip(0..).collect();
    near.retain(|(score, _)| *score > 0.0);
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let (_, nearest) = *near.first()?;
    let mut shown = BTreeSet::new();
    let mut left = room;
    let mut take = |at: usize, shown: &mut BTreeSet<usize>| {
        let fits = shown.contains(&at) || left > lines[at].len();
        if fits && shown.insert(at) {
            left -= lines[at].len() + 1;
        }
        fits
    };
    for at in 0..FIRST.min(lines.len()) {
        take(at, &mut shown);
    }
    for (_, at) in near {
        let mut around = at.saturating_sub(BESIDE)..=(at + BESIDE).min(lines.len() - 1);
        if !take(at, &mut shown) || !around.all(|beside| take(beside, &mut shown)) {
            break;
        }
    }
    shown.contains(&nearest).then_some(shown)
}

/// The words of a text in small letters, without the ending of a plural.
fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| part.chars().count() >= LEAST_WORD);
    parts.map(|part| {
        let word = part.to_lowercase();
        word.strip_suffix('s').filter(|stem| stem.len() >= LEAST_WORD).map(str::to_owned).unwrap_or(word)
    })
}
