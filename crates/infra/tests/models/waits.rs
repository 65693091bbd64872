//! How long a provider asks us to wait, in every way it says so.

use super::*;
use std::time::SystemTime;

/// The wait in seconds that a limited request comes to.
async fn asked(headers: &[(&str, &str)], words: &str) -> Option<f64> {
    let answer = Answer::json(429, json!({"error": {"message": words}}));
    let answer = headers.iter().fold(answer, |answer, (name, value)| answer.header(name, value));
    outcome(answer).await.expect_err("limited").retry_after.map(|wait| wait.as_secs_f64())
}

#[tokio::test]
async fn every_way_to_say_it() {
    for (headers, words, wait) in [
        (&[("retry-after", "2")][..], "", Some(2.0)),
        (&[("retry-after", "0.25")], "", Some(0.25)),
        (&[("retry-after", "6s")], "", Some(6.0)),
        (&[("retry-after-ms", "120"), ("retry-after", "1")], "", Some(0.12)),
        (&[("retry-after", "-1")], "", None),
        (&[("retry-after", "soon")], "", None),
        (&[("retry-after", "1e300")], "", None),
        (&[("retry-after", "99999999")], "", Some(86_400.0)),
        (&[("retry-after", "nan")], "", None),
        (&[("retry-after", "784111787")], "", Some(86_400.0)),
        (&[("x-ms-retry-after-ms", "1500")], "", Some(1.5)),
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
        let found = asked(headers, words).await;
        let near = match (found, wait) {
            (Some(found), Some(wait)) => (found - wait).abs() < 1e-6,
            (found, wait) => found == wait,
        };
        assert!(near, "{headers:?} {words:?}: {found:?}, expected {wait:?}");
    }
}

/// A time of day so many seconds from now, as RFC 3339 writes it in a zone so many hours east.
fn rfc3339(seconds: i64, hours: i8) -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    at.display_with_offset(jiff::tz::offset(hours)).to_string()
}

#[tokio::test]
async fn a_time_of_day_is_a_wait_until_then() {
    let http = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
    let unix = (jiff::Timestamp::now().as_second() + 3600).to_string();
    for (name, value) in [
        ("retry-after", http),
        ("retry-after", unix.clone()),
        ("retry-after", unix + "000"),
        ("retry-after", rfc3339(3600, 0)),
        ("anthropic-ratelimit-tokens-reset", rfc3339(3600, 0)),
        ("anthropic-ratelimit-tokens-reset", rfc3339(3600, 2)),
    ] {
        let wait = asked(&[(name, &value)], "slow down").await.expect("a wait");
        assert!((3500.0..=3600.0).contains(&wait), "{name}: {value} gave {wait}");
    }
    for past in ["Sun, 06 Nov 1994 08:49:30 GMT".to_owned(), rfc3339(-60, 0)] {
        assert_eq!(asked(&[("retry-after", &past)], "").await, Some(0.0), "{past}");
    }
}

#[tokio::test]
async fn a_wait_in_a_field_of_the_body() {
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
        let found = failure(429, body).await.retry_after.map(|wait| wait.as_secs_f64());
        assert_eq!(found, wait, "{body}");
    }
}
