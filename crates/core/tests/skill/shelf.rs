//! More skills than a request has room for: as many are told as fit, and the rest is found by words.

use posse_core::run::journal::OfferedSkill;
use posse_core::skill::shelf::{find, most_bytes};
use serde_json::json;

/// The name and the description of a skill that is not told of.
fn unlisted(name: &str, description: &str) -> OfferedSkill {
    let spec = json!({"name": name, "description": description, "parameters": {}});
    let skill = json!({"spec": spec, "system": "", "prompt": "", "tools": [], "unlisted": true});
    serde_json::from_value(skill).expect("a skill")
}

fn found(description: &str, words: &str) -> bool {
    !find(&[unlisted("x", description)], &json!({"words": words}).to_string()).is_empty()
}

#[test]
fn words_are_the_same_whatever_their_endings() {
    for (one, other) in [("tide", "tides"), ("table", "tables"), ("water", "water"), ("read", "reading")] {
        assert!(found(one, other) && found(other, one), "{one} {other}");
    }
    for (one, other) in [("tide", "time"), ("art", "artichoke"), ("port", "report")] {
        assert!(!found(one, other), "{one} {other}");
    }
    for word in ["harbour", "the", "tide"] {
        assert!(found("The tide, THE harbour's: of it", word), "{word}");
    }
    for word in ["of", "it", "s"] {
        assert!(!found("The tide, THE harbour's: of it", word), "{word} tells nothing apart");
    }
}

#[test]
fn a_share_of_the_window_is_never_more_than_the_most() {
    assert_eq!([Some(8_192), None, Some(u32::MAX)].map(most_bytes), [6_144, 24_576, 49_152]);
}
