//! Conversations that outgrow their window, inside a run.

use posse_core::model::{Message, ModelErrorKind, ModelRequest};
use posse_core::persona::Style;
use posse_core::run::compaction::{Purpose, SUMMARY_TOKENS, Summariser, SummaryRoom};
use posse_core::run::journal::{EndStatus, Entry, Opening};
use posse_core::run::machine::{Again, Effect};
use posse_core::run::sent::{Reason, requests};
use serde_json::json;

use super::kit::{Harness, TASK, act, call, finish, opening, reply, structured, text, unsendable};

fn by_number(max: u32, chunk: u32) -> Opening {
    let mut opening = opening();
    opening.persona.context.max_messages = Some(max);
    opening.persona.context.chunk = chunk;
    opening.persona.limits.max_turns = 200;
    opening
}

fn by_window(window: u32) -> Opening {
    let mut opening = opening();
    opening.context_window = Some(window);
    opening.persona.context.max_messages = None;
    opening.persona.limits.max_turns = 200;
    opening
}

/// One turn with a result of about so many bytes; the summaries that come before the next one.
fn turn(h: &mut Harness, n: usize, bytes: usize) {
    h.calls(vec![call("look", json!({"n": n}))])
        .run_calls_with(|_| Ok(format!("result {n}: {}", "the ship sails on, ".repeat(bytes / 19)).into()));
}

fn summed(h: &mut Harness) {
    while matches!(h.effect, Effect::Summarise(_)) {
        let what = h.to_summarise();
        assert_eq!((what.purpose, what.task.as_str()), (Purpose::Compaction, TASK));
        h.summarise(Ok("the ship sailed on"));
    }
}

#[test]
fn twenty_messages_are_too_many_where_no_window_is_known() {
    let mut opening = opening();
    opening.persona.context.max_messages = None;
    let mut h = Harness::begin(opening);
    for n in 0..10 {
        turn(&mut h, n, 20);
        assert_eq!(h.effect, Effect::AskModel, "turn {n}");
    }
    turn(&mut h, 10, 20);
    let what = h.to_summarise();
    assert_eq!((what.cut.from, what.cut.to), (2, 12), "the ten oldest behind the task");
    assert!(matches!(&what.messages[0], Message::Assistant { calls, .. } if calls[0].arguments == r#"{"n":0}"#));
    h.summarise(Ok("looked five times"));
    let told = h.told();
    assert!(told[2].contains("looked five times") && told.len() == 2 + 1 + 12, "{told:?}");
    h.calls(vec![finish("42")]);
    assert_eq!(h.ended().0, EndStatus::Completed);
}

#[test]
fn a_budget_is_kept_whatever_the_number() {
    for calling in [by_window(4_000), structured(by_window(4_000))] {
        let native = calling.calling == posse_core::model::ToolCalling::Native;
        let mut h = Harness::begin(calling);
        for n in 0..40 {
            if native {
                turn(&mut h, n, 900);
            } else {
                let text = json!({"thinking": "", "tool": "look", "arguments": {"n": n}}).to_string();
                h.say(super::kit::reply(&text, Vec::new()));
                h.run_calls_with(|_| Ok("the ship sails on, ".repeat(47).into()));
            }
            summed(&mut h);
            assert_eq!(h.effect, Effect::AskModel, "turn {n}: {:?}", h.run.ended());
            let counted: u64 = h.run.messages().iter().map(|m| h.run.count(m)).sum();
            assert!(counted < 3_200, "turn {n}: {counted}");
        }
        assert!(h.count("compacted") >= 2, "{}", h.count("compacted"));
    }
}

#[test]
fn a_crash_between_asking_for_a_summary_and_having_it_asks_again() {
    let mut h = Harness::begin(by_number(6, 4));
    (0..4).for_each(|n| turn(&mut h, n, 20));
    let what = h.to_summarise();
    for _ in 0..2 {
        h.crash_and_pick_up();
        assert_eq!(h.to_summarise(), what);
    }
    h.summarise(Ok("looked"));
    assert_eq!((h.count("compacted"), &h.effect), (1, &Effect::AskModel));
    // Between the cost of a summary and its place.
    let mut cut = h.journal.clone();
    assert!(matches!(cut.pop().unwrap().entry, Entry::Compacted { .. }));
    assert!(matches!(cut.last().unwrap().entry, Entry::Summarised { .. }));
    h.journal = cut;
    h.crash_and_pick_up();
    assert_eq!(h.to_summarise(), what, "paid for twice rather than lost");
    h.summarise(Ok("looked"));
}

#[test]
fn requests_are_made_again_from_the_journal() {
    let mut h = Harness::begin(by_window(4_000));
    let mut sent = Vec::new();
    for n in 0..40 {
        sent.push(h.run.request());
        turn(&mut h, n, 900);
        while matches!(h.effect, Effect::Summarise(_)) {
            let what = h.to_summarise();
            let count = |message: &Message| h.run.count(message);
            let room = SummaryRoom { window: h.run.window(), reply: SUMMARY_TOKENS };
            let mut summariser = Summariser::new(&what.task, &what.messages, what.purpose, room, &count);
            let before = sent.len();
            while let Some(request) = summariser.request() {
                sent.push(request);
                summariser.replied("the ship sailed on", &count);
            }
            (0..).zip(before..sent.len()).for_each(|(part, _)| _ = h.pay(part, None));
            h.summarised(Some("the ship sailed on"));
        }
    }
    let made = requests(&h.journal, &[]);
    let told = |request: &ModelRequest| request.messages.iter().map(|m| text(m).to_owned()).collect::<Vec<_>>();
    assert_eq!(made.len(), sent.len());
    for (made, sent) in made.iter().zip(&sent) {
        let again = made.request.as_ref().expect("all is known");
        match &made.missing {
            None => assert_eq!(told(again), told(sent), "{made:?}"),
            Some(missing) => {
                assert_eq!(missing, "the notes that the parts before gave");
                assert!(told(again)[1].contains("is not in the journal"), "{again:?}");
            }
        }
    }
    let summaries =
        |partly| made.iter().filter(|m| m.reason == Reason::Summary && m.missing.is_some() == partly).count();
    assert!(summaries(false) > 1 && summaries(true) > 0, "{} {}", summaries(false), summaries(true));
}

#[test]
fn without_a_summary_the_calls_are_listed() {
    let mut h = Harness::begin(by_number(6, 4));
    (0..4).for_each(|n| turn(&mut h, n, 600));
    h.summarise(Err("the model is away"));
    assert!(h.told()[2].contains(r#"- look {"n":0} -> result 0:"#), "{}", h.told()[2]);
    (4..12).for_each(|n| {
        turn(&mut h, n, 20);
        while matches!(h.effect, Effect::Summarise(_)) {
            h.summarise(Err("the model is away"));
        }
    });
    assert_eq!(h.effect, Effect::AskModel);
}

#[test]
fn without_a_summary_the_calls_of_a_run_by_phases_are_listed_too() {
    for structured_calling in [false, true] {
        let mut opening = by_number(4, 4);
        opening.persona.style = Style::Phased;
        let mut h = Harness::begin(if structured_calling { structured(opening) } else { opening });
        for n in 0..6 {
            let step = act("look", json!({"n": n}));
            match structured_calling {
                true => h.say(reply(&step.to_string(), Vec::new())),
                false => h.step(step),
            };
            h.run_calls_with(|_| Ok(format!("result {n}: {}", "the ship sails on, ".repeat(90)).into()));
            if matches!(h.effect, Effect::Summarise(_)) {
                break;
            }
        }
        h.summarise(Err("the model is away"));
        let listed = h.told().into_iter().find(|text| text.contains("These are the calls")).expect("a list");
        assert!(listed.contains(r#"- look {"n":0} -> "#) && listed.contains("result 0: the ship"), "{listed}");
        assert!(!listed.contains("agent_step"), "{listed}");
    }
}

#[test]
fn a_provider_that_refuses_a_request_as_too_long_teaches_its_window() {
    for named in [Some(2_000), None] {
        let mut opening = opening();
        opening.persona.limits.max_turns = 100;
        let mut h = Harness::begin(opening);
        (0..12).for_each(|n| turn(&mut h, n, 900));
        let before: u64 = h.run.messages().iter().map(|m| h.run.count(m)).sum();
        h.fail(ModelErrorKind::ContextOverflow, named);
        assert!(matches!(h.effect, Effect::Summarise(_)), "{:?}", h.effect);
        summed(&mut h);
        assert_eq!(h.effect, Effect::AskModel);
        let window = h.run.window().expect("learned");
        let after: u64 = h.run.messages().iter().map(|m| h.run.count(m)).sum();
        assert!(after < before * 3 / 4 && after <= window.into(), "{named:?}: {before} to {after} of {window}");
        assert!(named.is_none_or(|named| window == named));
        assert!(h.run.request().max_tokens.is_some(), "the reply has to fit too");
        (12..20).for_each(|n| {
            turn(&mut h, n, 900);
            summed(&mut h);
        });
        assert_eq!(h.effect, Effect::AskModel, "the window stays known: {:?}", h.run.ended());
    }
}

#[test]
fn what_does_not_fit_for_good_ends_the_run_and_says_what_takes_the_room() {
    let mut opening = by_window(300);
    opening.system = "You test. ".repeat(200);
    let h = Harness::begin(opening);
    let (status, _, reason) = h.ended();
    assert_eq!(status, EndStatus::Failed);
    assert!(reason.contains("window of 300 tokens") && reason.contains("Use a model with a larger window"), "{reason}");

    let mut h = Harness::begin(self::opening());
    let mut asked = 0;
    while h.effect == Effect::AskModel && asked < 50 {
        h.fail(ModelErrorKind::ContextOverflow, None);
        asked += 1;
    }
    assert!(asked < 10, "asked {asked} times");
    let gave_up = matches!(&h.effect, Effect::FailAttempt { again: Again::Never, .. }) || h.effect == Effect::End;
    assert!(gave_up, "{:?}", h.effect);
}

#[test]
fn one_result_that_is_too_large_is_shortened() {
    let mut h = Harness::begin(by_window(4_000));
    turn(&mut h, 0, 40_000);
    summed(&mut h);
    assert_eq!(h.effect, Effect::AskModel);
    assert_eq!(h.count("shortened"), 1);
    assert!(h.told_last().contains("bytes left out to fit the model's window"), "{}", h.told_last());
    assert_eq!(unsendable(&h.run.request()), Vec::<String>::new());
}
