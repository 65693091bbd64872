//! From chat messages to the text that the model's template takes.

use std::fmt::Write as _;

use serde_json::Value;

use crate::wire::{ApiError, Content, Message, ToolCall};

/// One turn for the chat template: a role that every template knows, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub role: &'static str,
    pub content: String,
}

/// Reads messages as turns.
///
/// Templates of small models have no words for tool calls and results, so both become text in the form that the
/// Hermes and Qwen families were trained on: `<tool_call>` in the assistant's turn, `<tool_response>` in a user's.
pub fn turns(messages: &[Message]) -> Result<Vec<Turn>, ApiError> {
    let mut turns: Vec<Turn> = Vec::with_capacity(messages.len());
    let mut after_result = false;
    for message in messages {
        let text = text_of(message)?;
        let is_result = message.role == "tool" || message.role == "function";
        let turn = match message.role.as_str() {
            "system" | "developer" => Turn { role: "system", content: text },
            "user" => Turn { role: "user", content: text },
            "assistant" => Turn { role: "assistant", content: with_calls(text, message.tool_calls.as_deref()) },
            _ if is_result => Turn { role: "user", content: format!("<tool_response>\n{text}\n</tool_response>") },
            other => return Err(ApiError::bad("invalid_value", format!("unknown message role {other:?}"))),
        };
        match turns.last_mut() {
            // The results of one step are one turn, as the model saw them in training.
            Some(last) if is_result && after_result => {
                last.content.push('\n');
                last.content.push_str(&turn.content);
            }
            _ => turns.push(turn),
        }
        after_result = is_result;
    }
    Ok(turns)
}

fn text_of(message: &Message) -> Result<String, ApiError> {
    let parts = match &message.content {
        None => return Ok(String::new()),
        Some(Content::Text(text)) => return Ok(text.clone()),
        Some(Content::Parts(parts)) => parts,
    };
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        match (part.kind.as_deref(), &part.text) {
            (None | Some("text" | "input_text" | "output_text" | "refusal"), Some(text)) => texts.push(text.as_str()),
            (kind, _) => {
                let kind = kind.unwrap_or("without a type");
                return Err(ApiError::bad("unsupported_content", format!("this model reads text only, not {kind}")));
            }
        }
    }
    Ok(texts.join("\n"))
}

fn with_calls(mut text: String, calls: Option<&[ToolCall]>) -> String {
    for ToolCall { function } in calls.unwrap_or_default() {
        let arguments = match &function.arguments {
            Value::String(json) => json.clone(),
            Value::Null => "{}".into(),
            other => other.to_string(),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        let name = Value::from(function.name.as_str());
        // Writing to a String cannot fail.
        let _ = write!(text, "<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>");
    }
    text
}

/// Marks that stand for a control token's text while the template is applied: noncharacters, that no text has.
const OPEN: char = '\u{fdd0}';
const CLOSE: char = '\u{fdd1}';

/// The texts of a model's control tokens (`<|im_end|>` and such).
///
/// A file that an agent reads may contain such a text. Read as the token, it would end the turn and let the file
/// speak as the system; so in message content it must stay plain text, while the template's own are tokens.
#[derive(Debug, Default)]
pub struct ControlTexts(Vec<String>);

#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Control texts in it are control tokens.
    Template(&'a str),
    /// Control texts in it are plain text.
    Plain(&'a str),
}

impl ControlTexts {
    /// The texts, of which a longer one hides a shorter one inside it.
    pub fn new(mut texts: Vec<String>) -> Self {
        texts.retain(|t| !t.is_empty());
        texts.sort_by_key(|t| std::cmp::Reverse(t.len()));
        Self(texts)
    }

    pub fn hide(&self, content: &str) -> String {
        let mut content = content.replace([OPEN, CLOSE, '\0'], "");
        for (i, text) in self.0.iter().enumerate() {
            if content.contains(text.as_str()) {
                content = content.replace(text.as_str(), &format!("{OPEN}{i}{CLOSE}"));
            }
        }
        content
    }

    /// Cuts the rendered prompt at the marks and puts the texts back.
    pub fn pieces<'a>(&'a self, mut rendered: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        while let Some((before, rest)) = rendered.split_once(OPEN) {
            let (index, after) = rest.split_once(CLOSE).unwrap_or((rest, ""));
            pieces.push(Piece::Template(before));
            pieces.extend(index.parse().ok().and_then(|i: usize| self.0.get(i)).map(|t| Piece::Plain(t)));
            rendered = after;
        }
        pieces.push(Piece::Template(rendered));
        pieces.retain(|p| !matches!(p, Piece::Template("")));
        pieces
    }
}
