//! `read_skill_file`: a file that lies beside a skill's text, for the child that works by it.

use posse_core::skill::READ_SKILL_FILE;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolErrorCategory, ToolOutput};

use super::FnTool;
use super::failure::{conflict, denied};
use super::read_file::Args;
use super::workspace::{Found, Workspace};

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        READ_SKILL_FILE,
        "Reads a text file that belongs to the skill you work by, whole or only some lines. Files of the \
         workspace are not read with this.",
        EffectClass::Pure,
        read_skill_file,
    )
    .describing("path", "The file, relative to the skill's folder, such as `references/units.md`.")
}

fn read_skill_file(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let path = &args.path;
    let Some(folder) = &cx.skill_folder else {
        return Err(conflict("no skill is being worked by, so there are no files of one"));
    };
    // Beneath the skill's folder a path is resolved exactly as beneath a workspace.
    let found = Workspace::open(folder).and_then(|skill| skill.find(path)).map_err(|error| match error.category {
        ToolErrorCategory::PermissionDenied => denied(format!(
            "'{path}' cannot be read as a file of the skill. Give a path below the skill's folder, such as \
             'references/units.md'; files of the workspace are read with read_file"
        )),
        _ => error,
    })?;
    match found {
        Found::File(file, len) => args.show(file, len, cx),
        Found::Folder(_) => Err(conflict(format!("'{path}' is a folder; name a file in it"))),
    }
}
