//! A look through a workspace before its agent's work begins: which files there are, and how their texts begin.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse_core::tool::{Survey, SurveyedFile, SurveyedTable, ToolContext, ToolErrorCategory};

use super::tables::{Column, Source, Table, tables};
use super::text::{Content, HEAD, classify, decode, whole_chars};
use super::workspace::{Dir, Found, Kind, Links, Workspace};

/// How much is looked at.
pub(super) struct Limits {
    pub files: usize,
    /// Folders and whatever else is met on the way.
    pub visited: usize,
    pub time: Duration,
    /// How many bytes are read of one text, and of all together.
    pub head: usize,
    pub read: usize,
}

/// Before a run begins.
const TOLD: Limits =
    Limits { files: 500, visited: 20_000, time: Duration::from_secs(1), head: 16 * 1024, read: 1 << 20 };

/// Folders of what programs make for themselves, beside those whose names begin with a dot.
const PASSED_OVER: [&str; 2] = ["node_modules", "__pycache__"];

/// What there is for a call's file tools, the nearest to the root first where there is too much. Nothing is named that
/// they would not open.
pub(super) fn survey(cx: &ToolContext) -> Survey {
    let mut found = files(cx, &TOLD);
    let sources: Vec<_> = found.files.iter().map(Source::of).collect();
    found.tables = tables(&sources).iter().map(surveyed).collect();
    found
}

fn surveyed(table: &Table) -> SurveyedTable {
    let column = |column: &Column| match &column.unit {
        Some(unit) => format!("{} in {unit}", column.name),
        None => column.name.clone(),
    };
    SurveyedTable {
        name: table.name.clone(),
        path: table.path.clone(),
        columns: table.columns.iter().map(column).collect(),
        rows: (!table.is_cut).then_some(table.rows.len() as u64),
    }
}

/// The files alone, with the beginnings of their texts.
pub(super) fn files(cx: &ToolContext, limits: &Limits) -> Survey {
    let Ok(workspace) = Workspace::of(cx) else { return Survey::default() };
    let began = Instant::now();
    let mut look = Look { workspace: &workspace, limits, began, visited: 0, read: 0, found: Survey::default() };
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
    limits: &'a Limits,
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
            if self.visited > self.limits.visited || self.began.elapsed() > self.limits.time {
                return false;
            }
            // What cannot be written down in a line cannot be asked for either.
            let Some(plain) = name.to_str().filter(|name| !name.chars().any(char::is_control)) else { continue };
            if plain.starts_with('.') {
                continue;
            }
            match kind {
                Kind::Folder if !PASSED_OVER.contains(&plain) => folders.push_back(folder.join(&name)),
                Kind::File if self.found.files.len() == self.limits.files => return false,
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
        let most = self.limits.head.min(self.limits.read - self.read);
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
