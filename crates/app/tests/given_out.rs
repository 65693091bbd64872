//! What programs are given: JSON that people can read too, and codes of errors.

use posse_app::{Code, json};
use serde_json::{Value, json};

#[test]
fn times_can_be_read_and_what_others_wrote_is_theirs() {
    let value = json!({
        "created_at": 1_767_225_600_123_i64, "run_at": null, "meta": {"seen_at": 1_767_225_600_123_i64},
        "steps": [{"at": 1_767_225_600_000_i64, "seq": 3}], "failed_at": 0,
    });
    let shown: Value = serde_json::from_str(&json::line(&value).expect("JSON")).expect("JSON");
    assert_eq!(shown["created_at"], 1_767_225_600_123_i64);
    assert_eq!(shown["created_at_rfc3339"], "2026-01-01T00:00:00.123Z");
    assert_eq!(shown["steps"][0]["at_rfc3339"], "2026-01-01T00:00:00.000Z");
    assert!(shown.get("run_at_rfc3339").is_none() && shown.get("failed_at_rfc3339").is_none());
    assert_eq!(shown["meta"], value["meta"]);
}

#[test]
fn long_texts_of_lists_are_cut_and_it_is_told_how_long_they_are() {
    let long = "ä".repeat(3000);
    let item = json!({"id": 7, "payload": {"goal": long, "tags": ["x", long]}});
    let cut = json::item_of(&item, false).expect("JSON");
    assert_eq!(cut["cut"], json!({"payload.goal": 6000, "payload.tags.1": 6000}));
    assert_eq!(cut["payload"]["goal"], format!("{}…", "ä".repeat(1000)));
    assert_eq!(json::item_of(&item, true).expect("JSON"), item);
    let short = json!({"id": 7});
    assert_eq!(json::item_of(&short, false).expect("JSON"), short);
}

#[test]
fn codes_say_what_they_are_about_and_each_means_one_thing() {
    let mut codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    for code in &codes {
        let parts = code.split_once('.');
        assert!(parts.is_some_and(|(about, what)| is_word(about) && is_word(what)), "{code}");
    }
    let all = codes.len();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), all);
}
