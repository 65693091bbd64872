//! What a refused request teaches about the server: which field it will not take, and which order of
//! roles.

use posse_core::model::conversation::ReasoningBack;
use posse_core::model::{Message, ModelErrorKind, ModelRequest};

use crate::wire::{Dialect, Fault, Format, MaxTokens, Purpose};

/// One change to what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Adaptation {
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
    Reasoning(ReasoningBack),
    /// Put a message between a result and a user message.
    NoUserAfterTool,
    /// Let user and assistant take turns.
    TakeTurns,
    /// Make one message of all system messages.
    OneSystem,
}

impl Adaptation {
    /// Makes the change.
    pub fn apply(self, dialect: &mut Dialect) {
        match self {
            Adaptation::NoStreamOptions => dialect.stream_options = false,
            Adaptation::MaxTokens(field) => dialect.max_tokens = field,
            Adaptation::NoTemperature => dialect.temperature = false,
            Adaptation::Format(format) => dialect.format = format,
            Adaptation::AutoChoice => dialect.required_choice = false,
            Adaptation::Reasoning(back) => dialect.rules.reasoning = back,
            Adaptation::NoUserAfterTool => dialect.rules.user_after_tool = false,
            Adaptation::TakeTurns => dialect.rules.take_turns = true,
            Adaptation::OneSystem => dialect.rules.several_systems = false,
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

/// Words for "not here": every system message was in front.
const ABOUT_SYSTEMS: &[&str] =
    &["multiple", "more than one", "only one", "at most one", "at the beginning", "be first", "be the first"];

/// A request as it was sent.
pub(super) struct Asked<'a> {
    /// What was asked.
    pub request: &'a ModelRequest,
    /// Why.
    pub purpose: Purpose,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// How it was asked.
    pub dialect: &'a Dialect,
}

/// What `fault` asks for, the answer of this kind to a request. `initial` is the dialect that was
/// configured: what has been switched once is not switched back.
pub(super) fn to(fault: &Fault, kind: ModelErrorKind, asked: &Asked<'_>, initial: &Dialect) -> Option<Adaptation> {
    match kind {
        ModelErrorKind::Rejected => about_roles(fault, asked.dialect).or_else(|| about_fields(fault, asked, initial)),
        // Servers that render a chat template answer 500 when it stumbles over the conversation.
        ModelErrorKind::Transient => about_roles(fault, asked.dialect),
        _ => None,
    }
}

fn about_roles(fault: &Fault, dialect: &Dialect) -> Option<Adaptation> {
    let message = fault.message.to_lowercase().replace(['\'', '"', '`'], "");
    if dialect.rules.user_after_tool && message.contains("role user after role tool") {
        return Some(Adaptation::NoUserAfterTool);
    }
    if !dialect.rules.take_turns && message.contains("role") && has_word(&message, "alternate") {
        return Some(Adaptation::TakeTurns);
    }
    if dialect.rules.several_systems && message.contains("system") && ABOUT_SYSTEMS.iter().any(|w| message.contains(w))
    {
        return Some(Adaptation::OneSystem);
    }
    None
}

fn about_fields(fault: &Fault, asked: &Asked<'_>, initial: &Dialect) -> Option<Adaptation> {
    let Asked { request, purpose, stream, dialect } = *asked;
    let message = fault.message.to_lowercase();
    let code = format!("{} {}", fault.code, fault.kind).to_lowercase();
    let not_taken = NOT_TAKEN.iter().any(|words| message.contains(words) || code.contains(words));
    let named = |field: &str| fault.param == field || has_word(&message, field);

    if stream && dialect.stream_options && named("stream_options") {
        return Some(Adaptation::NoStreamOptions);
    }
    if let (Some(_), Some(field)) = (request.max_tokens, dialect.max_tokens) {
        let (name, other) = match field {
            MaxTokens::MaxTokens => ("max_tokens", MaxTokens::MaxCompletionTokens),
            MaxTokens::MaxCompletionTokens => ("max_completion_tokens", MaxTokens::MaxTokens),
        };
        if named(name) && not_taken {
            let first = dialect.max_tokens == initial.max_tokens;
            return Some(Adaptation::MaxTokens(first.then_some(other)));
        }
    }
    if request.temperature.is_some() && dialect.temperature && named("temperature") && not_taken {
        return Some(Adaptation::NoTemperature);
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
            return Some(Adaptation::Format(next));
        }
    }
    if purpose == Purpose::Probe && dialect.required_choice && named("tool_choice") {
        return Some(Adaptation::AutoChoice);
    }
    // Required of messages too that another model wrote, so it matters not whether there is any.
    let has_spoken = request.messages.iter().any(|message| matches!(message, Message::Assistant { .. }));
    if has_spoken && named("reasoning_content") && dialect.rules.reasoning == initial.rules.reasoning {
        return Some(Adaptation::Reasoning(match dialect.rules.reasoning {
            ReasoningBack::Forbidden => ReasoningBack::Required,
            ReasoningBack::Optional if !not_taken => ReasoningBack::Required,
            ReasoningBack::Optional | ReasoningBack::Required => ReasoningBack::Forbidden,
        }));
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
    use crate::openai::OpenAiConfig;
    use serde_json::json;

    fn request() -> ModelRequest {
        ModelRequest {
            messages: vec![Message::Assistant { text: "t".to_owned(), reasoning: None, calls: vec![] }].into(),
            schema: Some(json!({})),
            max_tokens: Some(1),
            temperature: Some(0.0),
            ..ModelRequest::default()
        }
    }

    fn adaptation(body: &str, dialect: &Dialect) -> Option<Adaptation> {
        let initial = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        let fault = Fault::in_body(body.as_bytes());
        let asked = Asked { request: &request(), purpose: Purpose::Probe, stream: true, dialect };
        to(&fault, ModelErrorKind::Rejected, &asked, &initial)
    }

    #[test]
    fn each_field_that_may_be_refused() {
        let initial = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        for (body, expected) in [
            (
                r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}}"#,
                Some(Adaptation::MaxTokens(Some(MaxTokens::MaxCompletionTokens))),
            ),
            (r#"{"error":{"message":"max_tokens is too large: 20000","param":"max_tokens"}}"#, None),
            (
                r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model.","param":"temperature","code":"unsupported_value"}}"#,
                Some(Adaptation::NoTemperature),
            ),
            (r#"{"error":{"message":"temperature must be at most 1"}}"#, None),
            (
                r#"{"detail":[{"msg":"stream_options: Extra inputs are not permitted"}]}"#,
                Some(Adaptation::NoStreamOptions),
            ),
            (
                r#"{"error":{"message":"Invalid schema for response_format 'step'","param":"response_format"}}"#,
                Some(Adaptation::Format(Format::Schema)),
            ),
            (r#"{"error":"this model is restricted"}"#, None),
            (r#"{"error":"tool_choice must be auto"}"#, Some(Adaptation::AutoChoice)),
            (
                r#"{"error":{"message":"The `reasoning_content` of an assistant turn has to be sent back."}}"#,
                Some(Adaptation::Reasoning(ReasoningBack::Required)),
            ),
            (
                r#"{"error":{"message":"thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"}}"#,
                Some(Adaptation::Reasoning(ReasoningBack::Required)),
            ),
            (
                r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","code":"3230"}"#,
                Some(Adaptation::NoUserAfterTool),
            ),
            (
                r#"{"error":"After the optional system message, conversation roles must alternate user/assistant"}"#,
                Some(Adaptation::TakeTurns),
            ),
            (r#"{"error":"Unexpected role 'tool' after role 'user'"}"#, None),
            (r#"{"error":{"message":"messages: must not be empty"}}"#, None),
        ] {
            assert_eq!(adaptation(body, &initial), expected, "{body}");
        }
    }

    #[test]
    fn nothing_is_switched_back_and_forth() {
        let mut dialect = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        let refused = r#"{"error":"unsupported: max_tokens max_completion_tokens response_format temperature stream_options tool_choice reasoning_content"}"#;
        let mut adaptations = 0;
        while let Some(adaptation) = adaptation(refused, &dialect) {
            adaptation.apply(&mut dialect);
            adaptations += 1;
            assert!(adaptations <= super::super::MAX_ADAPTATIONS + 2, "{dialect:?}");
        }
        assert_eq!((dialect.max_tokens, dialect.format), (None, Format::Nothing));
    }

    #[test]
    fn a_second_system_message_is_given_up_where_it_was_sent() {
        let mut dialect = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        let refused = [
            "System message must be at the beginning.",
            "Only one system message is allowed",
            "multiple system messages are not supported",
        ];
        let body = |words: &str| json!({"error": {"message": words}}).to_string();
        for words in refused {
            dialect.rules.several_systems = true;
            assert_eq!(adaptation(&body(words), &dialect), Some(Adaptation::OneSystem), "{words}");
            Adaptation::OneSystem.apply(&mut dialect);
            assert_eq!(adaptation(&body(words), &dialect), None, "there was one");
        }
        dialect.rules.several_systems = true;
        assert_eq!(adaptation(&body("the system is overloaded"), &dialect), None);
    }

    #[test]
    fn a_template_that_stumbles_teaches_an_order_and_no_field() {
        let initial = OpenAiConfig::new("n", "http://127.0.0.1:1", "m").dialect();
        let learned = |message: &str| {
            let asked = Asked { request: &request(), purpose: Purpose::Work, stream: true, dialect: &initial };
            to(&Fault::words(message), ModelErrorKind::Transient, &asked, &initial)
        };
        assert_eq!(learned("Conversation roles must alternate user/assistant/user/..."), Some(Adaptation::TakeTurns));
        assert_eq!(learned("temperature is not supported"), None);
    }

    #[test]
    fn reasoning_is_switched_by_what_the_server_says() {
        let learned = |back: ReasoningBack, body: &str| {
            let mut config = OpenAiConfig::new("n", "http://127.0.0.1:1", "m");
            config.reasoning = Some(back);
            let dialect = config.dialect();
            let asked = Asked { request: &request(), purpose: Purpose::Work, stream: true, dialect: &dialect };
            to(&Fault::words(body), ModelErrorKind::Rejected, &asked, &dialect)
        };
        let (missing, refused) = ("reasoning_content is missing", "reasoning_content: Extra inputs are not permitted");
        assert_eq!(learned(ReasoningBack::Optional, missing), Some(Adaptation::Reasoning(ReasoningBack::Required)));
        assert_eq!(learned(ReasoningBack::Optional, refused), Some(Adaptation::Reasoning(ReasoningBack::Forbidden)));
        assert_eq!(learned(ReasoningBack::Required, refused), Some(Adaptation::Reasoning(ReasoningBack::Forbidden)));
    }
}
