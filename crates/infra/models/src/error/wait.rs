//! How long a provider asks us to wait, in any of the ways it says so.

use reqwest::header::HeaderMap;
use std::time::{Duration, SystemTime};

use super::super::wire::Fault;

/// Longest wait that is believed. More than this is a wrong clock or a wrong unit.
const BELIEVABLE: Duration = Duration::from_secs(24 * 3600);

/// What the headers of an answer say about waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeaderWaits {
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
pub(crate) fn asked_wait(headers: &HeaderWaits, fault: &Fault) -> Option<Duration> {
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

/// Words before a wait.
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
