//! What is read: whole replies and stream pieces. Every field may be missing, null, or of another
//! type, and every word may be one we do not know.

use posse_core::model::{CallRequest, Finish, Usage};
use serde_json::Value;

use super::fault::Fault;
use super::lenient::{count, list, word};

/// A whole reply or one piece of a stream; they differ in nothing that matters.
pub(crate) struct Completion(pub Value);

pub(crate) struct Choice<'a>(&'a Value);

/// What the model said, or a piece of it.
pub(crate) struct Answer<'a>(&'a Value);

pub(crate) struct CallPiece {
    pub index: Option<u64>,
    pub id: Option<String>,
    pub name: Option<String>,
    /// JSON text or a piece of it.
    pub arguments: Option<String>,
    pub extra: Option<Value>,
}

impl Completion {
    pub fn model(&self) -> Option<String> {
        word(&self.0["model"])
    }

    /// The one choice we asked for. Strays with another index are left alone.
    pub fn choice(&self) -> Option<Choice<'_>> {
        list(&self.0["choices"]).find(|choice| count(&choice["index"]).unwrap_or(0) == 0).map(Choice)
    }

    pub fn usage(&self) -> Option<Usage> {
        let told = &self.0["usage"];
        let either = |one: &Value, other: &Value| count(one).or_else(|| count(other)).unwrap_or(0);
        let input = either(&told["prompt_tokens"], &told["input_tokens"]);
        let total = count(&told["total_tokens"]).unwrap_or(0);
        // Where the total is more than its parts, the rest is reasoning that was not counted in.
        let output = either(&told["completion_tokens"], &told["output_tokens"]).max(total.saturating_sub(input));
        let details = ["prompt_tokens_details", "input_tokens_details"];
        let cached = details.into_iter().find_map(|details| count(&told[details]["cached_tokens"]));
        // DeepSeek's name for them.
        let cached = cached.or_else(|| count(&told["prompt_cache_hit_tokens"])).unwrap_or(0);
        (input + output > 0).then_some(Usage { input, output, cached, estimated: false })
    }
}

impl<'a> Choice<'a> {
    /// The word that says why the reply ended, if it did.
    pub fn finish_reason(&self) -> Option<String> {
        word(&self.0["finish_reason"]).filter(|word| !word.trim().is_empty())
    }

    /// An error in place of, or beside, the answer.
    pub fn fault(&self) -> Option<Fault> {
        Some(&self.0["error"]).filter(|error| !error.is_null()).map(Fault::of_value)
    }

    pub fn answer(&self) -> Answer<'a> {
        let said = ["delta", "message"].into_iter().map(|key| &self.0[key]).find(|said| said.is_object());
        Answer(said.unwrap_or(&Value::Null))
    }
}

impl Answer<'_> {
    pub fn text(&self) -> String {
        self.parts(false)
    }

    /// The words of the content's parts that are thoughts, or of all others.
    fn parts(&self, thoughts: bool) -> String {
        let content = &self.0["content"];
        let parts = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
        parts.iter().filter(|part| is_thought(part) == thoughts).map(words_of).collect()
    }

    /// The reasoning, under any of its names.
    pub fn thought(&self) -> String {
        const NAMES: [&str; 7] = [
            "reasoning_content",
            "reasoning",
            // Ollama's, and of proxies for Anthropic.
            "thinking",
            "thinking_blocks",
            "reasoning_text",
            "thought",
            "reasoning_details",
        ];
        let in_field = NAMES.iter().map(|name| words_of(&self.0[*name])).find(|words| !words.is_empty());
        in_field.unwrap_or_else(|| self.parts(true))
    }

    /// A refusal in the provider's own field, or as a part of the content.
    pub fn refused(&self) -> Option<String> {
        let in_parts = || list(&self.0["content"]).find_map(|part| Some(part["refusal"].as_str()?.to_owned()));
        word(&self.0["refusal"]).or_else(in_parts).filter(|words| !words.is_empty())
    }

    /// The calls, the older form of one included. Pieces with nothing in them are none.
    pub fn calls(&self) -> impl Iterator<Item = CallPiece> {
        list(&self.0["tool_calls"]).chain(list(&self.0["function_call"])).filter_map(CallPiece::read)
    }
}

impl CallPiece {
    fn read(piece: &Value) -> Option<Self> {
        // Some servers leave the inner object out, as the older form does.
        let places = [&piece["function"], piece];
        let text = |value: &Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            other => Some(other.to_string()),
        };
        let id = word(&piece["id"]);
        let name = places.iter().find_map(|place| word(&place["name"]));
        let arguments = places.iter().find_map(|place| text(&place["arguments"]));
        let extra = Some(&piece["extra_content"]).filter(|extra| !extra.is_null()).cloned();
        let is_blank = id.is_none() && name.is_none() && arguments.is_none() && extra.is_none();
        (!is_blank).then(|| CallPiece { index: count(&piece["index"]), id, name, arguments, extra })
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
