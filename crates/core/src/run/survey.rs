//! What a run is told of its workspace: which files there are, and what those say that are nearest to its goal.
//!
//! A small model guesses a path before it looks for one, and answers from the guess. Told what is there, it has nothing
//! to guess. Files are written by strangers: no line of theirs, and no name, begins a line.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::results::{is_data, one_line, quoted};
use super::wish::asks_to_write;
use crate::text::{count, plural};
use crate::tool::{Survey, SurveyedFile, SurveyedTable};

/// From how many bytes on it is told how long a file is: of shorter ones, but the empty, it decides nothing.
const LONG: u64 = 4_000;

/// Most bytes of texts that are quoted.
pub const MAX_QUOTED: usize = 3000;

/// Most files that are named.
pub const MAX_NAMED: usize = 60;

/// Most bytes of their names together, and of one: a name is told whole or not at all.
const MAX_NAMES: usize = 4000;
const MAX_NAME: usize = 250;

/// Most bytes of what is told of tables.
const MAX_TABLES: usize = 1500;

/// Most bytes of one text that are quoted, and the least of which a quote that is not whole is worth its place.
const MAX_OF_ONE: usize = 2048;
const LEAST_OF_ONE: usize = 300;

/// A word of a path says more of what a file is about than one of its text.
const PATH_WEIGHT: f64 = 3.0;

/// What BM25 leaves open, at its usual values: how soon a word that comes again says nothing more, and how much a long
/// text is held to be long for its many words alone.
const SATURATION: f64 = 1.2;
const LENGTH_SHARE: f64 = 0.75;

/// How near a text has to be to be quoted, as a share of how near the nearest is.
const LEAST_OF_BEST: f64 = 0.4;

/// Words of English that say nothing of what is looked for.
const EMPTY_WORDS: [&str; 60] = [
    "a", "about", "all", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "did", "do", "does",
    "each", "every", "file", "folder", "for", "from", "had", "has", "have", "how", "i", "in", "into", "is", "it",
    "its", "many", "me", "much", "new", "not", "of", "on", "one", "or", "out", "say", "that", "the", "their", "then",
    "there", "they", "this", "to", "was", "were", "what", "which", "who", "will", "with", "write",
];

/// What a run with this goal is told of its workspace, with quotes of at most `most` bytes, and which tables there
/// are for whoever reads them; nothing where no file was found.
pub fn told(survey: &Survey, goal: &str, most: usize, with_tables: bool) -> Option<String> {
    let ranked = nearest(survey, goal);
    let mut order: Vec<_> = ranked.clone();
    let is_ranked: HashSet<_> = ranked.iter().copied().collect();
    order.extend((0..survey.files.len()).filter(|at| !is_ranked.contains(at)));
    let mut named: Vec<usize> = Vec::new();
    let mut room = MAX_NAMES;
    for at in order {
        let length = survey.files[at].path.len();
        if named.len() < MAX_NAMED && length <= MAX_NAME.min(room) {
            room -= length;
            named.push(at);
        }
    }
    if named.is_empty() {
        return None;
    }
    named.sort_by(|a, b| survey.files[*a].path.cmp(&survey.files[*b].path));
    let tables = if with_tables { tables(survey, &ranked) } else { String::new() };
    // The nearest stands next to the task.
    let mut quotes = quotes(worth_quoting(survey, goal).into_iter().map(|at| &survey.files[at]), most);
    quotes.reverse();
    Some(in_words(survey, &named, &tables, &quotes))
}

/// The tables that there is room for, those of the nearest files first.
fn tables(survey: &Survey, ranked: &[usize]) -> String {
    let is_of = |table: &SurveyedTable, at: usize| {
        let path = &survey.files[at].path;
        *path == table.path || path.rfind('/').is_some_and(|end| path[..=end] == table.path)
    };
    let mut order: Vec<_> = survey.tables.iter().collect();
    order.sort_by_key(|table| ranked.iter().position(|at| is_of(table, *at)).unwrap_or(usize::MAX));
    let mut out = String::from("\nTables for query_tables:\n");
    let most = out.len() + MAX_TABLES;
    for SurveyedTable { name, path, columns, rows } in order {
        let columns: Vec<_> = columns.iter().map(|column| one_line(column)).collect();
        let rows = rows.map(|rows| format!("{}, ", plural(rows, "row"))).unwrap_or_default();
        let line = format!("- {}({}): {rows}{}\n", one_line(name), columns.join(", "), one_line(path));
        if out.len() + line.len() <= most {
            out.push_str(&line);
        }
    }
    out.push_str("- lines(file, number, line): each line of each text\n");
    out
}

fn in_words(survey: &Survey, named: &[usize], tables: &str, quotes: &[String]) -> String {
    let there = survey.files.len();
    let more = if survey.has_more { "more than " } else { "" };
    let mut out = format!("The workspace has {more}{}:\n", plural(there as u64, "file"));
    for at in named {
        let SurveyedFile { path, bytes, .. } = &survey.files[*at];
        let length = if (1..LONG).contains(bytes) { String::new() } else { format!(" ({})", plural(*bytes, "byte")) };
        let _ = writeln!(out, "- {}{length}", one_line(path));
    }
    let left = there - named.len();
    if left > 0 || survey.has_more {
        let least = if survey.has_more { "at least " } else { "" };
        let left = left.max(usize::from(survey.has_more)) as u64;
        let _ = writeln!(out, "({least}{} more; list_files and search_files find them)", count(left));
    }
    out.push_str(tables);
    if !quotes.is_empty() {
        let all = if quotes.len() == there { "they" } else { "some of them" };
        let _ = write!(out, "\nWhat {all} say. {}\n{}", is_data(), quotes.concat());
    }
    out.trim_end().to_owned()
}

/// The beginnings of these texts, as many as there is room for.
fn quotes<'a>(files: impl Iterator<Item = &'a SurveyedFile>, most: usize) -> Vec<String> {
    let mut quotes = Vec::new();
    let mut room = most;
    for SurveyedFile { path, bytes, head } in files.filter(|file| !file.head.trim().is_empty()) {
        let is_all = head.len() as u64 >= *bytes;
        let cap = MAX_OF_ONE.min(room);
        let path = one_line(path);
        if is_all && head.len() <= cap {
            quotes.push(format!("\nFile {path}:\n{}\n", quoted(head.trim_end())));
            room -= head.len();
        } else if cap >= LEAST_OF_ONE {
            let end = head.floor_char_boundary(cap);
            // Rather whole lines than a number that lacks its end.
            let end = head[..end].rfind('\n').map_or(end, |at| at + 1);
            let part = &head[..end];
            let all = if is_all { format!(" of {}", count(head.lines().count() as u64)) } else { String::new() };
            let lines = plural(part.lines().count() as u64, "line");
            let shown = match part.ends_with('\n') {
                true => format!("the first {lines}{all}"),
                false => format!("the first {} of {}", count(end as u64), plural(*bytes, "byte")),
            };
            quotes.push(format!("\nFile {path}, {shown}; read_file gives the rest:\n{}\n", quoted(part.trim_end())));
            room -= end;
        }
    }
    quotes
}

/// The files that have something of the goal, the nearest first: those that it names, then by BM25 over the words of
/// their paths and texts.
pub fn nearest(survey: &Survey, goal: &str) -> Vec<usize> {
    ranked(survey, goal).into_iter().map(|(_, _, at)| at).collect()
}

/// Of these, those that are worth quoting: a small model takes what it is shown for what it is asked about, and mixed up
/// which of many files said what.
fn worth_quoting(survey: &Survey, goal: &str) -> Vec<usize> {
    let ranked = ranked(survey, goal);
    let best = ranked.iter().map(|(_, score, _)| *score).fold(0.0, f64::max);
    // Who has to write may need all.
    let least = if asks_to_write(goal) { 0.0 } else { LEAST_OF_BEST * best };
    let is_near = |(is_named, score, _): &&(bool, f64, usize)| *is_named || *score >= least;
    ranked.iter().filter(is_near).map(|(_, _, at)| *at).collect()
}

/// Whether the goal names it, how near it is, and which one it is.
fn ranked(survey: &Survey, goal: &str) -> Vec<(bool, f64, usize)> {
    let wanted: HashSet<String> = words(goal).filter(|word| !EMPTY_WORDS.contains(&word.as_str())).collect();
    let texts: Vec<Text> = survey.files.iter().map(|file| Text::of(file, &wanted)).collect();
    let many = texts.len() as f64;
    let usual = texts.iter().map(|text| text.length).sum::<f64>() / many.max(1.0);
    let mut having: HashMap<&str, f64> = HashMap::new();
    for word in texts.iter().flat_map(|text| text.times.keys()) {
        *having.entry(word).or_default() += 1.0;
    }
    let score = |text: &Text| -> f64 {
        let long = 1.0 - LENGTH_SHARE + LENGTH_SHARE * text.length / usual.max(1.0);
        let of = |(word, times): (&String, &f64)| {
            let has = having.get(word.as_str()).copied().unwrap_or_default();
            let rare = (1.0 + (many - has + 0.5) / (has + 0.5)).ln();
            rare * times * (SATURATION + 1.0) / (times + SATURATION * long)
        };
        text.times.iter().map(of).sum()
    };
    let names: HashSet<String> =
        goal.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase()).collect();
    let is_named = |path: &str| {
        let path = path.to_lowercase();
        names.contains(path.trim_matches(|c: char| !c.is_alphanumeric()))
            || path.rsplit_once('/').is_some_and(|(_, name)| names.contains(name))
    };
    let mut ranked: Vec<_> =
        (0..texts.len()).map(|at| (is_named(&survey.files[at].path), score(&texts[at]), at)).collect();
    ranked.retain(|(is_named, score, _)| *is_named || *score > 0.0);
    ranked.sort_by(|a, b| {
        let by_path = || survey.files[a.2].path.cmp(&survey.files[b.2].path);
        b.0.cmp(&a.0).then_with(|| b.1.total_cmp(&a.1)).then_with(by_path)
    });
    ranked
}

/// How often a file has the words that are wanted, and how many words it has.
struct Text {
    times: HashMap<String, f64>,
    length: f64,
}

impl Text {
    fn of(file: &SurveyedFile, wanted: &HashSet<String>) -> Text {
        let mut text = Text { times: HashMap::new(), length: 0.0 };
        let weighed =
            words(&file.path).map(|word| (word, PATH_WEIGHT)).chain(words(&file.head).map(|word| (word, 1.0)));
        for (word, weight) in weighed {
            text.length += weight;
            if wanted.contains(&word) {
                *text.times.entry(word).or_default() += weight;
            }
        }
        text
    }
}

/// The words of a text in small letters, those of English without their plural's ending.
fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.flat_map(|part| {
        // Where words are not set apart, each character is taken for one.
        match part.chars().any(|c| c >= '\u{2e80}') {
            true => part.chars().map(String::from).collect(),
            false => vec![singular(part.to_lowercase())],
        }
    })
}

fn singular(word: String) -> String {
    if !word.is_ascii() || word.len() < 4 || word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") {
        return word;
    }
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    let hissing = ["sses", "xes", "ches", "shes"].iter().any(|ending| word.ends_with(ending));
    let stem = if hissing { word.strip_suffix("es") } else { word.strip_suffix('s') };
    stem.map(str::to_owned).unwrap_or(word)
}
