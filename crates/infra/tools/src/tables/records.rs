//! Folders whose files each say the same of something, in lines such as `Owner: Ana Reis`: a row for each file.

use std::collections::BTreeMap;

use super::{Raw, Source};

/// Fewer say nothing of what files have in common.
const LEAST_FILES: usize = 2;
const LEAST_KEYS: usize = 2;
const MAX_KEY: usize = 40;

struct Record<'a> {
    path: &'a str,
    title: Option<&'a str>,
    fields: Vec<(&'a str, &'a str)>,
}

pub(super) fn tables(sources: &[&Source<'_>]) -> Vec<Raw> {
    let mut folders: BTreeMap<&str, Vec<Record<'_>>> = BTreeMap::new();
    for source in sources {
        let record = record(source);
        if record.fields.len() >= LEAST_KEYS {
            folders.entry(source.path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default().push(record);
        }
    }
    folders.into_iter().filter_map(|(folder, records)| table(folder, &records)).collect()
}

fn table(folder: &str, records: &[Record<'_>]) -> Option<Raw> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in records.iter().flat_map(|record| &record.fields) {
        if !keys.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            keys.push(key);
        }
    }
    let has = |record: &Record<'_>, key: &str| record.fields.iter().any(|(own, _)| own.eq_ignore_ascii_case(key));
    // What a few say alone stands in their texts.
    keys.retain(|key| records.iter().filter(|record| has(record, key)).count() * 2 > records.len());
    if records.len() < LEAST_FILES || keys.len() < LEAST_KEYS {
        return None;
    }
    let is_titled = !keys.iter().any(|key| key.eq_ignore_ascii_case("name"))
        && records.iter().filter(|record| record.title.is_some()).count() * 2 > records.len();
    let titles = is_titled.then_some("name").into_iter();
    let head: Vec<String> = titles.chain(keys.iter().copied()).chain(["file"]).map(str::to_owned).collect();
    let row = |record: &Record<'_>| {
        let value = |key: &&str| {
            let field = record.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(key));
            field.map_or("", |(_, value)| value)
        };
        let title = is_titled.then(|| record.title.unwrap_or_default()).into_iter();
        title.chain(keys.iter().map(value)).chain([record.path]).map(str::to_owned).collect()
    };
    let rows = records.iter().map(row).collect();
    let name = if folder.is_empty() { "files" } else { folder.rsplit('/').next().unwrap_or(folder) };
    Some(Raw { name: name.to_owned(), path: format!("{folder}/"), head, rows, is_cut: false })
}

fn record<'a>(source: &Source<'a>) -> Record<'a> {
    let mut record = Record { path: source.path, title: None, fields: Vec::new() };
    for (at, line) in source.text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        match field(line) {
            Some((key, _)) if record.fields.iter().any(|(own, _)| *own == key) => {}
            Some(field) => record.fields.push(field),
            None if at == 0 => record.title = Some(line.trim_start_matches('#').trim()),
            None => {}
        }
    }
    record
}

/// `Owner: Ana Reis`, with or without a dash before it or stars around the key.
fn field(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches(['-', '*', ' ']);
    let (key, value) = line.split_once(':')?;
    let (key, value) = (key.trim_end_matches('*').trim(), value.trim_start_matches('*').trim());
    let is_key = key.len() <= MAX_KEY
        && key.chars().next().is_some_and(char::is_alphabetic)
        && key.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '(' | ')'))
        && key.split(' ').count() <= 4;
    (is_key && !value.is_empty() && !value.starts_with("//")).then_some((key, value))
}
