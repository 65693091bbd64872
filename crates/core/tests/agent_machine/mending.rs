//! Journals with a row missing: case C03's last wish.

use posse_core::run::journal::{Entry, Recorded};
use posse_core::run::machine::{Effect, Input, step};
use posse_core::run::{Run, Seen};
use serde_json::json;

use super::kit::{
    Harness, act, agent_step, call, check, count, finish, half_the_bytes, opening, phased, plain_step, unsendable,
    with_skills,
};

/// Goes on from a journal as a worker would, with tools that do well, until the run ends or asks people.
fn go_on(journal: &[Recorded], by_phases: bool) {
    let mut run = Run::replay(journal);
    assert_eq!(Some(run.next_seq()), journal.last().map(|last| last.seq + 1), "the next entry goes behind the last");
    if run.opening().is_none() {
        return;
    }
    let mut next = step(&mut run, Input::PickedUp);
    for _ in 0..200 {
        let input = match next.effect {
            Effect::AskModel => {
                assert_eq!(unsendable(&run.request()), Vec::<String>::new());
                let end = json!({"phase": "end", "end_status": "solved", "end_message": "42"});
                let call = if by_phases && run.depth() == 0 { agent_step(end) } else { finish("42") };
                Input::Replied {
                    reply: super::kit::reply("", vec![call]),
                    ms: 1,
                    check: &check,
                    seen: &Seen::default(),
                }
            }
            Effect::RunCalls(calls) => {
                let call_id = calls[0].request.id.clone();
                Input::CallEnded { call_id, result: Ok("again".to_owned().into()), ms: 1, check: &check }
            }
            Effect::Wait => {
                let waits = run.open_calls().iter().find(|call| call.started).expect("something runs");
                let call_id = waits.request.id.clone();
                Input::CallEnded { call_id, result: Ok("again".to_owned().into()), ms: 1, check: &check }
            }
            Effect::Count(what) => Input::Counted { tokens: count(half_the_bytes, &what) },
            Effect::Summarise(_) => Input::Summarised { text: Some("notes".into()) },
            Effect::Suspend | Effect::End => return,
            Effect::FailAttempt { reason, .. } | Effect::StopProgram(reason) => panic!("{reason}"),
        };
        next = step(&mut run, input);
    }
    panic!("it does not end");
}

fn every_row_may_be_missing(h: &Harness, by_phases: bool) {
    for missing in 0..h.journal.len() {
        for len in (missing + 1).max(2)..=h.journal.len() {
            let mut journal = h.journal[..len].to_vec();
            journal.remove(missing);
            go_on(&journal, by_phases);
        }
    }
}

#[test]
fn a_run_goes_on_whichever_row_is_missing() {
    let mut opening = with_skills(opening());
    opening.persona.context.max_messages = Some(8);
    opening.persona.context.chunk = 4;
    opening.persona.limits.max_turns = 100;
    opening.persona.fallback_tools = [("look".to_owned(), "peek".to_owned())].into();
    let mut h = Harness::begin(opening);
    let many = |n: usize| vec![call("put", json!({"n": n})), call("peek", json!({"n": n})), call("fly", json!({}))];
    let summed = |h: &mut Harness| {
        while matches!(h.effect, Effect::Summarise(_)) {
            h.summarise(Ok("notes"));
        }
    };
    for n in 0..8 {
        h.calls(many(n)).run_calls();
        summed(&mut h);
    }
    assert!(h.count("compacted") >= 2);
    h.calls(vec![call("look", json!({"fails": true}))]).run_calls_with(|call| match call.name.as_str() {
        "look" => super::kit::failure("broken"),
        _ => Ok("seen".to_owned().into()),
    });
    summed(&mut h);
    h.calls(vec![call("survey", json!({"task": "x"})), call("write", json!({}))]);
    h.calls(vec![call("look", json!({}))]).run_calls().calls(vec![finish("surveyed")]).run_calls();
    summed(&mut h);
    h.calls(vec![call("survey", json!({"task": " "}))]);
    h.calls(vec![call("finish", json!({"final_summary": "", "clarifying_questions": ["Blue?"]}))]);
    h.answer(0, Some("blue"));
    summed(&mut h);
    h.calls(vec![call("finish", json!({"final_summary": "no", "request_replan": true}))]).summarise(Ok("notes"));
    h.calls(vec![finish("42")]);
    h.take_from_outside(Entry::Reopened);
    h.calls(many(9)).run_calls();
    every_row_may_be_missing(&h, false);
}

#[test]
fn a_run_by_phases_goes_on_whichever_row_is_missing() {
    let mut opening = phased();
    opening.persona.limits.max_turns = 100;
    let mut h = Harness::begin(opening);
    h.step(plain_step("reason")).step(act("write", json!({}))).run_calls();
    h.calls(vec![agent_step(act("look", json!({}))), agent_step(plain_step("verify")), call("put", json!({}))]);
    h.run_calls();
    h.step(json!({"phase": "feedback", "feedback_message": "Blue?"})).answer(0, Some("blue"));
    h.step(plain_step("reflect"));
    every_row_may_be_missing(&h, true);
}
