//! How programs are offered: tools as functions, their schemas as types of TypeScript.

use posse_core::run::code::{functions, offer};
use posse_core::tool::calls::EXECUTE_CODE;
use posse_core::tool::{EffectClass, OfferedTool};
use serde_json::{Value, json};

use crate::support::parts;

fn tool(name: &str, parameters: Value) -> OfferedTool {
    let mut tool = parts::tool(name, EffectClass::Pure);
    tool.spec.parameters = parameters;
    tool
}

#[track_caller]
fn declares(parameters: Value, expected: &str) {
    let tools = [tool("t", parameters)];
    let declared = &functions(tools.iter())[0].declaration;
    assert_eq!(declared, &format!("t(args: {expected}): Promise<string>;"));
}

#[test]
fn types_are_made_from_schemas_and_what_has_none_is_unknown() {
    let of = |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    for (schema, expected) in [
        (json!({"type": "string"}), "string"),
        (json!({"type": "integer"}), "number"),
        (json!({"type": ["boolean", "null"]}), "boolean | null"),
        (json!({"enum": ["x", "it's", 3]}), r#""x" | "it's" | 3"#),
        (json!({"const": true}), "true"),
        (json!({"type": "array", "items": {"type": "number"}}), "Array<number>"),
        (json!({"type": "array"}), "Array<unknown>"),
        (json!({"anyOf": [{"type": "string"}, {"type": "string"}, {"type": "number"}]}), "string | number"),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), "Record<string, string>"),
        (json!({"type": "object"}), "Record<string, unknown>"),
        (json!({"$ref": "#/$defs/x"}), "unknown"),
        (json!({"allOf": [{"type": "string"}]}), "unknown"),
        (json!({"type": "date"}), "unknown"),
        (json!(true), "unknown"),
    ] {
        declares(of(schema), &format!("{{ a: {expected} }}"));
    }
    declares(
        json!({"type": "object", "properties": {"is-odd": {"type": "boolean"}, "n": {"type": "number"}}, "required": ["n"]}),
        r#"{ "is-odd"?: boolean; n: number }"#,
    );
    declares(json!({"type": "object", "properties": {}}), "{}");
    let deep = (0..20).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    declares(of(deep), &format!("{{ a: {}unknown{} }}", "Array<".repeat(5), ">".repeat(5)));
}

#[test]
fn names_are_identifiers_and_no_two_are_the_same() {
    let names = ["mail.send", "mail-send", "mail_send", "2nd", "delete", "search", EXECUTE_CODE, "find_skills"];
    let tools: Vec<_> = names.iter().map(|name| tool(name, json!({"type": "object"}))).collect();
    let functions = functions(tools.iter());
    let named: Vec<_> = functions.iter().map(|function| (function.name.as_str(), function.tool.as_str())).collect();
    assert_eq!(
        named,
        [
            ("mail_send", "mail.send"),
            ("mail_send_", "mail-send"),
            ("mail_send__", "mail_send"),
            ("_2nd", "2nd"),
            ("delete_", "delete"),
            ("search_", "search"),
        ]
    );
}

#[test]
fn few_functions_are_declared_and_many_are_searched_for() {
    let described = |many: usize| {
        let all = (0..many).map(|n| tool(&format!("t{n}"), json!({"type": "object", "properties": {}})));
        let mut tools: Vec<_> = [tool(EXECUTE_CODE, json!({"type": "object"}))].into_iter().chain(all).collect();
        offer(&mut tools);
        assert!(tools[1..].iter().all(|tool| tool.spec.description == "does it"));
        tools.remove(0).spec.description
    };
    assert!(described(0).ends_with("has no functions: it computes."));
    assert!(described(2).ends_with("{\n  t0(args: {}): Promise<string>;\n  t1(args: {}): Promise<string>;\n};"));
    let many = described(31);
    assert!(
        many.contains("search(words: string)") && many.ends_with("t29, t30") && !many.contains("t30(args"),
        "{many}"
    );
}
