//! Remarks of agents, made and found.
#![allow(clippy::unwrap_used)]

use futures::FutureExt as _;
use posse_core::annotation::{MAX_TAG_BYTES, MAX_TEXT_BYTES, NewAnnotation};
use posse_core::tool::{ToolError, ToolErrorCategory, ToolOutput, Tools as _};
use posse_infra::tool::ToolRegistry;
use serde_json::json;

use crate::support::tools::context;

/// How many tags a remark of an agent may have.
const MAX_TAGS: usize = 16;

fn with(text: &str, tags: &[&str]) -> Result<ToolOutput, ToolError> {
    let tool = ToolRegistry::builtin().get("annotate").unwrap();
    let called = tool.call(&context(), json!({"text": text, "tags": tags})).now_or_never();
    called.expect("it waits for nothing")
}

#[test]
fn the_remark_comes_back_as_a_value() {
    let output = with(" Price is unclear. ", &["price", " price", "doubt"]).unwrap();
    assert_eq!(output.text, "Saved with the tags price, doubt.");
    let tags = vec!["price".into(), "doubt".into()];
    assert_eq!(output.annotations, [NewAnnotation { text: "Price is unclear.".into(), tags }]);
}

#[test]
fn empty_and_endless_remarks_are_refused() {
    let (long, many) = ("x".repeat(MAX_TEXT_BYTES + 1), vec!["t"; MAX_TAGS + 1]);
    assert!(with(" \n", &[]).is_err());
    let refused = with(&long, &[]).unwrap_err();
    assert_eq!(refused.category, ToolErrorCategory::LimitExceeded, "{}", refused.message);
    assert!(refused.message.ends_with("Shorten it"), "{}", refused.message);
    assert!(with("x", &[" "]).is_err());
    assert!(with("x", &["a\nb"]).is_err());
    assert!(with(&long[1..], &["t".repeat(MAX_TAG_BYTES).as_str()]).is_ok(), "as people may");
    assert!(with("a\0b", &[]).is_err());
    assert!(with("x", &many).is_ok(), "one tag, many times");
    let different: Vec<_> = (0..=MAX_TAGS).map(|n| n.to_string()).collect();
    assert!(with("x", &different.iter().map(String::as_str).collect::<Vec<_>>()).is_err());
}

#[test]
fn remarks_are_read_of_a_database_alone() {
    for (name, args) in [("annotation_list", json!({})), ("annotation_search", json!({"words": "price"}))] {
        let tool = ToolRegistry::builtin().get(name).unwrap();
        let refused = tool.call(&context(), args).now_or_never().expect("it waits for nothing").unwrap_err();
        assert!(refused.message.contains("no job of a database"), "{}", refused.message);
    }
}
