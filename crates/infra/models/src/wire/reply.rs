//! What is read: whole replies and stream pieces. Every field may be missing, null, or of another
//! type, and every word may be one we do not know.

use posse_core::model::{CallRequest, Finish, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::fault::Fault;
use super::lenient;

/// A whole reply or one piece of a stream; they differ in nothing that matters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Completion {
    #[serde(deserialize_with = "lenient::word")]
    pub model: Option<String>,
    #[serde(deserialize_with = "lenient::list")]
    choices: Vec<Choice>,
    #[serde(deserialize_with = "lenient::or_default")]
    usage: Option<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Choice {
    #[serde(deserialize_with = "lenient::count")]
    index: Option<u64>,
    #[serde(deserialize_with = "lenient::or_default")]
    message: Option<Answer>,
    #[serde(deserialize_with = "lenient::or_default")]
    delta: Option<Answer>,
    #[serde(deserialize_with = "lenient::word")]
    finish_reason: Option<String>,
    error: Value,
}

/// What the model said, or a piece of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    content: Value,
    reasoning_content: Value,
    reasoning: Value,
    /// Ollama's, and of proxies for Anthropic.
    thinking: Value,
    thinking_blocks: Value,
    reasoning_text: Value,
    thought: Value,
    reasoning_details: Value,
    #[serde(deserialize_with = "lenient::word")]
    refusal: Option<String>,
    #[serde(deserialize_with = "lenient::list")]
    tool_calls: Vec<CallPiece>,
    /// The older form of one call.
    #[serde(deserialize_with = "lenient::or_default")]
    function_call: Option<Function>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallPiece {
    #[serde(deserialize_with = "lenient::count")]
    pub index: Option<u64>,
    #[serde(deserialize_with = "lenient::word")]
    pub id: Option<String>,
    #[serde(deserialize_with = "lenient::or_default")]
    function: Function,
    /// Some servers leave the inner object out.
    #[serde(deserialize_with = "lenient::word")]
    name: Option<String>,
    arguments: Value,
    pub extra_content: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Function {
    #[serde(deserialize_with = "lenient::word")]
    name: Option<String>,
    arguments: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    #[serde(alias = "input_tokens", deserialize_with = "lenient::count")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens", deserialize_with = "lenient::count")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient::count")]
    total_tokens: Option<u64>,
    #[serde(alias = "input_tokens_details", deserialize_with = "lenient::or_default")]
    prompt_tokens_details: PromptDetails,
    /// DeepSeek's name for cached tokens.
    #[serde(deserialize_with = "lenient::count")]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
}

impl Completion {
    /// Takes out the one choice we asked for. Strays with another index are left alone.
    pub fn take_choice(&mut self) -> Option<Choice> {
        let at = self.choices.iter().position(|choice| choice.index.unwrap_or(0) == 0)?;
        Some(self.choices.swap_remove(at))
    }

    pub fn usage(&self) -> Option<Usage> {
        let told = self.usage.as_ref()?;
        let input = told.prompt_tokens.unwrap_or(0);
        let total = told.total_tokens.unwrap_or(0);
        // Where the total is more than its parts, the rest is reasoning that was not counted in.
        let output = told.completion_tokens.unwrap_or(0).max(total.saturating_sub(input));
        let cached = told.prompt_tokens_details.cached_tokens.or(told.prompt_cache_hit_tokens).unwrap_or(0);
        (input + output > 0).then_some(Usage { input, output, cached, estimated: false })
    }
}

impl Choice {
    /// The word that says why the reply ended, if it did.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref().filter(|word| !word.trim().is_empty())
    }

    /// An error in place of, or beside, the answer.
    pub fn fault(&self) -> Option<Fault> {
        (!self.error.is_null()).then(|| Fault::of_value(&self.error))
    }

    pub fn into_answer(self) -> Answer {
        self.delta.or(self.message).unwrap_or_default()
    }
}

impl Answer {
    pub fn text(&self) -> String {
        self.parts(false)
    }

    /// The words of the content's parts that are thoughts, or of all others.
    fn parts(&self, thoughts: bool) -> String {
        let parts = self.content.as_array().map_or(std::slice::from_ref(&self.content), Vec::as_slice);
        parts.iter().filter(|part| is_thought(part) == thoughts).map(words_of).collect()
    }

    /// The reasoning, under any of its names.
    pub fn thought(&self) -> String {
        let fields = [
            &self.reasoning_content,
            &self.reasoning,
            &self.thinking,
            &self.thinking_blocks,
            &self.reasoning_text,
            &self.thought,
            &self.reasoning_details,
        ];
        let in_field = fields.into_iter().map(words_of).find(|words| !words.is_empty());
        in_field.unwrap_or_else(|| self.parts(true))
    }

    /// A refusal in the provider's own field, or as a part of the content.
    pub fn refused(&self) -> Option<String> {
        let in_parts =
            || self.content.as_array()?.iter().find_map(|part| Some(part.get("refusal")?.as_str()?.to_owned()));
        self.refusal.clone().or_else(in_parts).filter(|words| !words.is_empty())
    }

    /// The calls, the older form included. Pieces with nothing in them are none.
    pub fn into_calls(self) -> Vec<CallPiece> {
        let older = self.function_call.map(|function| CallPiece { function, ..CallPiece::default() });
        self.tool_calls.into_iter().chain(older).filter(|piece| !piece.is_blank()).collect()
    }
}

impl CallPiece {
    pub fn name(&self) -> Option<&str> {
        self.function.name.as_deref().or(self.name.as_deref())
    }

    /// The arguments in this piece, which are JSON text or a piece of it.
    pub fn arguments(&self) -> Option<String> {
        [&self.function.arguments, &self.arguments].into_iter().find_map(|value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            other => Some(other.to_string()),
        })
    }

    fn is_blank(&self) -> bool {
        self.id.is_none() && self.name().is_none() && self.extra_content.is_none() && self.arguments().is_none()
    }
}

/// The text in a value that should be text: itself, a list of parts, or an object that holds it.
fn words_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(words_of).collect(),
        Value::Object(part) => ["text", "content", "thinking", "reasoning", "thought", "summary"]
            .iter()
            .find_map(|key| part.get(*key))
            .map(words_of)
            .unwrap_or_default(),
        _ => String::new(),
    }
}

/// Whether a part of the content is what the model thought: by its type, by a mark, or because that is
/// all it has.
fn is_thought(part: &Value) -> bool {
    let Some(object) = part.as_object() else { return false };
    let kind = object.get("type").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    ["think", "reason", "thought"].iter().any(|word| kind.contains(word))
        || object.get("thought").is_some_and(|mark| mark == true)
        || (!object.contains_key("text")
            && !object.contains_key("content")
            && ["thinking", "reasoning", "thought"].iter().any(|key| object.contains_key(*key)))
}

/// What a finish word means; `None` for words that say the server broke off.
pub(crate) fn finish_of(word: &str) -> Option<Finish> {
    Some(match word.trim().to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => Finish::ToolCalls,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" | "content-filter" | "safety" => Finish::ContentFilter,
        "error" | "network_error" | "abort" | "insufficient_system_resource" => return None,
        _ => Finish::Other(word.to_owned()),
    })
}

/// The finish that the calls bear out, and the calls with `{}` where they had no arguments.
///
/// Servers say `stop` beside calls. Arguments that end in the middle are left as they are, whatever the
/// finish says, since closing them would run half of what the model meant.
pub(crate) fn settle(finish: Finish, calls: &mut [CallRequest]) -> Finish {
    for call in calls.iter_mut() {
        if call.arguments.trim().is_empty() {
            call.arguments = "{}".to_owned();
        }
    }
    match finish {
        Finish::Stop if !calls.is_empty() => Finish::ToolCalls,
        Finish::ToolCalls if calls.is_empty() => Finish::Stop,
        finish => finish,
    }
}
