//! Questions to people.

use posse_core::model::Message;
use posse_core::run::journal::{EndStatus, Entry};
use posse_core::run::machine::Effect;
use serde_json::{Value, json};

use super::kit::{
    Harness, TASK, act, agent_step, call, finish, opening, phased, plain_step, reply, structured, text, with_skills,
};

fn ask(questions: &[&str]) -> posse_core::model::CallRequest {
    call("finish", json!({"final_summary": "", "clarifying_questions": questions}))
}

#[test]
fn questions_come_before_everything_else_in_their_reply() {
    let others = [call("write", json!({})), call("look", json!({})), call("fly", json!({})), finish("done")];
    let replan = call("finish", json!({"final_summary": "no", "request_replan": true}));
    for other in others.into_iter().chain([replan]) {
        for calls in [vec![other.clone(), ask(&["Blue?"])], vec![ask(&["Blue?"]), other.clone(), other.clone()]] {
            let mut h = Harness::begin(opening());
            h.calls(calls.clone());
            assert_eq!((&h.effect, h.count("asked"), h.count("turn")), (&Effect::Suspend, 1, 1), "{calls:?}");
            assert_eq!(h.ledger(), [], "nothing else ran: {calls:?}");
            h.crash_and_pick_up();
            h.answer(0, Some("blue"));
            assert_eq!(h.effect, Effect::AskModel);
            let told = h.told().join("\n");
            let why = "Not run: a reply that asks people does nothing else.";
            assert_eq!(told.matches(why).count(), calls.len() - 1, "{told}");
            assert!(told.contains("Question: Blue?\nAnswer: blue"), "{told}");
            h.calls(vec![call("write", json!({}))]);
            assert_eq!(h.names(), ["write"], "and now it may");
        }
    }
}

#[test]
fn questions_of_several_calls_are_asked_together() {
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["Blue?"]), call("write", json!({})), ask(&["Which ship?", "Which port?"])]);
    let asked = h.run.asked().expect("it asks");
    assert_eq!(asked.questions.len(), 3);
    for n in 0..3 {
        h.answer(n, Some("yes"));
    }
    assert!(h.told().iter().any(|told| told.matches("Answer: yes").count() == 3));
    assert!(h.told_last().contains("the answers are in that result"), "{}", h.told_last());
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["?"; 6]), ask(&["!"; 6])]);
    assert_eq!(h.run.asked().expect("it asks").questions.len(), 6, "no more than may be asked at once");
}

#[test]
fn a_question_that_cannot_be_asked_runs_nothing_else_either() {
    for wrong in [
        ask(&["?"; 9]),
        call("finish", json!({"final_summary": "", "clarifying_questions": "Which ship?"})),
        call("finish", json!({"final_summary": "", "clarifying_questions": ["Which ship?"], "mood": "bad"})),
    ] {
        let mut h = Harness::begin(opening());
        h.calls(vec![call("write", json!({})), wrong]);
        assert_eq!((&h.effect, h.ledger()), (&Effect::AskModel, vec![]));
        let told = h.told();
        assert!(told[told.len() - 2].contains("does nothing else"), "{told:?}");
        assert!(h.told_last().contains("finish was not accepted"), "{told:?}");
    }
    let mut h = Harness::begin(opening());
    h.calls(vec![call("finish", json!({"clarifying_questions": ["Which ship?"]}))]);
    assert_eq!(h.effect, Effect::Suspend, "who asks has no answer to give yet");
}

#[test]
fn questions_beside_a_structured_step_and_in_a_skill_come_first_too() {
    let mut h = Harness::begin(structured(opening()));
    let step = |more: Value| {
        let mut step = json!({"thinking": "", "tool": "write", "arguments": {}});
        step.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        reply(&step.to_string(), Vec::new())
    };
    h.say(step(json!({"clarifying_questions": ["Blue?"]})));
    assert_eq!((&h.effect, h.ledger()), (&Effect::Suspend, vec![]));
    h.answer(0, Some("blue")).say(step(json!({"request_replan": true})));
    assert_eq!(h.ledger(), []);
    h.summarise(Ok("notes"));
    assert_eq!(h.count("replanned"), 1);

    let mut h = Harness::begin(with_skills(opening()));
    let survey = call("survey", json!({"task": "x"}));
    h.calls(vec![survey.clone(), ask(&["Blue?"])]);
    assert_eq!((&h.effect, h.run.depth(), h.count("skill_began")), (&Effect::Suspend, 0, 0), "no skill begins");
    h.answer(0, Some("blue")).calls(vec![survey]);
    assert_eq!(h.run.depth(), 1);
    h.calls(vec![call("look", json!({})), ask(&["Which?"])]);
    assert_eq!((&h.effect, h.ledger()), (&Effect::Suspend, vec![]));
    h.answer(0, Some("Clio"));
    assert_eq!((&h.effect, h.run.depth()), (&Effect::AskModel, 1));
}

#[test]
fn a_question_by_phases_comes_first_too() {
    let feedback = json!({"phase": "feedback", "thinking": "t", "feedback_message": "Blue or green?"});
    let others = [call("write", json!({})), agent_step(act("write", json!({}))), agent_step(plain_step("reason"))];
    for other in others {
        let mut h = Harness::begin(phased());
        h.calls(vec![other, agent_step(feedback.clone())]);
        assert_eq!((&h.effect, h.ledger()), (&Effect::Suspend, vec![]));
        h.answer(0, Some("blue"));
        let view = h.view();
        assert!(view.contains("[Step 1] FEEDBACK: Blue or green?") && view.contains("[Errors]\n  (none)"), "{view}");
        assert!(!view.contains("ACT") && !view.contains("REASON"), "{view}");
    }
    let mut h = Harness::begin(phased());
    h.calls(vec![call("write", json!({})), agent_step(plain_step("feedback"))]);
    assert_eq!((&h.effect, h.ledger()), (&Effect::AskModel, vec![]), "a question was meant");
}

#[test]
fn a_job_that_is_changed_in_place_of_an_answer_keeps_the_question() {
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["Colour?"])]).answer(0, Some("blue"));
    h.calls(vec![ask(&["Which ship?", "Which port?"])]).answer(1, Some("Cadiz"));
    h.begin_again(opening());
    let told = h.told_last();
    assert!(told.starts_with(&format!("Your task:\n{TASK}\n")), "{told}");
    for words in ["Question: Colour?\nAnswer: blue", "Question: Which port?\nAnswer: Cadiz"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(told.contains("Question: Which ship?\nAnswer: (the task above was changed"), "{told}");
    h.calls(vec![call("finish", json!({"final_summary": "no", "request_replan": true}))]).summarise(Ok("notes"));
    assert!(h.told_last().contains("Question: Which ship?"), "{}", h.told_last());
}

#[test]
fn blank_questions_are_none() {
    let mut h = Harness::begin(opening());
    h.calls(vec![ask(&["Blue?", " ", "Which ship?"])]);
    assert_eq!(h.effect, Effect::Suspend);
    let asked = h.run.asked().expect("it asks");
    let texts: Vec<_> = asked.questions.iter().map(|(question, _)| question.as_str()).collect();
    assert_eq!(texts, ["Blue?", "Which ship?"], "a blank one is no question");
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
