//! The shape of a path as a model writes it. Where it leads is not decided here: see the parent.

use std::path::{Path, PathBuf};

use posse_core::text::plural;
use posse_core::tool::ToolError;

use super::super::failure::{denied, invalid};

/// The kernel's own limits, told before anything is done.
const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// The path relative to the root. An absolute path is taken below one of the prefixes, compared by
/// whole components. Backslashes and `%2e` are plain characters of a name.
pub(super) fn relative(raw: &str, prefixes: &[PathBuf]) -> Result<PathBuf, ToolError> {
    if raw.is_empty() {
        return Err(invalid("the path is empty. Use '.' for the workspace root"));
    }
    if raw.len() > MAX_PATH {
        return Err(invalid(format!("the path is {} long; the limit is {MAX_PATH}", plural(raw.len() as u64, "byte"))));
    }
    if raw.contains('\0') {
        return Err(invalid("the path contains a NUL character, which no file name can"));
    }
    if let Some(long) = raw.split('/').find(|name| name.len() > MAX_NAME) {
        let long = plural(long.len() as u64, "byte");
        return Err(invalid(format!("a name in the path is {long} long; the limit is {MAX_NAME}")));
    }
    // Neither is expanded. They are refused, and not taken for names, because a file made under
    // such a name is never what was meant.
    if raw == "~" || raw.starts_with("~/") {
        return Err(denied(format!(
            "'{raw}' leads outside the workspace: there is no home folder here. Give a path relative \
             to the workspace root ('./~' for something that is really named '~')"
        )));
    }
    if raw.contains("://") {
        return Err(denied(format!("'{raw}' is a URL. Give a path relative to the workspace root")));
    }
    let path = Path::new(raw);
    let path = if path.is_absolute() {
        prefixes.iter().find_map(|prefix| path.strip_prefix(prefix).ok()).ok_or_else(|| {
            denied(format!(
                "'{raw}' is outside the workspace. Give a path relative to the workspace root, such \
                 as 'notes.txt', or '.' for the root itself"
            ))
        })?
    } else {
        path
    };
    Ok(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() })
}
