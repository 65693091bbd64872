//! Hooks by name, as personas list them. A hook is one file and one line, as a tool is.
//!
//! Programs that build on Posse as a library register their own:
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use posse_core::run::hook::{HookError, Hooks as _, RunHook, RunSetup};
//! use posse_infra::hook::HookRegistry;
//!
//! /// Takes the cheap model for short goals.
//! struct CheapForShort;
//!
//! #[async_trait]
//! impl RunHook for CheapForShort {
//!     async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
//!         if setup.goal.len() < 200 {
//!             setup.persona.model = Some("cheap".into());
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let mut hooks = HookRegistry::builtin();
//! hooks.register("cheap_for_short", Arc::new(CheapForShort))?;
//! // A persona with "hooks": ["project_rules", "cheap_for_short"]. What comes out goes to
//! // `GenericAgentExecutor::with_hooks`.
//! let composed = hooks.resolve(&["project_rules".into(), "cheap_for_short".into()])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod own;
mod project_rules;
mod today;

use std::collections::BTreeMap;
use std::sync::Arc;

use posse_core::run::hook::{Hooks, RunHook, UnknownHook, compose};

use posse_tools::is_legal_name;

/// The hook that tells a project's rules.
const PROJECT_RULES: &str = "project_rules";

/// The hook that tells which day it is.
const TODAY: &str = "today";

/// Every hook of the process. Built once at the start, read by everybody.
#[derive(Default)]
pub struct HookRegistry {
    hooks: BTreeMap<String, Arc<dyn RunHook>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterHookError {
    /// No persona could name it.
    #[error("'{0}' is no name for a hook: use 1 to 64 of a-z, A-Z, 0-9, _ and -")]
    BadName(String),
    /// There is one already; nothing is ever shadowed.
    #[error("there is a hook named '{0}' already")]
    NameTaken(String),
}

impl HookRegistry {
    pub fn builtin() -> Self {
        let project_rules: Arc<dyn RunHook> = Arc::new(project_rules::ProjectRules);
        let today: Arc<dyn RunHook> = Arc::new(today::Today);
        HookRegistry { hooks: [(PROJECT_RULES.to_owned(), project_rules), (TODAY.to_owned(), today)].into() }
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.hooks.keys().cloned().collect()
    }

    pub fn register(&mut self, name: &str, hook: Arc<dyn RunHook>) -> Result<(), RegisterHookError> {
        if !is_legal_name(name) {
            return Err(RegisterHookError::BadName(name.to_owned()));
        }
        if self.hooks.contains_key(name) {
            return Err(RegisterHookError::NameTaken(name.to_owned()));
        }
        self.hooks.insert(name.to_owned(), hook);
        Ok(())
    }
}

impl Hooks for HookRegistry {
    fn resolve(&self, names: &[String]) -> Result<Arc<dyn RunHook>, UnknownHook> {
        let unknown = |name: &String| UnknownHook { name: name.clone(), known: self.hooks.keys().cloned().collect() };
        let hooks: Result<Vec<_>, _> =
            names.iter().map(|name| self.hooks.get(name).cloned().ok_or_else(|| unknown(name))).collect();
        hooks.map(compose)
    }
}
