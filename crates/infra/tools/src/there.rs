//! Which files of a workspace are there, for whoever holds an agent's answer against what its tools did.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posse_core::tool::{ToolContext, ToolErrorCategory, may_mean};

use super::workspace::{Found, Kind, Workspace};

/// How much of a workspace is gone through for files that are not where they are said to be, and for how long.
const MAX_VISITED: usize = 20_000;
const MAX_TIME: Duration = Duration::from_secs(1);

/// Which of these files are there: by their paths, or by what they may mean, since an answer may well leave a
/// folder out. Nothing is said of what may be there and was not seen.
pub(super) fn are_there(cx: &ToolContext, paths: &[String]) -> BTreeMap<String, bool> {
    let mut there = BTreeMap::new();
    let Ok(workspace) = Workspace::of(cx) else { return there };
    let mut missing = Vec::new();
    for path in paths {
        match workspace.find(path) {
            Ok(_) => {
                there.insert(path.clone(), true);
            }
            Err(error) if error.category == ToolErrorCategory::NotFound => missing.push(path),
            // Outside, or not for tools.
            Err(_) => {}
        }
    }
    if missing.is_empty() {
        return there;
    }
    let Ok(Found::Folder(root)) = workspace.find(".") else { return there };
    let began = Instant::now();
    let mut walk = workspace.walk(&root, true);
    for (visited, (path, kind)) in walk.by_ref().enumerate() {
        if visited == MAX_VISITED || began.elapsed() > MAX_TIME || cx.stop.reason().is_some() {
            return there;
        }
        let real = path.to_string_lossy();
        if kind != Kind::Folder {
            missing.retain(|named| !may_mean(named, &real) || there.insert((*named).clone(), true).is_some());
        }
    }
    if walk.lacked.is_none() && walk.cut.is_empty() && walk.unreadable == 0 {
        there.extend(missing.into_iter().map(|path| (path.clone(), false)));
    }
    there
}
