//! A model that is asked only as often as it may be, and not while its endpoint is out; all
//! processes together.

use async_trait::async_trait;
use posse_core::clock::{Clock, Millis};
use posse_core::model::{
    DeltaSink, Message, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest, TokenCounter,
};
use posse_core::port::RepositoryError;
use posse_core::rate::{ModelRates, ModelUse, Outcome, Pass, RateLimiter};
use posse_core::stop::Stop;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Longest wait for leave while the job's slot is held. A longer one is an error, and the job comes
/// back later.
const PATIENCE_MS: Millis = 5_000;

/// How long a job stays away when the database cannot say whether the model may be asked.
const UNKNOWN_MS: Millis = 10_000;

/// Tokens a reply is taken to have, before it is known, where the request sets no limit.
const USUAL_REPLY_TOKENS: u64 = 1_000;

/// Where the limiter is put once there is a database. Until then nothing is limited.
pub type LimiterSlot = Arc<OnceLock<Arc<dyn RateLimiter>>>;

/// Asks leave of a [`RateLimiter`] before each request, and tells it what the request came to.
///
/// A process that dies in between leaves its estimate in the books, which time makes good.
pub struct GuardedModel {
    inner: Arc<dyn Model>,
    endpoint: String,
    model: String,
    rates: ModelRates,
    limiter: LimiterSlot,
    clock: Arc<dyn Clock>,
    profile: OnceCell<ModelProfile>,
}

impl GuardedModel {
    /// Guards `inner`, which asks `model` (the provider's name) at `endpoint`.
    pub fn new(
        inner: Arc<dyn Model>,
        (endpoint, model): (String, String),
        rates: ModelRates,
        limiter: LimiterSlot,
        clock: Arc<dyn Clock>,
    ) -> Self {
        GuardedModel { inner, endpoint, model, rates, limiter, clock, profile: OnceCell::new() }
    }

    fn about(&self, rates: ModelRates, tokens: u64) -> ModelUse {
        ModelUse { endpoint: self.endpoint.clone(), model: self.model.clone(), rates, requests: 1, tokens }
    }

    /// Waits for leave, if that is soon; else says when to come back.
    async fn leave(&self, limiter: &dyn RateLimiter, about: &ModelUse, stop: &Stop) -> Result<(), ModelError> {
        let pass = limiter.reserve(about.clone(), PATIENCE_MS, self.clock.now()).await;
        match pass.map_err(|error| self.unknown(&error))? {
            Pass::Go { after_ms: 0 } => Ok(()),
            Pass::Go { after_ms } => {
                tokio::select! {
                    biased;
                    _ = stop.stopped() => {
                        self.settle(limiter, about, ModelUse { requests: 0, tokens: 0, ..about.clone() }, Outcome::Unknown).await;
                        Err(self.not_asked(ModelErrorKind::Stopped, "the work was stopped", None))
                    }
                    () = tokio::time::sleep(millis(after_ms)) => Ok(()),
                }
            }
            Pass::Wait { ms, reason } => Err(self.not_asked(ModelErrorKind::Unavailable, &reason, Some(ms))),
        }
    }

    async fn settle(
        &self,
        limiter: &dyn RateLimiter,
        about: &ModelUse,
        used: ModelUse,
        outcome: Outcome,
    ) -> Option<Millis> {
        let settled = limiter.settle(about.clone(), used, outcome, self.clock.now()).await;
        // What was asked was asked; the estimate stays in the books.
        settled.inspect_err(|error| tracing::debug!(%error, "a model's use was not written down")).ok().flatten()
    }

    fn unknown(&self, error: &RepositoryError) -> ModelError {
        let why = format!("whether it may be is not known now: {error}");
        self.not_asked(ModelErrorKind::Unavailable, &why, Some(UNKNOWN_MS))
    }

    fn not_asked(&self, kind: ModelErrorKind, why: &str, wait_ms: Option<Millis>) -> ModelError {
        ModelError {
            kind,
            message: format!("model {} at {} was not asked: {why}", self.model, self.endpoint),
            retry_after: wait_ms.map(spread),
            context_window: None,
            failed_tries: Vec::new(),
        }
    }

    /// What the request came to, in requests and tokens, and for the endpoint.
    fn came_to(&self, about: &ModelUse, answer: &Result<ModelReply, ModelError>) -> (ModelUse, Outcome) {
        let tries = match answer {
            Ok(reply) => &reply.failed_tries,
            Err(error) => &error.failed_tries,
        };
        let spent: u64 = tries.iter().map(|one| one.usage.total()).sum();
        let used = |requests: usize, tokens| ModelUse { requests: requests as u64, tokens, ..about.clone() };
        match answer {
            Ok(reply) => (used(1 + tries.len(), spent + reply.usage.total()), Outcome::Answered),
            Err(error) => (used(tries.len(), spent), outcome_of(error)),
        }
    }
}

/// What a failure says about its endpoint.
fn outcome_of(error: &ModelError) -> Outcome {
    use ModelErrorKind::*;
    match error.kind {
        Transient => Outcome::Failed(error.message.clone()),
        RateLimited | Unauthorized | ContextOverflow | InvalidToolCall | Rejected => Outcome::Answered,
        Stopped | Unavailable => Outcome::Unknown,
    }
}

/// The failure that made an endpoint known to be out is no more the job's than those after it.
fn with_rest(mut error: ModelError, rest: Option<Millis>) -> ModelError {
    if let Some(rest) = rest {
        error.kind = ModelErrorKind::Unavailable;
        error.retry_after = Some(spread(rest));
    }
    error
}

#[async_trait]
impl Model for GuardedModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        let find = || async {
            let Some(limiter) = self.limiter.get() else { return self.inner.profile().await };
            let about = self.about(ModelRates::default(), 0);
            self.leave(&**limiter, &about, &Stop::never()).await?;
            let profile = self.inner.profile().await;
            // A profile may be known without asking, so that one says nothing about the endpoint.
            let outcome = profile.as_ref().err().map_or(Outcome::Unknown, outcome_of);
            let rest = self.settle(&**limiter, &about, about.clone(), outcome).await;
            profile.map_err(|error| with_rest(error, rest))
        };
        self.profile.get_or_try_init(find).await.cloned()
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let Some(limiter) = self.limiter.get() else { return self.inner.complete(request, deltas, stop).await };
        let tokens = self.rates.tokens_per_minute.map_or(0, |_| estimate(request));
        let about = self.about(self.rates, tokens);
        self.leave(&**limiter, &about, stop).await?;
        let answer = self.inner.complete(request, deltas, stop).await;
        let (used, outcome) = self.came_to(&about, &answer);
        let rest = self.settle(&**limiter, &about, used, outcome).await;
        answer.map_err(|error| with_rest(error, rest))
    }

    /// Counts are no requests to the model, so nobody's leave is asked.
    fn tokenizer(&self) -> Option<Arc<dyn TokenCounter>> {
        self.inner.tokenizer()
    }
}

/// Roughly the tokens of a request and its reply: four bytes of text to a token.
fn estimate(request: &ModelRequest) -> u64 {
    let of_message = |message: &Message| match message {
        Message::System { text } | Message::User { text } | Message::Tool { text, .. } => text.len(),
        Message::Assistant { text, calls, .. } => {
            text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
    };
    // What cannot be written is not sent either.
    let offered = serde_json::to_string(&(&request.tools, &request.schema)).unwrap_or_default().len();
    let bytes = request.messages.iter().map(of_message).sum::<usize>() + offered;
    bytes.div_ceil(4) as u64 + request.max_tokens.map_or(USUAL_REPLY_TOKENS, u64::from)
}

/// A wait, longer by up to a fifth, so that those who were told the same do not return together.
fn spread(ms: Millis) -> Duration {
    millis(ms.saturating_add(ms / 5 * rand::random_range(0..=100) / 100))
}

fn millis(ms: Millis) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}
