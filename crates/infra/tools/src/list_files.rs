//! `list_files`: what is in a folder.

use std::fmt::Write;
use std::path::Path;

use posse_core::text::plural;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput};
use posse_host::lack::given;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{check, conflict, kernel};
use super::text::size;
use super::workspace::{Found, Kind, Links, MAX_ENTRIES, Workspace, shown_entry};

const LIMIT: usize = 200;
const MAX_LIMIT: usize = 1000;
/// Beyond this, entries are not even counted.
const MAX_VISITED: usize = 100_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The folder, relative to the workspace root. Left out: the root itself.
    path: Option<String>,
    /// Also list what is in the folders below it.
    #[serde(default)]
    recursive: bool,
    /// How many entries to show, 200 if left out.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "list_files",
        "Lists the files and folders in a folder of the workspace, with their sizes. Folders end in '/'.",
        EffectClass::Pure,
        list_files,
    )
}

fn list_files(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let workspace = Workspace::of(cx)?;
    let raw = args.path.as_deref().unwrap_or(".");
    let limit = args.limit.unwrap_or(LIMIT).clamp(1, MAX_LIMIT);
    let folder = match workspace.find(raw)? {
        Found::Folder(folder) => folder,
        Found::File(_, len) => {
            return Err(conflict(format!("'{raw}' is a file of {}; read_file shows its content", size(len))));
        }
    };
    let prefix = Path::new(if raw == "." { "" } else { raw });
    let lacking = |errno| kernel(errno, "list", raw);
    let (mut text, mut total, mut cut) = (String::new(), 0, false);
    let mut walk = workspace.walk(&folder, args.recursive);
    for (path, kind) in walk.by_ref() {
        if total == MAX_VISITED {
            cut = true;
            break;
        }
        total += 1;
        check(&cx.stop)?;
        if total > limit {
            continue;
        }
        let about = match kind {
            Kind::Folder => String::new(),
            Kind::Symlink => "  symlink".into(),
            Kind::Special(kind) => format!("  {kind}"),
            // A file may be gone since its folder was read.
            Kind::File => match given(folder.metadata(&path, Links::None)).map_err(lacking)? {
                Some(meta) => format!("  {}", size(meta.len())),
                None => "  gone".into(),
            },
        };
        writeln!(text, "{}{about}", shown_entry(&prefix.join(&path), kind)).ok();
    }
    walk.lacked.map_or(Ok(()), |errno| Err(lacking(errno)))?;
    if total == 0 && walk.unreadable == 0 {
        return Ok(format!("'{raw}' is empty").into());
    }
    if total > limit {
        let (least, more) = (if cut { "at least " } else { "" }, total - limit);
        writeln!(text, "[{least}{more} more; give a path, or a limit of up to {MAX_LIMIT}]").ok();
    }
    for passed in walk.passed_over.iter().take(10) {
        writeln!(text, "[not looked into: {}]", shown_entry(&prefix.join(passed), Kind::Folder)).ok();
    }
    for cut in walk.cut.iter().take(10) {
        let shown = shown_entry(&prefix.join(cut), Kind::Folder);
        writeln!(text, "[of {shown} only the first {MAX_ENTRIES} entries were looked at]").ok();
    }
    if walk.unreadable > 0 {
        writeln!(text, "[{} could not be read]", plural(walk.unreadable as u64, "folder")).ok();
    }
    text.pop();
    Ok(text.into())
}
