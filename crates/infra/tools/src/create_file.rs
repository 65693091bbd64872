//! `create_file`: a new file, or all new content for an old one.

use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput, Writes};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{conflict, over_limit};
use super::text::{json_fault, size};
use super::workspace::Workspace;

/// The most that one call writes.
pub(super) const MAX_CONTENT: usize = 1 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The file, relative to the workspace root. Folders on the way are made.
    path: String,
    /// What is to be in the file.
    content: String,
    /// Replace the whole content of the file if it exists. Left out: an existing file is an error.
    #[serde(default)]
    overwrite: bool,
}

/// Of the class `Once` even where it overwrites: a second run could undo what somebody else wrote
/// after the first.
pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "create_file",
        "Creates a text file in the workspace with the given content. To change part of an existing \
         file use edit_file.",
        EffectClass::Once,
        create_file,
    )
    .writing(Writes::File)
    .in_own_words()
}

fn create_file(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let Args { path, content, overwrite } = args;
    if content.len() > MAX_CONTENT {
        return Err(too_long(content.len()));
    }
    Workspace::of(cx)?.update(&path, &cx.stop, |existing| match existing {
        Some(_) if !overwrite => Err(conflict(format!(
            "'{path}' exists already; it was not changed. Use edit_file to change a part of it, \
             append_file to add to it, or overwrite=true to replace all of it"
        ))),
        _ => Ok(content.as_bytes().to_vec()),
    })?;
    let fault = json_fault(&path, content.as_bytes()).map(|fault| format!("; it is not valid JSON: {fault}"));
    Ok(format!("'{path}' was written ({}){}", size(content.len() as u64), fault.unwrap_or_default()).into())
}

pub(super) fn too_long(len: usize) -> ToolError {
    let (len, limit) = (size(len as u64), size(MAX_CONTENT as u64));
    over_limit(format!(
        "the text has {len}; the limit for one call is {limit}. Write the beginning, then use append_file"
    ))
}
