//! Functions and the types of their arguments as tools.
#![allow(clippy::unwrap_used)]

use posse_core::tool::{EffectClass, Tool as _, ToolErrorCategory};
use posse_infra::tool::FnTool;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::support::tools::context;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Blue,
}

/// Not shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// How often.
    times: u32,
    /// Which colour.
    colour: Option<Colour>,
    /// What to say.
    #[serde(default)]
    words: Option<String>,
}

#[test]
fn the_schema_is_plain() {
    let soft = FnTool::new("soft", "", EffectClass::Pure, |_, _: Args| async { Ok(String::new().into()) });
    assert_eq!(
        soft.spec().parameters,
        json!({
            "type": "object",
            "properties": {
                "times": {"description": "How often.", "type": "integer", "minimum": 0},
                "colour": {"description": "Which colour.", "type": "string", "enum": ["red", "blue"]},
                "words": {"description": "What to say.", "type": "string"},
            },
            "required": ["times"],
            "additionalProperties": false,
        })
    );
}

#[tokio::test]
async fn both_kinds_of_function_are_called_with_their_type() {
    let say = |args: Args| {
        let colour = args.colour.map_or("none", |colour| match colour {
            Colour::Red => "red",
            Colour::Blue => "blue",
        });
        Ok(format!("{} {colour} {:?}", args.times, args.words).into())
    };
    let soft = FnTool::new("soft", "", EffectClass::Pure, move |_, args: Args| async move { say(args) });
    let hard = FnTool::blocking("hard", "", EffectClass::Once, move |_, args: Args| say(args));
    for tool in [&soft, &hard] {
        let output = tool.call(&context(), json!({"times": 2, "colour": "red"})).await.unwrap();
        assert_eq!(output.text, "2 red None");
        let error = tool.call(&context(), json!({"times": "x"})).await.unwrap_err();
        assert_eq!(error.category, ToolErrorCategory::InvalidArguments);
    }
    assert_eq!(hard.effect(), EffectClass::Once);
}

#[tokio::test]
async fn a_panic_is_the_failure_of_that_call() {
    let soft = FnTool::new("soft", "", EffectClass::Pure, |_, args: Args| async move { panic!("soft {}", args.times) });
    let hard = FnTool::blocking("hard", "", EffectClass::Pure, |_, args: Args| panic!("hard {}", args.times));
    for (tool, words) in [(soft, "soft 1"), (hard, "hard 1")] {
        let error = tool.call(&context(), json!({"times": 1})).await.unwrap_err();
        assert_eq!(error.category, ToolErrorCategory::Failed);
        assert!(error.message.contains(words), "{error}");
    }
}
