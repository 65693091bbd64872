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

/// A tool call, or a piece of one.
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

/// What was sent as a call's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// Nothing, or nothing but space.
    Absent,
    /// JSON text, or a piece of it.
    Text(String),
}

impl Completion {
    /// Takes out the one choice we asked for. Strays with another index are left alone.
    pub fn take_choice(&mut self) -> Option<Choice> {
        let at = self.choices.iter().position(|choice| choice.index.unwrap_or(0) == 0)?;
        Some(self.choices.swap_remove(at))
    }

    /// The tokens used, if the server counted any.
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

    /// What was said, under either name.
    pub fn into_answer(self) -> Answer {
        self.delta.or(self.message).unwrap_or_default()
    }
}

impl Answer {
    /// The visible text.
    pub fn text(&self) -> String {
        match &self.content {
            Value::Array(parts) => parts.iter().filter(|part| !is_thought(part)).map(words_of).collect(),
            part if is_thought(part) => String::new(),
            other => words_of(other),
        }
    }

    /// The reasoning, under any of its names.
    pub fn thought(&self) -> String {
        for field in [
            &self.reasoning_content,
            &self.reasoning,
            &self.thinking,
            &self.thinking_blocks,
            &self.reasoning_text,
            &self.thought,
            &self.reasoning_details,
        ] {
            let words = words_of(field);
            if !words.is_empty() {
                return words;
            }
        }
        match &self.content {
            Value::Array(parts) => parts.iter().filter(|part| is_thought(part)).map(words_of).collect(),
            part if is_thought(part) => words_of(part),
            _ => String::new(),
        }
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
    /// The tool's name, if this piece tells it.
    pub fn name(&self) -> Option<&str> {
        self.function.name.as_deref().or(self.name.as_deref())
    }

    /// The arguments in this piece.
    pub fn arguments(&self) -> Arguments {
        for value in [&self.function.arguments, &self.arguments] {
            match value {
                Value::Null => {}
                Value::String(text) if text.is_empty() => {}
                Value::String(text) => return Arguments::Text(text.clone()),
                other => return Arguments::Text(other.to_string()),
            }
        }
        Arguments::Absent
    }

    fn is_blank(&self) -> bool {
        self.id.is_none()
            && self.name().is_none()
            && self.extra_content.is_none()
            && self.arguments() == Arguments::Absent
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(message: &str) -> Answer {
        serde_json::from_str(message).expect("leniently read")
    }

    #[test]
    fn content_in_every_shape() {
        for (message, text, thought) in [
            (r#"{"content":"a"}"#, "a", ""),
            (r#"{"content":null}"#, "", ""),
            (r#"{}"#, "", ""),
            (r#"{"content":7}"#, "", ""),
            (r#"{"content":["a",{"type":"text","text":"b"},{"type":"odd"}]}"#, "ab", ""),
            (
                r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"b"}]}"#,
                "b",
                "t",
            ),
            (r#"{"content":[{"type":"reasoning_content","text":"t"},{"type":"output_text","text":"b"}]}"#, "b", "t"),
            (r#"{"content":[{"text":"t","thought":true},{"text":"b"}]}"#, "b", "t"),
            (r#"{"content":[{"thinking":"t"},{"text":"b"}]}"#, "b", "t"),
            (r#"{"content":{"type":"thinking","thinking":"t"}}"#, "", "t"),
            (r#"{"content":"a","thinking":"t"}"#, "a", "t"),
            (r#"{"content":"a","thinking_blocks":[{"type":"thinking","thinking":"t","signature":"s"}]}"#, "a", "t"),
            (r#"{"content":"a","reasoning_details":[{"type":"reasoning.text","text":"t"}]}"#, "a", "t"),
            (r#"{"content":"a","reasoning_content":"t"}"#, "a", "t"),
            (r#"{"content":"a","reasoning":{"content":"t"}}"#, "a", "t"),
            (r#"{"content":"a","reasoning_content":"","reasoning":"t"}"#, "a", "t"),
        ] {
            let answer = answer(message);
            assert_eq!((answer.text().as_str(), answer.thought().as_str()), (text, thought), "{message}");
        }
    }

    #[test]
    fn refusals_in_both_places() {
        assert_eq!(answer(r#"{"refusal":"no"}"#).refused().as_deref(), Some("no"));
        let part = r#"{"content":[{"type":"refusal","refusal":"no"}]}"#;
        assert_eq!(answer(part).refused().as_deref(), Some("no"));
        assert_eq!(answer(r#"{"refusal":""}"#).refused(), None);
    }

    #[test]
    fn calls_in_every_shape() {
        for (message, name, arguments) in [
            (r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#, "f", "{}"),
            (r#"{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}"#, "f", r#"{"a":1}"#),
            (r#"{"tool_calls":{"function":{"name":"f","arguments":"x"}}}"#, "f", "x"),
            (r#"{"tool_calls":[{"name":"f","arguments":{"a":1}}]}"#, "f", r#"{"a":1}"#),
            (r#"{"function_call":{"name":"f","arguments":"{}"}}"#, "f", "{}"),
            (r#"{"tool_calls":[{},null,{"id":7,"function":{"name":"f","arguments":[]}}]}"#, "f", "[]"),
        ] {
            let calls = answer(message).into_calls();
            assert_eq!(calls.len(), 1, "{message}");
            assert_eq!(calls[0].name(), Some(name), "{message}");
            assert_eq!(calls[0].arguments(), Arguments::Text(arguments.to_owned()), "{message}");
        }
        for none in [r#"{"tool_calls":null}"#, r#"{"tool_calls":[]}"#, r#"{"tool_calls":"x"}"#] {
            assert!(answer(none).into_calls().is_empty(), "{none}");
        }
        for absent in ["null", "\"\""] {
            let message = format!(r#"{{"tool_calls":[{{"id":"c","function":{{"name":"f","arguments":{absent}}}}}]}}"#);
            assert_eq!(answer(&message).into_calls()[0].arguments(), Arguments::Absent);
        }
    }

    #[test]
    fn usage_in_every_shape() {
        for (body, expected) in [
            (r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#, Some((3, 4, 0))),
            (r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":9}}"#, Some((3, 6, 0))),
            (r#"{"usage":{"input_tokens":3.0,"output_tokens":"4"}}"#, Some((3, 4, 0))),
            (r#"{"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}"#, Some((3, 0, 2))),
            (
                r#"{"usage":{"prompt_tokens":3,"prompt_tokens_details":null,"prompt_cache_hit_tokens":1}}"#,
                Some((3, 0, 1)),
            ),
            (r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#, None),
            (r#"{"usage":{"prompt_tokens":-3}}"#, None),
            (r#"{"usage":null}"#, None),
            (r#"{"usage":7,"choices":null,"model":3,"created":1.5,"service_tier":"on_demand"}"#, None),
        ] {
            let read: Completion = serde_json::from_str(body).expect("leniently read");
            let usage = read.usage().map(|u| (u.input, u.output, u.cached));
            assert_eq!(usage, expected, "{body}");
        }
    }

    #[test]
    fn calls_decide_the_finish() {
        let call = |arguments: &str| CallRequest {
            id: String::new(),
            name: "f".to_owned(),
            arguments: arguments.to_owned(),
            extra: None,
        };
        for (finish, arguments, expected) in [
            (Finish::Stop, Some("{\"a\":1}"), Finish::ToolCalls),
            (Finish::Stop, None, Finish::Stop),
            (Finish::ToolCalls, None, Finish::Stop),
            // Cut, and the server says nothing of a limit: so do we.
            (Finish::ToolCalls, Some("{\"a\":\"b"), Finish::ToolCalls),
            (Finish::Stop, Some("{\"a\":"), Finish::ToolCalls),
            (Finish::Other("x".to_owned()), Some("{"), Finish::Other("x".to_owned())),
            (Finish::ToolCalls, Some("{} trailing"), Finish::ToolCalls),
            (Finish::ToolCalls, Some("{\"a\":1}{\"b\":2}"), Finish::ToolCalls),
            (Finish::ToolCalls, Some("{a: 1}"), Finish::ToolCalls),
            (Finish::ToolCalls, Some("  "), Finish::ToolCalls),
            (Finish::Length, Some("{\"a\":"), Finish::Length),
            (Finish::ContentFilter, Some("{\"a\":"), Finish::ContentFilter),
        ] {
            let mut calls: Vec<_> = arguments.map(call).into_iter().collect();
            assert_eq!(settle(finish.clone(), &mut calls), expected, "{finish:?} {arguments:?}");
            if let (Some(before), Some(after)) = (arguments, calls.first()) {
                let untouched = if before.trim().is_empty() { "{}" } else { before };
                assert_eq!(after.arguments, untouched);
            }
        }
    }
}
