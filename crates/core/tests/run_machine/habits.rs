//! Structured steps, and models that do the same for ever.

use posse_core::journal::EndStatus;
use posse_core::model::{Message, ToolCalling};
use posse_core::persona::Limits;
use posse_core::run::machine::{Effect, MAX_REPEATS};
use posse_core::run::structured;
use posse_core::tool::{ToolError, ToolErrorCategory};

use super::kit::{Harness, reply};
use super::sendable::unsendable;

#[test]
fn structured_steps_become_calls_and_results_become_user_messages() {
    let mut h = Harness::begin(ToolCalling::Structured, Limits::default());
    let request = h.run.request();
    assert!(request.tools.is_empty());
    let offered: Vec<_> = request.schema.as_ref().expect("a schema")["oneOf"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|s| s["properties"]["tool"]["const"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(offered, ["look", "write", "finish"], "exactly the persona's tools and the final answer");
    h.say(reply(r#"{"thinking": "hm", "tool": "look", "arguments": {}}"#, &[])).run_calls();
    let last = h.run.messages().last().expect("a message");
    assert_eq!(*last, Message::User { text: structured::result("look", "look gave this") });
    h.say(reply("I think it is 42", &[]));
    assert_eq!(h.effect, Effect::AskModel, "text that is no step is corrected");
    h.say(reply(r#"{"thinking": "", "tool": "finish", "arguments": {"final_summary": "42"}}"#, &[]));
    assert_eq!(h.ended(), (EndStatus::Completed, "42".into(), String::new()));
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn a_structured_model_is_led_out_of_a_habit() {
    let mut h = Harness::begin(ToolCalling::Structured, Limits { max_turns: 100, ..Limits::default() });
    let offered = |h: &Harness| h.run.request().schema.expect("a schema").to_string().contains(r#""const":"look""#);
    for again in 0..MAX_REPEATS {
        assert!(offered(&h), "offered before call {again}");
        h.say(reply(r#"{"thinking": "", "tool": "look", "arguments": {}}"#, &[])).run_calls();
    }
    assert!(!offered(&h), "the next step has to be another one");
    h.say(reply(r#"{"thinking": "", "tool": "write", "arguments": {}}"#, &[])).run_calls();
    assert!(offered(&h), "and after that it may look again");
}

#[test]
fn two_calls_in_turn_are_a_habit_too() {
    let mut h = Harness::begin(ToolCalling::Structured, Limits { max_turns: 100, ..Limits::default() });
    let look = |at: u32| format!(r#"{{"thinking": "", "tool": "look", "arguments": {{"at": {}}}}}"#, at % 2);
    let offered = |h: &Harness| h.run.request().schema.expect("a schema").to_string().contains(r#""const":"look""#);
    let mut asked = 0;
    while offered(&h) {
        h.say(reply(&look(asked), &[])).run_calls();
        asked += 1;
    }
    // The first of each was new, and of the second ones only that which came last is at its limit.
    assert_eq!(asked, 2 * MAX_REPEATS - 1);
}

#[test]
fn what_fails_without_an_effect_is_not_tried_for_ever() {
    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
    let mut fail = |category: ToolErrorCategory| {
        h.say(reply("", &["write"]));
        let runs = h.running();
        for (id, _) in &runs {
            h.end_call(id, Err(ToolError::new(category, "it exists already")));
        }
        !runs.is_empty()
    };
    for _ in 0..MAX_REPEATS {
        assert!(fail(ToolErrorCategory::Conflict), "it may be tried again");
    }
    assert!(!fail(ToolErrorCategory::Conflict), "it would fail in the same way");
    h.say(reply("", &["look"])).run_calls();
    h.say(reply("", &["write"]));
    assert_eq!(h.running(), [], "looking changes nothing");

    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
    for _ in 0..=MAX_REPEATS {
        h.say(reply("", &["write"]));
        let runs = h.running();
        assert_eq!(runs.len(), 1, "what may have had an effect, or may go better next time, is tried again");
        h.end_call(&runs[0].0, Err(ToolError::new(ToolErrorCategory::Failed, "the other side is down")));
    }
}
