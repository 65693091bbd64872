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
        // One for each allowance; whose allowance has something left is not what stops us.
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
    httpdate::parse_http_date(text).ok().or_else(|| rfc3339(text)).map(until).or_else(|| span(text))
}

/// `2026-11-29T01:02:03Z`, also with a fraction or an offset.
fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let date: Vec<i64> = date.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month, day] = date[..] else { return None };
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone);
    let clock: Vec<f64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = clock[..] else { return None };
    let offset = match zone.get(1..).filter(|digits| !digits.is_empty()) {
        None => 0.0,
        Some(digits) => {
            let (hours, minutes) = digits.split_once(':')?;
            let size = hours.parse::<f64>().ok()? * 3600.0 + minutes.parse::<f64>().ok()? * 60.0;
            if zone.starts_with('-') { -size } else { size }
        }
    };
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    // Days since 1970, counting years from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719_469;
    let seconds_of_day = hour * 3600.0 + minute * 60.0 + second - offset;
    is_date.then(|| Some(SystemTime::UNIX_EPOCH + seconds(days as f64 * 86_400.0 + seconds_of_day)?)).flatten()
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// `6m0s`, `1h2m`, `120ms`, `1.5s`, `1 minute and 5 seconds`; a bare number is seconds.
fn span(text: &str) -> Option<Duration> {
    let text = text.replace(" and ", " ");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(seconds(number * unit)?)?;
    }
    (!text.trim().is_empty()).then_some(total)
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

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderName;

    fn asked(headers: &[(&str, &str)], words: &str) -> Option<f64> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            map.insert(name, value.parse().expect("a value"));
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        asked_wait(&HeaderWaits::read(&map, now), &Fault::words(words)).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn every_way_to_say_it() {
        for (headers, words, wait) in [
            (&[("retry-after", "2")][..], "", Some(2.0)),
            (&[("retry-after", "0.25")], "", Some(0.25)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")], "", Some(3.0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT")], "", Some(0.0)),
            (&[("retry-after", "6s")], "", Some(6.0)),
            (&[("retry-after-ms", "120"), ("retry-after", "1")], "", Some(0.12)),
            (&[("retry-after", "-1")], "", None),
            (&[("retry-after", "soon")], "", None),
            (&[("retry-after", "1e300")], "", None),
            (&[("retry-after", "99999999")], "", Some(86_400.0)),
            (&[("retry-after", "nan")], "", None),
            (&[("retry-after", "784111787")], "", Some(86_400.0)),
            (&[("retry-after", "1994-11-06T08:49:47Z")], "", Some(10.0)),
            (&[("x-ms-retry-after-ms", "1500")], "", Some(1.5)),
            (&[("anthropic-ratelimit-tokens-reset", "1994-11-06T08:49:47.5+00:00")], "", Some(10.5)),
            (&[("anthropic-ratelimit-tokens-reset", "1994-11-06T10:49:38+02:00")], "", Some(1.0)),
            (&[("ratelimit-remaining", "0"), ("ratelimit-reset", "7")], "", Some(7.0)),
            (&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "7")], "", None),
            (&[("x-ratelimit-reset", "1900000000000")], "", Some(86_400.0)),
            (&[("x-ratelimit-reset-requests", "-3")], "", None),
            (&[("x-ratelimit-reset-tokens", "6m0s")], "", Some(360.0)),
            (&[("x-ratelimit-reset-requests", "120ms"), ("x-ratelimit-reset-tokens", "1h2m3s")], "", Some(3723.0)),
            (
                &[
                    ("x-ratelimit-remaining-requests", "59"),
                    ("x-ratelimit-reset-requests", "10m"),
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "1.5s"),
                ],
                "",
                Some(1.5),
            ),
            (&[], "Quota for this minute is used up, try again in 2s", Some(2.0)),
            (&[], "Please try again in 1.242s. Visit the site", Some(1.242)),
            (&[], "Please try again in 7m12s.", Some(432.0)),
            (&[], "Try again in 20 seconds.", Some(20.0)),
            (&[], "Please retry after 1 minute 5 seconds, thanks", Some(65.0)),
            (&[], "Please retry in 34.07s.", Some(34.07)),
            (&[], "Your limit resets in 3h12m.", Some(11_520.0)),
            (&[], "Please wait 1 minute and 5 seconds before the next", Some(65.0)),
            (&[], "try again in a while", None),
            (&[("x-ratelimit-reset-tokens", "6m0s")], "try again in 2s", Some(2.0)),
        ] {
            let found = asked(headers, words);
            let near = match (found, wait) {
                (Some(found), Some(wait)) => (found - wait).abs() < 1e-6,
                (found, wait) => found == wait,
            };
            assert!(near, "{headers:?} {words:?}: {found:?}, expected {wait:?}");
        }
    }

    #[test]
    fn a_wait_in_a_field_of_the_body() {
        for (body, wait) in [
            (
                r#"[{"error":{"code":429,"message":"m","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}]"#,
                Some(34.0),
            ),
            (r#"{"error":{"message":"m","retry_after":2.5}}"#, Some(2.5)),
            (r#"{"message":"m","retry_after_ms":1500}"#, Some(1.5)),
            (r#"{"error":{"message":"m"},"retry_after":4}"#, Some(4.0)),
            (r#"{"error":{"message":"m","metadata":{"headers":{"Retry-After":"3"}}}}"#, Some(3.0)),
            (r#"{"error":{"message":"m","retry_after":null}}"#, None),
        ] {
            let fault = Fault::in_body(body.as_bytes());
            let found = asked_wait(&HeaderWaits::default(), &fault).map(|wait| wait.as_secs_f64());
            assert_eq!(found, wait, "{body}");
        }
    }
}
