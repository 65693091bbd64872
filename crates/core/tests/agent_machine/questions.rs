//! Questions to people.

use posse_core::journal::{EndStatus, Entry};
use posse_core::model::Message;
use posse_core::run::machine::Effect;
use serde_json::json;

use super::kit::{Harness, call, finish, opening, text};

fn ask(questions: &[&str]) -> posse_core::model::CallRequest {
    call("finish", json!({"final_summary": "", "clarifying_questions": questions}))
}

#[test]
fn questions_are_asked_alone() {
    let mut h = Harness::begin(opening());
    h.calls(vec![call("look", json!({})), ask(&["Blue?"])]).run_calls();
    assert_eq!((&h.effect, h.count("asked")), (&Effect::AskModel, 0));
    assert!(h.told_last().contains("call it alone"), "{}", h.told_last());
    h.calls(vec![ask(&["Blue?", " ", "Which ship?"])]);
    assert_eq!(h.effect, Effect::Suspend);
    let asked = h.run.asked().expect("it asks");
    let texts: Vec<_> = asked.questions.iter().map(|(question, _)| question.as_str()).collect();
    assert_eq!(texts, ["Blue?", "Which ship?"], "a blank one is no question");
    assert_eq!(h.ledger().len(), 1, "no tool runs for a question");
}

#[test]
fn answers_come_in_any_order_and_go_on_when_all_are_there() {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut h = Harness::begin(opening());
        h.calls(vec![ask(&["Colour?", "Ship?", "Port?"])]);
        for (n, last) in order.into_iter().zip([false, false, true]) {
            h.answer(n, Some(["blue", "Clio", "Cadiz"][n as usize]));
            assert_eq!(h.effect == Effect::AskModel, last, "{order:?}");
        }
        let told = "Question: Colour?\nAnswer: blue\n\nQuestion: Ship?\nAnswer: Clio\n\nQuestion: Port?\nAnswer: Cadiz";
        assert_eq!(h.told_last(), told);
        assert!(matches!(h.run.messages().last(), Some(Message::Tool { name, .. }) if name == "finish"));
        h.calls(vec![finish("painted blue")]);
        assert_eq!(h.ended().1, "painted blue");
    }
}

#[test]
fn a_question_that_nobody_answers_is_said_to_be_so() {
    let mut opening = opening();
    opening.persona.limits.max_wait_seconds = Some(60);
    let mut h = Harness::begin(opening);
    h.calls(vec![ask(&["Colour?", "Ship?"])]);
    assert!(matches!(&h.journal.last().unwrap().entry, Entry::Asked { open_ms: Some(60_000), .. }));
    h.answer(0, None).answer(1, Some("Clio"));
    assert_eq!(h.effect, Effect::AskModel);
    assert!(h.told_last().contains("Colour?\nAnswer: (nobody answered in time"), "{}", h.told_last());
    assert!(h.told_last().ends_with("Ship?\nAnswer: Clio"), "{}", h.told_last());
}

#[test]
fn the_first_answer_counts_and_no_answer_counts_that_was_not_asked_for() {
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["Colour?", "Ship?"])]);
    h.answer(0, Some("blue")).answer(0, Some("green")).answer(7, Some("what?"));
    assert_eq!(h.effect, Effect::Suspend);
    h.answer(1, Some("Clio")).answer(1, Some("Nora"));
    assert_eq!(h.told_last(), "Question: Colour?\nAnswer: blue\n\nQuestion: Ship?\nAnswer: Clio");
}

#[test]
fn a_run_that_waits_waits_again_for_whoever_picks_it_up() {
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["Colour?", "Ship?"])]).answer(1, Some("Clio"));
    for _ in 0..3 {
        let before = h.journal.len();
        h.crash_and_pick_up();
        assert_eq!((&h.effect, h.journal.len()), (&Effect::Suspend, before), "asked once, not again");
    }
    h.answer(0, Some("blue"));
    assert_eq!(h.effect, Effect::AskModel);
}

#[test]
fn answers_stay_word_for_word_through_every_summary() {
    let mut opening = opening();
    opening.persona.context.max_messages = Some(6);
    opening.persona.context.chunk = 4;
    opening.persona.limits.max_turns = 100;
    let mut h = Harness::begin(opening);
    h.calls(vec![ask(&["Colour?"])]).answer(0, Some("blue, RAL 5010"));
    for n in 0..12 {
        h.calls(vec![call("look", json!({"n": n}))]).run_calls();
        while matches!(h.effect, Effect::Summarise(_)) {
            assert!(!h.to_summarise().messages.iter().any(|m| text(m).contains("RAL 5010")));
            h.summarise(Ok("looked around"));
        }
    }
    assert!(h.count("compacted") >= 2);
    assert!(h.told().iter().any(|told| told == "Question: Colour?\nAnswer: blue, RAL 5010"));
}

#[test]
fn questions_that_cannot_be_asked_are_refused() {
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["?"; 9])]);
    assert!(h.told_last().contains("it has 9 questions; ask at most 8"), "{}", h.told_last());
    h.calls(vec![call("finish", json!({"final_summary": "done", "clarifying_questions": ["", " "]}))]);
    assert_eq!(h.ended().0, EndStatus::Completed, "blank questions ask nothing");
}
