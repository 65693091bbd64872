//! `read_skill_file`: a file that lies beside a skill's text, for the child that works by it.

use posse_core::skill::READ_SKILL_FILE;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{conflict, denied};
use super::read_file::show;
use super::workspace::{Found, Workspace};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The file, relative to the skill's folder, such as `references/units.md`.
    path: String,
    /// The first line to read, counted from 1. Left out: from the start.
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// The last line to read. Left out: to the end.
    #[schemars(range(min = 1))]
    end_line: Option<u64>,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        READ_SKILL_FILE,
        "Reads a text file that belongs to the skill you work by, whole or only some lines. Files of the \
         workspace are not read with this.",
        EffectClass::Pure,
        read_skill_file,
    )
}

fn read_skill_file(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let Args { path, start_line, end_line } = args;
    let Some(folder) = &cx.skill_folder else {
        return Err(conflict("no skill is being worked by, so there are no files of one"));
    };
    // Beneath the skill's folder a path is resolved exactly as beneath a workspace.
    let found = Workspace::open(folder).and_then(|skill| skill.find(&path)).map_err(|error| match error.category {
        ToolErrorCategory::PermissionDenied => denied(format!(
            "'{path}' cannot be read as a file of the skill. Give a path below the skill's folder, such as \
             'references/units.md'; files of the workspace are read with read_file"
        )),
        _ => error,
    })?;
    match found {
        Found::File(file, len) => show(&path, file, len, (start_line, end_line), &cx.stop),
        Found::Folder(_) => Err(conflict(format!("'{path}' is a folder; name a file in it"))),
    }
}
