//! `append_file`: adds lines to the end of a file.

use std::cell::Cell;

use posse_core::text::plural;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::create_file::{MAX_CONTENT, too_long};
use super::edit_file::{MAX_FILE, fits_encoding};
use super::failure::{invalid, over_limit};
use super::text::{Endings, size};
use super::workspace::Workspace;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The file, relative to the workspace root. It is made if it does not exist.
    path: String,
    /// The text to add. It starts on a line of its own and ends with a line break.
    #[schemars(length(min = 1))]
    text: String,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "append_file",
        "Adds text as new lines at the end of a file of the workspace.",
        EffectClass::Once,
        append_file,
    )
    .writing(Writes::File)
    .in_own_words()
}

fn append_file(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let Args { path, text } = args;
    if text.is_empty() {
        return Err(invalid("the text is empty"));
    }
    if text.len() > MAX_CONTENT {
        return Err(too_long(text.len()));
    }
    let (note, lines) = (Cell::new(""), Cell::new(0));
    Workspace::of(cx)?.update(&path, &cx.stop, |existing| {
        let bytes = existing.map(|existing| existing.read(MAX_FILE)).transpose()?.unwrap_or_default();
        fits_encoding(&path, &bytes, &text)?;
        note.set(Endings::of(&bytes).note(&text));
        let bytes = append(bytes, &text);
        lines.set(bytes.iter().filter(|&&byte| byte == b'\n').count() as u64);
        let len = bytes.len() as u64;
        if len > MAX_FILE {
            let (len, limit) = (size(len), size(MAX_FILE));
            return Err(over_limit(format!("'{path}' would have {len}; the limit is {limit}. Start another file")));
        }
        Ok(bytes)
    })?;
    // How long it is now is different each time: adding the same again is no repetition that changes nothing.
    let (added, lines) = (size(text.len() as u64), plural(lines.get(), "line"));
    Ok(format!("{added} added to '{path}', which has {lines} now{}", note.get()).into())
}

/// Whole lines, with the line end that the file uses.
fn append(mut bytes: Vec<u8>, text: &str) -> Vec<u8> {
    let endings = Endings::of(&bytes);
    let text = endings.written(text);
    // Of a file with both, the last line says.
    let crlf = endings == Endings::CrLf || (endings == Endings::Mixed && bytes.ends_with(b"\r\n"));
    let end: &[u8] = if crlf { b"\r\n" } else { b"\n" };
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        bytes.extend_from_slice(end);
    }
    bytes.extend_from_slice(text.as_bytes());
    if !text.ends_with('\n') {
        bytes.extend_from_slice(end);
    }
    bytes
}
