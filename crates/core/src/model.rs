//! What Posse asks of a language model, in its own words.
//!
//! Adapters translate to and from a provider's wire format. Everything here is provider-neutral:
//! ids are ours, arguments are text as the model wrote them, and what a provider adds privately
//! travels with its name ([`Reasoning`], [`Extra`]), to be sent back to it unchanged.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

use crate::id::JobId;
use crate::stop::Stop;
use crate::tool::ToolSpec;

pub mod breaker;
pub mod conversation;
pub mod embedder;
pub mod tokens;

use crate::text::named;
use conversation::Conversation;

/// How a model is asked for tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolCalling {
    /// The provider's own tool-call protocol.
    #[default]
    Native,
    /// A JSON Schema of the next step, enforced by the server's constrained decoding. Works with
    /// small local models.
    Structured,
}

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

/// One request to a model.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct ModelRequest {
    /// The conversation, in sending order.
    #[schemars(with = "Vec<Message>")]
    pub messages: Conversation,
    /// Said by the user behind it, in this request alone. What differs from step to step belongs
    /// here: everything before it is then what the provider has read already.
    pub tail: Option<String>,
    /// Tools offered by the native protocol; empty when none are or when calling is structured.
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema that the answer's text must follow, if it must.
    pub schema: Option<Value>,
    /// Most tokens to generate; the provider's default when absent.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; the provider's default when absent.
    pub temperature: Option<f32>,
}

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// The model wants tools run.
    ToolCalls,
    /// The token limit cut it off.
    Length,
    /// The provider filtered it.
    ContentFilter,
    /// Anything else, kept as the provider worded it.
    Other(String),
}

impl Finish {
    /// What most replies of a run end with, which its journal leaves out.
    pub(crate) fn usual() -> Self {
        Self::ToolCalls
    }

    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::usual()
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// The visible text; may be empty.
    pub text: String,
    /// Reasoning given beside the text.
    pub reasoning: Option<Reasoning>,
    /// The tools it wants, in its order.
    pub calls: Vec<CallRequest>,
    /// A refusal in the provider's own field, which is not an answer.
    pub refusal: Option<String>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens used by the request that succeeded; estimated where the provider said nothing.
    pub usage: Usage,
    /// The model that answered, as the provider names it, else as it was asked for.
    pub model: String,
    /// Price of this reply in millionths of a US dollar, where prices are configured.
    pub cost_microusd: Option<u64>,
    /// Tries that came to nothing before this reply (retries, fallbacks), oldest first.
    pub failed_tries: Vec<FailedTry>,
}

/// Tokens of one request. Counts are of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Tokens written, reasoning included.
    pub output: u64,
    /// Of `input`, how many the provider had cached.
    #[serde(default)]
    pub cached: u64,
    /// True where the provider did not say and the numbers are our estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Tokens in both directions.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Adds another request's tokens; the sum is an estimate if either part is.
    pub fn add(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached = self.cached.saturating_add(other.cached);
        self.estimated |= other.estimated;
    }

    /// A deliberately rough count for when a provider says nothing: four bytes of text to a token.
    pub fn estimate(read_bytes: usize, written_bytes: usize) -> Usage {
        let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
        Usage { input: tokens(read_bytes), output: tokens(written_bytes), cached: 0, estimated: true }
    }
}

/// One request that failed and was tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailedTry {
    /// The model asked.
    pub model: String,
    /// What went wrong, in words.
    pub reason: String,
    /// Tokens it cost all the same, estimated where unknown.
    pub usage: Usage,
}

/// What kind of failure a model error is; decides who tries again and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// Network trouble, 5xx, a cut stream, a timeout: the same request may succeed later.
    Transient,
    /// Too many requests; wait at least as long as the provider says.
    RateLimited,
    /// It was not asked at all: its endpoint is known to be out, or may not be asked so often. Wait as
    /// long as the error says.
    Unavailable,
    /// Nothing takes connections there, so nothing was asked: the same request may succeed later.
    Unreachable,
    /// This worker cannot ask it, and another may: it does not know the model, lacks its file or its key,
    /// has a wrong address for it, or is out of means of its own (descriptors, memory, a network). Says
    /// nothing about the provider or the job.
    WorkerUnfit,
    /// The account has no credit left; nobody's request is taken until a person has paid.
    OutOfCredit,
    /// No usable credentials, or no right to the model.
    Unauthorized,
    /// The conversation does not fit the model's window.
    ContextOverflow,
    /// The provider could not make a tool call of what its model wrote.
    InvalidToolCall,
    /// The request itself is refused; the same bytes will be refused again.
    Rejected,
    /// The work was stopped from our side.
    Stopped,
}

named!(
    ModelErrorKind: Transient = "transient", RateLimited = "rate_limited", Unavailable = "unavailable",
        Unreachable = "unreachable", WorkerUnfit = "worker_unfit", OutOfCredit = "out_of_credit",
        Unauthorized = "unauthorized", ContextOverflow = "context_overflow", InvalidToolCall = "invalid_tool_call",
        Rejected = "rejected", Stopped = "stopped"
);

/// A request that gave no usable reply, after all tries.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure.
    pub kind: ModelErrorKind,
    /// In words for a person: which endpoint, what it said, what to do.
    pub message: String,
    /// How long the provider asked us to wait.
    pub retry_after: Option<Duration>,
    /// The model's window in tokens, when the error told it.
    pub context_window: Option<u32>,
    /// Every try made, oldest first.
    pub failed_tries: Vec<FailedTry>,
}

/// Something a model said before its reply was complete. Never durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// More visible text.
    Text(String),
    /// More of the arguments of a call.
    Call {
        /// Its position among the calls of the reply.
        at: usize,
        /// The name of what is called.
        name: String,
        /// What is added to its arguments.
        arguments: String,
    },
    /// More reasoning.
    Reasoning(String),
    /// A try failed; what was streamed so far is void and the request is made again.
    Restarted(FailedTry),
}

/// Receives deltas while a reply streams in. Must not block.
pub type DeltaSink<'a> = dyn Fn(Delta) + Send + Sync + 'a;

/// What is known of a model without asking it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelProfile {
    /// The configured name, `default` for instance.
    pub name: String,
    /// The provider's name of the model.
    pub model: String,
    /// How it is asked for tools.
    pub tool_calling: ToolCalling,
    /// The window in tokens, if known.
    pub context_window: Option<u32>,
}

/// A language model behind some endpoint.
///
/// An adapter retries what is worth retrying, honours what the provider says about waiting, and
/// returns only whole replies: a reply that was cut, that carries an error, or that has no
/// terminal signal is an error here.
#[async_trait]
pub trait Model: Send + Sync {
    /// What is known about it. May ask the endpoint the first time (tool calling `auto`).
    async fn profile(&self) -> Result<ModelProfile, ModelError>;

    /// Makes one request; ends early with [`ModelErrorKind::Stopped`], and without the connection, when `stop` fires.
    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError>;

    /// Its own tokenizer, where there is one that can be asked. Known without asking.
    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        None
    }
}

/// A model's own tokenizer.
#[async_trait]
pub trait TokenCounter: Send + Sync {
    /// How many tokens each text has by itself, in order; none where that cannot be said soon.
    async fn count(&self, texts: &[&str]) -> Option<Vec<u64>>;
}

tokio::task_local! {
    static JOB: JobId;
}

/// Runs `work`, which asks models for this job.
pub async fn asking_for<T>(job: JobId, work: impl Future<Output = T>) -> T {
    JOB.scope(job, work).await
}

/// The job for which this task asks a model, if it does so for one: an endpoint that is out says how many wait for it.
pub fn asked_for() -> Option<JobId> {
    JOB.try_with(|job| *job).ok()
}

/// The configured models, by name.
pub trait Models: Send + Sync {
    /// The model of that name, or the default one; else [`ModelErrorKind::WorkerUnfit`] with the names there are.
    fn get(&self, name: Option<&str>) -> Result<Arc<dyn Model>, ModelError>;
}
