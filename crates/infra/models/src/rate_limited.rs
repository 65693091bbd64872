//! A model that all processes together ask no more often than they may, and not while its endpoint is out.

use async_trait::async_trait;
use futures::future::BoxFuture;
use posse_core::clock::{Clock, Millis};
use posse_core::model::{
    Delta, DeltaSink, FailedTry, Message, Model, ModelError, ModelErrorKind, ModelProfile, ModelReply, ModelRequest,
    TokenCounter,
};
use posse_core::port::{RateLimiter, RepositoryError};
use posse_core::queue::rate::{ModelRates, ModelUse, Pass, RequestOutcome, Whom};
use posse_core::stop::Stop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::OnceCell;

use super::outage::{Outages, Trouble};
use super::{backoff, last_try, locked};

/// Longest wait for leave that a job sits through in its slot. After a longer one it comes back later.
const PATIENCE_MS: Millis = 5_000;

/// How long a job stays away when the database cannot say whether the model may be asked.
const UNKNOWN_MS: Millis = 10_000;

/// How long an unfit worker leaves a model alone: the first time, and at most.
const UNFIT_MS: (Millis, Millis) = (10_000, 60_000);

/// The same when its key is refused.
const REFUSED_MS: (Millis, Millis) = (60_000, 15 * 60_000);

/// How long the one request may take that finds out whether this worker can ask again.
const TRYING_MS: Millis = 30_000;

/// A provider that asks for a longer wait than this counts as closed.
const LONG_MS: Millis = 60_000;

/// Tokens a reply is taken to have, before it is known, where the request sets no limit.
const USUAL_REPLY_TOKENS: u64 = 1_000;

/// Where the limiter is put once there is a database. Until then nothing is limited.
pub type LimiterSlot = Arc<OnceLock<Arc<dyn RateLimiter>>>;

/// Asks a [`RateLimiter`] for leave before each request, and reports what the request used. Repeats failed requests
/// while that is worth a try and the endpoint is not known to be out.
///
/// What is wrong with this worker alone (its network, its key) is remembered here, and not stored.
///
/// A process that dies in between leaves its estimate behind, which expires with time.
pub struct RateLimitedModel {
    inner: Arc<dyn Model>,
    endpoint: String,
    model: String,
    rates: ModelRates,
    limiter: LimiterSlot,
    clock: Arc<dyn Clock>,
    profile: OnceCell<ModelProfile>,
    retries: u32,
    backoff: Duration,
    outages: Arc<Outages>,
    insists: Arc<AtomicBool>,
    unfit: Mutex<Option<Unfit>>,
}

/// Why this worker does not ask at the moment.
struct Unfit {
    kind: ModelErrorKind,
    message: String,
    until: Millis,
    times: u32,
}

impl RateLimitedModel {
    /// Guards `inner`, which asks `model` (the provider's name) at `endpoint`.
    pub fn new(
        inner: Arc<dyn Model>,
        (endpoint, model): (String, String),
        rates: ModelRates,
        limiter: LimiterSlot,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let outages = Arc::new(Outages::new(Arc::clone(&clock)));
        RateLimitedModel {
            inner,
            endpoint,
            model,
            rates,
            limiter,
            clock,
            profile: OnceCell::new(),
            retries: 0,
            backoff: Duration::ZERO,
            outages,
            insists: Arc::default(),
            unfit: Mutex::default(),
        }
    }

    /// The same, making failed requests again up to `retries` times; the first wait is up to `backoff`.
    pub fn with_retries(mut self, retries: u32, backoff: Duration) -> Self {
        (self.retries, self.backoff) = (retries, backoff);
        self
    }

    /// The same, sharing what is known of outages with other models.
    pub fn with_outages(mut self, outages: Arc<Outages>) -> Self {
        self.outages = outages;
        self
    }

    /// The same; while this is set, a person waits, and an endpoint is asked even if it is out.
    pub fn insisting(mut self, insists: Arc<AtomicBool>) -> Self {
        self.insists = insists;
        self
    }

    fn about(&self, rates: ModelRates, tokens: u64) -> ModelUse {
        let (endpoint, model) = (self.endpoint.clone(), self.model.clone());
        ModelUse { endpoint, model, rates, requests: 1, tokens, is_probe: false }
    }

    fn insists(&self) -> bool {
        self.insists.load(Ordering::Relaxed)
    }

    fn what(&self) -> String {
        format!("model {} at {}", self.model, self.endpoint)
    }

    /// Waits for leave if that takes not long; otherwise says when to come back.
    async fn leave(&self, limiter: &dyn RateLimiter, about: &mut ModelUse, stop: &Stop) -> Result<(), ModelError> {
        self.fit_to_ask()?;
        let pass = limiter.reserve(about.clone(), PATIENCE_MS, self.clock.now()).await;
        match pass.map_err(|error| self.unknown(&error))? {
            Pass::Go { after_ms } => {
                if locked(&self.unfit).is_none() {
                    self.outages.is_back(&self.what());
                }
                if after_ms == 0 {
                    return Ok(());
                }
                tokio::select! {
                    biased;
                    _ = stop.stopped() => {
                        let unused = ModelUse { requests: 0, tokens: 0, ..about.clone() };
                        self.settle(limiter, about, unused, RequestOutcome::Unknown).await;
                        Err(self.not_asked(ModelErrorKind::Stopped, "the work was stopped", None))
                    }
                    () = tokio::time::sleep(millis(after_ms)) => Ok(()),
                }
            }
            Pass::Probe => {
                about.is_probe = true;
                Ok(())
            }
            Pass::Wait { ms, reason } => Err(self.not_asked(ModelErrorKind::Unavailable, &reason, Some(spread(ms)))),
            Pass::Out { .. } if self.insists() => Ok(()),
            Pass::Out { ms, reason } => {
                let wait = self.they_are_out(&reason, ms);
                Err(self.not_asked(ModelErrorKind::Unavailable, &reason, Some(wait)))
            }
        }
    }

    /// The endpoint is known to be out. Returns how long the job waits.
    fn they_are_out(&self, reason: &str, ms: Millis) -> Duration {
        let wait = millis(ms) + self.outages.waits(&self.what(), Trouble::Theirs, reason, ms);
        if let Some(limiter) = self.limiter.get() {
            // Another worker may take the jobs that wait; then no request from here would notice the end.
            self.outages.watch(limiter, self.what(), self.about(self.rates, 0));
        }
        wait
    }

    /// Whether this worker can ask, as far as it knows. When it is time to try again, only one request does.
    fn fit_to_ask(&self) -> Result<(), ModelError> {
        let now = self.clock.now();
        let mut unfit = locked(&self.unfit);
        let Some(known) = unfit.as_mut().filter(|_| !self.insists()) else { return Ok(()) };
        let left = known.until - now;
        if !(1..=REFUSED_MS.1).contains(&left) {
            known.until = now + TRYING_MS;
            return Ok(());
        }
        let (kind, why) = (known.kind, format!("this worker cannot at the moment: {}", known.message));
        let wait = millis(left) + self.outages.waits(&self.what(), Trouble::Ours, &known.message, left);
        Err(self.not_asked(kind, &why, Some(wait)))
    }

    /// Remembers that this worker cannot ask. Returns how long its jobs wait.
    fn is_unfit(&self, error: &ModelError) -> Duration {
        let (first, most) = if error.kind == ModelErrorKind::Unauthorized { REFUSED_MS } else { UNFIT_MS };
        let mut unfit = locked(&self.unfit);
        let times = unfit.as_ref().map_or(0, |known| known.times);
        let rest = (first << times.min(16)).min(most);
        let (kind, message) = (error.kind, error.message.clone());
        *unfit = Some(Unfit { kind, message, until: self.clock.now() + rest, times: times + 1 });
        drop(unfit);
        millis(rest) + self.outages.waits(&self.what(), Trouble::Ours, &error.message, rest)
    }

    async fn settle(
        &self,
        limiter: &dyn RateLimiter,
        about: &ModelUse,
        used: ModelUse,
        outcome: RequestOutcome,
    ) -> Option<Millis> {
        let settled = limiter.settle(about.clone(), used, outcome, self.clock.now()).await;
        // The request was made all the same; its estimate stays.
        settled.inspect_err(|error| tracing::debug!(%error, "a model's use was not written down")).ok().flatten()
    }

    fn unknown(&self, error: &RepositoryError) -> ModelError {
        let why = format!("whether it may be is not known now: {error}");
        self.not_asked(ModelErrorKind::Unavailable, &why, Some(spread(UNKNOWN_MS)))
    }

    fn not_asked(&self, kind: ModelErrorKind, why: &str, wait: Option<Duration>) -> ModelError {
        ModelError {
            kind,
            message: format!("{} was not asked: {why}", self.what()),
            retry_after: wait,
            context_window: None,
            failed_tries: Vec::new(),
        }
    }

    /// Makes a request until it succeeds, may not be made again, or is stopped.
    async fn ask<T: Send>(&self, question: &Question<'_, T>) -> Result<T, ModelError> {
        let mut failed: Vec<FailedTry> = Vec::new();
        let mut retries = 0;
        loop {
            let mut is_limited = false;
            let mut error = match self.ask_once(question, retries == 0, &mut is_limited).await {
                Ok(mut answer) => {
                    if let Some(reply) = (question.reply)(&mut answer) {
                        reply.failed_tries.splice(0..0, failed);
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let wait = backoff::wait(retries, self.backoff, error.retry_after, rand::random())
                .filter(|_| retries < self.retries_of(error.kind));
            let Some(wait) = wait else {
                error.failed_tries.splice(0..0, failed);
                if is_limited && error.kind == ModelErrorKind::Unavailable {
                    // A job that meets a limit again and again must fail in the end.
                    error.kind = ModelErrorKind::RateLimited;
                }
                return Err(error);
            };
            retries += 1;
            let last = last_try(&error);
            let wait_ms = wait.as_millis() as u64;
            if self.outages.may_tell_of_retry(&self.endpoint) {
                tracing::warn!(
                    reason = %last.reason, wait_ms, retry = retries,
                    "a model request failed and is made again (said at most once a minute)"
                );
            }
            (question.deltas)(Delta::Restarted(last));
            failed.append(&mut error.failed_tries);
            let waiting = self.outages.waiting();
            tokio::select! {
                biased;
                _ = question.stop.stopped() => {
                    let stopped = self.not_asked(ModelErrorKind::Stopped, "the work was stopped", None);
                    return Err(ModelError { failed_tries: failed, ..stopped });
                }
                () = tokio::time::sleep(wait + waiting.later()) => {}
            }
        }
    }

    /// How often a request that failed like this is made again.
    fn retries_of(&self, kind: ModelErrorKind) -> u32 {
        match kind {
            // Nothing answers there, and the person who waits knows best what to do.
            ModelErrorKind::Unreachable if self.insists() => self.retries.min(1),
            ModelErrorKind::Transient | ModelErrorKind::Unreachable | ModelErrorKind::RateLimited => self.retries,
            _ => 0,
        }
    }

    /// Makes one request, once there is leave for it, and says what it came to.
    async fn ask_once<T: Send>(
        &self,
        question: &Question<'_, T>,
        is_first: bool,
        is_limited: &mut bool,
    ) -> Result<T, ModelError> {
        let limiter = self.limiter.get();
        let mut about = self.about(question.rates, question.tokens);
        if let Some(limiter) = limiter {
            self.leave(&**limiter, &mut about, question.stop).await?;
        }
        let mut answer = (question.once)().await;
        let outcome = match &mut answer {
            // A profile may be known without asking, so that one says nothing about the endpoint.
            Ok(answer) => (question.reply)(answer).map_or(RequestOutcome::Unknown, |_| RequestOutcome::Answered),
            Err(error) => match outcome_of(error) {
                // Each question counts once, however often it is tried.
                RequestOutcome::Failed(_) | RequestOutcome::Limited { .. } if !is_first && !about.is_probe => {
                    RequestOutcome::Unknown
                }
                outcome => outcome,
            },
        };
        let has_answered = outcome == RequestOutcome::Answered;
        *is_limited = matches!(outcome, RequestOutcome::Limited { .. });
        let rest = match limiter {
            Some(limiter) => self.settle(&**limiter, &about, used(&about, &mut answer, question.reply), outcome).await,
            None => None,
        };
        let mut error = match answer {
            Ok(answer) => {
                if has_answered {
                    *locked(&self.unfit) = None;
                    self.outages.is_back(&self.what());
                }
                return Ok(answer);
            }
            Err(error) => error,
        };
        if matches!(error.kind, ModelErrorKind::WorkerUnfit | ModelErrorKind::Unauthorized) {
            error.retry_after = Some(self.is_unfit(&error));
        } else if let Some(rest) = rest {
            // Like the failures that follow, the one that showed the outage is not the fault of the job.
            error.retry_after = Some(self.they_are_out(&error.message, rest));
            error.kind = ModelErrorKind::Unavailable;
        } else if !matches!(error.kind, ModelErrorKind::Stopped | ModelErrorKind::Unavailable) {
            // The request got there, so this worker is fit.
            *locked(&self.unfit) = None;
        }
        Err(error)
    }
}

/// What is asked of the model inside, once or again and again.
struct Question<'a, T> {
    rates: ModelRates,
    tokens: u64,
    deltas: &'a DeltaSink<'a>,
    stop: &'a Stop,
    once: &'a (dyn Fn() -> BoxFuture<'a, Result<T, ModelError>> + Send + Sync),
    reply: ReplyOf<T>,
}

/// The reply that an answer is, if it is one.
type ReplyOf<T> = fn(&mut T) -> Option<&mut ModelReply>;

/// What a request came to, in requests and tokens.
fn used<T>(about: &ModelUse, answer: &mut Result<T, ModelError>, reply: ReplyOf<T>) -> ModelUse {
    let (tries, whole) = match answer {
        Ok(answer) => match reply(answer) {
            Some(reply) => (&reply.failed_tries, Some(reply.usage.total())),
            None => return about.clone(),
        },
        Err(error) => (&error.failed_tries, None),
    };
    let spent: u64 = tries.iter().map(|one| one.usage.total()).sum();
    let requests = tries.len() as u64 + u64::from(whole.is_some());
    ModelUse { requests, tokens: spent + whole.unwrap_or(0), ..about.clone() }
}

/// What a failure says about its endpoint.
fn outcome_of(error: &ModelError) -> RequestOutcome {
    use ModelErrorKind::*;
    let closed = |whom, ms| RequestOutcome::Closed { reason: error.message.clone(), whom, ms };
    let asked = error.retry_after.map(|asked| Millis::try_from(asked.as_millis()).unwrap_or(Millis::MAX));
    match error.kind {
        OutOfCredit => closed(Whom::Everybody, asked),
        Transient if asked.is_some_and(|ms| ms > LONG_MS) => closed(Whom::Everybody, asked),
        Transient | Unreachable => RequestOutcome::Failed(error.message.clone()),
        // Limits over hours and days are per model.
        RateLimited if asked.is_some_and(|ms| ms > LONG_MS) => closed(Whom::Model, asked),
        RateLimited => RequestOutcome::Limited { reason: error.message.clone(), ms: asked },
        Unauthorized | ContextOverflow | InvalidToolCall | Rejected => RequestOutcome::Answered,
        Stopped | Unavailable | WorkerUnfit => RequestOutcome::Unknown,
    }
}

#[async_trait]
impl Model for RateLimitedModel {
    async fn profile(&self) -> Result<ModelProfile, ModelError> {
        let (stop, rates) = (Stop::never(), ModelRates::default());
        let once = || self.inner.profile();
        let question = Question { rates, tokens: 0, deltas: &|_| {}, stop: &stop, once: &once, reply: |_| None };
        self.profile.get_or_try_init(|| self.ask(&question)).await.cloned()
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        deltas: &DeltaSink<'_>,
        stop: &Stop,
    ) -> Result<ModelReply, ModelError> {
        let tokens = self.rates.tokens_per_minute.map_or(0, |_| estimate(request));
        let once = || self.inner.complete(request, deltas, stop);
        let question = Question { rates: self.rates, tokens, deltas, stop, once: &once, reply: |reply| Some(reply) };
        self.ask(&question).await
    }

    /// Counting is no request to the model, so it needs no leave.
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
    // What cannot be serialised is not sent either.
    let offered = serde_json::to_string(&(&request.tools, &request.schema)).unwrap_or_default().len();
    let bytes = request.messages.iter().map(of_message).sum::<usize>() + offered;
    bytes.div_ceil(4) as u64 + request.max_tokens.map_or(USUAL_REPLY_TOKENS, u64::from)
}

/// A wait, longer by up to a fifth, so that jobs with the same wait do not return together.
fn spread(ms: Millis) -> Duration {
    millis(ms.saturating_add(ms / 5 * rand::random_range(0..=100) / 100))
}

fn millis(ms: Millis) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}
