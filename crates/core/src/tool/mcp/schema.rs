//! The JSON Schema of a foreign tool's arguments, as every provider takes it: without references, of one draft, an object.
//!
//! What cannot be said in it is left out, never guessed: then more arguments are let through than the server takes, which
//! the server will say.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::text::{has_too_many, visible};

/// How deep it may be, references followed.
const MAX_DEPTH: usize = 24;
/// How many parts it may have, references followed.
const MAX_PARTS: usize = 4000;
/// Bytes of it as JSON.
const MAX_BYTES: usize = 64 << 10;

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

const NUMBERS: [&str; 11] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// The schema of an object, made plain; or why it cannot be one.
pub fn plain(schema: &Value) -> Result<Value, String> {
    check_headers(schema)?;
    let mut plainer = Plainer { root: schema, parts: 0, following: Vec::new() };
    let Value::Object(mut all) = plainer.part(schema, 0) else { return Err("its schema is none".into()) };
    if plainer.parts > MAX_PARTS {
        return Err(format!("its schema has more than {MAX_PARTS} parts, the limit"));
    }
    match all.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.contains(&"object".into()) => {}
        Some(other) => return Err(format!("its arguments are no object but {}", visible(&other.to_string()))),
    }
    // Of the outermost object providers take nothing else.
    for key in ["anyOf", "enum", "const", "default"] {
        all.remove(key);
    }
    all.remove("description");
    all.insert("type".into(), "object".into());
    all.entry("properties").or_insert_with(|| json!({}));
    let plain = Value::Object(all);
    match plain.to_string().len() {
        ..=MAX_BYTES => Ok(plain),
        size => Err(format!("its schema {}", has_too_many(size, "byte", MAX_BYTES))),
    }
}

/// Fails where an argument is to be sent as a header too, and cannot be: then the whole tool is not to be used.
fn check_headers(schema: &Value) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (argument, of) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let Some(header) = of.get("x-mcp-header") else { continue };
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let name = header.as_str().filter(|name| !name.is_empty() && name.chars().all(is_token));
        let is_one_value = matches!(of.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"));
        let is_new = name.is_some_and(|name| names.insert(name.to_ascii_lowercase()));
        if !is_new || !is_one_value {
            let (argument, header) = (visible(argument), visible(&header.to_string()));
            return Err(format!("its argument '{argument}' cannot be sent as the header {header}"));
        }
    }
    Ok(())
}

struct Plainer<'a> {
    root: &'a Value,
    parts: usize,
    /// The references that are being followed.
    following: Vec<&'a str>,
}

impl<'a> Plainer<'a> {
    fn part(&mut self, schema: &'a Value, depth: usize) -> Value {
        self.parts += 1;
        let anything = || Value::Object(Map::new());
        let Value::Object(of) = schema else { return anything() };
        if depth > MAX_DEPTH || self.parts > MAX_PARTS {
            return anything();
        }
        let mut out = Map::new();
        if let Some(target) = of.get("$ref").and_then(Value::as_str) {
            out = self.referred(target, depth);
        }
        for (key, value) in of {
            if let Some(value) = self.keyword(key, value, depth) {
                out.insert(key.clone(), value);
            }
        }
        for part in of.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(part) = self.part(part, depth + 1) {
                join(&mut out, part);
            }
        }
        // Which of them holds is for the server to say: that exactly one does, models are not told.
        for key in ["anyOf", "oneOf"] {
            if let Some(choices) = of.get(key).and_then(Value::as_array) {
                out.insert("anyOf".into(), choices.iter().map(|choice| self.part(choice, depth + 1)).collect());
            }
        }
        let is_array = out.get("type").is_some_and(|kind| kind == "array");
        if is_array {
            out.entry("items").or_insert_with(anything);
        }
        Value::Object(out)
    }

    /// What a reference within the schema leads to; anything, where that is nothing, or itself.
    fn referred(&mut self, target: &'a str, depth: usize) -> Map<String, Value> {
        let root = self.root;
        let found = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let Some(found) = found.filter(|_| !self.following.contains(&target)) else { return Map::new() };
        self.following.push(target);
        let part = self.part(found, depth + 1);
        self.following.pop();
        match part {
            Value::Object(part) => part,
            _ => Map::new(),
        }
    }

    /// What is kept of a keyword that says the same everywhere.
    fn keyword(&mut self, key: &str, value: &'a Value, depth: usize) -> Option<Value> {
        let of_strings = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
        match (key, value) {
            ("description", Value::String(text)) => Some(visible(text).into()),
            ("enum", Value::Array(all)) if !all.is_empty() => Some(value.clone()),
            ("const" | "default", _) => Some(value.clone()),
            ("pattern" | "format", Value::String(_)) | ("uniqueItems", Value::Bool(_)) => Some(value.clone()),
            ("required", all) if of_strings(all) => Some(all.clone()),
            ("type", kind) => kind_of(kind),
            ("properties", Value::Object(all)) => {
                let all = all.iter().map(|(name, of)| (name.clone(), self.part(of, depth + 1)));
                Some(Value::Object(all.collect()))
            }
            ("items", Value::Object(_)) | ("additionalProperties", Value::Object(_)) => {
                Some(self.part(value, depth + 1))
            }
            ("additionalProperties", Value::Bool(_)) => Some(value.clone()),
            (key, Value::Number(_)) if NUMBERS.contains(&key) => Some(value.clone()),
            _ => None,
        }
    }
}

/// The types that there are among those that are named.
fn kind_of(kind: &Value) -> Option<Value> {
    let is_known = |kind: &&Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    match kind {
        Value::Array(kinds) => match kinds.iter().filter(is_known).cloned().collect::<Vec<_>>() {
            none if none.is_empty() => None,
            mut one if one.len() == 1 => one.pop(),
            kinds => Some(kinds.into()),
        },
        kind => Some(kind).filter(is_known).cloned(),
    }
}

/// Adds what else must hold of an object.
fn join(out: &mut Map<String, Value>, more: Map<String, Value>) {
    for (key, value) in more {
        match (out.get_mut(&key), value) {
            (None, value) => {
                out.insert(key, value);
            }
            (Some(Value::Object(there)), Value::Object(more)) if key == "properties" => there.extend(more),
            (Some(Value::Array(there)), Value::Array(more)) if key == "required" => {
                let new: Vec<_> = more.into_iter().filter(|name| !there.contains(name)).collect();
                there.extend(new);
            }
            _ => {}
        }
    }
}
