//! What models are told of a call's result: words of others, marked as data, and no more of them than they can read.

use posse_core::run::results::is_data;
use posse_core::text::{quoted, visible_line};
use posse_core::tool::{ToolError, ToolOutput};
use serde_json::Value;

use crate::failure::failed;
use crate::text::size;

/// Bytes of a result that are shown, and the fewest where its reader has little room.
const ROOM: usize = 16 * 1024;
const LEAST_ROOM: usize = 2 * 1024;

/// What a result says; an error where the server says that it is one. `room` is how many bytes its reader reads without
/// trouble, where that is known.
pub(super) fn told(server: &str, tool: &str, result: &Value, room: Option<usize>) -> Result<ToolOutput, ToolError> {
    let from = format!("'{}' of the MCP server '{server}'", visible_line(tool));
    match result.get("resultType").and_then(Value::as_str) {
        None | Some("complete") => {}
        Some("input_required") => {
            return Err(failed(format!("{from} asks for something that nobody here gives it. Go on without it")));
        }
        Some(other) => {
            return Err(failed(format!("{from} answered with '{}', which is no result", visible_line(other))));
        }
    }
    let room = room.map_or(ROOM, |room| room.clamp(LEAST_ROOM, ROOM));
    let text = text(result);
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    let told = match text.trim().is_empty() {
        true if is_error => return Err(failed(format!("{from} failed, and does not say why"))),
        true => return Ok(format!("{from}: done; it said nothing").into()),
        false => quoted(&within(&text, room)),
    };
    match is_error {
        true => Err(failed(format!("{from} failed. {}\n{told}", is_data()))),
        false => Ok(format!("What {from} says. {}\n{told}", is_data()).into()),
    }
}

/// What of a result is text, and what else there is in it.
fn text(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array);
    let mut parts: Vec<_> = blocks.into_iter().flatten().map(block).collect();
    let structured = result.get("structuredContent").filter(|structured| !structured.is_null());
    // Servers say the same as text, for whoever reads nothing else.
    if let Some(structured) = structured.filter(|_| parts.is_empty()) {
        parts.push(serde_json::to_string_pretty(structured).unwrap_or_default());
    }
    parts.join("\n")
}

fn block(block: &Value) -> String {
    let text = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let data = |of: &Value, key: &str| size(text(of, key).len() as u64 / 4 * 3);
    match text(block, "type").as_str() {
        "text" => text(block, "text"),
        kind @ ("image" | "audio") => {
            format!("[{kind}, {}, {}: not shown]", text(block, "mimeType"), data(block, "data"))
        }
        "resource_link" => format!("[resource {}: {}]", text(block, "name"), text(block, "uri")),
        "resource" => {
            let resource = block.get("resource").unwrap_or(&Value::Null);
            match resource.get("text").and_then(Value::as_str) {
                Some(said) => format!("[resource {}]\n{said}", text(resource, "uri")),
                None => format!("[resource {}, {}: not shown]", text(resource, "uri"), data(resource, "blob")),
            }
        }
        _ => block.to_string(),
    }
}

/// The text, or its beginning and its end with what is left out between them.
fn within(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let (head, tail) = (text.floor_char_boundary(room / 2), text.ceil_char_boundary(text.len() - room / 2));
    format!("{}\n[... {} left out ...]\n{}", &text[..head], size((tail - head) as u64), &text[tail..])
}
