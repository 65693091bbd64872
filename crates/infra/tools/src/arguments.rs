//! Reads the arguments a model wrote and, where they do not fit, says so in words that even a
//! small model can follow: which field, what was wrong, what is expected, which fields there are.

use std::fmt::Write;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use posse_core::tool::{ToolError, ToolSpec};
use serde_json::{Map, Value};

use super::failure::invalid;
use super::text::near_matches;

/// More than this many complaints help nobody.
const MAX_COMPLAINTS: usize = 6;

pub struct ArgumentCheck {
    spec: ToolSpec,
    validator: Validator,
}

impl ArgumentCheck {
    /// Compiles the schema; the error says why it is none.
    pub fn compile(spec: &ToolSpec) -> Result<Self, String> {
        if spec.parameters.get("type").is_none_or(|kind| kind != "object") {
            return Err("the parameters are not of type object".into());
        }
        let validator = jsonschema::draft202012::new(&spec.parameters).map_err(|error| error.to_string())?;
        Ok(ArgumentCheck { spec: spec.clone(), validator })
    }

    /// Whether it was compiled from this very spec.
    pub fn is_of(&self, spec: &ToolSpec) -> bool {
        self.spec.parameters == spec.parameters
    }

    /// The arguments as a value that fits the schema. Nothing is guessed: text that is not whole
    /// JSON is refused. Three spellings that mean the same are evened out: no text at all is `{}`,
    /// `null` for an optional field is its absence, and `3.0` is the integer 3.
    pub fn parse(&self, raw: &str) -> Result<Value, ToolError> {
        let text = if raw.trim().is_empty() { "{}" } else { raw };
        let mut args: Value = serde_json::from_str(text).map_err(|error| self.not_json(&error))?;
        self.drop_nulls(&mut args);
        even_out_numbers(&mut args);
        let complaints: Vec<_> = self.validator.iter_errors(&args).map(|error| self.complaint(&error)).collect();
        if complaints.is_empty() { Ok(args) } else { Err(self.explain(&complaints)) }
    }

    fn properties(&self) -> Option<&Map<String, Value>> {
        self.spec.parameters.get("properties")?.as_object()
    }

    fn is_required(&self, field: &str) -> bool {
        let required = self.spec.parameters.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|name| name == field))
    }

    fn drop_nulls(&self, args: &mut Value) {
        let Value::Object(args) = args else { return };
        args.retain(|field, value| {
            let known = self.properties().and_then(|all| all.get(field));
            let takes_null = known.is_none_or(|schema| describe_type(schema).contains("null"));
            !value.is_null() || takes_null || self.is_required(field)
        });
    }

    fn not_json(&self, error: &serde_json::Error) -> ToolError {
        self.explain(&[format!("they are not whole JSON: {error}. Send one JSON object")])
    }

    fn explain(&self, complaints: &[String]) -> ToolError {
        let mut text = format!("The arguments of {} do not fit:", self.spec.name);
        for complaint in complaints.iter().take(MAX_COMPLAINTS) {
            write!(text, "\n- {complaint}").ok();
        }
        if let Some(more) = complaints.len().checked_sub(MAX_COMPLAINTS).filter(|more| *more > 0) {
            write!(text, "\n- and {more} more").ok();
        }
        match self.properties().filter(|all| !all.is_empty()) {
            None => text.push_str("\nIt takes no fields: send {}."),
            Some(all) => {
                text.push_str("\nFields:");
                for (name, schema) in all {
                    let need = if self.is_required(name) { "required" } else { "optional" };
                    write!(text, "\n- {name} ({}, {need})", describe_type(schema)).ok();
                    if let Some(words) = schema.get("description").and_then(Value::as_str) {
                        write!(text, ": {}", words.replace('\n', " ")).ok();
                    }
                }
            }
        }
        invalid(text)
    }

    fn complaint(&self, error: &ValidationError<'_>) -> String {
        let field = field_name(error.instance_path.as_str());
        let value = shorten(&error.instance);
        match &error.kind {
            ValidationErrorKind::Required { property } => {
                format!("{field}`{}` is missing", property.as_str().unwrap_or_default())
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known: Vec<&str> = self.properties().into_iter().flat_map(Map::keys).map(String::as_str).collect();
                let words: Vec<_> = unexpected.iter().map(|name| unknown_field(name, &known)).collect();
                format!("{field}{}", words.join("; "))
            }
            ValidationErrorKind::Type { kind } => {
                let expected = match kind {
                    TypeKind::Single(one) => article(&one.to_string()),
                    TypeKind::Multiple(several) => {
                        let all: Vec<_> = several.iter().map(|one| article(&one.to_string())).collect();
                        all.join(" or ")
                    }
                };
                let subject = if field.is_empty() { "they" } else { field.trim_end() };
                let verb = if field.is_empty() { "are" } else { "is" };
                format!("{subject} must be {expected}, but {verb} {}{value}", kind_of(&error.instance))
            }
            ValidationErrorKind::Enum { options } => {
                format!("{field}must be one of {options}, but is {value}")
            }
            ValidationErrorKind::MinLength { limit: 1 } => format!("{field}must not be empty"),
            _ => format!("{field}{}", shorten_text(&error.masked_with(value).to_string(), 300)),
        }
    }
}

/// `/limits/max_turns` as `limits.max_turns`, `/tags/0` as `tags[0]`.
pub fn field_path(pointer: &str) -> String {
    pointer.split('/').skip(1).fold(String::new(), |path, part| match part.parse::<usize>() {
        Ok(index) => format!("{path}[{index}]"),
        Err(_) if path.is_empty() => part.to_owned(),
        Err(_) => format!("{path}.{part}"),
    })
}

/// The field that a pointer leads to, ready to be followed by what is wrong with it.
fn field_name(pointer: &str) -> String {
    let path = field_path(pointer);
    if path.is_empty() { path } else { format!("`{path}` ") }
}

fn unknown_field(name: &str, known: &[&str]) -> String {
    let near = near_matches(name, known.iter().copied());
    let hint = near.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    format!("`{}` is not a field{hint}", shorten_text(name, 60))
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".into(),
        "integer" => "an integer (a whole number without quotes)".into(),
        "object" | "array" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "",
        Value::Bool(_) => "the boolean ",
        Value::Number(_) => "the number ",
        Value::String(_) => "the string ",
        Value::Array(_) => "the array ",
        Value::Object(_) => "the object ",
    }
}

/// The type a field's schema asks for, in a few words.
fn describe_type(schema: &Value) -> String {
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        return format!("one of {}", Value::Array(options.clone()));
    }
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "array" => {
            let items = schema.get("items").map(describe_type);
            items.map_or_else(|| "array".into(), |items| format!("array of {items}"))
        }
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" or ")
        }
        // Without a type anything goes, null too.
        _ => "any value, null too".into(),
    }
}

fn shorten(value: &Value) -> String {
    if value.is_null() { "null".into() } else { shorten_text(&value.to_string(), 60) }
}

fn shorten_text(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// JSON Schema calls 3.0 an integer and serde does not; within what a double holds exactly they
/// are the same number.
fn even_out_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            if float.fract() == 0.0 && float.abs() <= EXACT {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(even_out_numbers),
        Value::Object(fields) => fields.values_mut().for_each(even_out_numbers),
        _ => {}
    }
}
