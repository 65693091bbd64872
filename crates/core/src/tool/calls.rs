//! Calls that a program of an agent makes of the agent's other tools. No language is known here: whatever runs a program
//! makes its calls through [`Calls`].

use std::fmt;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ToolError, ToolErrorCategory};
use crate::clock::Millis;

/// The tool that runs programs.
pub const EXECUTE_CODE: &str = "execute_code";

/// Most calls that one program may make.
pub const MAX_PROGRAM_CALLS: usize = 100;

/// A tool as a program calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// What the program calls it: an identifier, unique among them.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// How it is declared, in the program's language.
    pub declaration: String,
}

/// What a program begins with: the same whenever it is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    /// What its clock says, from beginning to end.
    pub at: Millis,
    /// What it may call.
    pub functions: Vec<Function>,
}

/// A call as a program makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeCall {
    /// The tool.
    pub tool: String,
    /// Its arguments: JSON.
    pub arguments: String,
}

/// How a call of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// The tool did what was asked.
    Done,
    /// It ran and failed.
    Failed(ToolErrorCategory),
    /// It was never run.
    Refused,
    /// It was in flight when its worker died; whether it took effect is not known.
    Unknown,
}

/// What a call of a program gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// Which one, counted from 0 in the order in which the program made them.
    pub number: u32,
    /// How it ended.
    pub came: Came,
    /// What the tool said, or why it gave nothing.
    pub text: String,
}

/// Who is asked for the calls of one program. What a program does follows from the results that it is given, one at a
/// time, so whoever gives them in the same order has it do the same again.
#[async_trait]
pub trait Calls: fmt::Debug + Send + Sync {
    /// What the program begins with.
    async fn begin(&self) -> Result<Beginning, ToolError>;

    /// Makes the calls that the program made since its last result, and gives its next one. There must be a call without a
    /// result, of these or of those before.
    async fn make(&self, calls: Vec<MadeCall>) -> Result<CallResult, ToolError>;
}
