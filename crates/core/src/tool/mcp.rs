//! Tools of MCP servers: what a server announces, what of it a person accepted, and what models are told of that.
//!
//! Nothing of a server reaches a model but as it was accepted: what it announces otherwise later is another tool, which
//! nobody has looked at.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EffectClass, ToolSpec};
use crate::text::{is_default, visible};

pub mod schema;

/// The tools of a server that are taken; others of it are not seen.
pub const MOST_TOOLS: usize = 500;

/// Bytes of a description that models are told.
const MAX_DESCRIPTION: usize = 4096;

/// Bytes of a tool's name, which every provider takes.
const MAX_NAME: usize = 64;

/// What a server says of a tool's effects, as far as it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hints {
    /// That it changes nothing.
    #[serde(skip_serializing_if = "is_default")]
    pub read_only: bool,
    /// That a call which is made twice does no more than once.
    #[serde(skip_serializing_if = "is_default")]
    pub idempotent: bool,
}

/// A tool as its server announces it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Announced {
    /// The server's name for it.
    pub name: String,
    /// What it does, in the server's words.
    #[serde(default, skip_serializing_if = "is_default")]
    pub description: String,
    /// The JSON Schema of its arguments, as it came.
    pub schema: Value,
    /// What is said of its effects.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hints: Hints,
}

/// A tool that a person accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// What agents and personas call it.
    pub call: String,
    /// As it was announced then.
    pub announced: Announced,
}

/// How a tool that a server announces, or announced once, stands to what was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// As it was accepted.
    Accepted,
    /// Nobody accepted it yet.
    New,
    /// It was accepted, and these parts of it were others then.
    Changed(Vec<String>),
    /// It was accepted, and is not announced any more.
    Gone,
}

impl Announced {
    /// A tool of `tools/list`; none where it has no name. Whatever else is not as it should be counts as not said.
    pub fn read(tool: &Value) -> Option<Announced> {
        let name = tool.get("name")?.as_str().filter(|name| !name.trim().is_empty())?.to_owned();
        let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let hint = |key: &str| tool.pointer(&format!("/annotations/{key}")) == Some(&Value::Bool(true));
        let schema = tool.get("inputSchema").cloned().unwrap_or_else(|| serde_json::json!({"type": "object"}));
        let hints = Hints { read_only: hint("readOnlyHint"), idempotent: hint("idempotentHint") };
        Some(Announced { name, description: text("description"), schema, hints })
    }

    /// What of it is another than in `then`.
    fn differs(&self, then: &Announced) -> Vec<String> {
        let parts = [
            ("description", self.description == then.description),
            ("schema", self.schema == then.schema),
            ("hints", self.hints == then.hints),
        ];
        parts.into_iter().filter(|(_, is_same)| !is_same).map(|(part, _)| part.to_owned()).collect()
    }

    /// What happens if it runs twice: what the operator says; else, if they trust this server's hints, those; else the worst.
    pub fn effect(&self, said: Option<EffectClass>, are_hints_trusted: bool) -> EffectClass {
        match (said, self.hints) {
            (Some(said), _) => said,
            (None, Hints { read_only: true, .. }) if are_hints_trusted => EffectClass::Pure,
            (None, Hints { idempotent: true, .. }) if are_hints_trusted => EffectClass::Idempotent,
            _ => EffectClass::Once,
        }
    }
}

impl Accepted {
    /// How it stands to what its server announces now under its name.
    pub fn standing(&self, now: Option<&Announced>) -> Standing {
        let Some(now) = now else { return Standing::Gone };
        match now.differs(&self.announced) {
            none if none.is_empty() => Standing::Accepted,
            parts => Standing::Changed(parts),
        }
    }

    /// What models are told of it; or why they cannot be.
    pub fn spec(&self, server: &str) -> Result<ToolSpec, String> {
        let description = visible(self.announced.description.trim());
        let description = match description.len() {
            0 => format!(
                "'{}' of the MCP server '{server}', which says nothing about it.",
                visible(&self.announced.name)
            ),
            1..=MAX_DESCRIPTION => description,
            _ => format!("{}…", &description[..description.floor_char_boundary(MAX_DESCRIPTION)]),
        };
        let parameters = schema::plain(&self.announced.schema)?;
        Ok(ToolSpec { name: self.call.clone(), description, parameters })
    }
}

/// What is accepted of a server once a person accepts what it announces now, or of that what `only` names. Names that were
/// given stay; a new one is none that `is_taken`.
pub fn accept(
    server: &str,
    kept: &[Accepted],
    announced: &[Announced],
    only: &[String],
    is_taken: &dyn Fn(&str) -> bool,
) -> Vec<Accepted> {
    let is_meant = |name: &String| only.is_empty() || only.contains(name);
    let mut accepted: Vec<_> = kept.iter().filter(|tool| !is_meant(&tool.announced.name)).cloned().collect();
    let given: BTreeMap<_, _> = kept.iter().map(|tool| (tool.announced.name.as_str(), tool.call.as_str())).collect();
    let mut names: BTreeSet<_> = given.values().map(|call| call.to_lowercase()).collect();
    // Those that keep their own name come first, so that it goes to them.
    let mut meant: Vec<_> = announced.iter().filter(|tool| is_meant(&tool.name)).collect();
    meant.sort_by_key(|tool| (legal(&tool.name) != tool.name, &tool.name));
    for tool in meant {
        let call = match given.get(tool.name.as_str()) {
            Some(call) => (*call).to_owned(),
            None => name(server, &tool.name, &|call| names.contains(&call.to_lowercase()) || is_taken(call)),
        };
        names.insert(call.to_lowercase());
        accepted.push(Accepted { call, announced: tool.clone() });
    }
    accepted.sort_by(|a, b| a.call.cmp(&b.call));
    accepted
}

/// A name that every provider takes, for a tool of a server.
fn name(server: &str, tool: &str, is_taken: &dyn Fn(&str) -> bool) -> String {
    let whole = format!("{server}__{}", legal(tool));
    let numbered = |n: usize| {
        let number = if n == 1 { String::new() } else { format!("_{n}") };
        format!("{}{number}", &whole[..whole.len().min(MAX_NAME - number.len())])
    };
    let free = (1..).map(numbered).find(|name| !is_taken(name));
    free.expect("of endless names one is free")
}

/// The same with `_` for each run of what is not legal in it.
fn legal(tool: &str) -> String {
    let mut out = String::with_capacity(tool.len());
    for c in tool.chars() {
        match c.is_ascii_alphanumeric() || c == '-' || c == '_' {
            true => out.push(c),
            false if !out.ends_with('_') => out.push('_'),
            false => {}
        }
    }
    if out.trim_matches('_').is_empty() { "tool".into() } else { out }
}
