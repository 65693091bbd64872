//! Everything about a persona's file that does not fit what a persona is: serde stops at the first misfit and knows no
//! paths; the schema of the type tells all of them.

use std::path::Path;
use std::sync::LazyLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use posse_core::persona::{PersonaFileProblem, PersonaTemplate};
use posse_core::text::nearest;
use posse_core::tool::schema_of;
use posse_tools::field_path;
use serde_json::Value;

use super::{line_of, malformed, problems_of};

static SCHEMA: LazyLock<Value> = LazyLock::new(schema_of::<PersonaTemplate>);
static VALIDATOR: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&SCHEMA).expect("a test uses this schema"));

/// Stands for what is missing, so that the rest can be looked at.
const STAND_IN: &str = "x";

/// All that is wrong with `text`, which `error` kept from being read.
pub(super) fn all(file: &Path, text: &str, error: &serde_json::Error) -> Vec<PersonaFileProblem> {
    let one = || vec![malformed(file, text, error)];
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return one() };
    // Read under either name.
    if let Some(object) = value.as_object_mut()
        && !object.contains_key("tools")
        && let Some(tools) = object.remove("toolNames")
    {
        object.insert("tools".into(), tools);
    }
    let mut problems = Vec::new();
    let mut faulty: Vec<(String, String)> = Vec::new();
    for misfit in VALIDATOR.iter_errors(&value) {
        let pointer = misfit.instance_path.as_str().to_owned();
        for (name, field, message) in complaints(&misfit, &pointer) {
            problems.push(PersonaFileProblem::error(file, line_of(text, &field), Some(&field), message));
            faulty.push((pointer.clone(), name));
        }
    }
    if problems.is_empty() {
        return one();
    }
    // What fits is looked at all the same, with what does not left out.
    let fields: Vec<_> = problems.iter().filter_map(|problem| problem.field.clone()).collect();
    faulty.iter().for_each(|(pointer, name)| leave_out(&mut value, pointer, name));
    for required in ["role", "goal"] {
        if let Some(object) = value.as_object_mut() {
            object.entry(required).or_insert_with(|| STAND_IN.into());
        }
    }
    if let Ok(persona) = serde_json::from_value::<PersonaTemplate>(value) {
        let others = problems_of(file, text, &persona);
        problems.extend(others.into_iter().filter(|other| other.field.as_ref().is_none_or(|f| !fields.contains(f))));
    }
    problems.sort_by_key(|problem| problem.line);
    problems
}

/// What a misfit means: the key to be left out (none for the value itself), its path, and what is wrong.
fn complaints(misfit: &ValidationError<'_>, pointer: &str) -> Vec<(String, String, String)> {
    let path = field_path(pointer);
    let beneath = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match &misfit.kind {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            vec![(String::new(), beneath(name), "is missing; every persona has a role and a goal".into())]
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let schema = schema_at(pointer);
            let known: Vec<&str> = schema
                .and_then(|schema| schema.get("properties")?.as_object())
                .map(|all| all.keys().map(String::as_str).collect())
                .unwrap_or_default();
            let of = if path.is_empty() { "a persona" } else { &path };
            let one = |name: &String| {
                let near = nearest(name, known.iter().copied()).map(|near| format!("; did you mean {near}?"));
                let near = near.unwrap_or_default();
                (name.clone(), beneath(name), format!("is no field of {of}{near} Fields are {}", known.join(", ")))
            };
            unexpected.iter().map(one).collect()
        }
        _ => {
            let shown: String = misfit.instance.to_string().chars().take(60).collect();
            let wanted = schema_at(pointer).map_or_else(|| "another kind of value".into(), wanted);
            let path = if path.is_empty() { "the file".to_owned() } else { path };
            vec![(String::new(), path, format!("is {shown}; it must be {wanted}"))]
        }
    }
}

/// What a schema wants, in words: "a number from 1", "one of direct, phased".
fn wanted(schema: &Value) -> String {
    let options: Vec<_> = schema
        .get("enum")
        .or_else(|| schema.get("oneOf"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|option| option.as_str().or_else(|| option.get("const")?.as_str()))
        .collect();
    if !options.is_empty() {
        return format!("one of {}", options.join(", "));
    }
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
        _ => vec![],
    };
    let words: Vec<_> = kinds.iter().map(|kind| in_words(kind)).collect();
    let mut words = if words.is_empty() { "another kind of value".into() } else { words.join(" or ") };
    if let Some(least) = schema.get("minimum").and_then(Value::as_f64) {
        words = format!("{words} from {least}");
    }
    if let Some(most) = schema.get("maximum").and_then(Value::as_f64).filter(|most| *most < f64::from(u32::MAX)) {
        words = format!("{words} to {most}");
    }
    words
}

fn in_words(kind: &str) -> &str {
    match kind {
        "integer" | "number" => "a number",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        "boolean" => "true or false",
        other => other,
    }
}

/// The schema of what a pointer leads to.
fn schema_at(pointer: &str) -> Option<&'static Value> {
    pointer
        .split('/')
        .skip(1)
        .try_fold(&*SCHEMA, |schema, part| {
            let schema = branch(schema);
            schema.get("properties").and_then(|all| all.get(part)).or_else(|| match part.parse::<usize>() {
                Ok(_) => schema.get("items"),
                Err(_) => schema.get("additionalProperties").filter(|schema| schema.is_object()),
            })
        })
        .map(branch)
}

/// Of a schema for something or null, that for something.
fn branch(schema: &'static Value) -> &'static Value {
    let of_any = schema.get("anyOf").and_then(Value::as_array);
    of_any.and_then(|all| all.iter().find(|one| one.get("type").is_none_or(|kind| kind != "null"))).unwrap_or(schema)
}

fn leave_out(value: &mut Value, pointer: &str, name: &str) {
    let (parent, key) = match (name, pointer.rsplit_once('/')) {
        ("", Some((parent, key))) => (parent, key),
        ("", None) => return,
        (name, _) => (pointer, name),
    };
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.shift_remove(key)),
        Some(Value::Array(items)) => items.clear(),
        _ => {}
    }
}
