//! A look through a workspace before its agent's work begins: which files there are, and how their texts begin.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse_core::tool::{Survey, SurveyedFile, ToolContext, ToolErrorCategory};

use super::text::{Content, HEAD, classify, decode, whole_chars};
use super::workspace::{Dir, Found, Kind, Links, Workspace};

const MAX_FILES: usize = 500;
/// Folders and whatever else is met on the way.
const MAX_VISITED: usize = 20_000;
const MAX_TIME: Duration = Duration::from_secs(1);
/// How much is read of one text, and of all together.
const MAX_HEAD: usize = 16 * 1024;
const MAX_READ: usize = 1 << 20;

/// Folders of what programs make for themselves, beside those whose names begin with a dot.
const PASSED_OVER: [&str; 2] = ["node_modules", "__pycache__"];

/// What there is for a call's file tools, the nearest to the root first where there is too much. Nothing is named that
/// they would not open.
pub(super) fn survey(cx: &ToolContext) -> Survey {
    let Ok(workspace) = Workspace::of(cx) else { return Survey::default() };
    let mut look = Look { workspace: &workspace, began: Instant::now(), visited: 0, read: 0, found: Survey::default() };
    let mut folders = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = folders.pop_front() {
        if cx.stop.reason().is_some() || !look.folder(&folder, &mut folders) {
            look.found.has_more = true;
            break;
        }
    }
    look.found.files.sort_by(|a, b| a.path.cmp(&b.path));
    look.found
}

struct Look<'a> {
    workspace: &'a Workspace,
    began: Instant,
    visited: usize,
    read: usize,
    found: Survey,
}

impl Look<'_> {
    /// Takes in the files of a folder, and queues the folders in it. False where the look is over.
    fn folder(&mut self, folder: &Path, folders: &mut VecDeque<PathBuf>) -> bool {
        let Some(raw) = folder.to_str() else { return true };
        // Found anew by its path, as a tool would: what is not for tools is refused.
        let Ok(Found::Folder(dir)) = self.workspace.find(if raw.is_empty() { "." } else { raw }) else { return true };
        let mut walk = self.workspace.walk(&dir, false);
        for (name, kind) in walk.by_ref() {
            self.visited += 1;
            if self.visited > MAX_VISITED || self.began.elapsed() > MAX_TIME {
                return false;
            }
            // What cannot be written down in a line cannot be asked for either.
            let Some(plain) = name.to_str().filter(|name| !name.chars().any(char::is_control)) else { continue };
            if plain.starts_with('.') {
                continue;
            }
            match kind {
                Kind::Folder if !PASSED_OVER.contains(&plain) => folders.push_back(folder.join(&name)),
                Kind::File if self.found.files.len() == MAX_FILES => return false,
                Kind::File if !self.file(&dir, &name, folder) => return false,
                _ => {}
            }
        }
        let is_all = walk.lacked.is_none() && walk.cut.is_empty();
        self.found.has_more |= !is_all;
        walk.lacked.is_none()
    }

    fn file(&mut self, dir: &Dir, name: &Path, folder: &Path) -> bool {
        let path = folder.join(name);
        let Some(shown) = path.to_str() else { return true };
        match self.workspace.file(dir, name, Links::None, shown) {
            Ok((file, bytes)) => {
                let head = self.head(file);
                self.found.files.push(SurveyedFile { path: shown.to_owned(), bytes, head });
                true
            }
            // Gone, or not ours to read.
            Err(error) => error.category != ToolErrorCategory::WorkerUnfit,
        }
    }

    /// The beginning of a text; nothing of what is none.
    fn head(&mut self, file: File) -> String {
        let most = MAX_HEAD.min(MAX_READ - self.read);
        let mut bytes = Vec::new();
        if file.take(most as u64).read_to_end(&mut bytes).is_err() {
            return String::new();
        }
        self.read += bytes.len();
        if classify(&bytes[..bytes.len().min(HEAD)]) != Content::Text || bytes.contains(&0) {
            return String::new();
        }
        let text = if bytes.len() == most { whole_chars(&bytes) } else { &bytes };
        decode(text).0
    }
}
