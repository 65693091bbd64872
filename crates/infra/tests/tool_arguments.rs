//! Arguments as models write them, and what is told of those that do not fit.
#![allow(clippy::unwrap_used)]

use posse_core::tool::ToolSpec;
use posse_infra::tool::ArgumentCheck;
use serde_json::json;

fn check() -> ArgumentCheck {
    ArgumentCheck::compile(&ToolSpec {
        name: "paint".into(),
        description: "Paints.".into(),
        parameters: json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where."},
                "times": {"type": "integer", "minimum": 1},
                "colour": {"enum": ["red", "blue"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "loose": {"type": ["string", "null"]},
            },
            "required": ["path"],
            "additionalProperties": false,
        }),
    })
    .unwrap()
}

#[track_caller]
fn complains(raw: &str, words: &[&str]) {
    let message = check().parse(raw).unwrap_err().message;
    for words in words {
        assert!(message.contains(words), "{raw}: expected {words:?} in:\n{message}");
    }
    assert!(message.contains("- path (string, required): Where."), "{message}");
    assert!(message.contains("- tags (array of string, optional)"), "{message}");
    assert!(message.len() < 2000, "{message}");
}

#[test]
fn every_mistake_is_named_with_its_field() {
    complains("{}", &["`path` is missing"]);
    complains(r#"{"pth": "x"}"#, &["`pth` is not a field; did you mean `path`?", "`path` is missing"]);
    complains(r#"{"path": 3}"#, &["`path` must be a string, but is the number 3"]);
    complains(r#"{"path": "x", "times": "3"}"#, &["`times` must be an integer", "the string \"3\""]);
    complains(r#"{"path": "x", "times": 2.5}"#, &["`times` must be an integer", "2.5"]);
    complains(r#"{"path": "x", "times": 0}"#, &["`times` 0 is less than the minimum of 1"]);
    complains(r#"{"path": "x", "colour": "mauve"}"#, &["`colour` must be one of [\"red\",\"blue\"]"]);
    complains(r#"{"path": "x", "tags": ["a", 2]}"#, &["`tags[1]` must be a string"]);
    complains(r#"{"path": null}"#, &["`path` must be a string, but is null"]);
    complains("[]", &["they must be an object"]);
    complains("\"{}\"", &["they must be an object, but are the string"]);
    complains(r#"{"path": "x"#, &["not whole JSON", "line 1 column 11"]);
    complains(r#"{"path": "x"} {}"#, &["not whole JSON"]);
    complains(&format!("{{\"path\": 1, \"{}\": 2}}", "x".repeat(100_000)), &["xxx…"]);
    complains(&"[".repeat(10_000), &["not whole JSON"]);
}

#[test]
fn spellings_that_mean_the_same_are_evened_out() {
    let parse = |raw| check().parse(raw).unwrap();
    let plain = parse(r#"{"path": "x", "times": 3.0, "tags": null, "loose": null}"#);
    assert_eq!(plain, json!({"path": "x", "times": 3, "loose": null}));
}

#[test]
fn a_tool_without_fields_takes_no_text_at_all() {
    let spec = ToolSpec {
        name: "now".into(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {}, "additionalProperties": false}),
    };
    let check = ArgumentCheck::compile(&spec).unwrap();
    assert_eq!(check.parse("").unwrap(), json!({}));
    assert!(check.parse(r#"{"x": 1}"#).unwrap_err().message.contains("It takes no fields"));
}

#[test]
fn a_schema_that_is_none_is_refused() {
    for parameters in [json!(null), json!({"type": "string"}), json!({"type": "object", "required": 3})] {
        let spec = ToolSpec { name: "x".into(), description: String::new(), parameters };
        assert!(ArgumentCheck::compile(&spec).is_err());
    }
}
