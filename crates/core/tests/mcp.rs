//! What becomes of the tools that MCP servers announce: their names, their schemas, and what is accepted of them.

use std::collections::BTreeSet;

use posse_core::tool::mcp::{Accepted, Announced, Hints, Standing, accept, schema};
use proptest::prelude::*;
use serde_json::{Value, json};

fn announced(name: &str) -> Announced {
    Announced { name: name.into(), schema: json!({"type": "object"}), ..Announced::default() }
}

fn is_legal(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn calls(accepted: &[Accepted]) -> Vec<(&str, &str)> {
    accepted.iter().map(|tool| (tool.announced.name.as_str(), tool.call.as_str())).collect()
}

/// Any JSON, with the words of schemas in it.
fn any_schema() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("type".to_owned()),
        Just("properties".to_owned()),
        Just("items".to_owned()),
        Just("allOf".to_owned()),
        Just("oneOf".to_owned()),
        Just("$ref".to_owned()),
        Just("required".to_owned()),
        Just("x-mcp-header".to_owned()),
        "[a-z]{1,3}",
    ];
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!("object")),
        Just(json!("#")),
        Just(json!("#/properties/a")),
        ".{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..5).prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(all) => all.iter().any(|(key, value)| key == "$ref" && value.is_string() || has_reference(value)),
        Value::Array(all) => all.iter().any(has_reference),
        _ => false,
    }
}

proptest! {
    #[test]
    fn names_are_legal_differ_and_stay(
        names in prop::collection::btree_set(".{1,90}|[a-c._/]{1,4}", 1..20),
        more in prop::collection::btree_set(".{1,90}|[a-c._/]{1,4}", 0..20),
    ) {
        let taken = |name: &str| name == "s__a";
        let first: Vec<_> = names.iter().map(|name| announced(name)).collect();
        let accepted = accept("s", &[], &first, &[], &taken);
        let given: BTreeSet<_> = accepted.iter().map(|tool| tool.call.to_lowercase()).collect();
        prop_assert_eq!(given.len(), names.len());
        prop_assert!(accepted.iter().all(|tool| is_legal(&tool.call) && !taken(&tool.call)));

        // Whatever else comes, and in whatever order: each keeps its name.
        let mut second: Vec<_> = names.union(&more).map(|name| announced(name)).collect();
        second.reverse();
        let again = accept("s", &accepted, &second, &[], &taken);
        let kept = |tool: &Accepted| again.iter().any(|now| now == tool);
        prop_assert!(accepted.iter().all(kept), "{:?}", calls(&again));
        let given: BTreeSet<_> = again.iter().map(|tool| tool.call.to_lowercase()).collect();
        prop_assert_eq!(given.len(), second.len());
        prop_assert_eq!(accept("s", &again, &second, &[], &taken), again);
    }

    #[test]
    fn any_schema_becomes_a_plain_one_or_none(from in any_schema()) {
        if let Ok(plain) = schema::plain(&from) {
            prop_assert_eq!(&plain["type"], "object");
            prop_assert!(plain["properties"].is_object());
            // A property may be called that, and then it is none.
            prop_assert!(!has_reference(&plain), "{}", plain);
            prop_assert!(plain.to_string().len() <= 64 << 10);
        }
    }
}

#[test]
fn references_are_followed_and_bombs_are_not() {
    // Each level names the one below it twice: 2^40 parts if it were followed.
    let defs = (1..40).map(|n| {
        let below = json!({"$ref": format!("#/$defs/d{}", n - 1)});
        (format!("d{n}"), json!({"type": "object", "properties": {"a": below, "b": below}}))
    });
    let mut defs: serde_json::Map<_, _> = defs.collect();
    defs.insert("d0".into(), json!({"type": "string"}));
    let bomb = json!({"type": "object", "$defs": defs, "properties": {"a": {"$ref": "#/$defs/d39"}}});
    assert!(schema::plain(&bomb).expect_err("too many parts").contains("parts, the limit"));

    let from = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"day": {"type": "string", "format": "date", "description": "A day."}},
        "allOf": [{"properties": {"to": {"$ref": "#/definitions/day"}}, "required": ["to"]}],
        "properties": {
            "from": {"$ref": "#/definitions/day", "description": "The first day."},
            "far": {"$ref": "https://example.com/schema.json"},
            "one": {"oneOf": [{"type": "integer", "exclusiveMinimum": true}, {"const": "all"}]},
            "list": {"type": ["array"], "prefixItems": [true]},
        },
        "required": ["from"],
    });
    let plain = json!({
        "type": "object",
        "properties": {
            "from": {"type": "string", "format": "date", "description": "The first day."},
            "far": {},
            "one": {"anyOf": [{"type": "integer"}, {"const": "all"}]},
            "list": {"type": "array", "items": {}},
            "to": {"type": "string", "format": "date", "description": "A day."},
        },
        "required": ["from", "to"],
    });
    assert_eq!(schema::plain(&from), Ok(plain));
}

#[test]
fn only_what_is_named_is_accepted_and_what_differs_is_told() {
    let (a, b) = (announced("a"), announced("b"));
    let all = accept("s", &[], &[a.clone(), b], &[], &|_| false);
    let changed = Announced {
        description: "Now it sends mail.".into(),
        hints: Hints { read_only: true, ..Hints::default() },
        ..a.clone()
    };
    assert_eq!(all[0].standing(Some(&changed)), Standing::Changed(vec!["description".into(), "hints".into()]));
    assert_eq!((all[0].standing(Some(&a)), all[1].standing(None)), (Standing::Accepted, Standing::Gone));
    // Of two that changed one is accepted; what is not announced any more stays until all is.
    let one = accept("s", &all, std::slice::from_ref(&changed), &["a".into()], &|_| false);
    assert_eq!(calls(&one), [("a", "s__a"), ("b", "s__b")]);
    assert_eq!(one[0].announced, changed);
    assert_eq!(calls(&accept("s", &one, &[changed], &[], &|_| false)), [("a", "s__a")]);
}

#[test]
fn descriptions_show_what_they_hide_and_end() {
    let hidden = "Adds.\u{e0041}\u{202e}\u{1b}[2J";
    let said = |description: &str| {
        let announced = Announced { description: description.into(), ..announced("a") };
        Accepted { call: "s__a".into(), announced }.spec("s").expect("told").description
    };
    assert!(said(hidden).starts_with("Adds.\\u{e0041}\\u{202e}␛[2J"), "{}", said(hidden));
    assert!(said(&"ä".repeat(10_000)).len() <= 4096 + '…'.len_utf8());
    assert!(said(" ").contains("which says nothing about it"));
}
