//! The tools: what an agent can do, by name and by pack.
//!
//! A tool is one file and one line. The file holds the type of its arguments (whose doc comments are what the model
//! reads) and its function; the line is in `PACKS` below.

// A failed `unwrap` is how a test fails.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arguments;
mod code;
mod failure;
mod function;
pub mod mcp;
pub mod own;
mod registry;
pub mod sandbox;
mod survey;
mod tables;
pub(crate) mod text;
pub mod web;
pub mod workspace;

mod annotate;
mod append_file;
mod calculate;
mod core_memory_edit;
mod create_file;
mod edit_file;
mod execute_code;
mod find_annotations;
mod finish;
mod http_fetch;
mod list_files;
mod memory;
mod query_tables;
mod read_file;
mod read_skill_file;
mod run_command;
mod search_files;
mod tasks;
mod there;

use std::sync::Arc;

use crate::sandbox::Commands;
use crate::web::Web;

pub use arguments::{ArgumentCheck, field_path};
pub use execute_code::CodeLimits;
pub use function::FnTool;
pub use registry::{RegisterError, ToolRegistry, is_legal_name};
pub use run_command::RUN_COMMAND;

type Make = fn() -> FnTool;

/// The tools that need nothing but a workspace, by pack.
const PACKS: &[(&str, Make)] = &[
    ("annotations", annotate::tool),
    ("annotations", find_annotations::list),
    ("annotations", find_annotations::search),
    ("annotations", find_annotations::tag),
    ("calculator", calculate::tool),
    ("calculator", query_tables::tool),
    ("filesystem", append_file::tool),
    ("filesystem", create_file::tool),
    ("filesystem", edit_file::tool),
    ("filesystem", list_files::tool),
    ("filesystem", read_file::tool),
    ("filesystem", search_files::tool),
    ("finish", finish::tool),
    ("memory", core_memory_edit::tool),
    ("memory", memory::forget),
    ("memory", memory::save),
    ("memory", memory::search),
    ("memory", memory::update),
    ("skill_files", read_skill_file::tool),
    ("tasks", tasks::cancel),
    ("tasks", tasks::create),
    ("tasks", tasks::list),
    ("tasks", tasks::status),
    ("tasks", tasks::wait),
];

impl ToolRegistry {
    /// A registry with the built-in tools. Others are added with [`ToolRegistry::register`].
    pub fn builtin() -> Self {
        let mut registry = ToolRegistry::new();
        for (pack, tool) in PACKS {
            registry.register(pack, Arc::new(tool())).expect("a test registers every built-in tool");
        }
        registry
    }

    /// The same with `http_fetch`, in the pack `web`. What it reaches is each persona's.
    pub fn with_web(mut self, web: Web) -> Self {
        self.register("web", Arc::new(http_fetch::tool(web))).expect("a test registers it");
        self
    }

    /// The same with `execute_code`, in the pack `code`. Its program has to begin with
    /// [`sandbox::begin`](crate::sandbox::begin).
    pub fn with_code(mut self, limits: CodeLimits) -> Self {
        self.register("code", Arc::new(execute_code::tool(limits))).expect("a test registers it");
        self
    }

    /// The same with `run_command`, in a pack of its own: only personas that name it or the pack get it. Its program
    /// has to begin with [`sandbox::begin`](crate::sandbox::begin).
    ///
    /// What commands keep away from, all tools do.
    pub fn with_commands(self, commands: Commands) -> Self {
        let mut registry = self.with_protected(commands.protected.clone());
        registry.register("commands", Arc::new(run_command::tool(commands))).expect("a test registers it");
        registry
    }
}
