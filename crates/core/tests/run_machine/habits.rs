//! Structured steps, and models that do the same for ever.

use posse_core::journal::EndStatus;
use posse_core::model::{Message, ToolCalling};
use posse_core::persona::Limits;
use posse_core::run::machine::{Effect, HABIT, MAX_REPEATS};
use posse_core::run::structured;
use posse_core::tool::{ToolError, ToolErrorCategory, ToolOutput};

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
    for again in 0..HABIT {
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
    assert_eq!(asked, 2 * HABIT - 1);
}

/// How often the same calls are made, with results made of the number of the round, until the run ends.
fn rounds(calls: &[&str], most: usize, mut result: impl FnMut(&str, usize) -> Result<ToolOutput, ToolError>) -> usize {
    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 1000, ..Limits::default() });
    for round in 0..most {
        for call in calls {
            if h.effect != Effect::AskModel {
                let (status, _, reason) = h.ended();
                assert!(status == EndStatus::Stuck && reason.starts_with("stuck: the call "), "{status:?} {reason}");
                return round;
            }
            h.say(reply("", &[call]));
            let (id, name) = h.running().into_iter().next().expect("whatever is asked for runs: nothing is refused");
            h.end_call(&id, result(&name, round));
        }
    }
    most
}

#[test]
fn what_gives_the_same_again_and_again_ends_the_run_whichever_tool_it_is() {
    let fail = |category| move |_: &str, _| Err(ToolError::new(category, "it exists already"));
    let same = |name: &str, _: usize| Ok(format!("{name} gave this").into());
    assert_eq!(rounds(&["look"], 100, same), MAX_REPEATS as usize);
    assert_eq!(rounds(&["write"], 100, same), MAX_REPEATS as usize, "what changes things, too");
    assert_eq!(rounds(&["write"], 100, fail(ToolErrorCategory::Conflict)), MAX_REPEATS as usize);
    assert_eq!(rounds(&["write"], 100, fail(ToolErrorCategory::Failed)), MAX_REPEATS as usize);
    assert_eq!(rounds(&["look", "write"], 100, same), MAX_REPEATS as usize, "two in turn are a circle too");
    let clock = |_: &str, n: usize| Ok(format!("exit code 2, after {n}.1 s\nno rule").into());
    assert_eq!(rounds(&["write"], 100, clock), MAX_REPEATS as usize, "that a clock went on is nothing new");
}

#[test]
fn what_changes_is_no_repetition() {
    let grows = |_: &str, n: usize| Ok(format!("{n} lines").into());
    assert_eq!(rounds(&["look"], 100, grows), 100);
    assert_eq!(rounds(&["write"], 100, grows), 100);
    // A poll that sees nothing new for a while, and then something.
    let slowly = |_: &str, n: usize| Ok(format!("part {}", n / 11).into());
    assert_eq!(rounds(&["look"], 100, slowly), 100);
    // A test that fails in the same way after every change.
    let tries =
        |name: &str, n: usize| Ok(if name == "look" { "1 failed".to_owned() } else { format!("edit {n}") }.into());
    assert_eq!(rounds(&["write", "look"], 100, tries), 100);
}

#[test]
fn equal_calls_of_one_reply_count_once() {
    let mut h = Harness::native();
    h.say(reply("", &["look"; 60])).run_calls();
    assert_eq!(h.effect, Effect::AskModel, "the model has not been told yet");
    h.say(reply("", &["look"])).run_calls();
    let told = h.run.messages().last().expect("a message");
    assert!(
        matches!(told, Message::Tool { text, .. } if text.contains("You had made this same call before")),
        "{told:?}"
    );
}
