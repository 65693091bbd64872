//! New plans.

use posse_core::model::CallRequest;
use posse_core::run::compaction::Purpose;
use posse_core::run::journal::{EndStatus, Entry};
use posse_core::run::machine::{Effect, MAX_REPLANS};
use serde_json::json;

use super::kit::{Harness, TASK, call, finish, opening};

fn replan(why: &str) -> CallRequest {
    call("finish", json!({"final_summary": why, "request_replan": true}))
}

#[test]
fn a_new_plan_begins_with_the_task_and_what_failed() {
    let mut h = Harness::begin(opening());
    h.calls(vec![call("look", json!({}))]).run_calls();
    h.calls(vec![replan("looking shows nothing")]);
    let what = h.to_summarise();
    assert_eq!(what.purpose, Purpose::FailedAttempt { reason: "looking shows nothing".into() });
    assert_eq!((what.task.as_str(), what.messages.len()), (TASK, 3), "the whole try, and nothing of the head");
    h.summarise(Ok("looked; nothing was there"));
    assert_eq!(h.effect, Effect::AskModel);
    let told = h.told();
    assert_eq!(told.len(), 2, "the conversation is cleared");
    assert!(told[1].starts_with(&format!("Your task:\n{TASK}\n")), "{}", told[1]);
    assert!(told[1].contains("why it failed:\nlooked; nothing was there"), "{}", told[1]);
    assert!(matches!(&h.journal.last().unwrap().entry,
        Entry::Replanned { reason, summary } if reason == "looking shows nothing" && summary.starts_with("looked")));
    h.calls(vec![finish("found it")]);
    assert_eq!(h.ended().1, "found it");
}

#[test]
fn what_people_answered_outlives_every_new_plan() {
    let mut h = Harness::begin(opening());
    for (n, (question, answer)) in [("Colour?", "blue"), ("Which ship?", "Clio")].into_iter().enumerate() {
        h.calls(vec![call("finish", json!({"final_summary": "", "clarifying_questions": [question]}))]);
        h.answer(0, Some(answer));
        h.calls(vec![replan("no")]).summarise(Ok("notes"));
        let told = h.told_last();
        assert!(told.starts_with(&format!("Your task:\n{TASK}\n")) && told.contains("notes"), "{told}");
        assert!(told.contains("Question: Colour?\nAnswer: blue"), "after plan {n}: {told}");
        assert_eq!(told.contains("Question: Which ship?\nAnswer: Clio"), n == 1, "{told}");
    }
    h.crash_and_pick_up();
    assert!(h.told_last().contains("Answer: blue"), "{}", h.told_last());
}

#[test]
fn what_people_answered_before_a_run_was_reopened_is_not_asked_again() {
    let mut h = Harness::begin(opening());
    h.calls(vec![call("finish", json!({"final_summary": "", "clarifying_questions": ["Colour?"]}))]);
    h.answer(0, Some("blue"));
    h.calls(vec![finish("it is blue")]);
    h.ended();
    h.take_from_outside(Entry::Reopened);
    h.calls(vec![replan("blue was wrong")]).summarise(Ok("notes"));
    assert!(h.told_last().contains("Question: Colour?\nAnswer: blue"), "{}", h.told_last());
    h.crash_and_pick_up();
    assert!(h.told_last().contains("Answer: blue"), "{}", h.told_last());
}

#[test]
fn beside_the_wish_for_a_new_plan_nothing_runs() {
    for calls in
        [vec![call("write", json!({})), replan("no")], vec![replan("no"), call("write", json!({})), replan("oh")]]
    {
        let mut h = Harness::begin(opening());
        h.calls(calls.clone());
        assert_eq!(h.ledger(), [], "{calls:?}");
        h.crash_and_pick_up();
        h.summarise(Ok("notes"));
        assert_eq!((&h.effect, h.count("replanned")), (&Effect::AskModel, 1));
        let refused = h.journal.iter().filter(|r| {
            matches!(&r.entry, Entry::CallEnded { text, .. }
            if text.contains("the same reply asked for a new plan"))
        });
        assert_eq!(refused.count(), calls.len() - 1, "each is told why");
        assert!(h.told_last().contains("notes"), "{}", h.told_last());
    }
}

#[test]
fn a_new_plan_that_may_not_be_made_keeps_nothing_from_running() {
    let mut opening = opening();
    opening.persona.limits.max_turns = 100;
    let mut h = Harness::begin(opening);
    for _ in 0..MAX_REPLANS {
        h.calls(vec![replan("no")]).summarise(Ok("notes"));
    }
    h.calls(vec![call("look", json!({})), replan("no")]);
    assert_eq!(h.names(), ["look"]);
    h.run_calls();
    assert!(h.told_last().contains("no more may be"), "{}", h.told_last());
}

#[test]
fn there_are_so_many_new_plans_and_no_more() {
    let mut opening = opening();
    opening.persona.limits.max_turns = 100;
    let mut h = Harness::begin(opening);
    for n in 0..MAX_REPLANS {
        h.calls(vec![call("write", json!({"n": n}))]).run_calls();
        h.calls(vec![replan(&format!("try {n} failed"))]).summarise(Ok(&format!("notes {n}")));
        let told = h.told().join("\n");
        assert!(told.contains(&format!("notes {n}")), "{told}");
        assert!(n == 0 || !told.contains(&format!("notes {}", n - 1)), "of the last try only: {told}");
    }
    h.calls(vec![replan("again")]);
    assert!(h.told_last().contains("3 new plans have been made, and no more may be"), "{}", h.told_last());
    h.calls(vec![finish("half of it")]);
    assert_eq!(h.ended(), (EndStatus::Completed, "half of it".into(), String::new()));
}

#[test]
fn a_crash_while_the_summary_is_written_writes_it_again() {
    let mut h = Harness::begin(opening());
    h.calls(vec![replan("no")]);
    let what = h.to_summarise();
    let before = h.journal.len();
    h.crash_and_pick_up();
    assert_eq!((h.to_summarise(), h.journal.len()), (what, before));
    h.summarise(Ok("notes"));
    assert_eq!((h.count("replanned"), h.count("summarised")), (1, 1));
}

#[test]
fn without_a_summary_the_calls_are_listed() {
    let mut h = Harness::begin(opening());
    h.calls(vec![call("look", json!({"a": 1}))]).run_calls();
    h.calls(vec![replan("no")]).summarise(Err("the model is away"));
    let told = h.told();
    assert!(told[1].contains(r#"- look {"a":1} -> look gave this"#), "{}", told[1]);
    assert!(h.journal.iter().any(|r| matches!(&r.entry,
        Entry::Summarised { failure: Some(why), .. } if why == "the model is away")));
}

#[test]
fn the_limits_go_on_counting() {
    let mut opening = opening();
    opening.persona.limits.max_turns = 2;
    let mut h = Harness::begin(opening);
    h.calls(vec![replan("no")]).summarise(Ok("notes"));
    h.calls(vec![replan("no")]).summarise(Ok("notes"));
    assert_eq!(h.ended().0, EndStatus::MaxTurns);
    assert_eq!(h.run.output().usage.input, 2 * (10 + 7), "summaries count too");
}
