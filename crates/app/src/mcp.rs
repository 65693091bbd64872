//! MCP servers as they are shown: which there are, what tools each announces, and what of that is accepted.

use std::collections::BTreeMap;
use std::path::Path;

use posse_core::tool::EffectClass;
use posse_core::tool::mcp::{Accepted, Announced, Standing};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{Code, Error, Result};

/// A server in a list: an item of `posse mcp list --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct McpServerView {
    /// Its name in the settings.
    pub name: String,
    /// The command that starts it, if one does.
    pub command: Option<String>,
    /// Where it is asked, if it is.
    pub url: Option<String>,
    /// How many of its tools are accepted.
    pub accepted: u64,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
}

/// A tool of a server: an item of `posse mcp tools --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct McpToolView {
    /// The server's name in the settings.
    pub server: String,
    /// The server's name of the tool.
    pub tool: String,
    /// What agents and personas call it; null until it is accepted.
    pub call: Option<String>,
    /// Whether it may be run again.
    pub effect: EffectClass,
    /// How what is announced stands to what is accepted.
    pub standing: Standing,
    /// What the server says of it.
    pub description: String,
    /// Why no model can be told of it, if so.
    pub problem: Option<String>,
}

/// What came of asking a server who it is: the document of `posse mcp test --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct McpTest {
    /// The server's name in the settings.
    pub server: String,
    /// Its own name and version.
    pub name: String,
    /// The revision of the protocol that is spoken with it.
    pub protocol: String,
    /// How many tools it announces.
    pub tools: u64,
    /// How long it took to say so.
    pub took_ms: u64,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
    /// What it said on standard error, its beginning and its end.
    pub complaints: String,
}

/// What was accepted of a server: the document of `posse mcp accept --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct McpAcceptance<'a> {
    /// The server's name in the settings.
    pub server: &'a str,
    /// The file that says what is accepted.
    pub file: &'a Path,
    /// The tools that stand in it otherwise than before.
    pub tools: &'a [McpToolView],
    /// How many tools are accepted now.
    pub accepted: u64,
}

/// How the tools that a server announces, and those that it announced once, stand to what is accepted of them.
pub fn tools(
    server: &str,
    kept: &[Accepted],
    announced: &[Announced],
    effect: &dyn Fn(&Announced) -> EffectClass,
) -> Vec<McpToolView> {
    let kept: BTreeMap<_, _> = kept.iter().map(|tool| (tool.announced.name.as_str(), tool)).collect();
    let now: BTreeMap<_, _> = announced.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let gone = kept.values().map(|kept| &kept.announced).filter(|kept| !now.contains_key(kept.name.as_str()));
    let mut all: Vec<_> = announced.iter().chain(gone).collect();
    all.sort_by_key(|tool| &tool.name);
    let view = |tool: &Announced| {
        let accepted = kept.get(tool.name.as_str());
        let standing = accepted.map_or(Standing::New, |kept| kept.standing(now.get(tool.name.as_str()).copied()));
        let shown = Accepted { call: tool.name.clone(), announced: tool.clone() };
        McpToolView {
            server: server.to_owned(),
            tool: tool.name.clone(),
            call: accepted.map(|kept| kept.call.clone()),
            effect: effect(tool),
            standing,
            description: tool.description.clone(),
            problem: shown.spec(server).err(),
        }
    };
    all.into_iter().map(view).collect()
}

/// Fails where one of the tools that are to be accepted is not announced.
pub fn announces(server: &str, announced: &[Announced], only: &[String]) -> Result<()> {
    match only.iter().find(|name| !announced.iter().any(|tool| tool.name == **name)) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<_> = announced.iter().map(|tool| tool.name.as_str()).collect();
            let what = format!("the MCP server '{server}' announces no tool '{name}'. It has: {}", names.join(", "));
            Err(Error::new(Code::ToolNotFound, what))
        }
    }
}
