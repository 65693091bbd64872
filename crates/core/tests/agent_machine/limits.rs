//! What one run may use.

use posse_core::run::journal::{CallState, EndStatus, Entry};
use posse_core::run::machine::Effect;
use serde_json::json;

use super::kit::{Harness, act, agent_step, call, finish, opening, phased, plain_step};

#[test]
fn tool_rounds_end_the_run_with_a_warning_in_its_answer() {
    let mut opening = opening();
    opening.persona.limits.max_tool_rounds = Some(3);
    let mut h = Harness::begin(opening);
    for n in 0..3 {
        h.calls(vec![call("look", json!({"n": n})), call("peek", json!({"n": n}))]).run_calls();
        assert_eq!(h.effect, Effect::AskModel);
    }
    h.calls(vec![call("look", json!({})), call("write", json!({}))]);
    let warning = "[Warning: max tool rounds (3) reached. Stopping tool execution.]";
    let reason = "Warning: max tool rounds (3) reached. Stopping tool execution.";
    assert_eq!(h.ended(), (EndStatus::MaxToolRounds, warning.into(), reason.into()));
    let output = h.run.output();
    assert_eq!((output.text.as_str(), output.status.as_str(), output.turns), (warning, "max_tool_rounds", 4));
    let refused = h.ledger().into_iter().filter(|(_, state)| *state == CallState::Refused);
    assert_eq!(refused.count(), 2, "the last round did not run");

    h.take_from_outside(Entry::Reopened);
    h.calls(vec![call("look", json!({}))]).run_calls();
    assert_eq!(h.effect, Effect::AskModel, "a person gives it as many again");
    h.calls(vec![finish("42")]);
    assert_eq!(h.ended().1, "42");
}

#[test]
fn an_answer_needs_no_round() {
    let mut opening = opening();
    opening.persona.limits.max_tool_rounds = Some(0);
    let mut h = Harness::begin(opening.clone());
    h.calls(vec![call("fly", json!({}))]).calls(vec![finish("42")]);
    assert_eq!(h.ended().1, "42", "what is refused runs nothing");
    let mut h = Harness::begin(opening);
    h.calls(vec![call("look", json!({}))]);
    assert_eq!(h.ended().0, EndStatus::MaxToolRounds, "0 means nothing may run");
}

#[test]
fn steps_without_an_act_are_no_round() {
    let mut opening = phased();
    opening.persona.limits.max_tool_rounds = Some(1);
    let mut h = Harness::begin(opening);
    for _ in 0..3 {
        h.step(plain_step("reason"));
    }
    h.step(act("look", json!({}))).run_calls();
    h.calls(vec![agent_step(act("look", json!({"a": 1})))]);
    assert!(h.ended().1.contains("max tool rounds (1)"));
    assert_eq!(h.run.output().phase.as_deref(), Some("act"), "where it was when it was ended");
}

#[test]
fn what_is_left_of_a_budget_bounds_the_reply() {
    let mut opening = opening();
    opening.persona.limits.max_tokens = Some(40);
    let mut h = Harness::begin(opening);
    assert_eq!(h.run.request().max_tokens, Some(40));
    h.calls(vec![call("look", json!({}))]).run_calls();
    assert_eq!(h.run.request().max_tokens, Some(25));
    h.calls(vec![call("look", json!({}))]).run_calls();
    h.calls(vec![call("write", json!({}))]).run_calls();
    assert_eq!(h.ended().0, EndStatus::MaxTokens);
    assert_eq!(h.run.output().status, "max_tokens");
    assert_eq!(h.ledger().last().map(|(_, state)| *state), Some(CallState::Done), "what was asked for still runs");
}
