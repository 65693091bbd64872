//! What a refused request teaches about the server: which field it will not take, and which order of
//! roles.

use posse_core::model::conversation::{ReasoningBack, Rules};
use posse_core::model::{Message, ModelErrorKind, ModelRequest};

use crate::wire::{Dialect, Fault, Format, MaxTokens, Purpose};

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

pub(super) struct Asked<'a> {
    pub request: &'a ModelRequest,
    pub purpose: Purpose,
    pub stream: bool,
    pub dialect: &'a Dialect,
}

/// The dialect that `fault` asks for, the answer of this kind to a request. `initial` is the one that was
/// configured: what has been switched once is not switched back.
pub(super) fn to(fault: &Fault, kind: ModelErrorKind, asked: &Asked<'_>, initial: &Dialect) -> Option<Dialect> {
    match kind {
        ModelErrorKind::Rejected => about_roles(fault, asked.dialect).or_else(|| about_fields(fault, asked, initial)),
        // Servers that render a chat template answer 500 when it stumbles over the conversation.
        ModelErrorKind::Transient => about_roles(fault, asked.dialect),
        _ => None,
    }
}

fn about_roles(fault: &Fault, dialect: &Dialect) -> Option<Dialect> {
    let message = fault.message.to_lowercase().replace(['\'', '"', '`'], "");
    let rules = dialect.rules;
    let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
    let rules = if rules.user_after_tool && message.contains("role user after role tool") {
        Rules { user_after_tool: false, ..rules }
    } else if !rules.take_turns && message.contains("role") && has_word(&message, "alternate") {
        Rules { take_turns: true, ..rules }
    } else if rules.several_systems && message.contains("system") && says(ABOUT_SYSTEMS) {
        Rules { several_systems: false, ..rules }
    } else {
        return None;
    };
    Some(Dialect { rules, ..*dialect })
}

fn about_fields(fault: &Fault, asked: &Asked<'_>, initial: &Dialect) -> Option<Dialect> {
    let Asked { request, purpose, stream, dialect } = *asked;
    let message = fault.message.to_lowercase();
    let code = format!("{} {}", fault.code, fault.kind).to_lowercase();
    let not_taken = NOT_TAKEN.iter().any(|words| message.contains(words) || code.contains(words));
    let named = |field: &str| fault.param == field || has_word(&message, field);

    if stream && dialect.stream_options && named("stream_options") {
        return Some(Dialect { stream_options: false, ..*dialect });
    }
    if let (Some(_), Some(field)) = (request.max_tokens, dialect.max_tokens) {
        let (name, other) = match field {
            MaxTokens::MaxTokens => ("max_tokens", MaxTokens::MaxCompletionTokens),
            MaxTokens::MaxCompletionTokens => ("max_completion_tokens", MaxTokens::MaxTokens),
        };
        if named(name) && not_taken {
            let first = dialect.max_tokens == initial.max_tokens;
            return Some(Dialect { max_tokens: first.then_some(other), ..*dialect });
        }
    }
    if request.temperature.is_some() && dialect.temperature && named("temperature") && not_taken {
        return Some(Dialect { temperature: false, ..*dialect });
    }
    if request.schema.is_some() {
        let next = match dialect.format {
            Format::Strict => Some(Format::Schema),
            Format::Schema => Some(Format::Object),
            Format::Object => Some(Format::Nothing),
            Format::Nothing => None,
        };
        let about_schema = ["response_format", "json_schema", "strict"].iter().any(|f| named(f));
        if let Some(format) = next.filter(|_| about_schema || fault.param.starts_with("response_format")) {
            return Some(Dialect { format, ..*dialect });
        }
    }
    if purpose == Purpose::Probe && dialect.required_choice && named("tool_choice") {
        return Some(Dialect { required_choice: false, ..*dialect });
    }
    // It is required of messages that another model wrote too, so it does not matter whether there is any.
    let has_spoken = request.messages.iter().any(|message| matches!(message, Message::Assistant { .. }));
    if has_spoken && named("reasoning_content") && dialect.rules.reasoning == initial.rules.reasoning {
        let reasoning = match dialect.rules.reasoning {
            ReasoningBack::Forbidden => ReasoningBack::Required,
            ReasoningBack::Optional if !not_taken => ReasoningBack::Required,
            ReasoningBack::Optional | ReasoningBack::Required => ReasoningBack::Forbidden,
        };
        return Some(Dialect { rules: Rules { reasoning, ..dialect.rules }, ..*dialect });
    }
    None
}

/// Whether `word` stands in `text` on its own: `strict` is not in `restricted`.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
}
