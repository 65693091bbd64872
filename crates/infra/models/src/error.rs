//! What a failure means: who tries again, when, and what a person should do.

mod overflow;
mod wait;

use posse_core::model::ModelErrorKind;
use std::time::Duration;

use super::wire::Fault;
pub(super) use wait::{HeaderWaits, asked_wait};

#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub kind: ModelErrorKind,
    /// In words, without the endpoint.
    pub words: String,
    /// What a person can do about it, if it is theirs to do.
    pub advice: Option<&'static str>,
    /// How long the provider asked us to wait.
    pub retry_after: Option<Duration>,
    /// The model's window, where the error tells it.
    pub context_window: Option<u32>,
    /// The provider's own words and fields, where there are any, to learn from.
    pub fault: Option<Fault>,
}

/// Longest excerpt of a provider's words that is shown.
const MAX_WORDS: usize = 600;

const SET_KEY: &str = "set OPENAI_API_KEY, or api_key_env for this model in config/posse.toml, to a valid key";
const PAY: &str = "the account has no credit left: check its plan and billing";
const CHECK_NAME: &str = "check `model` and `base_url` for this model in config/posse.toml";

/// Words for an account that nobody's request is taken for, lower case.
const OUT_OF_CREDIT: &[&str] = &[
    "exceeded your current quota",
    "insufficient balance",
    "insufficient credit",
    "insufficient quota",
    "insufficient funds",
    "not enough credits",
    "out of credits",
    "no credits",
    "credit balance is too low",
    "credits exhausted",
    "payment required",
    "billing hard limit",
    "account is in arrears",
    "account is suspended",
    "used all available credits",
    "spending limit",
    "spend limit",
    "key limit exceeded",
    "余额不足",
    "欠费",
];

/// Codes for a model that the endpoint does not have: the worker names it, not the job.
const UNKNOWN_MODEL: &[&str] = &["model_not_found", "invalid_model", "model_not_available", "unknown_model"];

/// The same in words, lower case.
const NO_SUCH_MODEL: &[&str] =
    &["is not a valid model", "model not found", "no such model", "unknown model", "model does not exist"];

impl Failure {
    /// A failure with nothing from a provider: the network, a limit of ours, a stop.
    pub fn plain(kind: ModelErrorKind, words: impl Into<String>) -> Self {
        Failure { kind, words: words.into(), advice: None, retry_after: None, context_window: None, fault: None }
    }

    pub fn of_status(status: u16, waits: &HeaderWaits, fault: Fault) -> Self {
        let said = if fault.message.is_empty() {
            format!("answered {status} with no explanation")
        } else {
            format!("answered {status}: {}", shorten(&fault.message))
        };
        Failure::classify(Some(status), waits, fault, said)
    }

    /// What an error inside a 200 means, in its body or in the middle of its stream.
    pub fn of_fault(waits: &HeaderWaits, fault: Fault) -> Self {
        let said = format!("reported an error inside its reply: {}", shorten(&fault.message));
        // Codes in such bodies are often the status that should have been sent.
        let status = fault.code.parse().ok().filter(|code| (400..600).contains(code));
        Failure::classify(status, waits, fault, said)
    }

    fn classify(status: Option<u16>, waits: &HeaderWaits, fault: Fault, words: String) -> Self {
        let (kind, advice) = classify(status, &fault);
        let overflow = kind == ModelErrorKind::ContextOverflow;
        let waits_matter =
            matches!(kind, ModelErrorKind::RateLimited | ModelErrorKind::Transient | ModelErrorKind::OutOfCredit);
        Failure {
            advice,
            retry_after: asked_wait(waits, &fault).filter(|_| waits_matter),
            context_window: overflow.then(|| overflow::window(&fault)).flatten(),
            fault: Some(fault),
            ..Failure::plain(kind, words)
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_worth_another_try(&self) -> bool {
        matches!(self.kind, ModelErrorKind::Transient | ModelErrorKind::Unreachable | ModelErrorKind::RateLimited)
    }

    pub fn sentence(&self, model: &str, endpoint: &str) -> String {
        let advice = self.advice.map(|advice| format!(" ({advice})")).unwrap_or_default();
        format!("model {model} at {endpoint} {}{advice}", self.words)
    }
}

/// The table. Codes before words, words before the status, because providers send the right words
/// with the wrong status far more often than the other way round.
fn classify(status: Option<u16>, fault: &Fault) -> (ModelErrorKind, Option<&'static str>) {
    use ModelErrorKind::*;
    let message = fault.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let marked = |marks: &[&str]| {
        [&fault.code, &fault.kind].iter().any(|field| {
            let field = field.to_lowercase();
            marks.iter().any(|mark| field == *mark)
        })
    };

    if marked(&["tool_use_failed"]) {
        return (InvalidToolCall, None);
    }
    if marked(&[
        "insufficient_quota",
        "insufficient_credits",
        "insufficient_balance",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "payment_required",
        "quota_exhausted",
    ]) || status == Some(402)
        || (says(OUT_OF_CREDIT) && !says(&["per minute", "per day", "retry in", "try again in"]))
    {
        return (OutOfCredit, Some(PAY));
    }
    if overflow::is_overflow(status, fault) {
        return (ContextOverflow, None);
    }
    if marked(&["invalid_api_key", "authentication_error", "unauthenticated", "permission_denied"])
        || matches!(status, Some(401 | 403))
    {
        return (Unauthorized, Some(SET_KEY));
    }
    if status == Some(429)
        || marked(&["rate_limit", "rate_limit_error", "rate_limit_exceeded", "resource_exhausted"])
        || says(overflow::THROTTLED)
    {
        return (RateLimited, None);
    }
    match status {
        Some(408 | 409 | 425 | 500..=599) => (Transient, None),
        // A router that has the model, but not where it takes tools.
        Some(404) if says(&["tool use", "support tool", "tools"]) => (Rejected, None),
        Some(404 | 405 | 410) => (WorkerUnfit, Some(CHECK_NAME)),
        Some(300..=399) => (WorkerUnfit, None),
        Some(400..=499) if marked(UNKNOWN_MODEL) || says(NO_SUCH_MODEL) => (WorkerUnfit, Some(CHECK_NAME)),
        Some(400..=499) => (Rejected, None),
        // An error inside a 200. It is our fault if it says so; otherwise the provider failed half way.
        _ if marked(&["invalid_request_error", "invalid_argument", "not_found_error"]) => (Rejected, None),
        _ => (Transient, None),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
