//! A workspace with things around it that nobody may touch, and `run_command` as a worker calls it.

use std::fs;
use std::path::{Path, PathBuf};

use posse_core::job::JobId;
use posse_core::stop::Stop;
use posse_core::tool::{ToolContext, ToolError, ToolErrorCategory, Tools as _};
use posse_core::workspace::protected::Protected;
use posse_infra::sandbox::{CommandLimits, Commands};
use posse_infra::tool::{RUN_COMMAND, ToolRegistry};
use serde_json::{Value, json};

use crate::tree::{Tree, tree};

pub use crate::wait::until;

/// What stands in files that no command may see.
pub const SECRET: &str = "s3cret-canary";

/// Small, so that a test machine does not suffer; long, so that it may be slow.
pub const SMALL: CommandLimits =
    CommandLimits { seconds: 120, max_seconds: 120, processes: 24, memory_mb: 128, written_mb: 16, tmp_mb: 8 };

pub struct Bench {
    base: tempfile::TempDir,
    registry: ToolRegistry,
    pub cx: ToolContext,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| Commands { limits: SMALL, ..Commands::default() })
    }

    /// One in whose workspace this is hidden and that is fixed; paths are as they are beneath it.
    pub fn protecting(hidden: &[&str], fixed: &[&str]) -> Bench {
        Bench::with(|ws| {
            let [hidden, fixed] = [hidden, fixed].map(|paths| paths.iter().map(|path| ws.join(path)).collect());
            Commands { limits: SMALL, protected: Protected { hidden, fixed, ..Default::default() }, known: Vec::new() }
        })
    }

    /// `<base>/ws` is the workspace; `<base>/ws-evil/secret.txt` is outside.
    pub fn with(commands: impl FnOnce(&Path) -> Commands) -> Bench {
        let base = tempfile::tempdir().unwrap();
        for folder in ["ws", "ws-evil"] {
            fs::create_dir(base.path().join(folder)).unwrap();
        }
        fs::write(base.path().join("ws-evil/secret.txt"), SECRET).unwrap();
        let registry = ToolRegistry::builtin().with_commands(commands(&base.path().join("ws")));
        let cx = ToolContext {
            job: JobId(1),
            role: "tester".into(),
            effect_key: "key".into(),
            workspace: base.path().join("ws"),
            workspace_id: None,
            protected: Default::default(),
            rules_file: None,
            skill_folder: None,
            reader: Default::default(),
            web: Default::default(),
            remarks: None,
            time_left: None,
            tasks: None,
            calls: None,
            step: 0,
            heard: Vec::new(),
            memory: None,
            stop: Stop::never(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Bench { base, registry, cx, runtime }
    }

    pub fn base(&self) -> &Path {
        self.base.path()
    }

    /// A path in the workspace.
    pub fn ws(&self, below: &str) -> PathBuf {
        self.base().join("ws").join(below)
    }

    pub fn write(&self, below: &str, content: impl AsRef<[u8]>) {
        let path = self.ws(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub async fn call(&self, args: Value) -> Result<String, ToolError> {
        let tool = self.registry.get(RUN_COMMAND).unwrap();
        let args = self.registry.validate_args(tool.spec(), &args.to_string())?;
        tool.call(&self.cx, args).await.map(|output| output.text)
    }

    pub fn runtime(&self) -> &tokio::runtime::Runtime {
        &self.runtime
    }

    /// Runs a command with these arguments besides.
    pub fn run_with(&self, args: Value) -> Result<String, ToolError> {
        self.runtime.block_on(self.call(args))
    }

    /// Runs a command to its end, and gives what the model reads.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        match self.run_with(json!({"command": command})) {
            Ok(said) => {
                assert!(said.starts_with("exit code 0, after "), "{command} failed, and is told as done: {said}");
                said
            }
            // It ran to its end and failed by its own word.
            Err(ToolError { category: ToolErrorCategory::Failed, message }) => message,
            Err(error) => panic!("{command}: {error}"),
        }
    }

    /// Runs a command that a limit has to end.
    #[track_caller]
    pub fn over(&self, command: &str, seconds: u64) -> String {
        let error = self.run_with(json!({"command": command, "timeout_s": seconds})).expect_err(command);
        assert_eq!(error.category, ToolErrorCategory::LimitExceeded, "{command}: {error}");
        error.message
    }

    /// Everything in this folder.
    pub fn tree(&self, below: &str) -> Tree {
        tree(&self.base().join(below))
    }
}

/// How many processes of this machine have the word in their command line.
pub fn processes_with(word: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

/// A number that no other test sleeps for, as a word to find processes by.
pub fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 100_000 + std::process::id(), 700 + NEXT.fetch_add(1, Ordering::Relaxed))
}
