//! Whatever models, tools and crashes do.

use posse_core::model::{Finish, ModelError, ModelErrorKind, ToolCalling};
use posse_core::persona::RunLimits;
use posse_core::run::journal::{Entry, Recorded};
use posse_core::run::machine::{Effect, Input, step};
use posse_core::tool::{ToolError, ToolErrorCategory};
use proptest::prelude::*;
use std::collections::HashMap;

use super::kit::{Harness, reply};
use super::sendable::unsendable;

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
        let limits = RunLimits { max_turns: 30, ..RunLimits::default() };
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
