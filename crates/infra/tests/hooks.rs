//! Hooks by name, and the one that tells a project's rules.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use posse_core::persona::PersonaTemplate;
use posse_core::run::hook::{HookError, Hooks as _, RunHook, RunSetup};
use posse_infra::hook::{HookRegistry, RegisterHookError};

struct Says(&'static str);

#[async_trait]
impl RunHook for Says {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        if self.0 == "stop" {
            return Err(HookError::Failed("stop here".into()));
        }
        setup.persona.model = Some(self.0.into());
        setup.append(self.0, &format!("after {:?}", setup.system.lines().rfind(|l| l.starts_with('#'))));
        Ok(())
    }
}

fn registry() -> HookRegistry {
    let mut registry = HookRegistry::builtin();
    for name in ["b", "a", "stop"] {
        registry.register(name, Arc::new(Says(name))).unwrap();
    }
    registry
}

async fn run(names: &[&str]) -> (Result<(), HookError>, RunSetup) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut setup = RunSetup::new(PersonaTemplate::default(), Vec::new(), "g".into(), "/".into());
    (registry().resolve(&names).unwrap().before_run(&mut setup).await, setup)
}

#[tokio::test]
async fn hooks_run_in_the_order_of_the_list_and_stop_at_an_error() {
    let (done, setup) = run(&["b", "a"]).await;
    assert_eq!((done, setup.persona.model.as_deref()), (Ok(()), Some("a")));
    assert_eq!(setup.system, "\n# b\nafter None\n\n# a\nafter Some(\"# b\")\n");
    let (done, setup) = run(&["a", "stop", "b"]).await;
    assert_eq!((done, setup.persona.model.as_deref()), (Err(HookError::Failed("stop here".into())), Some("a")));
    assert_eq!(run(&[]).await.1.system, "");
}

#[test]
fn names_are_checked() {
    let unknown = registry().resolve(&["a".into(), "x\n".into()]).err().unwrap();
    assert_eq!(unknown.to_string(), "there is no hook 'x\\n'; there are: a, b, project_rules, stop, today");
    let mut registry = registry();
    assert_eq!(registry.register("a", Arc::new(Says("a"))), Err(RegisterHookError::NameTaken("a".into())));
    assert_eq!(registry.register("a b", Arc::new(Says("a"))), Err(RegisterHookError::BadName("a b".into())));
}

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
    assert!(told(&workspace).await.unwrap_err().to_string().contains("leads outside the workspace"));
    assert!(told(&folder.path().join("gone")).await.unwrap_err().to_string().contains("cannot be opened"));
}
