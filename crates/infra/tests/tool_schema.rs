//! What the model is told of the built-in tools.
#![allow(clippy::unwrap_used)]

use posse_core::run::finish::{FinishArgs, spec};
use posse_core::tool::{EffectClass, Tools as _};
use posse_infra::tool::{ToolRegistry, is_legal_name};
use serde_json::{Value, json};

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn every_built_in_tool_is_offered_in_a_form_that_all_providers_take() {
    let registry = ToolRegistry::builtin();
    let tools = registry.resolve(&names(&["annotations", "calculator", "filesystem", "finish", "memory"])).unwrap();
    let all: Vec<_> = tools.iter().map(|tool| (tool.spec().name.as_str(), tool.effect())).collect();
    use EffectClass::*;
    assert_eq!(
        all,
        [
            ("annotate", Idempotent),
            ("annotation_list", Pure),
            ("annotation_search", Pure),
            ("annotation_tag", Idempotent),
            ("append_file", Once),
            ("calculate", Pure),
            ("core_memory_edit", Idempotent),
            ("create_file", Once),
            ("edit_file", Once),
            ("finish", Pure),
            ("list_files", Pure),
            ("memory_forget", Idempotent),
            ("memory_save", Idempotent),
            ("memory_search", Pure),
            ("memory_update", Idempotent),
            ("query_tables", Pure),
            ("read_file", Pure),
            ("search_files", Pure),
        ]
    );
    for tool in tools {
        let spec = tool.spec();
        assert!(is_legal_name(&spec.name));
        assert!((20..300).contains(&spec.description.len()), "{}", spec.description);
        let text = spec.parameters.to_string();
        assert!(!text.contains("$ref") && !text.contains("$schema") && !text.contains("null"), "{text}");
        assert_eq!(spec.parameters["type"], "object");
        assert_eq!(spec.parameters["additionalProperties"], false, "{text}");
        let fields = spec.parameters["properties"].as_object().unwrap();
        for (name, field) in fields {
            assert!(field["description"].is_string(), "{}.{name} says nothing", spec.name);
            assert!(field["type"].is_string(), "{}.{name} has no plain type", spec.name);
        }
        assert!(registry.validate_args(spec, r#"{"no_such_field": 1}"#).is_err());
    }
}

#[test]
fn the_schema_of_read_file() {
    let registry = ToolRegistry::builtin();
    let parameters = registry.get("read_file").unwrap().spec().parameters.clone();
    assert_eq!(
        parameters,
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the workspace root."},
                "start_line": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The first line to read, counted from 1. Left out: from the start.",
                },
                "end_line": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The last line to read. Left out: to the end.",
                },
            },
            "additionalProperties": false,
            "required": ["path"],
        })
    );
}

#[test]
fn a_wrong_call_is_answered_with_the_right_form() {
    let registry = ToolRegistry::builtin();
    let spec = registry.get("read_file").unwrap().spec().clone();
    let error = registry.validate_args(&spec, r#"{"file": "x", "start_line": "3"}"#).unwrap_err();
    let mut lines: Vec<_> = error.message.lines().collect();
    lines[1..4].sort_unstable();
    assert_eq!(
        lines,
        [
            "The arguments of read_file do not fit:",
            "- `file` is not a field",
            "- `path` is missing",
            "- `start_line` must be an integer (a whole number without quotes), but is the string \"3\"",
            "Fields:",
            "- path (string, required): The file, relative to the workspace root.",
            "- start_line (integer, optional): The first line to read, counted from 1. Left out: from the start.",
            "- end_line (integer, optional): The last line to read. Left out: to the end.",
        ]
    );
    let lenient = registry.validate_args(&spec, r#"{"path": "x", "start_line": null, "end_line": 4.0}"#).unwrap();
    assert_eq!(lenient, json!({"path": "x", "end_line": 4}));
}

#[test]
fn finish_takes_the_final_answer() {
    let registry = ToolRegistry::builtin();
    let offered = registry.get("finish").unwrap().spec().clone();
    assert_eq!((&offered.name, &offered.description), (&spec().name, &spec().description));
    let args: Value = registry.validate_args(&offered, r#"{"final_summary": "Done."}"#).unwrap();
    let args: FinishArgs = serde_json::from_value(args).unwrap();
    assert_eq!(args.final_summary, "Done.");
    assert!(registry.validate_args(&offered, "{}").is_err());
}

#[test]
fn an_unknown_tool_is_an_error_with_near_matches() {
    let error = ToolRegistry::builtin().resolve(&names(&["filesystem", "serch_files"])).err().unwrap();
    assert_eq!(error.near.first().map(String::as_str), Some("search_files"));
    assert!(
        error.to_string().contains("annotations (annotate, annotation_list, annotation_search, annotation_tag)"),
        "{error}"
    );
}
