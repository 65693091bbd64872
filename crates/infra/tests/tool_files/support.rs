//! A workspace with things outside it that nobody may touch, and a way to call tools as a worker
//! does.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posse_core::stop::Stop;
use posse_core::tool::{Reader, Survey, ToolContext, ToolError, ToolOutput, Tools as _};
use posse_core::workspace::folder::FolderId;
use posse_core::workspace::protected::Protected;
use posse_infra::tool::ToolRegistry;
use serde_json::Value;

use crate::support::tools::context;
use crate::support::tree::{Tree, tree};

/// What stands in files outside the workspace.
pub const SECRET: &str = "s3cret-canary";

pub struct Bench {
    base: tempfile::TempDir,
    registry: ToolRegistry,
    /// The folder of the skill that is worked by, if one is.
    pub skill: Option<PathBuf>,
    /// The file that the agent was told its rules from, if it was.
    pub rules_file: Option<PathBuf>,
    runtime: tokio::runtime::Runtime,
    stop: Stop,
    /// Which folder the workspace is to be.
    pub workspace_id: Option<FolderId>,
    /// What tools keep away from.
    pub protected: Protected,
    /// Who reads what they give.
    pub reader: Reader,
}

impl Bench {
    /// `<base>/ws` is the workspace; `<base>/ws-evil/secret.txt` is outside.
    pub fn new() -> Self {
        Self::stopped_by(Stop::never())
    }

    pub fn stopped_by(stop: Stop) -> Self {
        let base = tempfile::tempdir().unwrap();
        for folder in ["ws", "ws-evil"] {
            fs::create_dir(base.path().join(folder)).unwrap();
        }
        fs::write(base.path().join("ws-evil/secret.txt"), SECRET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Bench {
            base,
            registry: ToolRegistry::builtin(),
            skill: None,
            rules_file: None,
            runtime,
            stop,
            workspace_id: None,
            protected: Protected::default(),
            reader: Reader::default(),
        }
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    /// A path in the workspace.
    pub fn ws(&self, below: &str) -> PathBuf {
        self.base.path().join("ws").join(below)
    }

    pub fn write(&self, below: &str, content: impl AsRef<[u8]>) {
        let path = self.ws(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn content(&self, below: &str) -> String {
        fs::read_to_string(self.ws(below)).unwrap()
    }

    /// Checks the arguments and calls the tool; never takes longer than five seconds.
    pub fn call(&self, tool: &str, args: Value) -> Result<String, ToolError> {
        self.output(tool, args).map(|output| output.text)
    }

    pub fn output(&self, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
        let raw = args.to_string();
        let spec = self.registry.get(tool).unwrap().spec().clone();
        let args = self.registry.validate_args(&spec, &raw)?;
        let since = Instant::now();
        let outcome = self.call_unchecked(tool, args);
        let shown = &raw[..raw.len().min(200)];
        assert!(since.elapsed() < Duration::from_secs(5), "{shown} took {:?}", since.elapsed());
        outcome
    }

    /// Calls the tool with arguments of any kind.
    pub fn call_unchecked(&self, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
        self.runtime.block_on(self.registry.get(tool).unwrap().call(&self.context(), args))
    }

    /// Looks through the workspace; never takes longer than five seconds.
    pub fn survey(&self) -> Survey {
        let since = Instant::now();
        let found = self.registry.survey(&self.context());
        assert!(since.elapsed() < Duration::from_secs(5), "it took {:?}", since.elapsed());
        found
    }

    fn context(&self) -> ToolContext {
        ToolContext {
            workspace: self.ws(""),
            workspace_id: self.workspace_id,
            protected: self.protected.clone().into(),
            rules_file: self.rules_file.clone(),
            reader: self.reader.clone(),
            skill_folder: self.skill.clone(),
            stop: self.stop.clone(),
            ..context()
        }
    }

    /// Everything in the workspace and around it.
    pub fn tree(&self) -> Tree {
        tree(self.base.path())
    }
}
