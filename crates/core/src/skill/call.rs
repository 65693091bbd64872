//! A call of a skill: what its caller passes on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::Message;
use crate::text::has_too_many;
use crate::tool::{ToolError, ToolErrorCategory};

/// Most bytes of a task.
pub const MAX_TASK_BYTES: usize = 64 * 1024;
/// Most messages that a caller passes on.
pub const MAX_HISTORY: usize = 50;
/// Most bytes of all those messages.
pub const MAX_HISTORY_BYTES: usize = 256 * 1024;

/// The arguments of a call of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillCallArgs {
    /// What is to be done, with everything there is to know: file names, limits, what the result should look like.
    pub task: String,
    /// Earlier messages that matter for the task, oldest first. Leave out where the task says it all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryMessage>,
}

/// A message that a caller passes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryMessage {
    /// Who said it.
    pub role: HistoryRole,
    /// What was said.
    pub content: String,
}

/// Who said a message that is passed on. Instructions cannot be passed on: there is no `system`.
// The variants have no comments, for else each becomes a schema of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs)]
pub enum HistoryRole {
    User,
    Assistant,
}

impl SkillCallArgs {
    /// The arguments of a call, nothing blank and nothing too large; the error is for the model that called.
    pub fn check(arguments: Value) -> Result<Self, ToolError> {
        let args: SkillCallArgs =
            serde_json::from_value(arguments).map_err(|error| invalid(format!("the arguments do not fit: {error}")))?;
        if args.task.trim().is_empty() {
            return Err(invalid("task is blank; say completely what is to be done".into()));
        }
        if args.task.len() > MAX_TASK_BYTES {
            let too_many = has_too_many(args.task.len(), "byte", MAX_TASK_BYTES);
            return Err(invalid(format!("task {too_many}. Name files instead of pasting what is in them")));
        }
        if args.history.len() > MAX_HISTORY {
            let too_many = has_too_many(args.history.len(), "message", MAX_HISTORY);
            return Err(invalid(format!("history {too_many}. Pass on only those that matter")));
        }
        if let Some(at) = args.history.iter().position(|message| message.content.trim().is_empty()) {
            return Err(invalid(format!("history[{at}].content is blank; leave that message out")));
        }
        let size: usize = args.history.iter().map(|message| message.content.len()).sum();
        if size > MAX_HISTORY_BYTES {
            let too_many = has_too_many(size, "byte", MAX_HISTORY_BYTES);
            return Err(invalid(format!("history {too_many}. Pass on only what matters")));
        }
        Ok(args)
    }

    /// The same as messages of a conversation, the task last.
    pub fn messages(&self) -> Vec<Message> {
        let said = self.history.iter().map(|message| {
            let text = message.content.clone();
            match message.role {
                HistoryRole::User => Message::User { text },
                HistoryRole::Assistant => Message::Assistant { text, reasoning: None, calls: Vec::new() },
            }
        });
        said.chain([Message::User { text: self.task.clone() }]).collect()
    }
}

fn invalid(message: String) -> ToolError {
    ToolError::new(ToolErrorCategory::InvalidArguments, message)
}
