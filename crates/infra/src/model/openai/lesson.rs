//! What a refused request teaches about the server: which field it will not take.

use posse_core::model::{Message, ModelRequest};

use crate::model::wire::{Dialect, Fault, Format, MaxTokens, Purpose};

/// One change to what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lesson {
    /// Leave `stream_options` out.
    NoStreamOptions,
    /// Limit tokens by this field, or not at all.
    MaxTokens(Option<MaxTokens>),
    /// Leave `temperature` out.
    NoTemperature,
    /// Send schemas in this way.
    Format(Format),
    /// Ask for a tool call with `"auto"`.
    AutoChoice,
    /// Send reasoning back, or do not.
    Reasoning(bool),
}

impl Lesson {
    /// Makes the change.
    pub fn apply(self, dialect: &mut Dialect) {
        match self {
            Lesson::NoStreamOptions => dialect.stream_options = false,
            Lesson::MaxTokens(field) => dialect.max_tokens = field,
            Lesson::NoTemperature => dialect.temperature = false,
            Lesson::Format(format) => dialect.format = format,
            Lesson::AutoChoice => dialect.required_choice = false,
            Lesson::Reasoning(sent) => dialect.reasoning = sent,
        }
    }
}

/// Words for "this field is not taken", as against "its value is wrong".
const NOT_TAKEN: &[&str] = &[
    "unsupported",
    "not support",
    "unrecognized",
    "unrecognised",
    "unknown",
    "not permitted",
    "not allowed",
    "not available",
    "not implemented",
    "extra inputs",
    "extra fields",
    "extra_forbidden",
    "additional propert",
    "unexpected",
    "deprecated",
    "only the default",
    "no endpoints found",
];

/// The lesson in `fault`, the answer to `request` as it was sent in `dialect`. `initial` is the
/// dialect that was configured: what has been switched once is not switched back.
pub(super) fn learn(
    fault: &Fault,
    request: &ModelRequest,
    purpose: Purpose,
    stream: bool,
    dialect: &Dialect,
    initial: &Dialect,
) -> Option<Lesson> {
    let message = fault.message.to_lowercase();
    let code = format!("{} {}", fault.code, fault.kind).to_lowercase();
    let not_taken = NOT_TAKEN.iter().any(|words| message.contains(words) || code.contains(words));
    let named = |field: &str| fault.param == field || has_word(&message, field);

    if stream && dialect.stream_options && named("stream_options") {
        return Some(Lesson::NoStreamOptions);
    }
    if let (Some(_), Some(field)) = (request.max_tokens, dialect.max_tokens) {
        let (name, other) = match field {
            MaxTokens::MaxTokens => ("max_tokens", MaxTokens::MaxCompletionTokens),
            MaxTokens::MaxCompletionTokens => ("max_completion_tokens", MaxTokens::MaxTokens),
        };
        if named(name) && not_taken {
            let first = dialect.max_tokens == initial.max_tokens;
            return Some(Lesson::MaxTokens(first.then_some(other)));
        }
    }
    if request.temperature.is_some() && dialect.temperature && named("temperature") && not_taken {
        return Some(Lesson::NoTemperature);
    }
    if request.schema.is_some() {
        let next = match dialect.format {
            Format::Strict => Some(Format::Schema),
            Format::Schema => Some(Format::Object),
            Format::Object => Some(Format::Nothing),
            Format::Nothing => None,
        };
        let about_schema = ["response_format", "json_schema", "strict"].iter().any(|f| named(f));
        if let Some(next) = next.filter(|_| about_schema || fault.param.starts_with("response_format")) {
            return Some(Lesson::Format(next));
        }
    }
    if purpose == Purpose::Probe && dialect.required_choice && named("tool_choice") {
        return Some(Lesson::AutoChoice);
    }
    let has_reasoning = request
        .messages
        .iter()
        .any(|message| matches!(message, Message::Assistant { reasoning: Some(words), .. } if !words.is_empty()));
    if has_reasoning && named("reasoning_content") && dialect.reasoning == initial.reasoning {
        return Some(Lesson::Reasoning(!dialect.reasoning));
    }
    None
}

/// Whether `word` stands in `text` on its own: `strict` is not in `restricted`.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::openai::OpenAiConfig;
    use serde_json::json;

    fn request() -> ModelRequest {
        ModelRequest {
            messages: vec![Message::Assistant { text: "t".to_owned(), reasoning: Some("r".to_owned()), calls: vec![] }],
            schema: Some(json!({})),
            max_tokens: Some(1),
            temperature: Some(0.0),
            ..ModelRequest::default()
        }
    }

    fn lesson(body: &str, dialect: &Dialect) -> Option<Lesson> {
        let initial = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        let fault = Fault::in_body(body.as_bytes());
        learn(&fault, &request(), Purpose::Probe, true, dialect, &initial)
    }

    #[test]
    fn each_field_that_may_be_refused() {
        let initial = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        for (body, expected) in [
            (
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}"#,
                Some(Lesson::MaxTokens(Some(MaxTokens::MaxCompletionTokens))),
            ),
            (r#"{"error":{"message":"max_tokens is too large: 20000","param":"max_tokens"}}"#, None),
            (
                r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model.","param":"temperature","code":"unsupported_value"}}"#,
                Some(Lesson::NoTemperature),
            ),
            (r#"{"error":{"message":"temperature must be at most 1"}}"#, None),
            (r#"{"detail":[{"msg":"stream_options: Extra inputs are not permitted"}]}"#, Some(Lesson::NoStreamOptions)),
            (
                r#"{"error":{"message":"Invalid schema for response_format 'step'","param":"response_format"}}"#,
                Some(Lesson::Format(Format::Schema)),
            ),
            (r#"{"error":"this model is restricted"}"#, None),
            (r#"{"error":"tool_choice must be auto"}"#, Some(Lesson::AutoChoice)),
            (
                r#"{"error":{"message":"The `reasoning_content` of an assistant turn has to be sent back."}}"#,
                Some(Lesson::Reasoning(true)),
            ),
            (r#"{"error":{"message":"messages: must not be empty"}}"#, None),
        ] {
            assert_eq!(lesson(body, &initial), expected, "{body}");
        }
    }

    #[test]
    fn nothing_is_switched_back_and_forth() {
        let mut dialect = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        let refused = r#"{"error":"unsupported: max_tokens max_completion_tokens response_format temperature stream_options tool_choice reasoning_content"}"#;
        let mut lessons = 0;
        while let Some(lesson) = lesson(refused, &dialect) {
            lesson.apply(&mut dialect);
            lessons += 1;
            assert!(lessons <= super::super::MAX_LESSONS + 2, "{dialect:?}");
        }
        assert_eq!((dialect.max_tokens, dialect.format), (None, Format::Nothing));
    }
}
