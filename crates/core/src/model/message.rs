//! Messages as any provider could be sent them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of a conversation, as it is sent to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Instructions. Always first.
    System {
        /// The text; never empty.
        text: String,
    },
    /// A person's words, or Posse's on behalf of one.
    User {
        /// The text; never empty.
        text: String,
    },
    /// What the model said.
    Assistant {
        /// The visible text; may be empty when there are calls.
        #[serde(default)]
        text: String,
        /// Reasoning given beside the text, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Reasoning>,
        /// The tools it asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<CallRequest>,
    },
    /// The result of one call.
    Tool {
        /// The id of the call it answers.
        call_id: String,
        /// The tool's name.
        name: String,
        /// What the tool said; never empty.
        text: String,
    },
}

/// One request by the model to run a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallRequest {
    /// In a reply: whatever the provider sent, possibly empty or repeated. In a conversation: our
    /// own id, unique within the run and nine letters or digits, a shape every provider takes.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them: JSON text, `{}` when it sent none.
    pub arguments: String,
    /// Private data of the provider attached to this call, to be sent back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Extra>,
}

/// A model at a provider: who writes a reply, and who reads a request. The default is nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    /// Where it is asked: a host, with its port where that is not the usual one.
    pub provider: String,
    /// The model's name, as it is asked for.
    pub model: String,
}

/// What a model thought before it spoke. Means something to the model that wrote it, and to no other.
///
/// In JSON it may also be a bare text, or have no author: thoughts that are kept and shown, and sent
/// back to nobody.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "ReasoningAsWritten")]
pub struct Reasoning {
    /// The thoughts, word for word.
    pub text: String,
    /// Who had them.
    pub by: Author,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum ReasoningAsWritten {
    Text(String),
    Whole {
        text: String,
        #[serde(default)]
        by: Author,
    },
}

impl From<ReasoningAsWritten> for Reasoning {
    fn from(written: ReasoningAsWritten) -> Self {
        match written {
            ReasoningAsWritten::Text(text) => Reasoning { text, by: Author::default() },
            ReasoningAsWritten::Whole { text, by } => Reasoning { text, by },
        }
    }
}

/// Private data that a provider attached to a call. Means something to that provider, and to no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Extra {
    /// The data, as it came.
    pub value: Value,
    /// Whose it is: [`Author::provider`].
    pub provider: String,
}
