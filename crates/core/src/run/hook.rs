//! Hooks: what runs before a run begins, and may change what it begins with, and what hears how it ended.
//!
//! A persona names its hooks; they run in that order, each on what the one before left. What they
//! leave is fixed for the life of the run.

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::job::{JobId, Output};
use crate::persona::PersonaTemplate;
use crate::run::finish;
use crate::run::journal::OfferedTool;
use crate::workspace::folder::FolderId;

/// What a run will begin with.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSetup {
    /// Whose run it is. A hook may set another model or other limits.
    pub persona: PersonaTemplate,
    /// What is asked for.
    pub goal: String,
    /// The folder its tools are confined to.
    pub workspace: PathBuf,
    /// Which folder that is, if it is known.
    pub workspace_id: Option<FolderId>,
    /// The job that is worked.
    pub job: JobId,
    /// Text for the end of the system message; empty at first.
    pub system: String,
    tools: BTreeMap<String, OfferedTool>,
}

impl RunSetup {
    /// A setup with these tools, and nothing to add to the system message.
    pub fn new(persona: PersonaTemplate, tools: Vec<OfferedTool>, goal: String, workspace: PathBuf) -> Self {
        let (system, tools_by_name) = (String::new(), BTreeMap::new());
        let mut setup =
            RunSetup { persona, goal, workspace, workspace_id: None, job: JobId(0), system, tools: tools_by_name };
        tools.into_iter().for_each(|tool| setup.offer(tool));
        setup
    }

    /// The tools that will be offered, sorted by name.
    pub fn tools(&self) -> Vec<OfferedTool> {
        self.tools.values().cloned().collect()
    }

    /// Offers a tool, in place of one of the same name. A call runs the tool that is registered under
    /// its name; the final answer is always offered and cannot be replaced.
    pub fn offer(&mut self, tool: OfferedTool) {
        if tool.spec.name != finish::FINISH {
            self.tools.insert(tool.spec.name.clone(), tool);
        }
    }

    /// Takes a tool back; gives it if it was offered.
    pub fn withdraw(&mut self, name: &str) -> Option<OfferedTool> {
        self.tools.remove(name)
    }

    /// Adds a section to the system message.
    pub fn append(&mut self, heading: &str, text: &str) {
        let _ = write!(self.system, "\n# {heading}\n{}\n", text.trim());
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct RunEnd<'a> {
    /// The job that was worked.
    pub job: JobId,
    /// Whose run it was.
    pub role: &'a str,
    /// What was asked for.
    pub goal: &'a str,
    /// The folder its tools were confined to.
    pub workspace: &'a Path,
    /// Which folder that is, if it is known.
    pub workspace_id: Option<FolderId>,
    /// The answer, and what it took.
    pub output: &'a Output,
    /// The same should it be told again.
    pub effect_key: &'a str,
}

/// A hook could not do its work; the run does not begin, and the job is tried again later. It says what is wrong, and
/// the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// The attempt has failed.
    #[error("{0}")]
    Failed(String),
    /// This worker lacks what it takes, so no attempt is spent.
    #[error("{0}")]
    WorkerUnfit(String),
}

/// Changes what a run begins with, and hears how it ended. Before a run it runs once, and again where the process
/// died before the beginning was saved: it may look at the world, and must not change it.
#[async_trait]
pub trait RunHook: Send + Sync {
    /// Looks at the setup and changes it.
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError>;

    /// Hears how a run ended, before that is saved: again, with the same effect key, where the process dies in between. It
    /// may change the world, and not the end. A run that is cancelled, or given up with its job, has no such end.
    async fn after_run(&self, _end: &RunEnd<'_>) -> Result<(), HookError> {
        Ok(())
    }

    /// The file of the workspace that it tells an agent its rules from, if it tells any: no tool may change it.
    fn rules_file(&self) -> Option<PathBuf> {
        None
    }
}

/// All of `hooks` as one: each runs on what the one before left; the first error ends it.
pub fn compose(hooks: Vec<Arc<dyn RunHook>>) -> Arc<dyn RunHook> {
    Arc::new(InOrder(hooks))
}

struct InOrder(Vec<Arc<dyn RunHook>>);

#[async_trait]
impl RunHook for InOrder {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        for hook in &self.0 {
            hook.before_run(setup).await?;
        }
        Ok(())
    }

    /// All of them, whatever becomes of one: each has its own to do. The errors are told as one.
    async fn after_run(&self, end: &RunEnd<'_>) -> Result<(), HookError> {
        let mut failed = Vec::new();
        for hook in &self.0 {
            failed.extend(hook.after_run(end).await.err().map(|error| error.to_string()));
        }
        if failed.is_empty() { Ok(()) } else { Err(HookError::Failed(failed.join("; "))) }
    }

    fn rules_file(&self) -> Option<PathBuf> {
        self.0.iter().find_map(|hook| hook.rules_file())
    }
}

/// The hooks that personas may name.
pub trait Hooks: Send + Sync {
    /// The hooks of a persona's list, composed in its order.
    fn resolve(&self, names: &[String]) -> Result<Arc<dyn RunHook>, UnknownHook>;
}

/// A persona names a hook that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no hook '{}'; there are: {}", name.escape_debug(), known.join(", "))]
pub struct UnknownHook {
    /// What was named.
    pub name: String,
    /// All hooks, sorted.
    pub known: Vec<String>,
}
