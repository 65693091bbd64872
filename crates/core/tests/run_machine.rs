//! The run machine, through its one door.

use posse_core::journal::{CallOutcome, EndStatus, Entry, Opening, Recorded};
use posse_core::model::{CallRequest, Finish, Message, ModelError, ModelErrorKind, ModelReply, ToolCalling};
use posse_core::persona::{ContextRules, Limits, PersonaTemplate};
use posse_core::run::machine::{Again, Effect, Input, MAX_CORRECTIONS, MAX_REPEATS, Step, Verdict, step};
use posse_core::run::{Run, structured};
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory, ToolOutput};
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

#[path = "support/parts.rs"]
mod parts;
#[path = "support/sendable.rs"]
mod sendable;

use parts::tool;
use sendable::unsendable;

fn opening(calling: ToolCalling, limits: Limits) -> Arc<Opening> {
    let persona = PersonaTemplate {
        role: "tester".into(),
        goal: "test".into(),
        tools: vec!["look".into(), "write".into()],
        limits,
        context: ContextRules { max_messages: Some(0), ..ContextRules::default() },
        ..PersonaTemplate::default()
    };
    Arc::new(Opening {
        persona,
        model: "m".into(),
        calling,
        tools: vec![tool("look", EffectClass::Pure), tool("write", EffectClass::Once)],
        system: "You test.".into(),
        ..Opening::default()
    })
}

fn check(call: &CallRequest) -> Verdict {
    match call.name.as_str() {
        "look" => Verdict::Run(EffectClass::Pure),
        "write" => Verdict::Run(EffectClass::Once),
        other => Verdict::Refuse(format!("There is no tool '{other}'.")),
    }
}

fn reply(text: &str, calls: &[&str]) -> ModelReply {
    let call = |name: &&str| CallRequest {
        id: "same".into(),
        name: (*name).into(),
        arguments: if *name == "finish" { json!({"final_summary": "42"}).to_string() } else { "{}".into() },
        extra: None,
    };
    ModelReply { cost_microusd: Some(3), ..parts::reply(text, calls.iter().map(call).collect()) }
}

/// A run in the hands of a worker that commits every entry.
struct Harness {
    run: Run,
    journal: Vec<Recorded>,
    effect: Effect,
}

impl Harness {
    fn begin(calling: ToolCalling, limits: Limits) -> Self {
        let mut run = Run::default();
        let begun = Input::Begun { goal: "do it", opening: opening(calling, limits), summaries: Vec::new() };
        let first = step(&mut run, begun);
        let mut harness = Harness { run, journal: Vec::new(), effect: Effect::Wait };
        harness.take(first);
        harness
    }

    fn native() -> Self {
        Self::begin(ToolCalling::Native, Limits::default())
    }

    fn take(&mut self, step: Step) {
        for entry in step.entries {
            self.journal.push(Recorded { seq: self.journal.len() as u64, at: 0, entry });
        }
        self.effect = step.effect;
        assert_eq!(Run::replay(&self.journal), self.run, "the journal replays to the live state");
    }

    fn say(&mut self, reply: ModelReply) -> &mut Self {
        let next = step(&mut self.run, Input::Replied { reply, ms: 1, check: &check });
        self.take(next);
        self
    }

    fn end_call(&mut self, call_id: &str, result: Result<ToolOutput, ToolError>) {
        let next = step(&mut self.run, Input::CallEnded { call_id: call_id.into(), result, ms: 1, check: &check });
        self.take(next);
    }

    fn running(&self) -> Vec<(String, String)> {
        let Effect::RunCalls(calls) = &self.effect else { return Vec::new() };
        calls.iter().map(|c| (c.request.id.clone(), c.request.name.clone())).collect()
    }

    /// Runs whatever the machine wants run until it wants something else.
    fn run_calls(&mut self) -> &mut Self {
        loop {
            let calls = self.running();
            if calls.is_empty() {
                return self;
            }
            for (id, name) in calls {
                self.end_call(&id, Ok(format!("{name} gave this").into()));
            }
        }
    }

    fn crash_and_pick_up(&mut self) {
        self.run = Run::replay(&self.journal);
        let next = step(&mut self.run, Input::PickedUp);
        self.take(next);
    }

    fn ended(&self) -> (EndStatus, String, String) {
        let ended = self.run.ended().expect("the run has ended");
        (ended.status, ended.text.clone(), ended.reason.clone().unwrap_or_default())
    }
}

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
    assert!(matches!(told, Message::User { text } if text.contains("64 tokens") && text.contains("write")), "{told:?}");
    assert_eq!(h.run.open_calls(), []);
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

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

#[test]
fn i_a_call_that_leaked_into_the_text_is_no_answer() {
    let mut h = Harness::native();
    h.say(reply("<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call>", &[]));
    assert_eq!(h.effect, Effect::AskModel, "neither run nor taken for the answer");
    let told = h.run.messages().last().expect("a message");
    assert!(matches!(told, Message::User { text } if text.contains("tool call as text")), "{told:?}");
    h.say(reply("Seven geese.", &[]));
    assert_eq!(h.ended().1, "Seven geese.");
}

#[test]
fn a_model_that_never_makes_a_valid_step_is_given_up() {
    for bad in [reply(" ", &[]), reply("", &["fly"])] {
        let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
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
fn c01_the_same_reading_call_for_ever_ends_as_stuck() {
    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
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
    assert_eq!(asked, (MAX_REPEATS + MAX_CORRECTIONS + 1) as usize);
    let (status, _, reason) = h.ended();
    assert!(status == EndStatus::Failed && reason.starts_with("stuck: repeated call look"), "{reason}");
    let runs = h.journal.iter().filter(|r| matches!(r.entry, Entry::CallStarted { .. })).count();
    assert_eq!(runs, MAX_REPEATS as usize);
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
    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
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
        (Limits { max_turns: 2, ..Limits::default() }, "2 model turns"),
        (Limits { max_tokens: Some(20), ..Limits::default() }, "20 tokens"),
        (Limits { max_seconds: Some(0), ..Limits::default() }, "0 s of work"),
        (Limits { max_turns: 0, ..Limits::default() }, "0 model turns"),
    ];
    for (limits, words) in cases {
        let mut h = Harness::begin(ToolCalling::Native, limits);
        while h.effect == Effect::AskModel {
            h.say(reply("looking", &["look"])).run_calls();
        }
        let (status, _, reason) = h.ended();
        assert!(status == EndStatus::LimitReached && reason.contains(words), "{reason}");
        assert!(h.run.turns() <= 2);
    }
}

#[test]
fn a_reopened_run_goes_on_with_fresh_limits() {
    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 1, ..Limits::default() });
    h.say(reply("", &["look"])).run_calls();
    assert_eq!(h.ended().0, EndStatus::LimitReached);
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

#[test]
fn structured_steps_become_calls_and_results_become_user_messages() {
    let mut h = Harness::begin(ToolCalling::Structured, Limits::default());
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
    assert_eq!(*last, Message::User { text: structured::result("look", "look gave this") });
    h.say(reply("I think it is 42", &[]));
    assert_eq!(h.effect, Effect::AskModel, "text that is no step is corrected");
    h.say(reply(r#"{"thinking": "", "tool": "finish", "arguments": {"final_summary": "42"}}"#, &[]));
    assert_eq!(h.ended(), (EndStatus::Completed, "42".into(), String::new()));
    assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
}

#[test]
fn a_structured_model_is_led_out_of_a_habit() {
    let mut h = Harness::begin(ToolCalling::Structured, Limits { max_turns: 100, ..Limits::default() });
    let offered = |h: &Harness| h.run.request().schema.expect("a schema").to_string().contains(r#""const":"look""#);
    for again in 0..MAX_REPEATS {
        assert!(offered(&h), "offered before call {again}");
        h.say(reply(r#"{"thinking": "", "tool": "look", "arguments": {}}"#, &[])).run_calls();
    }
    assert!(!offered(&h), "the next step has to be another one");
    h.say(reply(r#"{"thinking": "", "tool": "write", "arguments": {}}"#, &[])).run_calls();
    assert!(offered(&h), "and after that it may look again");
}

#[test]
fn two_calls_in_turn_are_a_habit_too() {
    let mut h = Harness::begin(ToolCalling::Structured, Limits { max_turns: 100, ..Limits::default() });
    let look = |at: u32| format!(r#"{{"thinking": "", "tool": "look", "arguments": {{"at": {}}}}}"#, at % 2);
    let offered = |h: &Harness| h.run.request().schema.expect("a schema").to_string().contains(r#""const":"look""#);
    let mut asked = 0;
    while offered(&h) {
        h.say(reply(&look(asked), &[])).run_calls();
        asked += 1;
    }
    // The first of each was new, and of the second ones only that which came last is at its limit.
    assert_eq!(asked, 2 * MAX_REPEATS - 1);
}

#[test]
fn what_fails_without_an_effect_is_not_tried_for_ever() {
    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
    let mut fail = |category: ToolErrorCategory| {
        h.say(reply("", &["write"]));
        let runs = h.running();
        for (id, _) in &runs {
            h.end_call(id, Err(ToolError::new(category, "it exists already")));
        }
        !runs.is_empty()
    };
    for _ in 0..MAX_REPEATS {
        assert!(fail(ToolErrorCategory::Conflict), "it may be tried again");
    }
    assert!(!fail(ToolErrorCategory::Conflict), "it would fail in the same way");
    h.say(reply("", &["look"])).run_calls();
    h.say(reply("", &["write"]));
    assert_eq!(h.running(), [], "looking changes nothing");

    let mut h = Harness::begin(ToolCalling::Native, Limits { max_turns: 100, ..Limits::default() });
    for _ in 0..=MAX_REPEATS {
        h.say(reply("", &["write"]));
        let runs = h.running();
        assert_eq!(runs.len(), 1, "what may have had an effect, or may go better next time, is tried again");
        h.end_call(&runs[0].0, Err(ToolError::new(ToolErrorCategory::Failed, "the other side is down")));
    }
}

#[derive(Debug, Clone)]
enum Move {
    Say(Vec<&'static str>, bool),
    Cut,
    Break(bool),
    EndCall(usize, bool),
    Crash,
    Reopen,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let name = prop::sample::select(vec!["look", "write", "fly", "finish"]);
    let one = prop_oneof![
        6 => (prop::collection::vec(name, 0..5), any::<bool>()).prop_map(|(calls, text)| Move::Say(calls, text)),
        1 => Just(Move::Cut),
        1 => any::<bool>().prop_map(Move::Break),
        8 => (0usize..4, any::<bool>()).prop_map(|(i, ok)| Move::EndCall(i, ok)),
        2 => Just(Move::Crash),
        1 => Just(Move::Reopen),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    /// Whatever models, tools and crashes do: the journal replays to the live state at every entry,
    /// no call that must not repeat is ever run twice, ids never repeat, and whenever the model is
    /// to be asked the conversation can be sent.
    #[test]
    fn any_history_replays_repeats_nothing_and_can_be_sent(moves in moves()) {
        let limits = Limits { max_turns: 30, ..Limits::default() };
        let mut h = Harness::begin(ToolCalling::Native, limits);
        let mut runs: HashMap<String, u32> = HashMap::new();
        let mut in_flight: Vec<(String, String)> = Vec::new();
        for one in moves {
            match one {
                Move::Say(calls, text) if h.effect == Effect::AskModel => {
                    h.say(reply(if text { "thinking aloud" } else { "" }, &calls));
                }
                Move::Cut if h.effect == Effect::AskModel => {
                    let mut cut = reply("half", &["write"]);
                    cut.finish = Finish::Length;
                    h.say(cut);
                }
                Move::Break(again) if h.effect == Effect::AskModel => {
                    let kind = if again { ModelErrorKind::Transient } else { ModelErrorKind::InvalidToolCall };
                    let error = ModelError {
                        kind, message: "no".into(), retry_after: None, context_window: None, failed_tries: Vec::new(),
                    };
                    let next = step(&mut h.run, Input::ModelFailed { error, ms: 1 });
                    h.take(next);
                    if matches!(h.effect, Effect::FailAttempt { .. }) {
                        h.crash_and_pick_up();
                    }
                }
                Move::EndCall(i, ok) if !in_flight.is_empty() => {
                    let (id, _) = in_flight.remove(i % in_flight.len());
                    let result = match ok {
                        true => Ok("fine".to_owned().into()),
                        false => Err(ToolError::new(ToolErrorCategory::NotFound, "not there")),
                    };
                    h.end_call(&id, result);
                }
                Move::Crash if h.run.ended().is_none() => {
                    in_flight.clear();
                    h.crash_and_pick_up();
                }
                Move::Reopen if h.run.ended().is_some() => {
                    h.journal.push(Recorded { seq: h.journal.len() as u64, at: 0, entry: Entry::Reopened });
                    h.crash_and_pick_up();
                }
                _ => continue,
            }
            if matches!(h.effect, Effect::RunCalls(_)) {
                in_flight = h.running();
                for (id, name) in &in_flight {
                    let count = runs.entry(id.clone()).or_default();
                    *count += 1;
                    prop_assert!(*count == 1 || name == "look", "{name} {id} was run {count} times");
                }
            }
            if h.effect == Effect::AskModel {
                prop_assert_eq!(unsendable(h.run.messages()), Vec::<String>::new());
                prop_assert!(in_flight.is_empty());
            }
        }
    }
}
