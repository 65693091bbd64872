//! JSON Schemas as types of TypeScript. What has no such type is `unknown`, and never `any`.

use serde_json::{Map, Value};

/// What is nested deeper is not told.
const MAX_DEPTH: usize = 6;

/// The type of the values that fit a schema.
pub(super) fn type_of(schema: &Value) -> String {
    of(schema, MAX_DEPTH)
}

fn of(schema: &Value, depth: usize) -> String {
    let Some(schema) = schema.as_object().filter(|_| depth > 0) else { return UNKNOWN.into() };
    if let Some(value) = schema.get("const") {
        return literal(value);
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return union(values.iter().map(literal));
    }
    for of_several in ["anyOf", "oneOf"] {
        if let Some(Value::Array(choices)) = schema.get(of_several) {
            return union(choices.iter().map(|choice| of(choice, depth - 1)));
        }
    }
    match schema.get("type") {
        Some(Value::String(name)) => named(name, schema, depth),
        Some(Value::Array(names)) => union(names.iter().map(|name| match name {
            Value::String(name) => named(name, schema, depth),
            _ => UNKNOWN.into(),
        })),
        _ => UNKNOWN.into(),
    }
}

const UNKNOWN: &str = "unknown";

fn named(name: &str, schema: &Map<String, Value>, depth: usize) -> String {
    match name {
        "string" | "boolean" | "null" => name.into(),
        "number" | "integer" => "number".into(),
        "array" => format!("Array<{}>", schema.get("items").map_or(UNKNOWN.into(), |items| of(items, depth - 1))),
        "object" => object(schema, depth),
        _ => UNKNOWN.into(),
    }
}

fn object(schema: &Map<String, Value>, depth: usize) -> String {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        let values = schema.get("additionalProperties").map_or(UNKNOWN.into(), |values| of(values, depth - 1));
        return format!("Record<string, {values}>");
    };
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|required| required.iter().any(|one| one == name));
    let field = |(name, schema): (&String, &Value)| {
        let optional = if is_required(name) { "" } else { "?" };
        format!("{}{optional}: {}", key(name), of(schema, depth - 1))
    };
    let fields: Vec<_> = properties.iter().map(field).collect();
    if fields.is_empty() { "{}".into() } else { format!("{{ {} }}", fields.join("; ")) }
}

fn key(name: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_plain = !name.is_empty() && name.chars().all(legal) && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_plain { name.into() } else { Value::from(name).to_string() }
}

/// A type with one value.
fn literal(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => UNKNOWN.into(),
        value => value.to_string(),
    }
}

fn union(types: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for one in types {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    if all.is_empty() { UNKNOWN.into() } else { all.join(" | ") }
}
