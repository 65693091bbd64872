//! The tables that the files of a workspace make: CSV and TSV, tables in Markdown, lists of objects in JSON, and folders of
//! files that each say the same of something ("Owner: Ana Reis").
//!
//! A column whose values are numbers is one of numbers, also where each has the same unit behind it, or a currency before
//! it: the unit stands beside the column's name then.

mod cells;
mod markdown;
mod records;

use std::collections::HashSet;

use posse_core::tool::SurveyedFile;
use serde_json::{Map, Value};

pub(super) use cells::Cell;

/// Wider ones are no use to anybody who has to name what is wanted.
const MAX_COLUMNS: usize = 100;

/// A text that may have tables.
pub(super) struct Source<'a> {
    /// Relative to the workspace.
    pub path: &'a str,
    pub text: &'a str,
    /// Whether the text goes on behind it.
    pub is_cut: bool,
}

impl<'a> Source<'a> {
    pub fn of(file: &'a SurveyedFile) -> Source<'a> {
        Source { path: &file.path, text: &file.head, is_cut: (file.head.len() as u64) < file.bytes }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    /// As a query names it: in small letters, no word of SQL.
    pub name: String,
    /// The file it is from, or the folder of its files with `/` behind it.
    pub path: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// Whether there may be more rows.
    pub is_cut: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub name: String,
    /// What its numbers are given in.
    pub unit: Option<String>,
}

/// A table as it stands in its file: texts, and what they are called.
struct Raw {
    name: String,
    path: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    is_cut: bool,
}

/// All tables of these texts, which stand in the order of their paths; no two have one name.
pub(super) fn tables(sources: &[Source<'_>]) -> Vec<Table> {
    let mut raw = Vec::new();
    let mut others = Vec::new();
    for source in sources {
        let (stem, ending) = stem_and_ending(source.path);
        let found = match ending.as_str() {
            "csv" | "tsv" => separated(source, ending == "tsv").into_iter().collect(),
            "json" | "jsonl" | "ndjson" if !source.is_cut => json(source, ending != "json").into_iter().collect(),
            "json" | "jsonl" | "ndjson" => vec![],
            _ => markdown::tables(source),
        };
        if found.is_empty() {
            others.push(source);
        }
        raw.extend(found.into_iter().map(|(head, rows)| Raw {
            name: stem.to_owned(),
            path: source.path.to_owned(),
            head,
            rows,
            is_cut: source.is_cut,
        }));
    }
    raw.extend(records::tables(&others));
    let mut taken = HashSet::from(["lines".to_owned()]);
    raw.into_iter().filter_map(|raw| finished(raw, &mut taken)).collect()
}

/// Named, and with numbers where there are some; none without a row or with too many columns.
fn finished(raw: Raw, taken: &mut HashSet<String>) -> Option<Table> {
    let Raw { name, path, head, rows, is_cut } = raw;
    if rows.is_empty() || head.is_empty() || head.len() > MAX_COLUMNS {
        return None;
    }
    let mut names = HashSet::new();
    let columns = head.iter().enumerate().map(|(at, title)| {
        let texts = rows.iter().map(|row| row.get(at).map(String::as_str).unwrap_or_default());
        let (cells, unit) = cells::column(texts);
        (Column { name: unique(identifier(title), &mut names), unit }, cells)
    });
    let (columns, cells): (Vec<_>, Vec<_>) = columns.unzip();
    let mut by_column: Vec<_> = cells.into_iter().map(Vec::into_iter).collect();
    let rows = (0..rows.len()).map(|_| by_column.iter_mut().filter_map(Iterator::next).collect()).collect();
    Some(Table { name: unique(identifier(&name), taken), path, columns, rows, is_cut })
}

fn stem_and_ending(path: &str) -> (&str, String) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    (stem, ending.to_lowercase())
}

/// Head and rows of a text whose values are separated by one character.
fn separated(source: &Source<'_>, is_by_tab: bool) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let first = source.text.lines().next()?;
    let of = |c: char| first.matches(c).count();
    let by = match is_by_tab {
        true => b'\t',
        false if of(';') > of(',') => b';',
        false if of(',') == 0 && of('\t') > 0 => b'\t',
        false => b',',
    };
    let mut reader =
        csv::ReaderBuilder::new().delimiter(by).flexible(true).trim(csv::Trim::All).from_reader(source.text.as_bytes());
    let head: Vec<_> = reader.headers().ok()?.iter().map(str::to_owned).collect();
    // Without names for its columns, nobody could ask for one.
    if head.len() < 2 || head.iter().any(|title| title.is_empty() || cells::is_number(title)) {
        return None;
    }
    let mut rows = Vec::new();
    for row in reader.records() {
        rows.push(row.ok()?.iter().map(str::to_owned).collect());
    }
    if source.is_cut {
        rows.pop();
    }
    Some((head, rows))
}

/// Head and rows of objects: one in each line, or a list of them, alone or as the only list of an object.
fn json(source: &Source<'_>, is_by_line: bool) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let objects: Vec<Map<String, Value>> = match is_by_line {
        true => {
            let lines = source.text.lines().filter(|line| !line.trim().is_empty());
            lines.map(serde_json::from_str).collect::<Result<_, _>>().ok()?
        }
        false => {
            let list = match serde_json::from_str(source.text).ok()? {
                Value::Array(list) => list,
                Value::Object(fields) => {
                    let mut lists = fields.into_iter().filter_map(|(_, value)| match value {
                        Value::Array(list) => Some(list),
                        _ => None,
                    });
                    lists.next().filter(|_| lists.next().is_none())?
                }
                _ => return None,
            };
            list.into_iter().map(serde_json::from_value).collect::<Result<_, _>>().ok()?
        }
    };
    let mut head: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for key in objects.iter().flat_map(Map::keys) {
        if known.insert(key.as_str()) {
            head.push(key.clone());
        }
    }
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let rows = objects.iter().map(|object| head.iter().map(|key| text(object.get(key))).collect()).collect();
    Some((head, rows))
}

/// A name that SQL takes as it is: small letters, digits and `_`, and none of its own words.
fn identifier(title: &str) -> String {
    let mut out = String::new();
    for c in title.chars() {
        match c.is_alphanumeric() {
            true => out.extend(c.to_lowercase()),
            false if out.ends_with('_') || out.is_empty() => {}
            false => out.push('_'),
        }
    }
    let out = out.trim_end_matches('_');
    match out.chars().next() {
        None => "column".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("n{out}"),
        Some(_) if RESERVED.contains(&out) => format!("{out}_"),
        Some(_) => out.to_owned(),
    }
}

fn unique(name: String, taken: &mut HashSet<String>) -> String {
    let mut numbered = (2..).map(|n| format!("{name}_{n}"));
    let mut wanted = name.clone();
    while !taken.insert(wanted.clone()) {
        wanted = numbered.next().expect("numbers do not end");
    }
    wanted
}

/// Words that SQLite does not take for a name without quotes.
const RESERVED: [&str; 57] = [
    "add",
    "all",
    "alter",
    "and",
    "as",
    "autoincrement",
    "between",
    "case",
    "check",
    "collate",
    "commit",
    "constraint",
    "create",
    "default",
    "deferrable",
    "delete",
    "distinct",
    "drop",
    "else",
    "escape",
    "except",
    "exists",
    "foreign",
    "from",
    "group",
    "having",
    "in",
    "index",
    "insert",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "limit",
    "not",
    "notnull",
    "null",
    "on",
    "or",
    "order",
    "primary",
    "references",
    "returning",
    "select",
    "set",
    "table",
    "then",
    "to",
    "transaction",
    "union",
    "unique",
    "update",
    "using",
    "values",
    "when",
    "where",
];
