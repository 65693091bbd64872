//! Which tools there are, by name and by pack.

use std::collections::BTreeMap;
use std::sync::Arc;

use posse_core::tool::{Survey, Tool, ToolContext, ToolError, ToolSpec, Tools, UnknownTool};
use posse_core::workspace::protected::Protected;
use serde_json::Value;

use super::arguments::ArgumentCheck;
use super::failure::failed;
use super::survey::survey;
use super::text::near_matches;
use super::there;

/// Every tool of the process. Built once at the start, read by everybody.
#[derive(Default)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Entry>,
    packs: BTreeMap<String, Vec<String>>,
    /// Packs that could be there, and why they are not.
    missing: BTreeMap<String, String>,
    protected: Arc<Protected>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    check: ArgumentCheck,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    #[error("'{0}' is no name for a tool or a pack: use 1 to 64 of a-z, A-Z, 0-9, _ and -")]
    BadName(String),
    #[error("there is a tool or a pack named '{0}' already")]
    NameTaken(String),
    #[error("the schema of tool '{tool}' cannot be used: {reason}")]
    BadSchema { tool: String, reason: String },
}

impl ToolRegistry {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool to a pack, which comes into being with its first tool.
    pub fn register(&mut self, pack: &str, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        match is_legal_name(pack) {
            true => self.add(pack, tool),
            false => Err(RegisterError::BadName(pack.to_owned())),
        }
    }

    /// The same, whatever the pack is called.
    pub(crate) fn add(&mut self, pack: &str, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let name = tool.spec().name.clone();
        if !is_legal_name(&name) {
            return Err(RegisterError::BadName(name));
        }
        // One word may name a pack and the only tool in it (`finish`): both resolve to the same.
        let pack_hides_tool = self.tools.contains_key(pack) && !self.packs.contains_key(pack);
        let tool_hides_pack =
            self.packs.contains_key(&name) || self.packs.get(pack).is_some_and(|tools| tools.as_slice() == [pack]);
        if self.tools.contains_key(&name) || tool_hides_pack {
            return Err(RegisterError::NameTaken(name));
        }
        if pack_hides_tool {
            return Err(RegisterError::NameTaken(pack.to_owned()));
        }
        let check = ArgumentCheck::compile(tool.spec())
            .map_err(|reason| RegisterError::BadSchema { tool: name.clone(), reason })?;
        let tools = self.packs.entry(pack.to_owned()).or_default();
        tools.push(name.clone());
        tools.sort();
        self.tools.insert(name, Entry { tool, check });
        Ok(())
    }

    /// The same, whose tools keep away from these.
    pub fn with_protected(self, protected: Protected) -> Self {
        ToolRegistry { protected: protected.into(), ..self }
    }

    /// Takes note that a pack has no tools, and why.
    pub(crate) fn lacks(&mut self, pack: &str, why: String) {
        if !self.packs.contains_key(pack) {
            self.missing.insert(pack.to_owned(), why);
        }
    }

    fn unknown(&self, name: &str) -> UnknownTool {
        let known = self.tools.keys().chain(self.packs.keys()).map(String::as_str);
        let (near, why) = (near_matches(name, known), self.missing.get(name).cloned());
        UnknownTool { name: name.to_owned(), near, why, packs: self.packs.clone() }
    }
}

impl Tools for ToolRegistry {
    fn resolve(&self, names: &[String]) -> Result<Vec<Arc<dyn Tool>>, UnknownTool> {
        let mut found = BTreeMap::new();
        for name in names {
            let own = self.tools.get_key_value(name).map(|(name, _)| name);
            let pack = self.packs.get(name);
            if own.is_none() && pack.is_none() {
                return Err(self.unknown(name));
            }
            for name in own.into_iter().chain(pack.into_iter().flatten()) {
                if let Some(entry) = self.tools.get(name) {
                    found.insert(name.as_str(), entry.tool.clone());
                }
            }
        }
        Ok(found.into_values().collect())
    }

    fn packs(&self) -> &BTreeMap<String, Vec<String>> {
        &self.packs
    }

    fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).map(|entry| entry.tool.clone())
    }

    fn validate_args(&self, spec: &ToolSpec, raw: &str) -> Result<Value, ToolError> {
        // The schema is compiled once for each registered tool; one that is not registered, or was replaced for this
        // run, is compiled here.
        match self.tools.get(&spec.name) {
            Some(entry) if entry.check.is_of(spec) => entry.check.parse(raw),
            _ => ArgumentCheck::compile(spec)
                .map_err(|reason| failed(format!("the schema of {} cannot be used: {reason}", spec.name)))?
                .parse(raw),
        }
    }

    fn protected(&self) -> &Arc<Protected> {
        &self.protected
    }

    fn are_there(&self, cx: &ToolContext, paths: &[String]) -> BTreeMap<String, bool> {
        there::are_there(cx, paths)
    }

    fn survey(&self, cx: &ToolContext) -> Survey {
        survey(cx)
    }
}

/// Whether every provider takes it as the name of a tool.
pub fn is_legal_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(legal)
}
