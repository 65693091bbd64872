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
mod message;
pub mod tokens;
mod usage;

use crate::text::named;
use conversation::Conversation;
pub use message::{Author, CallRequest, Extra, Message, Reasoning};
pub use usage::Usage;

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
        /// Its place among the calls of the reply.
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
