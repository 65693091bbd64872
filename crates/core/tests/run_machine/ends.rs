//! How runs end, and what providers' failures mean.

use posse_core::model::{CallRequest, Finish, Message, ModelError, ModelErrorKind, ModelReply, ToolCalling};
use posse_core::persona::RunLimits;
use posse_core::run::journal::{EndStatus, Entry, Recorded};
use posse_core::run::machine::{Again, Effect, HABIT, Input, MAX_CORRECTIONS, MAX_REPEATS, step};
use std::time::Duration;

use super::kit::{Harness, reply};
use super::sendable::unsendable;

#[test]
fn refusals_and_filters_end_the_run_readably() {
    let mut h = Harness::native();
    let mut refused = reply("", &[]);
    refused.refusal = Some("I can't help with that request.".into());
    h.say(refused);
    let (status, _, reason) = h.ended();
    assert_eq!((status, reason.as_str()), (EndStatus::Refused, "the model refused: I can't help with that request."));

    let mut h = Harness::native();
    let mut filtered = reply("", &[]);
    filtered.finish = Finish::ContentFilter;
    h.say(filtered);
    let (status, _, reason) = h.ended();
    assert!(status == EndStatus::Refused && reason.contains("content filter"), "{reason}");
}

#[test]
fn what_came_with_a_refusal_or_a_filter_is_kept_and_not_run() {
    let refused = ModelReply { refusal: Some("I can't.".into()), ..reply("First I look.", &["write"]) };
    let filtered = ModelReply { finish: Finish::ContentFilter, ..reply("First I look.", &["write"]) };
    for (reply, text) in [(refused, "First I look.\n\nI can't."), (filtered, "First I look.")] {
        let mut h = Harness::native();
        h.say(reply);
        let turn = h.journal.iter().find_map(|r| match &r.entry {
            Entry::Turn(turn) => Some(turn),
            _ => None,
        });
        let turn = turn.expect("the reply is on record");
        assert_eq!(turn.text, text);
        assert_eq!(turn.cut_calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["write"]);
        assert!(turn.calls.is_empty() && h.effect == Effect::End);
    }
}

/// What each call of a reply that is not whole is told, in the order of the calls.
fn told_of_cut(finish: Finish, calls: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut h = Harness::native();
    let mut cut = reply("I look first.", &[]);
    let call = |(name, arguments): &(&str, &str)| CallRequest {
        id: "same".into(),
        name: (*name).into(),
        arguments: (*arguments).into(),
        extra: None,
    };
    (cut.finish, cut.calls) = (finish, calls.iter().map(call).collect());
    cut.usage.output = 64;
    h.say(cut);
    assert_eq!(h.effect, Effect::AskModel, "nothing of it runs");
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
    let results = h.run.messages().iter().filter_map(|message| match message {
        Message::Tool { name, text, .. } => Some((name.clone(), text.clone())),
        _ => None,
    });
    results.collect()
}

#[test]
fn each_call_of_a_cut_reply_hears_what_became_of_it() {
    let half = "{\"text\": \"line 1\\nli";
    for (calls, cut_at) in [(&[("look", "{}"), ("write", half)][..], 1), (&[("write", half), ("look", "{}")], 0)] {
        let told = told_of_cut(Finish::Length, calls);
        assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [calls[0].0, calls[1].0]);
        assert!(told[cut_at].1.contains("token limit was reached after 64 tokens"), "{told:?}");
        assert!(told[1 - cut_at].1.contains("another call of the same reply, of write, was cut off"), "{told:?}");
    }
    // All are whole, and yet something may have been to follow.
    let told = told_of_cut(Finish::Length, &[("look", "{}"), ("look", "{}")]);
    assert!(told.len() == 2 && told.iter().all(|(_, text)| text.contains("not known")), "{told:?}");
    // A huge one is not kept whole in the conversation.
    let huge = format!("{{\"text\": \"{}", "ä".repeat(50_000));
    assert!(told_of_cut(Finish::Length, &[("write", &huge)])[0].1.contains("cut off"));
}

#[test]
fn what_was_cut_off_is_no_habit() {
    let mut h = Harness::native();
    for _ in 0..=HABIT {
        h.say(ModelReply { finish: Finish::Length, ..reply("", &["look"]) });
    }
    h.say(reply("", &["look"]));
    assert_eq!(h.running().len(), 1, "it was told to make the call again");
}

#[test]
fn broken_arguments_without_a_limit_are_told_as_what_they_are() {
    for finish in [Finish::ToolCalls, Finish::Other("odd".into())] {
        let told = told_of_cut(finish, &[("look", "{}"), ("write", "{\"text\": \"a")]);
        assert!(told[1].1.contains("end in the middle, after 11 characters. No token limit was reported"), "{told:?}");
        assert!(told[0].1.contains("of write, was cut off, so none"), "{told:?}");
    }
}

#[test]
fn i_a_call_that_leaked_into_the_text_is_no_answer_and_an_answer_about_calls_is() {
    let mut h = Harness::native();
    for call in [
        "<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call>",
        "<tool_call>\n{\"name\": \"look\"}\n</tool_call>",
        "I look first.\n<tool_call>{\"name\": \"look\"}</tool_call> ",
        "<function=look>{}</function>",
        "[TOOL_CALLS][{\"name\": \"look\"}]",
    ] {
        h.say(reply(call, &[]));
        assert_eq!(h.effect, Effect::AskModel, "neither run nor taken for the answer");
        let told = h.run.messages().last().expect("a message");
        assert!(matches!(told, Message::User { text } if text.contains("tool call as text")), "{call}: {told:?}");
    }
    h.say(reply("Seven geese.", &[]));
    assert_eq!(h.ended().1, "Seven geese.");
    for answer in ["The log shows `<tool_call>` twice.", "a < b and [1]"] {
        let mut h = Harness::native();
        h.say(reply(answer, &[]));
        assert_eq!(h.ended().1, answer);
    }
}

#[test]
fn of_what_was_said_the_newest_is_kept() {
    let mut h = Harness::native();
    let text = |h: &Harness| h.run.output().text;
    assert_eq!(text(&h), "");
    for said in ["one ", "  ", "two", "two"] {
        h.say(reply(said, &["look"])).run_calls();
    }
    assert_eq!(text(&h), "one\n\ntwo");
    h.say(reply(&"ä".repeat(32 * 1024), &["look"])).run_calls();
    h.say(reply("end", &["look"])).run_calls();
    let text = text(&h);
    let kept = text.strip_prefix("[what was said before is left out]\n\n").expect("is cut");
    assert!(kept.ends_with("ä\n\nend") && kept.len() <= 32 * 1024, "{} bytes", text.len());
}

#[test]
fn a_model_that_never_makes_a_valid_step_is_given_up() {
    for bad in [reply(" ", &[]), reply("", &["fly"])] {
        let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 100, ..RunLimits::default() });
        let mut asked = 0;
        while h.effect == Effect::AskModel {
            h.say(bad.clone());
            asked += 1;
        }
        assert_eq!(asked, MAX_CORRECTIONS + 1);
        let (status, _, reason) = h.ended();
        assert!(status == EndStatus::Failed && reason.contains("no valid step"), "{reason}");
    }
}

#[test]
fn c01_the_same_call_with_the_same_result_for_ever_ends_as_stuck() {
    let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 100, ..RunLimits::default() });
    let spaced = |i: usize| CallRequest {
        id: format!("id{i}"),
        name: "look".into(),
        arguments: [r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#][i % 2].into(),
        extra: None,
    };
    let mut asked = 0;
    while h.effect == Effect::AskModel {
        let mut again = reply("", &[]);
        again.calls = vec![spaced(asked)];
        h.say(again).run_calls();
        asked += 1;
    }
    assert_eq!(asked, MAX_REPEATS as usize);
    let (status, _, reason) = h.ended();
    assert!(status == EndStatus::Stuck && reason.starts_with("stuck: the call look {"), "{reason}");
    let runs = h.journal.iter().filter(|r| matches!(r.entry, Entry::CallStarted { .. })).count();
    assert_eq!(runs, MAX_REPEATS as usize, "each of them looked");
    let told = |n: usize| match &h.run.messages()[2 * n + 1] {
        Message::Tool { text, .. } => text.as_str(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(1), "look gave this");
    assert!(told(2).contains("You had made this same call before"), "{}", told(2));
    assert!(told(3).contains("3 times with the same result; after 12 the run ends as stuck"), "{}", told(3));
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn a_reply_with_many_bad_calls_is_one_correction() {
    let mut h = Harness::native();
    h.say(reply("", &["fly"; 20]));
    assert_eq!(h.effect, Effect::AskModel, "the model has not been told yet");
    h.say(reply("", &["look"; 80]));
    let together = h.running().len();
    assert!(together <= 16, "{together} at once");
    h.run_calls();
    assert_eq!(h.effect, Effect::AskModel);
    let refused =
        h.run.messages().iter().filter(|m| matches!(m, Message::Tool { text, .. } if text.contains("at most 64")));
    assert_eq!(refused.count(), 16);
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn looking_again_after_a_change_is_no_repetition() {
    let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 100, ..RunLimits::default() });
    for _ in 0..10 {
        h.say(reply("", &["look"])).run_calls();
        let told = h.run.messages().last().expect("a message");
        assert!(matches!(told, Message::Tool { text, .. } if text == "look gave this"), "{told:?}");
        h.say(reply("", &["write"])).run_calls();
    }
    assert_eq!(h.effect, Effect::AskModel);
}

#[test]
fn limits_end_the_run_with_what_it_has_and_say_which() {
    let cases = [
        (RunLimits { max_turns: 2, ..RunLimits::default() }, "2 model turns", EndStatus::MaxTurns),
        (RunLimits { max_tokens: Some(20), ..RunLimits::default() }, "20 tokens", EndStatus::MaxTokens),
        (RunLimits { max_seconds: Some(0), ..RunLimits::default() }, "0 s of work", EndStatus::MaxSeconds),
        (RunLimits { max_turns: 0, ..RunLimits::default() }, "0 model turns", EndStatus::MaxTurns),
    ];
    for (limits, words, wanted) in cases {
        let mut h = Harness::begin(ToolCalling::Native, limits);
        while h.effect == Effect::AskModel {
            h.say(reply(&format!("looking {}", h.run.turns()), &["look"])).run_calls();
        }
        let (status, text, reason) = h.ended();
        assert!(status == wanted && reason.contains(words), "{status:?}: {reason}");
        assert!(h.run.turns() <= 2);
        let said: Vec<_> = (0..h.run.turns()).map(|n| format!("looking {n}")).collect();
        assert!(text.starts_with(&said.join("\n\n")), "{text}");
        assert!(text.ends_with("reached before there was an answer. Stopped.]"), "{text}");
    }
}

#[test]
fn a_reopened_run_goes_on_with_fresh_limits() {
    let mut h = Harness::begin(ToolCalling::Native, RunLimits { max_turns: 1, ..RunLimits::default() });
    h.say(reply("", &["look"])).run_calls();
    assert_eq!(h.ended().0, EndStatus::MaxTurns);
    h.journal.push(Recorded { seq: h.journal.len() as u64, at: 0, entry: Entry::Reopened });
    h.crash_and_pick_up();
    assert_eq!(h.effect, Effect::AskModel);
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
    h.say(reply("", &["finish"]));
    assert_eq!(h.ended().1, "42");
    assert_eq!(h.run.turns(), 2);
}

#[test]
fn a_model_that_was_not_asked_leaves_no_trace_and_costs_no_attempt() {
    for (retry_after, wait) in [(Some(Duration::from_secs(7)), 7), (None, 10)] {
        let mut h = Harness::native();
        let (kind, reason) = (ModelErrorKind::Unavailable, "the endpoint is out".to_owned());
        let error =
            ModelError { kind, message: reason.clone(), retry_after, context_window: None, failed_tries: Vec::new() };
        let next = step(&mut h.run, Input::ModelFailed { error, ms: 1 });
        assert_eq!(next.entries, [], "the journal of a job that waits does not grow");
        assert_eq!(next.effect, Effect::FailAttempt { reason, again: Again::After(Duration::from_secs(wait)) });
    }
}

#[test]
fn a_provider_s_wish_costs_no_attempt_until_it_has_had_its_way_often_enough() {
    let mut h = Harness::native();
    let fail = |h: &mut Harness| {
        let (kind, retry_after) = (ModelErrorKind::RateLimited, Some(Duration::ZERO));
        let error = ModelError {
            kind,
            message: "slow down".into(),
            retry_after,
            context_window: None,
            failed_tries: Vec::new(),
        };
        let next = step(&mut h.run, Input::ModelFailed { error, ms: 1 });
        h.take(next);
        // What was counted is in the journal.
        h.run = posse_core::run::Run::replay(&h.journal);
        match &h.effect {
            Effect::FailAttempt { again: Again::After(wait), .. } => Some(wait.as_secs()),
            _ => None,
        }
    };
    let waits: Vec<_> = (0..6).map(|_| fail(&mut h)).collect();
    assert_eq!(waits, [Some(10), Some(20), Some(40), Some(80), None, None]);
    h.say(reply("", &["look"])).run_calls();
    assert_eq!(fail(&mut h), Some(10), "a reply begins the count anew");
}

#[test]
fn a_window_that_the_provider_names_is_named_in_the_reason() {
    let mut h = Harness::native();
    let (kind, message) = (ModelErrorKind::ContextOverflow, "too long".to_owned());
    let error = ModelError { kind, message, retry_after: None, context_window: Some(8192), failed_tries: Vec::new() };
    let next = step(&mut h.run, Input::ModelFailed { error, ms: 1 });
    h.take(next);
    let reason = h.ended().2;
    assert!(reason.contains("does not fit the model's window of 8,192 tokens"), "{reason}");
}

#[test]
fn provider_failures_are_recorded_and_classified() {
    let fail = |kind| {
        let mut h = Harness::native();
        let message = "the endpoint said no".to_owned();
        let error = ModelError { kind, message, retry_after: None, context_window: None, failed_tries: Vec::new() };
        let next = step(&mut h.run, Input::ModelFailed { error, ms: 1 });
        h.take(next);
        h
    };
    for (kind, wanted) in [
        (ModelErrorKind::Transient, Again::Later),
        (ModelErrorKind::RateLimited, Again::Later),
        (ModelErrorKind::Unauthorized, Again::After(Duration::from_secs(900))),
        (ModelErrorKind::OutOfCredit, Again::After(Duration::from_secs(900))),
        (ModelErrorKind::WorkerUnfit, Again::After(Duration::from_secs(60))),
        (ModelErrorKind::Unreachable, Again::Later),
        (ModelErrorKind::Rejected, Again::Never),
    ] {
        let h = fail(kind);
        assert!(matches!(&h.effect, Effect::FailAttempt { again, .. } if *again == wanted), "{kind:?}");
        assert!(h.run.ended().is_none(), "another attempt goes on from here");
    }
    let (status, _, reason) = fail(ModelErrorKind::ContextOverflow).ended();
    assert_eq!(status, EndStatus::Failed, "there is nothing to shorten");
    assert!(reason.contains("does not fit the model's window"), "{reason}");
    let h = fail(ModelErrorKind::InvalidToolCall);
    assert_eq!(h.effect, Effect::AskModel, "asked again, with a note on what was wrong");
    assert!(matches!(h.run.messages().last(), Some(Message::User { text }) if text.contains("the endpoint said no")));
}
