//! A skill as a run is offered it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::model::Message;
use crate::tool::ToolSpec;

/// A skill as it was when the run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedSkill {
    /// What the model is told of it: it is called like a tool.
    pub spec: ToolSpec,
    /// The first system message of its conversation: who the agent is and how it works.
    pub system: String,
    /// The second one: the skill's text, sanitised, and the skills it may use.
    pub prompt: String,
    /// Worked examples that follow it, where the model needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Message>,
    /// Names of the run's tools that it may use.
    pub tools: Vec<String>,
    /// Names of the run's skills that it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Whether only other skills may call it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inner: bool,
    /// Whether the model is not told of it until it has found it ([`crate::skill::shelf`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Why it cannot be worked by, if it cannot: what a call of it is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The folder its files are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// SHA-256 of the file it was read from, in hex.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
}
