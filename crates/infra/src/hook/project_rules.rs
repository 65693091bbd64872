//! `project_rules`: what a project asks of every agent, from its `AGENTS.md`.

use std::io::Read;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use posse_core::run::hook::{HookError, RunHook, RunSetup};
use posse_core::text::{count, plural};
use posse_core::tool::ToolErrorCategory;

use posse_tools::workspace::{Found, Workspace};

const FILE: &str = "AGENTS.md";
/// How much of the file an agent is told.
const MAX_BYTES: usize = 32 * 1024;

/// Adds the workspace's `AGENTS.md`, if it has one, to the system message.
pub(super) struct ProjectRules;

#[async_trait]
impl RunHook for ProjectRules {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        let workspace = setup.workspace.clone();
        let read = tokio::task::spawn_blocking(move || read(&workspace)).await;
        let rules = read.map_err(|error| HookError::Failed(format!("{FILE} was not read: {error}")))??;
        if !rules.trim().is_empty() {
            setup.append(&format!("Rules of this project ({FILE})"), &rules);
        }
        Ok(())
    }

    fn rules_file(&self) -> Option<PathBuf> {
        Some(FILE.into())
    }
}

/// The text of the file beneath the workspace; empty where there is none.
fn read(workspace: &Path) -> Result<String, HookError> {
    let (file, len) = match Workspace::open_plain(workspace).and_then(|workspace| workspace.find(FILE)) {
        Ok(Found::File(file, len)) => (file, len),
        Ok(Found::Folder(_)) => return Ok(String::new()),
        Err(error) if error.category == ToolErrorCategory::NotFound => return Ok(String::new()),
        Err(error) => {
            let is_unfit = error.category == ToolErrorCategory::WorkerUnfit;
            let kind = if is_unfit { HookError::WorkerUnfit } else { HookError::Failed };
            return Err(kind(format!("the project's rules cannot be read: {error}")));
        }
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| HookError::Failed(format!("{FILE} cannot be read: {error}")))?;
    let cut = bytes.len() > MAX_BYTES;
    bytes.truncate(MAX_BYTES);
    let mut text = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
    if cut {
        text = text.trim_end_matches('\u{fffd}').to_owned();
        let (len, most) = (plural(len, "byte"), count(MAX_BYTES as u64));
        text.push_str(&format!("\n[{FILE} has {len}; what comes after the first {most} is left out]"));
    }
    Ok(text)
}
