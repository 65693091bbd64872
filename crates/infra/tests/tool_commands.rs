//! Commands in a program that cannot make a sandbox. All others are in a program that begins as it has to, `attacks`.
#![allow(clippy::unwrap_used)]

use posse_core::tool::{ToolContext, ToolErrorCategory, Tools as _};
use posse_infra::sandbox::Commands;
use posse_infra::tool::{RUN_COMMAND, ToolRegistry};

use crate::support::tools::context;

#[tokio::test]
async fn a_program_that_cannot_be_a_sandbox_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cx = ToolContext { workspace: folder.path().into(), ..context() };
    let tool = ToolRegistry::builtin().with_commands(Commands::default()).get(RUN_COMMAND).unwrap();
    let error = tool.call(&cx, serde_json::json!({"command": "touch ran"})).await.unwrap_err();
    assert_eq!(error.category, ToolErrorCategory::PermissionDenied);
    assert!(error.message.contains("posse_infra::sandbox::begin() first in its main"), "{error}");
    assert!(!folder.path().join("ran").exists());
}
