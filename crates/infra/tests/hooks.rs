//! The hook that tells a project's rules.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use posse_core::persona::PersonaTemplate;
use posse_core::run::hook::{HookError, Hooks as _, RunSetup};
use posse_infra::hook::HookRegistry;

async fn told(workspace: &Path) -> Result<String, HookError> {
    let mut setup = RunSetup::new(PersonaTemplate::default(), Vec::new(), "g".into(), workspace.into());
    let rules = HookRegistry::builtin().resolve(&["project_rules".into()]).unwrap();
    rules.before_run(&mut setup).await.map(|()| setup.system)
}

#[tokio::test]
async fn the_rules_of_the_workspace_are_told_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("ws");
    fs::create_dir(&workspace).unwrap();
    assert_eq!(told(&workspace).await.unwrap(), "");
    let file = workspace.join("AGENTS.md");
    fs::write(&file, "\nAnswer in French.\n\n").unwrap();
    assert_eq!(told(&workspace).await.unwrap(), "\n# Rules of this project (AGENTS.md)\nAnswer in French.\n");

    fs::write(&file, "é".repeat(32 * 1024)).unwrap();
    let long = told(&workspace).await.unwrap();
    assert!(long.contains("éé\n[AGENTS.md has 65,536 bytes; what comes after the first 32,768 is left out]"));

    fs::write(folder.path().join("other.md"), "s3cret").unwrap();
    fs::remove_file(&file).unwrap();
    symlink("../other.md", &file).unwrap();
    assert!(told(&workspace).await.unwrap_err().0.contains("leads outside the workspace"));
    assert!(told(&folder.path().join("gone")).await.unwrap_err().0.contains("cannot be opened"));
}
