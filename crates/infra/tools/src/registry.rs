//! Which tools there are, by name and by pack.

use std::collections::BTreeMap;
use std::sync::Arc;

use posse_core::tool::{Tool, ToolError, ToolSpec, Tools, UnknownTool};
use posse_core::workspace::protected::Protected;
use serde_json::Value;

use super::arguments::ArgumentCheck;
use super::failure::failed;

/// Every tool of the process. Built once at the start, read by everybody.
#[derive(Default)]
pub struct ToolRegistry {
    tools: BTreeMap<String, Entry>,
    packs: BTreeMap<String, Vec<String>>,
    protected: Arc<Protected>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    check: ArgumentCheck,
}

/// Why a tool cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Providers would refuse every request that offers it.
    #[error("'{0}' is no name for a tool or a pack: use 1 to 64 of a-z, A-Z, 0-9, _ and -")]
    BadName(String),
    /// There is one already; nothing is ever shadowed.
    #[error("there is a tool or a pack named '{0}' already")]
    NameTaken(String),
    /// Its arguments could not be checked.
    #[error("the schema of tool '{tool}' cannot be used: {reason}")]
    BadSchema {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ToolRegistry {
    /// A registry with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool to a pack, which comes into being with its first tool.
    pub fn register(&mut self, pack: &str, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let name = tool.spec().name.clone();
        for name in [pack, &name] {
            if !is_legal_name(name) {
                return Err(RegisterError::BadName(name.to_owned()));
            }
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

    /// The packs, each with the names of its tools.
    pub fn packs(&self) -> &BTreeMap<String, Vec<String>> {
        &self.packs
    }

    fn unknown(&self, name: &str) -> UnknownTool {
        let known = self.tools.keys().chain(self.packs.keys()).map(String::as_str);
        UnknownTool { name: name.to_owned(), near: near_matches(name, known), packs: self.packs.clone() }
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
}

/// Whether every provider takes it as the name of a tool.
pub fn is_legal_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(legal)
}

/// Up to three of the known words that a slip of the pen may have turned into `word`.
pub(crate) fn near_matches<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Comparing is quadratic, and nobody misspells a word this long.
    if word.len() > 128 {
        return Vec::new();
    }
    let word = word.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        let part = word.len() >= 3 && (known.contains(&word) || word.contains(&known));
        strsim::jaro_winkler(&word, &known).max(if part { 0.9 } else { 0.0 })
    };
    let mut near: Vec<_> = known.map(|known| (likeness(known), known)).filter(|(score, _)| *score > 0.8).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.dedup_by_key(|(_, known)| *known);
    near.into_iter().take(3).map(|(_, known)| known.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::FnTool;
    use super::*;
    use posse_core::tool::EffectClass;
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Args {}

    fn tool(name: &str) -> Arc<dyn Tool> {
        Arc::new(FnTool::new(name, "", EffectClass::Pure, |_, _: Args| async { Ok(String::new().into()) }))
    }

    fn registry() -> ToolRegistry {
        let mut registry = ToolRegistry::new();
        for (pack, name) in [("files", "write_file"), ("files", "read_file"), ("clock", "now"), ("end", "end")] {
            registry.register(pack, tool(name)).unwrap();
        }
        registry
    }

    fn resolve(names: &[&str]) -> Result<Vec<String>, UnknownTool> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let tools = registry().resolve(&names)?;
        Ok(tools.iter().map(|tool| tool.spec().name.clone()).collect())
    }

    #[test]
    fn tools_and_packs_resolve_sorted_and_once() {
        assert_eq!(resolve(&[]).unwrap(), Vec::<String>::new());
        assert_eq!(
            resolve(&["write_file", "now", "files", "now", "end"]).unwrap(),
            ["end", "now", "read_file", "write_file"]
        );
    }

    #[test]
    fn an_unknown_name_is_told_with_what_there_is() {
        let error = resolve(&["now", "raed_file"]).unwrap_err();
        assert_eq!(error.near, ["read_file"]);
        assert_eq!(
            error.to_string(),
            "there is no tool or pack 'raed_file'; did you mean read_file? \
             There are: clock (now) end (end) files (read_file, write_file)"
        );
        assert_eq!(resolve(&["file"]).unwrap_err().near, ["files", "read_file", "write_file"]);
        assert!(resolve(&["zzz"]).unwrap_err().near.is_empty());
        assert!(resolve(&[""]).is_err());
    }

    #[test]
    fn names_that_providers_refuse_are_refused() {
        let long = "x".repeat(65);
        for name in ["", "docs.create", "docs/create", "größe", "...", "read file", "a\n", long.as_str()] {
            assert_eq!(ToolRegistry::new().register("pack", tool(name)), Err(RegisterError::BadName(name.into())));
        }
        assert!(is_legal_name(&"x".repeat(64)));
        assert!(is_legal_name("Docs_create-2"));
    }

    #[test]
    fn nothing_is_shadowed() {
        for (pack, name) in [("other", "now"), ("now", "x"), ("x", "files"), ("end", "other"), ("other", "end")] {
            assert!(matches!(registry().register(pack, tool(name)), Err(RegisterError::NameTaken(_))), "{pack}/{name}");
        }
    }

    #[test]
    fn arguments_are_checked_against_the_spec_at_hand() {
        let registry = registry();
        let mut spec = tool("now").spec().clone();
        assert_eq!(registry.validate_args(&spec, "{}").unwrap(), json!({}));
        assert!(registry.validate_args(&spec, r#"{"zone": "x"}"#).is_err());
        spec.parameters = json!({"type": "object", "properties": {"zone": {"type": "string"}}});
        assert_eq!(registry.validate_args(&spec, r#"{"zone": "x"}"#).unwrap(), json!({"zone": "x"}));
    }
}
