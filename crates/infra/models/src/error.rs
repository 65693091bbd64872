//! What a failure means: who tries again, when, and what a person should do.

mod overflow;

use posse_core::model::ModelErrorKind;
use reqwest::header::HeaderMap;
use std::time::{Duration, SystemTime};

use super::wire::Fault;

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

/// Longest wait that is believed. More than this is a wrong clock or a wrong unit.
const BELIEVABLE: Duration = Duration::from_secs(24 * 3600);

/// What the headers of an answer say about waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HeaderWaits {
    /// `retry-after-ms` or `Retry-After`: meant for us.
    asked: Option<Duration>,
    /// `x-ratelimit-reset-*` of an allowance that is used up.
    reset: Option<Duration>,
}

impl HeaderWaits {
    /// Reads them, at the given time of day.
    pub fn read(headers: &HeaderMap, now: SystemTime) -> Self {
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
        let milliseconds = |name: &str| seconds(text(name)?.parse::<f64>().ok()? / 1000.0);
        let asked = ["retry-after-ms", "x-ms-retry-after-ms"].iter().find_map(|name| milliseconds(name));
        let asked = asked.or_else(|| moment(text("retry-after")?, now));
        // There is one for each allowance; one that is not used up is not what stops us.
        let used_up = |name: &str| text(name).is_none_or(|left| left.parse::<f64>().is_ok_and(|left| left <= 0.0));
        let reset = RESETS
            .iter()
            .filter(|(_, remaining)| used_up(remaining))
            .filter_map(|(reset, _)| moment(text(reset)?, now))
            .max();
        HeaderWaits { asked, reset }
    }
}

/// Headers that say when an allowance is full again, each with that of what is left of it.
const RESETS: &[(&str, &str)] = &[
    ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    ("x-ratelimit-reset-input-tokens", "x-ratelimit-remaining-input-tokens"),
    ("x-ratelimit-reset-output-tokens", "x-ratelimit-remaining-output-tokens"),
    ("anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"),
    ("anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining"),
    ("anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining"),
    ("anthropic-ratelimit-output-tokens-reset", "anthropic-ratelimit-output-tokens-remaining"),
    ("x-ratelimit-reset-after", "x-ratelimit-remaining"),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
];

/// The wait asked for: by the header that is for it, else in the error, else by a reset.
fn asked_wait(headers: &HeaderWaits, fault: &Fault) -> Option<Duration> {
    let in_body = || fault.wait.as_deref().and_then(|text| moment(text, SystemTime::now()));
    let asked = headers.asked.or_else(in_body).or_else(|| wait_in_words(&fault.message));
    asked.or(headers.reset).map(|wait| wait.min(BELIEVABLE))
}

/// A wait, in any way that one is written: seconds, a span, a date, or a time since 1970. What is past means
/// now.
fn moment(text: &str, now: SystemTime) -> Option<Duration> {
    let until = |at: SystemTime| at.duration_since(now).unwrap_or_default();
    if let Ok(number) = text.parse::<f64>() {
        return match number {
            n if n >= 1e12 => Some(until(SystemTime::UNIX_EPOCH + seconds(n / 1000.0)?)),
            n if n >= 1e9 => Some(until(SystemTime::UNIX_EPOCH + seconds(n)?)),
            n => seconds(n),
        };
    }
    let date = httpdate::parse_http_date(text).ok();
    date.or_else(|| Some(text.parse::<jiff::Timestamp>().ok()?.into())).map(until).or_else(|| span(text))
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// `6m0s`, `1h2m`, `120ms`, `1.5s`, `1 minute and 5 seconds`; a bare number is seconds.
fn span(text: &str) -> Option<Duration> {
    let text = text.replace(" and ", " ");
    if let Ok(number) = text.trim().parse() {
        return seconds(number);
    }
    let span: jiff::Span = text.parse().ok()?;
    span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

const LEADS: &[&str] = &[
    "again in ",
    "retry after ",
    "retry in ",
    "again after ",
    "resets in ",
    "reset in ",
    "reset after ",
    "resets after ",
    "available in ",
    "please wait for ",
    "please wait ",
];

/// "try again in 2s", "retry after 1.5 seconds", "retry in 120ms".
fn wait_in_words(words: &str) -> Option<Duration> {
    let words = words.to_lowercase();
    LEADS.iter().find_map(|lead| {
        let rest = words.split_once(lead)?.1;
        // The number and its unit, as long as they read as one span.
        let mut end = 0;
        let mut found = None;
        for word in rest.split(' ').take(8) {
            end += word.len();
            let text = rest[..end].trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            found = span(text).or(found);
            end += 1;
        }
        found
    })
}
