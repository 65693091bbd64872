//! What becomes of the calls of a reply.

use std::collections::BTreeSet;
use std::time::Duration;

use posse_core::model::{Finish, Message};
use posse_core::run::journal::{CallOutcome, EndStatus, Entry};
use posse_core::run::machine::{Again, Effect};
use posse_core::tool::{ToolError, ToolErrorCategory};

use super::kit::{Harness, reply};
use super::sendable::unsendable;

#[test]
fn a_plain_answer_ends_the_run() {
    let mut h = Harness::native();
    assert_eq!(h.effect, Effect::AskModel);
    h.say(reply("Seven geese.", &[]));
    assert_eq!(h.ended(), (EndStatus::Completed, "Seven geese.".into(), String::new()));
    assert_eq!(h.run.output().status, "completed");
    assert_eq!(h.run.output().cost_microusd, Some(3));
}

#[test]
fn reading_calls_run_together_and_changing_calls_one_by_one() {
    let mut h = Harness::native();
    h.say(reply("", &["look", "look", "write", "write", "look"]));
    let names = |h: &Harness| h.running().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(&h), ["look", "look"]);
    let first_two = h.running();
    h.end_call(&first_two[1].0, Ok("b".to_owned().into()));
    assert_eq!(h.effect, Effect::Wait, "the other is still running");
    h.end_call(&first_two[0].0, Ok("a".to_owned().into()));
    for expected in ["write", "write", "look"] {
        assert_eq!(names(&h), [expected]);
        let (id, _) = h.running()[0].clone();
        h.end_call(&id, Ok("done".to_owned().into()));
    }
    assert_eq!(h.effect, Effect::AskModel);
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn every_start_is_recorded_before_the_call_runs() {
    let mut h = Harness::native();
    h.say(reply("", &["write", "write"]));
    let starts = |h: &Harness| h.journal.iter().filter(|r| matches!(r.entry, Entry::CallStarted { .. })).count();
    assert_eq!((h.running().len(), starts(&h)), (1, 1), "the second is not started yet");
    let (id, _) = h.running()[0].clone();
    h.end_call(&id, Ok("done".to_owned().into()));
    assert_eq!((h.running().len(), starts(&h)), (1, 2));
}

#[test]
fn a_call_in_flight_at_a_crash_is_unknown_unless_it_only_reads() {
    let mut h = Harness::native();
    h.say(reply("", &["write"]));
    h.crash_and_pick_up();
    assert_eq!(h.effect, Effect::AskModel, "it is not run again");
    let last = &h.journal.last().expect("an entry").entry;
    assert!(matches!(last, Entry::CallEnded { outcome: CallOutcome::Unknown, .. }), "{last:?}");
    let told = h.run.messages().last().expect("a message");
    assert!(matches!(told, Message::Tool { text, .. } if text.contains("may or may not")), "{told:?}");

    h.say(reply("", &["look"]));
    let before = h.running();
    h.crash_and_pick_up();
    assert_eq!(h.running(), before, "a reading call runs again under the same id");
}

#[test]
fn a_call_stopped_in_the_middle_is_unknown_and_nothing_is_begun_after_it() {
    let interrupted = || Err(ToolError::new(ToolErrorCategory::Interrupted, "It had said: half"));
    let mut h = Harness::native();
    h.say(reply("", &["write", "write"]));
    let (id, _) = h.running()[0].clone();
    h.end_call(&id, interrupted());
    assert_eq!(h.effect, Effect::Wait);
    let last = &h.journal.last().expect("an entry").entry;
    let Entry::CallEnded { outcome: CallOutcome::Unknown, text, .. } = last else { panic!("{last:?}") };
    assert!(text.contains("may or may not") && text.ends_with("It had said: half"), "{text}");
    // The next worker goes on with the other.
    h.crash_and_pick_up();
    assert_eq!(h.running().len(), 1);

    let mut h = Harness::native();
    h.say(reply("", &["look"]));
    let (before, entries) = (h.running(), h.journal.len());
    h.end_call(&before[0].0, interrupted());
    assert_eq!((&h.effect, h.journal.len()), (&Effect::Wait, entries));
    h.crash_and_pick_up();
    assert_eq!(h.running(), before, "a reading call runs again under the same id");
}

#[test]
fn a_call_that_its_worker_could_not_begin_is_made_again_and_the_model_hears_nothing_of_it() {
    let lacking = || Err(ToolError::new(ToolErrorCategory::WorkerUnfit, "too many open files"));
    let is_after = |h: &Harness, seconds| {
        let again = Again::After(Duration::from_secs(seconds));
        assert_eq!(h.effect, Effect::FailAttempt { reason: "too many open files".into(), again });
    };
    let mut h = Harness::native();
    h.say(reply("", &["write", "look"]));
    let mut ids = BTreeSet::new();
    for seconds in [10, 20, 40, 80, 160, 320, 640, 640] {
        let (id, name) = h.running()[0].clone();
        assert_eq!(name, "write");
        h.end_call(&id, lacking());
        is_after(&h, seconds);
        assert!(ids.insert(id), "a call that may have had an effect is never made twice under one id");
        h.crash_and_pick_up();
    }
    h.run_calls();
    assert_eq!(h.effect, Effect::AskModel);
    let told = h.run.messages().iter().filter_map(|m| match m {
        Message::Tool { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), ["write gave this", "look gave this"]);
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());

    let mut h = Harness::native();
    h.say(reply("", &["look", "look"]));
    let (before, entries) = (h.running(), h.journal.len());
    h.end_call(&before[1].0, lacking());
    is_after(&h, 10);
    assert_eq!(h.journal.len(), entries);
    h.crash_and_pick_up();
    assert_eq!(h.running(), before, "reading calls run again under the same ids");
}

#[test]
fn provider_ids_are_replaced_by_unique_ones_of_a_shape_every_provider_takes() {
    let mut h = Harness::native();
    for _ in 0..2 {
        h.say(reply("", &["look", "look"])).run_calls();
    }
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn t_what_cannot_run_is_answered_and_not_run() {
    let mut h = Harness::native();
    h.say(reply("", &["fly", "look", "finish"]));
    assert_eq!(h.running().len(), 1);
    h.run_calls();
    let texts: Vec<_> = h
        .run
        .messages()
        .iter()
        .filter_map(|m| match m {
            Message::Tool { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(texts.iter().any(|t| t.contains("no tool 'fly'")), "{texts:?}");
    assert!(texts.iter().any(|t| t.contains("call it alone")), "{texts:?}");
    assert_eq!(h.effect, Effect::AskModel);
}

#[test]
fn a_cut_reply_runs_nothing_and_is_said_so() {
    let mut h = Harness::native();
    let mut cut = reply("", &["write"]);
    cut.finish = Finish::Length;
    cut.usage.output = 64;
    h.say(cut);
    assert_eq!(h.effect, Effect::AskModel);
    let told = h.run.messages().last().expect("a message");
    assert!(
        matches!(told, Message::Tool { name, text, .. } if name == "write" && text.contains("64 tokens")),
        "{told:?}"
    );
    assert_eq!(h.run.open_calls(), []);
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}
