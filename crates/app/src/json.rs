//! JSON as it is printed: characters that steer terminals are escaped, points in time can be read by people
//! too, and texts in lists are cut unless they are asked for whole.

use posse_core::text::{harmless_json, head, rfc3339};
use serde::Serialize;
use serde_json::Value;

/// Texts of more bytes are cut in lists.
pub const LISTED_TEXT: usize = 2000;

/// One document, over several lines.
pub fn document(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(&timed(serde_json::to_value(value)?))?;
    Ok(harmless_json(&text).into_owned())
}

/// One line.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(&timed(serde_json::to_value(value)?))?;
    Ok(harmless_json(&text).into_owned())
}

/// The items of a list as JSON, with long texts cut unless `full`. What was cut is named in the item's `cut`,
/// with how many bytes the whole has.
pub fn listed<T: Serialize>(items: impl IntoIterator<Item = T>, full: bool) -> serde_json::Result<Vec<Value>> {
    items.into_iter().map(|item| item_of(&item, full)).collect()
}

/// One item of a list.
pub fn item_of(item: &impl Serialize, full: bool) -> serde_json::Result<Value> {
    let mut item = serde_json::to_value(item)?;
    if !full {
        cut_item(&mut item);
    }
    Ok(item)
}

/// A document with lists in it, whose items are cut each by itself unless `full`.
pub fn with_lists(document: &impl Serialize, full: bool) -> serde_json::Result<Value> {
    fn cut_lists(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(cut_item),
            Value::Object(fields) => fields.values_mut().for_each(cut_lists),
            _ => {}
        }
    }
    let mut document = serde_json::to_value(document)?;
    if !full {
        cut_lists(&mut document);
    }
    Ok(document)
}

fn cut_item(item: &mut Value) {
    let mut cut = serde_json::Map::new();
    cut_texts(item, &mut String::new(), &mut cut);
    if let (Value::Object(item), false) = (item, cut.is_empty()) {
        item.insert("cut".into(), Value::Object(cut));
    }
}

fn cut_texts(value: &mut Value, path: &mut String, cut: &mut serde_json::Map<String, Value>) {
    let mut beneath = |path: &mut String, name: &str, value: &mut Value| {
        let before = path.len();
        if before > 0 {
            path.push('.');
        }
        path.push_str(name);
        cut_texts(value, path, cut);
        path.truncate(before);
    };
    match value {
        Value::String(text) if text.len() > LISTED_TEXT => {
            cut.insert(path.clone(), text.len().into());
            text.truncate(head(text, LISTED_TEXT).len());
            text.push('…');
        }
        Value::Array(items) => {
            items.iter_mut().enumerate().for_each(|(i, item)| beneath(path, &i.to_string(), item));
        }
        Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| beneath(path, name, field)),
        _ => {}
    }
}

/// What others wrote and we only pass on: its numbers are theirs.
const FOREIGN: [&str; 6] = ["meta", "args", "arguments", "parameters", "schema", "output_schema"];

/// The first millisecond that is taken for a point in time: in 1973. Anything smaller is something else.
const FIRST: i64 = 100_000_000_000;

/// Beside each point in time in milliseconds, the same as RFC 3339 writes it.
fn timed(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(timed).collect()),
        Value::Object(fields) => {
            let mut all = serde_json::Map::with_capacity(fields.len());
            for (name, field) in fields {
                if FOREIGN.contains(&name.as_str()) {
                    all.insert(name, field);
                    continue;
                }
                let at = field.as_i64().filter(|at| *at >= FIRST && is_time(&name)).and_then(rfc3339);
                let beside = at.map(|at| (format!("{name}_rfc3339"), at));
                all.insert(name, timed(field));
                all.extend(beside.map(|(name, at)| (name, Value::String(at))));
            }
            Value::Object(all)
        }
        other => other,
    }
}

fn is_time(name: &str) -> bool {
    ["at", "since", "until"].contains(&name) || name.ends_with("_at") || name.ends_with("_until")
}
