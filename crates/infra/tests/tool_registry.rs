//! Tools and packs by their names.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use posse_core::tool::{EffectClass, Tool, Tools as _, UnknownTool};
use posse_infra::tool::{FnTool, RegisterError, ToolRegistry, is_legal_name};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {}

fn tool(name: &str) -> Arc<dyn Tool> {
    Arc::new(FnTool::new(name, "", EffectClass::Pure, |_, _: Args| async { Ok(String::new().into()) }))
}

fn registry() -> ToolRegistry {
    let mut registry = ToolRegistry::new();
    for (pack, name) in [("files", "write_file"), ("files", "read_file"), ("clock", "now"), ("end", "end")] {
        registry.register(pack, tool(name)).unwrap();
    }
    registry
}

fn resolve(names: &[&str]) -> Result<Vec<String>, UnknownTool> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let tools = registry().resolve(&names)?;
    Ok(tools.iter().map(|tool| tool.spec().name.clone()).collect())
}

#[test]
fn tools_and_packs_resolve_sorted_and_once() {
    assert_eq!(resolve(&[]).unwrap(), Vec::<String>::new());
    assert_eq!(
        resolve(&["write_file", "now", "files", "now", "end"]).unwrap(),
        ["end", "now", "read_file", "write_file"]
    );
}

#[test]
fn an_unknown_name_is_told_with_what_there_is() {
    let error = resolve(&["now", "raed_file"]).unwrap_err();
    assert_eq!(error.near, ["read_file"]);
    assert_eq!(
        error.to_string(),
        "there is no tool or pack 'raed_file'; did you mean read_file? \
         There are: clock (now) end (end) files (read_file, write_file)"
    );
    assert_eq!(resolve(&["file"]).unwrap_err().near, ["files", "read_file", "write_file"]);
    assert!(resolve(&["zzz"]).unwrap_err().near.is_empty());
    assert!(resolve(&[""]).is_err());
}

#[test]
fn names_that_providers_refuse_are_refused() {
    let long = "x".repeat(65);
    for name in ["", "docs.create", "docs/create", "größe", "...", "read file", "a\n", long.as_str()] {
        assert_eq!(ToolRegistry::new().register("pack", tool(name)), Err(RegisterError::BadName(name.into())));
    }
    assert!(is_legal_name(&"x".repeat(64)));
    assert!(is_legal_name("Docs_create-2"));
}

#[test]
fn nothing_is_shadowed() {
    for (pack, name) in [("other", "now"), ("now", "x"), ("x", "files"), ("end", "other"), ("other", "end")] {
        assert!(matches!(registry().register(pack, tool(name)), Err(RegisterError::NameTaken(_))), "{pack}/{name}");
    }
}

#[test]
fn arguments_are_checked_against_the_spec_at_hand() {
    let registry = registry();
    let mut spec = tool("now").spec().clone();
    assert_eq!(registry.validate_args(&spec, "{}").unwrap(), json!({}));
    assert!(registry.validate_args(&spec, r#"{"zone": "x"}"#).is_err());
    spec.parameters = json!({"type": "object", "properties": {"zone": {"type": "string"}}});
    assert_eq!(registry.validate_args(&spec, r#"{"zone": "x"}"#).unwrap(), json!({"zone": "x"}));
}
