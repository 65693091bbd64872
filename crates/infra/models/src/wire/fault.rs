//! A provider's words about what went wrong, in any of the shapes they come in.

use serde_json::Value;

use super::lenient::{count, word};

/// An error as a provider worded it. Everything may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub message: String,
    /// Its kind, `invalid_request_error` for instance.
    pub kind: String,
    /// Its code, a word or digits.
    pub code: String,
    pub param: String,
    /// The server's window in tokens (llama.cpp).
    pub n_ctx: Option<u32>,
    /// A wait in a field of its own, as it is written; in seconds where it is a number.
    pub wait: Option<Box<str>>,
}

impl Fault {
    pub fn words(message: impl Into<String>) -> Self {
        Fault { message: message.into(), ..Fault::default() }
    }

    /// The error in a body of a failed request, whatever it is made of.
    pub fn in_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => {
                let fault = Fault::in_answer(&value).unwrap_or_else(|| Fault::of_value(&value));
                let wait = fault.wait.or_else(|| wait_in(&value, 4));
                Fault { wait, ..fault }
            }
            Err(_) => Fault::words(plain_words(&text)),
        }
    }

    /// The error in a JSON answer, if it is one rather than a reply.
    pub fn in_answer(value: &Value) -> Option<Self> {
        // Google's compatible endpoint wraps its error objects in a list.
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let object = value.as_object()?;
        let told = |key: &str| object.get(key).filter(|v| !matches!(v, Value::Null | Value::Bool(false)));
        let is_reply =
            object.get("choices").is_some_and(|choices| choices.as_array().is_some_and(|list| !list.is_empty()));
        if let Some(error) = told("error").filter(|e| !is_reply || !is_blank(e)) {
            return Some(Fault::of_value(error));
        }
        if is_reply {
            return None;
        }
        if object.get("object").and_then(Value::as_str) == Some("error") {
            return Some(Fault::of_value(value));
        }
        told("detail").or_else(|| told("errors")).map(Fault::of_value)
    }

    pub fn of_value(value: &Value) -> Self {
        match value {
            Value::String(text) => Fault::words(plain_words(text)),
            Value::Array(list) => {
                let words: Vec<_> = list.iter().map(|v| Fault::of_value(v).message).collect();
                Fault::words(words.join("; "))
            }
            Value::Object(_) => {
                let field = |name: &str| word(&value[name]);
                let nested = || value.get("error").or_else(|| value.get("detail")).map(|v| Fault::of_value(v).message);
                let message = field("message").or_else(|| field("msg")).or_else(nested);
                let message = message.unwrap_or_else(|| value.to_string());
                // OpenRouter hides the upstream provider's words there.
                let message = match (value["metadata"]["raw"].as_str(), field("failed_generation")) {
                    (Some(raw), _) if !message.contains(raw) => format!("{message} ({raw})"),
                    (_, Some(text)) => format!("{message} The model wrote: {text}"),
                    _ => message,
                };
                Fault {
                    message,
                    kind: field("type").or_else(|| field("status")).unwrap_or_default(),
                    code: field("code").unwrap_or_default(),
                    param: field("param").unwrap_or_default(),
                    n_ctx: count(&value["n_ctx"]).and_then(|n| u32::try_from(n).ok()),
                    wait: wait_in(value, 4),
                }
            }
            other => Fault::words(other.to_string()),
        }
    }
}

/// A wait in a field of `value`, or of what is in it.
fn wait_in(value: &Value, depth: usize) -> Option<Box<str>> {
    let within = |value: &Value| if depth == 0 { None } else { wait_in(value, depth - 1) };
    match value {
        Value::Object(object) => {
            let named = object.iter().find_map(|(key, value)| {
                let key = key.to_ascii_lowercase().replace(['_', '-'], "");
                match (key.as_str(), value) {
                    ("retryafterms", Value::Number(ms)) => Some((ms.as_f64()? / 1000.0).to_string().into()),
                    ("retryafter" | "retrydelay" | "retryafterseconds", Value::String(text)) => {
                        Some(text.as_str().into())
                    }
                    ("retryafter" | "retrydelay" | "retryafterseconds", Value::Number(n)) => Some(n.to_string().into()),
                    _ => None,
                }
            });
            named.or_else(|| object.values().find_map(within))
        }
        Value::Array(list) => list.iter().find_map(within),
        _ => None,
    }
}

fn is_blank(value: &Value) -> bool {
    value.as_object().is_some_and(|o| o.is_empty()) || value.as_str().is_some_and(str::is_empty)
}

/// The words of a text that may be a web page.
fn plain_words(text: &str) -> String {
    let mut words = String::new();
    let mut hidden = false;
    for (at, piece) in text.split('<').enumerate() {
        let shown = match (at, piece.split_once('>')) {
            (0, _) => piece,
            (_, Some((tag, rest))) => {
                let tag = tag.to_ascii_lowercase();
                let is = |name: &str| tag.trim_start_matches('/').starts_with(name);
                if is("style") || is("script") {
                    hidden = !tag.starts_with('/');
                }
                rest
            }
            // A lone `<`, in `x < y` or in a failed call's text, is text.
            (_, None) => {
                words.push('<');
                piece
            }
        };
        if !hidden {
            words.push_str(shown);
            words.push(' ');
        }
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
