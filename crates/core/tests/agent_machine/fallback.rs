//! Tools that take the place of others that fail.

use posse_core::model::Message;
use posse_core::run::journal::{CallState, EndStatus, Entry, Opening};
use posse_core::run::machine::Effect;
use posse_core::tool::{ToolError, ToolErrorCategory};
use serde_json::json;

use super::kit::{Harness, act, agent_step, call, failure, opening, phased};

fn with(mut opening: Opening, named: &[(&str, &str)]) -> Opening {
    opening.persona.fallback_tools =
        named.iter().map(|(tool, other)| ((*tool).to_owned(), (*other).to_owned())).collect();
    opening
}

#[test]
fn another_tool_takes_the_place_of_one_that_fails_and_answers_its_call() {
    let mut h = Harness::begin(with(opening(), &[("look", "write")]));
    h.calls(vec![call("look", json!({"a": 1})), call("look", json!({"a": 2}))]);
    let running = h.running();
    h.end_call(&running[0].id, failure("it is broken"));
    h.end_call(&running[1].id, Ok("seen".to_owned().into()));
    assert_eq!(h.names(), ["write"]);
    let second = h.running()[0].clone();
    assert_eq!(second.arguments, running[0].arguments, "the same arguments");
    assert_ne!(second.id, running[0].id, "under a call of its own");
    h.end_call(&second.id, Ok("written".to_owned().into()));
    let results: Vec<_> = h
        .run
        .messages()
        .iter()
        .filter_map(|m| match m {
            Message::Tool { call_id, name, text } => Some((call_id.as_str(), name.as_str(), text.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(results, [(&*running[0].id, "look", "written"), (&*running[1].id, "look", "seen")]);
    let rows = [("look", CallState::Failed), ("look", CallState::Done), ("write", CallState::Done)];
    assert_eq!(h.ledger(), rows.map(|(tool, state)| (tool.to_owned(), state)));
    assert_eq!(h.run.output().tools_used, ["look", "write"]);
}

#[test]
fn a_failure_of_the_other_tool_is_the_answer() {
    let mut h = Harness::begin(with(opening(), &[("look", "peek")]));
    h.calls(vec![call("look", json!({}))]).run_calls_with(|call| failure(&format!("{} is broken", call.name)));
    assert_eq!((&h.effect, h.told_last().as_str()), (&Effect::AskModel, "peek is broken"));
}

#[test]
fn each_tool_is_tried_once_however_they_are_named() {
    for (named, tried) in [
        (&[("look", "peek"), ("peek", "look")][..], &["look", "peek"][..]),
        (&[("look", "look")], &["look"]),
        (&[("look", "peek"), ("peek", "put"), ("put", "peek")], &["look", "peek", "put"]),
    ] {
        let mut h = Harness::begin(with(opening(), named));
        h.calls(vec![call("look", json!({}))]).run_calls_with(|_| failure("broken"));
        assert_eq!(h.effect, Effect::AskModel);
        let tools: Vec<_> = h.ledger().into_iter().map(|(tool, _)| tool).collect();
        assert_eq!(tools, tried);
    }
}

#[test]
fn it_is_not_tried_where_it_may_not_run() {
    let mut h = Harness::begin(with(opening(), &[("look", "fly")]));
    h.calls(vec![call("look", json!({}))]).run_calls_with(|_| failure("broken"));
    assert_eq!(h.count("fell_back"), 0, "it is not offered");
    let mut h = Harness::begin(with(opening(), &[("look", "peek")]));
    let stopped = |_: &_| Err(ToolError::new(ToolErrorCategory::Stopped, "stopped"));
    h.calls(vec![call("look", json!({}))]).run_calls_with(stopped);
    assert_eq!(h.count("fell_back"), 0, "the call was stopped, and the tool is not to blame");
}

#[test]
fn a_crash_before_the_other_tool_begins_begins_it() {
    let mut h = Harness::begin(with(opening(), &[("look", "write")]));
    h.calls(vec![call("look", json!({}))]);
    let first = h.running()[0].id.clone();
    h.end_call(&first, failure("broken"));
    // As if the step had been cut off between the two entries.
    assert!(matches!(h.journal.pop().unwrap().entry, Entry::CallStarted { .. }));
    h.crash_and_pick_up();
    assert_eq!(h.names(), ["write"]);
    h.crash_and_pick_up();
    assert_eq!(h.effect, Effect::AskModel);
    assert!(h.told_last().contains("may or may not"), "{}", h.told_last());
    assert!(matches!(h.run.messages().last(), Some(Message::Tool { call_id, .. }) if *call_id == first));
}

#[test]
fn an_act_falls_back_too() {
    let mut h = Harness::begin(with(phased(), &[("look", "peek"), ("peek", "look")]));
    h.calls(vec![agent_step(act("look", json!({})))]).run_calls_with(|call| match call.name.as_str() {
        "look" => failure("broken"),
        _ => Ok("seen".to_owned().into()),
    });
    assert!(matches!(h.run.messages().last(), Some(Message::Tool { name, text, .. })
        if name == "agent_step" && text == "seen"));
    let view = h.view();
    assert!(view.contains("ACT: Used look.\n    Tool: peek\n    Result: seen"), "{view}");
    h.calls(vec![agent_step(act("look", json!({"a": 2})))]).run_calls_with(|_| failure("broken"));
    assert_eq!(h.effect, Effect::AskModel);
    h.calls(vec![agent_step(json!({"phase": "end", "end_status": "stuck", "end_message": "no"}))]);
    assert_eq!(h.ended().0, EndStatus::Stuck);
}
