//! Runs by phases.

use posse_core::model::{CallRequest, Message, ToolCalling};
use posse_core::run::journal::{CallState, EndStatus, Entry};
use posse_core::run::machine::{Effect, MAX_CORRECTIONS};
use posse_core::tool::{ToolError, ToolErrorCategory};
use serde_json::{Value, json};

use super::kit::{
    Harness, act, agent_step, call, failure, finish, opening, phased, plain_step, reply, structured, with_skills,
};

fn plan() -> Value {
    json!({"phase": "plan", "thinking": "t", "summary": "Planned.", "plan": {"goal": "Find Clio", "sub_tasks": [
        {"id": 1, "title": "Look"}, {"id": 2, "title": "Tell", "depends_on": [1]},
    ]}})
}

fn verify(outcome: &str, fact: &str) -> Value {
    json!({"phase": "verify", "thinking": "t", "summary": "Verified.", "key_facts": [fact],
           "sub_task_outcome": outcome})
}

fn end(status: &str) -> Value {
    json!({"phase": "end", "thinking": "t", "end_status": status, "end_message": "Clio sails to Spain."})
}

#[test]
fn a_task_goes_through_its_phases() {
    let mut h = Harness::begin(phased());
    let tools: Vec<_> = h.run.request().tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(tools, ["agent_step", "look", "peek", "put", "write"], "agent_step, and no finish");
    assert_eq!(h.told().len(), 2, "there is nothing to see of a memory without steps");

    h.step(plan());
    assert_eq!(h.told_last(), r#"{"acknowledged":true,"plan_version":1,"sub_tasks":2}"#);
    assert!(h.view().contains("  → Sub-task 1: Look  ← CURRENT\n  ○ Sub-task 2: Tell  (needs: 1)"), "{}", h.view());
    h.step(plain_step("reason"));
    assert_eq!(h.told_last(), r#"{"acknowledged":true,"step":2}"#);

    h.step(act("look", json!({"a": 1})));
    assert_eq!(h.running()[0].arguments, r#"{"a":1}"#);
    h.run_calls();
    let Some(Message::Tool { name, text, .. }) = h.run.messages().last() else { panic!("no result") };
    assert_eq!((name.as_str(), text.as_str()), ("agent_step", "look gave this"), "the act's result answers the step");
    assert!(h.view().contains("  [Step 3] ACT: Used look.\n    Tool: look\n    Result: look gave this\n"));

    h.step(verify("done", "Clio sails to Spain"));
    assert_eq!(h.told_last(), r#"{"acknowledged":true,"facts_recorded":1,"sub_task_outcome":"done"}"#);
    let view = h.view();
    for words in ["  ✓ Sub-task 1: Look\n", "  → Sub-task 2: Tell  ← CURRENT", "  • Clio sails to Spain  [step 4]"]
    {
        assert!(view.contains(words), "{words}: {view}");
    }
    assert!(view.contains("  ℹ 4 of 20 steps used"), "{view}");

    h.step(end("solved"));
    assert_eq!(h.ended(), (EndStatus::Completed, "Clio sails to Spain.".into(), String::new()));
    assert_eq!((h.run.output().status.as_str(), h.run.output().phase.as_deref()), ("completed", Some("end")));
    assert_eq!(h.ledger(), [("look".into(), CallState::Done)]);
}

#[test]
fn an_end_that_is_not_solved_says_so() {
    for (told, status, reason) in
        [("partial", EndStatus::Partial, ""), ("stuck", EndStatus::Stuck, "stuck: Clio sails to Spain.")]
    {
        let mut h = Harness::begin(phased());
        h.step(end(told));
        assert_eq!(h.ended(), (status, "Clio sails to Spain.".into(), reason.into()));
        assert_eq!(h.run.output().status, told);
    }
}

#[test]
fn what_a_phase_lacks_is_asked_for_and_no_failure() {
    for (lacks, words) in [
        (plain_step("plan"), "plan phase requires a plan object"),
        (plain_step("act"), "act phase requires an action object"),
        (plain_step("feedback"), "feedback phase requires feedback_message"),
        (plain_step("end"), "end phase requires end_status"),
        (json!({"phase": "end", "end_status": "solved"}), "end phase requires end_message"),
        (json!({"phase": "reason"}), "reason phase requires a summary"),
        (json!({"phase": "dream", "summary": "s"}), "<one of plan, reason, act, verify, reflect, feedback, end>"),
        (json!({"phase": "verify", "summary": "s", "action": {"tool_name": "write"}}), "belongs to phase act"),
    ] {
        let mut h = Harness::begin(phased());
        h.step(lacks);
        assert_eq!(h.effect, Effect::AskModel);
        assert!(h.told_last().contains(words), "{words}: {}", h.told_last());
        assert_eq!(h.told().len(), 4, "nothing of it is a step: there is no view");
        h.step(end("solved"));
        assert_eq!(h.ended().0, EndStatus::Completed);
    }
    let mut h = Harness::begin(phased());
    for _ in 0..=MAX_CORRECTIONS {
        h.step(plain_step("act"));
    }
    let (status, _, reason) = h.ended();
    assert!(status == EndStatus::Failed && reason.contains("no valid step in 7 tries"), "{reason}");
}

#[test]
fn words_without_a_step_are_corrected() {
    let mut h = Harness::begin(phased());
    h.say(reply("Clio sails to Spain.", Vec::new()));
    assert!(h.told_last().contains("Call `agent_step`"), "{}", h.told_last());
}

#[test]
fn acts_that_fail_or_may_not_run_are_errors_until_the_agent_reflects() {
    let mut h = Harness::begin(phased());
    h.step(act("write", json!({}))).run_calls_with(|_| failure("permission denied"));
    assert!(h.view().contains("  [Step 1] write, unresolved: permission denied"), "{}", h.view());
    h.step(act("write", json!({}))).run_calls_with(|_| failure("permission denied"));
    let view = h.view();
    for words in ["⚠ Same action failed twice.", "⚠ Multiple permission errors."] {
        assert!(view.contains(words), "{words}: {view}");
    }
    h.step(act("fly", json!({})));
    assert!(h.told_last().contains("There is no tool 'fly'"), "{}", h.told_last());
    assert!(h.view().contains("  [Step 3] fly, unresolved: There is no tool 'fly'."), "{}", h.view());
    h.step(act("look", json!({"bad": true})));
    assert!(h.told_last().contains("these arguments do not fit"), "{}", h.told_last());
    h.step(plain_step("reflect"));
    assert!(h.view().contains("  [Step 4] look, resolved: these"), "{}", h.view());
    assert!(h.view().contains("    Resolution: Did reflect."), "{}", h.view());
    for _ in 0..2 {
        h.step(plain_step("reason"));
    }
    assert!(h.view().contains("⚠ 3 steps without action."), "{}", h.view());
    assert_eq!(h.ledger(), [("write".into(), CallState::Failed), ("write".into(), CallState::Failed)]);
}

#[test]
fn a_category_that_a_tool_gave_counts_and_its_words_do_not() {
    let refused = |_: &CallRequest| {
        Err(ToolError::new(ToolErrorCategory::PermissionDenied, "'../x' lies outside of the workspace; stay in it"))
    };
    let mut h = Harness::begin(phased());
    h.step(act("look", json!({"path": "../x"}))).run_calls_with(refused);
    assert!(!h.view().contains("permission errors"), "{}", h.view());
    h.step(act("look", json!({"path": "/etc/shadow"}))).run_calls_with(refused);
    assert!(h.view().contains("⚠ Multiple permission errors."), "{}", h.view());

    let mut h = Harness::begin(phased());
    for n in 0..2 {
        h.step(act("look", json!({"n": n})))
            .run_calls_with(|_| Err(ToolError::new(ToolErrorCategory::NotFound, "no file 'permission denied.txt'")));
    }
    assert!(!h.view().contains("permission errors"), "{}", h.view());
}

#[test]
fn what_is_sent_back_is_a_step_without_an_act() {
    let faulty: [fn(&mut Harness); 4] = [
        |h| {
            h.step(plain_step("act"));
        },
        |h| {
            h.step(json!({"phase": "dream"}));
        },
        |h| {
            h.say(reply("I look at it.", Vec::new()));
        },
        |h| {
            h.say(reply("", Vec::new()));
        },
    ];
    for send in faulty {
        let mut h = Harness::begin(phased());
        h.step(act("look", json!({}))).run_calls();
        for _ in 0..3 {
            assert!(!h.view().contains("steps without action"), "{}", h.view());
            send(&mut h);
        }
        assert!(h.view().contains("⚠ 3 steps without action. Act, reflect, or ask."), "{}", h.view());
        h.step(act("peek", json!({}))).run_calls();
        assert!(!h.view().contains("steps without action"), "{}", h.view());
    }
}

#[test]
fn correcting_answers_to_a_step_are_objects() {
    for wrong in
        [plain_step("plan"), plain_step("act"), json!("act"), json!({"phase": "reason", "plan": plan()["plan"]})]
    {
        let mut h = Harness::begin(phased());
        h.step(wrong);
        let told: Value = serde_json::from_str(&h.told_last()).expect("JSON");
        assert!(told["error"].as_str().is_some_and(|why| !why.is_empty()), "{told}");
    }
}

#[test]
fn turns_of_a_skill_are_no_steps() {
    let mut h = Harness::begin(with_skills(phased()));
    h.step(act("survey", json!({"task": "x"})));
    for n in 0..3 {
        h.calls(vec![call("look", json!({"n": n}))]).run_calls();
    }
    h.calls(vec![call("finish", json!({"final_summary": "surveyed"}))]);
    let view = h.view();
    assert!(view.contains("[Step 1] ACT: Used survey."), "{view}");
    assert!(view.contains("ℹ 1 of 20 steps used, and 4 turns in skills, which count too"), "{view}");
    h.step(plain_step("reason"));
    assert_eq!(h.told_last(), r#"{"acknowledged":true,"step":2}"#);
    assert!(h.view().contains("[Step 2] REASON"), "{}", h.view());
    h.step(end("solved")).take_from_outside(Entry::Reopened);
    assert!(h.view().contains("ℹ 0 of 20 steps used\n"), "limits count anew: {}", h.view());
    h.step(plain_step("reason"));
    assert!(h.view().contains("[Step 4] REASON"), "and steps go on: {}", h.view());
}

#[test]
fn how_the_work_is_judged_stands_beside_how_the_run_ended() {
    for status in ["solved", "partial", "stuck"] {
        let mut h = Harness::begin(phased());
        h.step(end(status));
        assert_eq!(h.run.output().end_status.as_deref(), Some(status));
    }
    assert_eq!(Harness::begin(phased()).run.output().end_status, None);
    let mut h = Harness::begin(opening());
    h.calls(vec![finish("42")]);
    assert_eq!(h.run.output().end_status, None, "nobody asked it");
}

#[test]
fn direct_calls_are_recorded_as_acts() {
    let mut h = Harness::begin(phased());
    h.calls(vec![call("look", json!({})), call("write", json!({}))]).run_calls();
    let view = h.view();
    for words in ["  [Step 1] ACT: Execute look\n    Tool: look\n    Result: look gave this", "ACT: Execute write"] {
        assert!(view.contains(words), "{words}: {view}");
    }
    h.calls(vec![call("finish", json!({"final_summary": "42"}))]);
    assert!(h.told_last().contains("There is no tool 'finish'"), "a run by phases ends by a step: {}", h.told_last());
}

#[test]
fn several_steps_of_one_reply_are_taken_one_by_one() {
    let mut h = Harness::begin(phased());
    h.calls([plan(), act("look", json!({})), act("write", json!({})), end("solved")].map(agent_step).to_vec());
    assert_eq!(h.names(), ["look"]);
    h.run_calls();
    assert_eq!(h.effect, Effect::AskModel, "an end has to come alone");
    assert!(h.told_last().contains("call it alone"), "{}", h.told_last());
    let view = h.view();
    for words in ["[PLAN v1]", "ACT: Used look.", "ACT: Used write."] {
        assert!(view.contains(words), "{words}: {view}");
    }
    assert!(!view.contains("END"), "{view}");
}

/// Where the steps of a view stand in it, by the words they begin with.
fn places(view: &str, steps: &[&str]) -> Vec<usize> {
    steps.iter().map(|words| view.find(words).unwrap_or_else(|| panic!("no {words}: {view}"))).collect()
}

#[test]
fn a_check_beside_its_act_is_taken_when_the_act_has_ended() {
    let mut h = Harness::begin(phased());
    h.step(plan());
    let verified = verify("done", "Clio sails to Spain");
    h.calls([act("put", json!({})), verified, act("look", json!({}))].map(agent_step).to_vec());
    assert_eq!(h.names(), ["put"], "what is behind the check waits with it");
    assert!(!h.view().contains("Clio sails"), "nothing is known of it yet: {}", h.view());
    h.crash_and_pick_up();
    h.run_calls();
    let places = places(&h.view(), &["ACT: Used put.", "VERIFY: Verified.", "ACT: Used look."]);
    assert!(places.is_sorted(), "{}", h.view());
    assert!(h.view().contains("  • Clio sails to Spain  [step 2]"), "{}", h.view());
}

#[test]
fn steps_are_taken_in_the_order_of_their_calls_whichever_ended_first() {
    let mut h = Harness::begin(phased());
    let wrong = act("look", json!({"bad": true}));
    h.calls([act("look", json!({})), wrong, act("peek", json!({})), plan(), plan()].map(agent_step).to_vec());
    for call in h.running().into_iter().rev() {
        h.end_call(&call.id, Ok(format!("{} gave this", call.name).into()));
    }
    let steps = ["Result: look gave this", "do not fit", "Result: peek gave this", "PLAN: Planned."];
    assert!(places(&h.view(), &steps).is_sorted(), "{}", h.view());
    assert!(h.told_last().contains("\"plan_version\":2"), "{}", h.told_last());
}

#[test]
fn feedback_asks_and_the_answer_is_its_result() {
    let mut h = Harness::begin(phased());
    h.step(json!({"phase": "feedback", "thinking": "t", "feedback_message": "Blue or green?"}));
    assert_eq!(h.effect, Effect::Suspend);
    assert_eq!(h.run.phase(), "feedback");
    h.answer(0, Some("blue"));
    assert_eq!(h.effect, Effect::AskModel);
    assert_eq!(h.told_last(), "Question: Blue or green?\nAnswer: blue");
    assert!(h.view().contains("FEEDBACK: Blue or green?"), "{}", h.view());
}

#[test]
fn a_call_in_flight_at_a_crash_is_an_error_of_its_step() {
    let mut h = Harness::begin(phased());
    h.step(act("write", json!({}))).crash_and_pick_up();
    assert_eq!(h.effect, Effect::AskModel);
    assert!(h.told_last().contains("may or may not"), "{}", h.told_last());
    assert!(h.view().contains("write, unresolved: This call was in progress"), "{}", h.view());
}

#[test]
fn the_view_cuts_old_outputs_where_the_window_is_small() {
    let mut opening = phased();
    opening.context_window = Some(6_000);
    opening.persona.limits.max_turns = 100;
    let mut h = Harness::begin(opening);
    for n in 0..30 {
        h.step(act("look", json!({"n": n}))).run_calls_with(|_| Ok("words of a result ".repeat(60).into()));
        while matches!(h.effect, Effect::Summarise(_)) {
            h.summarise(Ok("what was done"));
        }
        assert_eq!(h.effect, Effect::AskModel, "step {n}: {:?}", h.run.ended());
    }
    let view = h.view();
    assert!(view.contains("bytes left out"), "{view}");
    assert!(view.len() < 9_000, "{} bytes", view.len());
    assert!(h.count("compacted") > 0);
}

#[test]
fn structured_calling_goes_through_the_same_phases() {
    let mut h = Harness::begin(structured(phased()));
    let request = h.run.request();
    assert!(request.tools.is_empty() && request.schema.is_some());
    assert_eq!(h.run.opening().map(|o| o.calling), Some(ToolCalling::Structured));
    h.say(reply(&plan().to_string(), Vec::new()));
    assert!(h.told_last().starts_with("Result of agent_step:\n{\"acknowledged\":true"), "{}", h.told_last());
    h.say(reply(&format!("```json\n{}\n```", act("look", json!({}))), Vec::new())).run_calls();
    assert_eq!(h.told_last(), "Result of look:\nlook gave this");
    h.say(reply("I look.", Vec::new()));
    assert!(h.told_last().contains("agent_step was not accepted"), "{}", h.told_last());
    h.say(reply(&end("solved").to_string(), Vec::new()));
    assert_eq!(h.ended().1, "Clio sails to Spain.");
}
