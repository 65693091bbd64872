//! Structured steps, and models that do the same for ever.

use posse_core::model::conversation::told_result;
use posse_core::model::{Message, ModelReply, ToolCalling, Usage};
use posse_core::persona::RunLimits;
use posse_core::run::journal::EndStatus;
use posse_core::run::machine::{Effect, HABIT, MAX_REPEATS};
use posse_core::tool::{ToolError, ToolErrorCategory, ToolOutput};
use proptest::prelude::*;

use super::kit::{Harness, reply};
use super::sendable::unsendable;

#[test]
fn structured_steps_become_calls_and_results_become_user_messages() {
    let mut h = Harness::begin(ToolCalling::Structured, RunLimits::default());
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
    assert_eq!(*last, Message::User { text: told_result("look", "look gave this") });
    h.say(reply("I think it is 42", &[]));
    assert_eq!(h.effect, Effect::AskModel, "text that is no step is corrected");
    h.say(reply(r#"{"thinking": "", "tool": "finish", "arguments": {"final_summary": "42"}}"#, &[]));
    assert_eq!(h.ended(), (EndStatus::Completed, "42".into(), String::new()));
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn a_structured_model_is_led_out_of_a_habit() {
    let mut h = Harness::begin(ToolCalling::Structured, RunLimits { max_turns: 100, ..RunLimits::default() });
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
    let mut h = Harness::begin(ToolCalling::Structured, RunLimits { max_turns: 100, ..RunLimits::default() });
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

#[test]
fn a_tool_that_only_reads_and_fails_twice_in_a_row_is_left_out_once() {
    let mut h = Harness::begin(ToolCalling::Structured, RunLimits { max_turns: 100, ..RunLimits::default() });
    let offered = |h: &Harness, tool: &str| {
        h.run.request().schema.expect("a schema").to_string().contains(&format!(r#""const":"{tool}""#))
    };
    let mut at = 0;
    let mut call = |h: &mut Harness, tool: &str, is_wrong: bool| {
        at += 1;
        h.say(reply(&format!(r#"{{"thinking": "", "tool": "{tool}", "arguments": {{"at": {at}}}}}"#), &[]));
        let (id, _) = h.running().into_iter().next().expect("it runs");
        let wrong = ToolError::new(ToolErrorCategory::NotFound, format!("no such table: t{at}"));
        h.end_call(&id, if is_wrong { Err(wrong) } else { Ok(ToolOutput::from(format!("{at}"))) });
    };
    call(&mut h, "look", true);
    call(&mut h, "look", false);
    call(&mut h, "look", true);
    assert!(offered(&h, "look"), "not in a row");
    call(&mut h, "look", true);
    assert!(!offered(&h, "look") && offered(&h, "write"));
    call(&mut h, "write", true);
    call(&mut h, "write", true);
    assert!(offered(&h, "look") && offered(&h, "write"), "what changes something is tried again");
}

#[test]
fn a_small_model_does_not_end_with_what_was_wrong_or_before_it_has_written() {
    let offered = |h: &Harness, tool: &str| {
        h.run.request().schema.expect("a schema").to_string().contains(&format!(r#""const":"{tool}""#))
    };
    let call = |h: &mut Harness, at: u32, category: Option<ToolErrorCategory>| {
        h.say(reply(&format!(r#"{{"thinking": "", "tool": "look", "arguments": {{"at": {at}}}}}"#), &[]));
        let (id, _) = h.running().into_iter().next().expect("it runs");
        let wrong = |category| Err(ToolError::new(category, format!("wrong at {at}")));
        h.end_call(&id, category.map_or(Ok(ToolOutput::from(format!("{at}"))), wrong));
    };
    use ToolErrorCategory::{InvalidArguments, LimitExceeded, NotFound, PermissionDenied};
    let mut h = Harness::begin(ToolCalling::Structured, RunLimits { max_turns: 100, ..RunLimits::default() });
    assert!(offered(&h, "finish"));
    for (at, (category, may_end)) in [
        (Some(NotFound), false),
        (None, true),
        (Some(PermissionDenied), true),
        (Some(LimitExceeded), true),
        (Some(InvalidArguments), false),
    ]
    .into_iter()
    .enumerate()
    {
        call(&mut h, at as u32, category);
        assert_eq!(offered(&h, "finish"), may_end, "after {category:?}");
    }
    call(&mut h, 9, Some(NotFound));
    assert!(offered(&h, "finish"), "the work may be impossible");
    let mut short = Harness::begin(ToolCalling::Structured, RunLimits { max_turns: 2, ..RunLimits::default() });
    call(&mut short, 0, Some(NotFound));
    assert!(offered(&short, "finish"), "the last turn is for an answer");
}

/// How often the same calls are made, with results made of the number of the round, until the run ends.
fn rounds(calls: &[&str], most: usize, mut result: impl FnMut(&str, usize) -> Result<ToolOutput, ToolError>) -> usize {
    let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 1000, ..RunLimits::default() });
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
    let clocks = |_: &str, n: usize| Ok(format!("finished in {n}.03s\nreal 0m{n}.012s").into());
    assert_eq!(rounds(&["write"], 100, clocks), MAX_REPEATS as usize, "however it writes the time");
}

#[test]
fn a_clock_makes_no_difference_and_everything_else_does() {
    let pairs = [("3 lines", "4 lines"), ("v1.2", "v1.3"), ("1.5 GB", "1.6 GB"), ("5 s", "10 s"), ("1.2", "1.3")];
    for (one, other) in pairs {
        let in_turn = |_: &str, n: usize| Ok(if n.is_multiple_of(2) { one } else { other }.to_owned().into());
        assert_eq!(rounds(&["look"], 40, in_turn), 40, "{one} and {other}");
    }
    let fails_in_turn = |_: &str, n: usize| match n.is_multiple_of(2) {
        true => Ok("a".to_owned().into()),
        false => Err(ToolError::new(ToolErrorCategory::Failed, "a")),
    };
    assert_eq!(rounds(&["look"], 40, fails_in_turn), 40, "a failure is not the same as what is done");
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

/// Looks that all see the same, each after a wait (a command that sleeps first) and a reply of so many tokens: how many
/// there are until the run ends as stuck, of those asked for, and what the model was told last.
fn polls(looks: &[(u64, u64)]) -> (usize, String) {
    let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 10_000, ..RunLimits::default() });
    let mut told = String::new();
    for (made, (wait_ms, input)) in looks.iter().enumerate() {
        if h.effect != Effect::AskModel {
            return (made, h.ended().2);
        }
        h.say(ModelReply { usage: Usage { input: *input, ..Usage::default() }, ..reply("", &["look"]) });
        let (id, _) = h.running().into_iter().next().expect("it runs");
        h.end_call_after(&id, Ok("not ready".to_owned().into()), *wait_ms);
        if let Some(Message::Tool { text, .. }) = h.run.messages().last() {
            told.clone_from(text);
        }
    }
    (looks.len(), told)
}

#[test]
fn who_waits_between_looks_may_look_for_longer() {
    for (wait_ms, most) in [(0, 12), (4_999, 12), (5_000, 23), (15_000, 45), (30_000, 89), (3_600_000, 89)] {
        let (made, reason) = polls(&vec![(wait_ms, 100); 200]);
        assert_eq!(made, most, "after {wait_ms} ms each");
        assert!(reason.contains(&format!("was made {most} times with the same result")), "{reason}");
    }
    let told = polls(&[(30_000, 100); 3]).1;
    assert!(told.contains("wait longer before the next look") && told.contains("3 times with the same"), "{told}");
    assert!(!told.contains("Do not make it again"), "{told}");
    // What the model takes to say it again is no wait, and a row that costs much ends however patient it is.
    assert_eq!(polls(&[(30_000, 25_000); 200]).0, MAX_REPEATS as usize);
    assert_eq!(polls(&[(30_000, 5_000); 200]).0, 51);
}

#[test]
fn a_wait_in_another_call_is_one_too() {
    let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 1000, ..RunLimits::default() });
    let mut looks = 0;
    while h.effect == Effect::AskModel {
        for (call, ms) in [("write", 20_000), ("look", 1)] {
            h.say(reply("", &[call]));
            let (id, name) = h.running().into_iter().next().expect("it runs");
            h.end_call_after(&id, Ok(format!("{name} gave this").into()), ms);
            looks += usize::from(h.effect == Effect::AskModel && call == "look");
        }
        if looks > 100 {
            break;
        }
    }
    assert_eq!(looks, 44, "the call that waits is the one that repeats");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However long the waits and however large the replies: no row ends before the twelfth look, none lasts longer than
    /// 89, none costs more than it may on from the twelfth, and to wait longer is never worse.
    #[test]
    fn rows_of_equal_results_are_bounded_whatever_the_waits(
        looks in prop::collection::vec((0..60_000_u64, 0..60_000_u64), 120),
        longer in 0..30_000_u64,
    ) {
        let (made, _) = polls(&looks);
        prop_assert!((MAX_REPEATS as usize..=89).contains(&made), "{made}");
        let cost = |n: usize| looks[1..n].iter().map(|(_, tokens)| tokens).sum::<u64>();
        prop_assert!(made == MAX_REPEATS as usize || cost(made - 1) < 250_000, "{} tokens in {made}", cost(made));
        let patient: Vec<_> = looks.iter().map(|(wait, tokens)| (wait + longer, *tokens)).collect();
        prop_assert!(polls(&patient).0 >= made);
        // Without waits and at little cost it is as it always was.
        prop_assert_eq!(polls(&looks.iter().map(|(wait, _)| (wait % 5_000, 10)).collect::<Vec<_>>()).0, MAX_REPEATS as usize);
    }
}
