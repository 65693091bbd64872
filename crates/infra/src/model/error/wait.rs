//! How long a provider asks us to wait, in any of the ways it says so.

use reqwest::header::HeaderMap;
use std::time::{Duration, SystemTime};

/// Longest wait that is believed. More than this is a wrong clock or a wrong unit.
const BELIEVABLE: Duration = Duration::from_secs(24 * 3600);

/// What the headers of an answer say about waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::model) struct HeaderWaits {
    /// `retry-after-ms` or `Retry-After`: meant for us.
    asked: Option<Duration>,
    /// `x-ratelimit-reset-*` of an allowance that is used up.
    reset: Option<Duration>,
}

impl HeaderWaits {
    /// Reads them, at the given time of day.
    pub fn read(headers: &HeaderMap, now: SystemTime) -> Self {
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
        let milliseconds = || {
            let number: f64 = text("retry-after-ms")?.parse().ok()?;
            seconds(number / 1000.0)
        };
        let asked = milliseconds().or_else(|| retry_after(text("retry-after")?, now));
        let reset = ["requests", "tokens"]
            .iter()
            .filter(|what| {
                // The reset of an allowance that still has something left is not what stops us.
                let left = text(&format!("x-ratelimit-remaining-{what}"));
                left.is_none_or(|left| left.parse::<f64>().is_ok_and(|left| left <= 0.0))
            })
            .filter_map(|what| span(text(&format!("x-ratelimit-reset-{what}"))?))
            .max();
        HeaderWaits { asked, reset }
    }
}

/// The wait asked for: by the header that is for it, else in the words, else by a reset.
pub(in crate::model) fn asked_wait(headers: &HeaderWaits, words: &str) -> Option<Duration> {
    headers.asked.or_else(|| wait_in_words(words)).or(headers.reset).map(|wait| wait.min(BELIEVABLE))
}

fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(number) = text.parse() {
        return seconds(number);
    }
    if let Ok(date) = httpdate::parse_http_date(text) {
        // A date that is past means: now.
        return Some(date.duration_since(now).unwrap_or_default());
    }
    span(text)
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// `6m0s`, `1h2m`, `120ms`, `1.5s`; a bare number is seconds.
fn span(text: &str) -> Option<Duration> {
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
            "h" | "hr" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(seconds(number * unit)?)?;
    }
    (!text.trim().is_empty()).then_some(total)
}

/// "try again in 2s", "retry after 1.5 seconds", "retry in 120ms".
fn wait_in_words(words: &str) -> Option<Duration> {
    let words = words.to_lowercase();
    ["again in ", "retry after ", "retry in ", "again after "].iter().find_map(|lead| {
        let rest = words.split_once(lead)?.1;
        // The number and its unit, as long as they read as one span.
        let mut end = 0;
        let mut found = None;
        for word in rest.split(' ').take(4) {
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
        asked_wait(&HeaderWaits::read(&map, now), words).map(|wait| wait.as_secs_f64())
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
}
