//! Words, numbers and what others wrote, as people and programs read them: one function for each, so that

use posse_core::text::*;
use std::borrow::Cow;

#[test]
fn nothing_steers_the_terminal() {
    let shown = visible("a\x1b[31mred\x07\u{9b}2J\u{202e}gpj.exe\u{200b}\r\nb\tc\r");
    assert_eq!(shown, "a␛[31mred␇\\u{9b}2J\\u{202e}gpj.exe\\u{200b}\nb    c␍");
    assert_eq!(visible(&shown), shown);
    assert_eq!(
        visible("häß 👩\u{200d}💻 e\u{301} \u{645}\u{200c}\u{645}"),
        "häß 👩\u{200d}💻 e\u{301} \u{645}\u{200c}\u{645}"
    );
    assert_eq!(visible("pass\u{200d}word \u{e0041}"), "pass\\u{200d}word \\u{e0041}");
    assert_eq!(visible_line("a\nb"), "a␊b");
}

#[test]
fn json_says_the_same_and_steers_nothing() {
    let hostile = "\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200b}\u{200d}\u{feff}\u{e0041}\u{2028} häß 👩";
    for json in [
        serde_json::to_string_pretty(&serde_json::json!({hostile: [hostile]})).expect("JSON"),
        serde_json::json!({hostile: [hostile]}).to_string(),
    ] {
        let harmless = harmless_json(&json);
        assert!(!harmless.chars().any(|c| c != '\n' && steers(c)), "{harmless:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&harmless).expect("JSON")[hostile][0], hostile);
        assert!(harmless.contains("häß 👩") && harmless.contains("\\u202e") && harmless.contains("\\udb40\\udc41"));
    }
    assert!(matches!(harmless_json("{\n  \"a\": \"ä\"\n}"), Cow::Borrowed(_)));
}

#[test]
fn numbers_are_human() {
    let all = [0, 999, 1_850, 59_999, 60_000, 125_000, 3_600_000, 90_061_000].map(duration);
    assert_eq!(all, ["<1 ms", "999 ms", "1.8 s", "59.9 s", "1 min", "2 min 5 s", "1 h", "1 d 1 h"]);
    assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
    assert_eq!([bytes(12), bytes(1_500), bytes(2_500_000)], ["12 B", "1.5 kB", "2.5 MB"]);
    assert_eq!([bytes(999_999), bytes(74_923 << 20), bytes(3 << 40)], ["1.0 MB", "78.6 GB", "3.3 TB"]);
    assert_eq!([plural(1, "line"), plural(0, "line"), plural(2000, "entry")], ["1 line", "0 lines", "2,000 entries"]);
    assert_eq!([plural(2, "day"), plural(1, "reply"), plural(3, "match")], ["2 days", "1 reply", "3 matches"]);
    assert_eq!(has_too_many(2_000, "entry", 1_000), "has 2,000 entries; at most 1,000 are allowed");
    assert_eq!(rfc3339(1_000).as_deref(), Some("1970-01-01T00:00:01.000Z"));
    assert_eq!(rfc3339(i64::MAX), None);
}

#[test]
fn nothing_is_said_twice() {
    assert_eq!(because("stuck", "stuck: the same call three times"), "stuck: the same call three times");
    assert_eq!(because("stuck", "Stuck in a loop"), "Stuck in a loop");
    assert_eq!(because("stuck", "stuckness"), "stuck: stuckness");
    assert_eq!(because("limit reached", "20 turns"), "limit reached: 20 turns");
    assert_eq!(because("ä", "€"), "ä: €");
    assert_eq!(because("failed", " "), "failed");
}

#[test]
fn times_are_told_by_how_long_ago_they_were() {
    assert_eq!([ago(0, 90_000), ago(5_000, 0), ago(0, 10)], ["1 min ago", "in 5.0 s", "just now"]);
    assert_eq!(head("aäb", 2), "a");
}
