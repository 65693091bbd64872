//! A second model for when the first one cannot answer.

use async_trait::async_trait;
use posse_core::model::{
    Delta, DeltaSink, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest, TokenCounter,
    ToolCalling,
};
use posse_core::stop::Stop;
use std::sync::Arc;

use super::last_try;

/// Asks `primary`, and `fallback` once `primary` has failed for good: after all its retries, without valid
/// credentials, or because it refuses the request.
///
/// Not a reason to ask the fallback: a refusal or a filtered reply, which is an answer; a conversation that is too
/// long; a failed tool call, which is asked for again; a stop.
///
/// Either model may get the conversation, so [`Model::profile`] gives what both can do: structured tool calls
/// where they differ, and the smaller window.
pub struct FallbackModel {
    primary: Arc<dyn Model>,
    fallback: Arc<dyn Model>,
}

impl FallbackModel {
    pub fn new(primary: Arc<dyn Model>, fallback: Arc<dyn Model>) -> Self {
        FallbackModel { primary, fallback }
    }
}

#[async_trait]
impl Model for FallbackModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        let (primary, fallback) = tokio::join!(self.primary.profile(), self.fallback.profile());
        let (primary, fallback) = match (primary, fallback) {
            (Ok(primary), Ok(fallback)) => (primary, fallback),
            // The one that cannot be asked now may answer the next request, and be of either kind.
            (Ok(known), Err(_)) | (Err(_), Ok(known)) => {
                return Ok(ModelProfile { tool_calling: ToolCalling::Structured, ..known });
            }
            (Err(primary), Err(fallback)) => return Err(both(primary, fallback)),
        };
        let tool_calling =
            if primary.tool_calling == fallback.tool_calling { primary.tool_calling } else { ToolCalling::Structured };
        let windows = [primary.context_window, fallback.context_window];
        Ok(ModelProfile { tool_calling, context_window: windows.into_iter().flatten().min(), ..primary })
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let error = match self.primary.complete(request, deltas, stop).await {
            Ok(reply) => return Ok(reply),
            Err(error) if !is_for_another(error.kind) => return Err(error),
            Err(error) => error,
        };
        // An outage is reported once, not by every request.
        match error.kind {
            ModelErrorKind::Unavailable => tracing::debug!(reason = %error.message, "the fallback is asked"),
            _ => tracing::warn!(reason = %error.message, "the model failed; its fallback is asked"),
        }
        deltas(Delta::Restarted(last_try(&error)));
        match self.fallback.complete(request, deltas, stop).await {
            Ok(mut reply) => {
                reply.failed_tries.splice(0..0, error.failed_tries);
                Ok(reply)
            }
            Err(second) => Err(both(error, second)),
        }
    }

    /// The first model's: it answers nearly every request.
    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        self.primary.tokenizer()
    }
}

fn is_for_another(kind: ModelErrorKind) -> bool {
    use ModelErrorKind::*;
    match kind {
        Transient | Unreachable | RateLimited | Unavailable | WorkerUnfit | OutOfCredit | Unauthorized | Rejected => {
            true
        }
        ContextOverflow | InvalidToolCall | Stopped => false,
    }
}

/// Both failed: the kind that leaves a way forward decides.
fn both(primary: ModelError, fallback: ModelError) -> ModelError {
    use ModelErrorKind::*;
    let hopeful = matches!(primary.kind, Transient | Unreachable | RateLimited | Unavailable);
    let kind = match fallback.kind {
        Unauthorized | OutOfCredit | WorkerUnfit | Rejected if hopeful => primary.kind,
        // The first may take what the second refuses, once its own problem is solved.
        Rejected if matches!(primary.kind, OutOfCredit | WorkerUnfit) => primary.kind,
        kind => kind,
    };
    let mut failed_tries = primary.failed_tries;
    failed_tries.extend(fallback.failed_tries);
    ModelError {
        kind,
        message: format!("{}; its fallback failed too: {}", primary.message, fallback.message),
        // Either may be asked again, so the shorter wait counts.
        retry_after: match (primary.retry_after, fallback.retry_after) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        context_window: fallback.context_window.or(primary.context_window),
        failed_tries,
    }
}
