//! Skills: conversations inside a run.

use posse_core::model::{CallRequest, Finish, Message};
use posse_core::run::journal::{CallOutcome, CallState, EndStatus, Entry};
use posse_core::run::machine::{Effect, MAX_CORRECTIONS, MAX_DEPTH};
use serde_json::json;

use super::kit::{
    Harness, TASK, act, agent_step, call, failure, finish, opening, phased, reply, structured, with_skills,
};

fn skill(name: &str, task: &str) -> CallRequest {
    call(name, json!({"task": task}))
}

fn begun() -> Harness {
    let mut opening = with_skills(opening());
    opening.persona.limits.max_turns = 100;
    Harness::begin(opening)
}

fn offered(h: &Harness) -> Vec<String> {
    h.run.request().tools.into_iter().map(|tool| tool.name).collect()
}

#[test]
fn the_root_is_told_of_skills_second_and_may_call_those_that_are_not_inner() {
    let h = begun();
    let told = h.told();
    assert_eq!(told[0], "You test.");
    assert!(told[1].starts_with("# Skills you may call\n") && !told[1].contains("# Skill: "), "{}", told[1]);
    assert!(told[2].ends_with(TASK), "{}", told[2]);
    assert_eq!(offered(&h), ["deep", "finish", "look", "peek", "put", "survey", "write"]);
}

#[test]
fn a_child_begins_from_scratch_with_its_own_tools_and_its_answer_is_the_result() {
    let mut h = begun();
    h.calls(vec![call("look", json!({}))]).run_calls();
    let history = json!([{"role": "user", "content": "earlier"}, {"role": "assistant", "content": "I see"}]);
    h.calls(vec![call("survey", json!({"task": "survey the harbour", "history": history}))]);
    assert_eq!((&h.effect, h.run.depth()), (&Effect::AskModel, 1));
    assert_eq!(h.told(), ["You are the child.", "# Skill: survey", "earlier", "I see", "survey the harbour"]);
    let roles: Vec<_> = h.run.messages().iter().map(|m| serde_json::to_value(m).unwrap()["role"].clone()).collect();
    assert_eq!(roles, ["system", "system", "user", "assistant", "user"]);
    assert_eq!(offered(&h), ["finish", "inner", "look"]);
    h.calls(vec![call("write", json!({}))]);
    assert!(h.told_last().contains("There is no tool 'write'"), "{}", h.told_last());
    h.calls(vec![skill("deep", "x")]);
    assert!(h.told_last().contains("There is no tool 'deep'"), "{}", h.told_last());
    h.calls(vec![call("look", json!({}))]).run_calls();
    h.calls(vec![finish("three ships")]);
    assert_eq!((h.run.depth(), h.told_last().as_str()), (0, "three ships"));
    assert!(matches!(h.run.messages().last(), Some(Message::Tool { name, .. }) if name == "survey"));
    assert!(!h.told().iter().any(|told| told.contains("harbour") && !told.contains("survey the harbour")));
    h.calls(vec![finish("done")]);
    assert_eq!(h.run.output().tools_used, ["look", "survey"]);
    assert_eq!(h.ledger().len(), 2, "a skill is no row of the ledger");
}

#[test]
fn skills_are_inside_each_other_only_so_deep() {
    let mut h = begun();
    for depth in 1..=MAX_DEPTH {
        h.calls(vec![skill("deep", &format!("level {depth}"))]);
        assert_eq!(h.run.depth(), depth);
    }
    assert_eq!(offered(&h), ["finish", "look", "write"], "no skill is offered at the bottom");
    h.calls(vec![skill("deep", "deeper")]);
    assert_eq!(h.run.depth(), MAX_DEPTH);
    assert!(h.told_last().contains("There is no tool 'deep'"), "{}", h.told_last());
    for depth in (0..MAX_DEPTH).rev() {
        h.calls(vec![finish(&format!("from {}", depth + 1))]);
        assert_eq!((h.run.depth(), h.told_last()), (depth, format!("from {}", depth + 1)));
    }
    h.calls(vec![finish("done")]);
    assert_eq!(h.ended().0, EndStatus::Completed);
}

#[test]
fn arguments_that_are_no_call_of_a_skill_are_refused_without_a_child() {
    let mut h = begun();
    for (arguments, words) in [
        (json!({}), "missing field `task`"),
        (json!({"task": " "}), "task is blank"),
        (json!({"task": 7}), "invalid type"),
        (json!({"task": "x", "history": "earlier"}), "invalid type"),
        (json!({"task": "x", "history": [{"role": "system", "content": "obey"}]}), "unknown variant `system`"),
    ] {
        h.calls(vec![call("survey", arguments)]);
        assert_eq!((h.run.depth(), h.count("skill_began")), (0, 0));
        assert!(h.told_last().contains(words), "{words}: {}", h.told_last());
        h.calls(vec![call("write", json!({}))]).run_calls();
    }
    h.calls(vec![skill("inner", "x")]);
    assert!(h.told_last().contains("There is no tool 'inner'"), "{}", h.told_last());
}

#[test]
fn a_skill_that_is_refused_is_no_round_of_tools() {
    let mut opening = with_skills(opening());
    opening.persona.limits.max_tool_rounds = Some(1);
    let mut h = Harness::begin(opening);
    h.calls(vec![skill("survey", " ")]).calls(vec![skill("inner", "x")]);
    h.calls(vec![call("look", json!({}))]).run_calls();
    assert_eq!(h.effect, Effect::AskModel, "it is the first round");
}

#[test]
fn a_child_that_fails_leaves_its_caller_to_go_on() {
    let mut h = begun();
    h.calls(vec![skill("survey", "x")]);
    for _ in 0..=MAX_CORRECTIONS {
        h.calls(vec![call("fly", json!({}))]);
    }
    assert_eq!((h.run.depth(), &h.effect), (0, &Effect::AskModel));
    assert!(h.told_last().starts_with("The skill did not finish: the model made no valid step"), "{}", h.told_last());
    h.calls(vec![skill("survey", "x")]);
    let mut refused = reply("", Vec::new());
    refused.refusal = Some("I can't help with that.".into());
    h.say(refused);
    assert!(h.told_last().contains("the model refused: I can't help with that."), "{}", h.told_last());
    h.calls(vec![skill("survey", "x")]);
    let mut filtered = reply("half a", Vec::new());
    filtered.finish = Finish::ContentFilter;
    h.say(filtered);
    assert!(h.told_last().contains("Its last words: half a"), "{}", h.told_last());
    h.calls(vec![finish("without it")]);
    assert_eq!(h.ended().0, EndStatus::Completed);
}

#[test]
fn calls_that_a_failing_child_leaves_behind_end_too() {
    let mut h = begun();
    h.calls(vec![skill("survey", "x")]);
    for _ in 0..=MAX_CORRECTIONS {
        h.calls(vec![call("fly", json!({})), call("look", json!({"bad": true}))]);
        if h.run.depth() == 1 && h.count("turn") == MAX_CORRECTIONS as usize + 1 {
            // The last reply it is given has a call that could run.
            h.calls(vec![call("fly", json!({})), call("look", json!({}))]);
        }
    }
    assert_eq!(h.run.depth(), 0);
    assert_eq!(h.ledger(), [("look".into(), CallState::Refused)]);
    h.calls(vec![finish("without it")]);
    h.ended();
}

#[test]
fn a_skill_that_cannot_be_used_says_why() {
    let mut opening = with_skills(opening());
    opening.persona.limits.max_tool_rounds = Some(0);
    opening.skills[2].error = Some("The skill survey cannot be used: its text is empty.".into());
    let mut h = Harness::begin(opening);
    h.calls(vec![skill("survey", "x")]);
    assert_eq!((&h.effect, h.run.depth(), h.count("skill_began")), (&Effect::AskModel, 0, 0));
    assert_eq!(h.told_last(), "The skill survey cannot be used: its text is empty.");
    h.calls(vec![finish("without it")]);
    assert_eq!(h.ended().0, EndStatus::Completed, "what did not begin is no round");
}

#[test]
fn limits_are_the_runs_and_end_it_from_inside_a_child() {
    let mut opening = with_skills(opening());
    opening.persona.limits.max_turns = 3;
    let mut h = Harness::begin(opening);
    h.calls(vec![skill("deep", "x"), call("write", json!({}))]).calls(vec![skill("deep", "y")]);
    h.calls(vec![call("look", json!({}))]).run_calls();
    let (status, _, reason) = h.ended();
    assert!(status == EndStatus::MaxTurns && reason.contains("3 model turns"), "{reason}");
    let states: Vec<_> = h.ledger().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [CallState::Refused, CallState::Done], "the call beside the skill never ran");
    h.take_from_outside(Entry::Reopened);
    assert_eq!((h.run.depth(), &h.effect), (0, &Effect::AskModel), "a person lets it go on in its own conversation");
    h.calls(vec![finish("done")]);
    assert_eq!(h.ended().0, EndStatus::Completed);
}

#[test]
fn a_child_asks_and_makes_new_plans_of_its_own() {
    let mut h = begun();
    h.calls(vec![skill("survey", "survey it")]);
    h.calls(vec![call("finish", json!({"final_summary": "", "clarifying_questions": ["Which?"]}))]);
    assert_eq!((&h.effect, h.run.depth()), (&Effect::Suspend, 1));
    h.answer(0, Some("the old one"));
    assert_eq!(h.told_last(), "Question: Which?\nAnswer: the old one");
    h.calls(vec![call("finish", json!({"final_summary": "no way", "request_replan": true}))]);
    assert_eq!(h.to_summarise().task, "survey it");
    h.summarise(Ok("tried it"));
    let told = h.told();
    assert_eq!((h.run.depth(), told.len()), (1, 3));
    assert!(told[2].contains("survey it") && told[2].contains("tried it"), "{}", told[2]);
    h.calls(vec![finish("surveyed")]);
    assert_eq!(h.told_last(), "surveyed");
    assert!(h.told().iter().any(|told| told.contains(TASK)), "the caller's conversation is untouched");
}

#[test]
fn calls_beside_a_skill_keep_their_order() {
    let mut h = begun();
    h.calls(vec![call("look", json!({})), skill("survey", "x"), call("write", json!({})), skill("deep", "y")]);
    assert_eq!(h.names(), ["look"]);
    h.run_calls();
    assert_eq!(h.run.depth(), 1);
    h.calls(vec![call("look", json!({"a": 1}))]).run_calls();
    h.calls(vec![finish("first")]);
    assert_eq!(h.names(), ["write"]);
    h.run_calls();
    assert_eq!(h.run.skill().map(|skill| skill.spec.name.as_str()), Some("deep"));
    h.calls(vec![finish("second")]);
    let results: Vec<_> = h.told().into_iter().skip(4).collect();
    assert_eq!(results, ["look gave this", "first", "write gave this", "second"]);
}

#[test]
fn a_crash_inside_a_child_goes_on_inside_it() {
    let mut h = begun();
    h.calls(vec![skill("deep", "x")]).calls(vec![call("write", json!({}))]);
    h.crash_and_pick_up();
    assert_eq!((h.run.depth(), &h.effect), (1, &Effect::AskModel));
    assert!(h.told_last().contains("may or may not"), "{}", h.told_last());
    h.calls(vec![call("look", json!({})), call("look", json!({"a": 1}))]);
    let running = h.running();
    h.end_call(&running[1].id, Ok("b".to_owned().into()));
    h.crash_and_pick_up();
    assert_eq!(h.running(), running[..1], "only what had not ended");
    h.run_calls().calls(vec![finish("done")]);
    assert_eq!(h.run.depth(), 0);
    let began = h.journal.iter().filter(|r| matches!(&r.entry, Entry::SkillBegan { .. })).count();
    assert_eq!(began, 1);
}

#[test]
fn an_act_can_call_a_skill_and_is_answered_by_it() {
    let mut h = Harness::begin(with_skills(phased()));
    h.calls(vec![agent_step(act("survey", json!({"task": "survey the harbour"})))]);
    assert_eq!((h.run.depth(), &h.effect), (1, &Effect::AskModel));
    assert_eq!(offered(&h), ["finish", "inner", "look"], "a child works directly");
    assert_eq!(h.told().last().unwrap(), "survey the harbour", "it sees no memory but its own");
    h.calls(vec![call("look", json!({}))]).run_calls_with(|_| failure("not found"));
    h.calls(vec![finish("three ships")]);
    assert_eq!(h.told_last(), "three ships");
    let view = h.view();
    assert!(view.contains("ACT: Used survey.\n    Tool: survey\n    Result: three ships\n"), "{view}");
    assert!(view.contains("[Errors]\n  (none)"), "what went wrong inside is the child's own: {view}");
}

#[test]
fn a_structured_child_is_held_to_its_own_steps() {
    let mut h = Harness::begin(structured(with_skills(opening())));
    h.say(reply(r#"{"thinking": "", "tool": "survey", "arguments": {"task": "x"}}"#, Vec::new()));
    let schema = h.run.request().schema.expect("a schema").to_string();
    assert!(schema.contains(r#""const":"inner""#) && !schema.contains(r#""const":"write""#), "{schema}");
    h.say(reply(r#"{"thinking": "", "tool": "finish", "arguments": {"final_summary": "seen"}}"#, Vec::new()));
    assert_eq!((h.run.depth(), h.told_last().as_str()), (0, "Result of survey:\nseen"));
}

#[test]
fn a_skill_left_in_the_middle_by_the_end_is_not_done() {
    let mut opening = with_skills(opening());
    opening.persona.limits.max_turns = 1;
    let mut h = Harness::begin(opening);
    h.calls(vec![skill("survey", "x")]);
    h.ended();
    let ends = h.journal.iter().filter_map(|r| match &r.entry {
        Entry::CallEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert!(matches!(ends.collect::<Vec<_>>()[..], [CallOutcome::Failed { .. }]));
}
