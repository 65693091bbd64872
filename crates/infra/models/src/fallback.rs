//! A second model for when the first one cannot answer.

use async_trait::async_trait;
use posse_core::model::{
    Delta, DeltaSink, FailedTry, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest,
    TokenCounter, ToolCalling, Usage,
};
use posse_core::stop::Stop;
use std::sync::Arc;

/// Asks `primary`, and `fallback` when `primary` has failed for good: after all its retries, for
/// want of credentials, or because it will not take the request.
///
/// What the fallback does not change: a refusal or a filtered reply is an answer; a conversation
/// that is too long wants compaction; a failed tool call wants to be asked for again; a stop is a
/// stop.
///
/// One conversation goes to either model, and a request has one way of asking for tools. So where
/// the two differ, [`Model::profile`] says structured, which every model can do. For the same
/// reason its window is the smaller one.
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
            // One that cannot be asked now may be there for the next request, and be of either
            // kind.
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
        // That an endpoint is out is said once, and not by each request.
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

    /// The first one's, which nearly always is the one that is asked.
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

fn last_try(error: &ModelError) -> FailedTry {
    error.failed_tries.last().cloned().unwrap_or_else(|| FailedTry {
        model: "unknown".to_owned(),
        reason: error.message.clone(),
        usage: Usage { estimated: true, ..Usage::default() },
    })
}

/// Both failed: the error to act on is the one that gives a way forward.
fn both(primary: ModelError, fallback: ModelError) -> ModelError {
    use ModelErrorKind::*;
    let hopeful = matches!(primary.kind, Transient | Unreachable | RateLimited | Unavailable);
    let kind = match fallback.kind {
        Unauthorized | OutOfCredit | WorkerUnfit | Rejected if hopeful => primary.kind,
        // What the second does not take, the first may, once what keeps it is mended.
        Rejected if matches!(primary.kind, OutOfCredit | WorkerUnfit) => primary.kind,
        kind => kind,
    };
    let mut failed_tries = primary.failed_tries;
    failed_tries.extend(fallback.failed_tries);
    ModelError {
        kind,
        message: format!("{}; its fallback failed too: {}", primary.message, fallback.message),
        // Whoever is ready first can be asked first.
        retry_after: match (primary.retry_after, fallback.retry_after) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        context_window: fallback.context_window.or(primary.context_window),
        failed_tries,
    }
}
