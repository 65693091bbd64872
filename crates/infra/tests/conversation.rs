//! Promise 5: whatever a run went through, its conversation can be sent, to every kind of provider.

use crate::support::entries::{call, entry, id, reader, reasoning, text};
use crate::support::rules::all_rules;
use posse_core::model::conversation::{Normaliser, Rules, normalise};
use posse_core::model::{CallRequest, Finish, Message, ModelReply, ToolCalling, Usage};
use posse_core::persona::{PersonaTemplate, RunLimits};
use posse_core::run::journal::{Entry, OfferedTool, Opening, Recorded};
use posse_core::run::machine::{Effect, Input, step};
use posse_core::run::{Run, Seen};
use posse_core::tool::{EffectClass, ToolSpec, Writes};
use posse_testing::validate::validate_strictly;
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;

const TASK: &str = "Find the\u{301} goose; then  \n report. ";

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        1 => text().prop_map(|text| Message::System { text }),
        3 => text().prop_map(|text| Message::User { text }),
        4 => (text(), reasoning(), prop::collection::vec(call(), 0..4))
            .prop_map(|(text, reasoning, calls)| Message::Assistant { text, reasoning, calls }),
        6 => (id(), text()).prop_map(|(call_id, text)| Message::Tool { call_id, name: "look".into(), text }),
    ]
}

fn check(messages: &[Message], rules: Rules) {
    let found = validate_strictly(messages, rules, &reader());
    assert_eq!(found, [], "for {rules:?}\n{messages:#?}");
    let told = messages.iter().any(|m| matches!(m, Message::User { text } if text.contains(TASK)));
    assert!(told, "the task is gone: {messages:#?}");
}

proptest! {
    #[test]
    fn any_messages_are_made_legal(mut messages in prop::collection::vec(message(), 0..20), at in any::<prop::sample::Index>()) {
        messages.insert(at.index(messages.len() + 1), Message::User { text: TASK.into() });
        for rules in all_rules() {
            let sent = normalise(&messages, rules, &reader());
            check(&sent, rules);
            prop_assert_eq!(&normalise(&sent, rules, &reader()), &sent, "once is enough");

            // A request of a growing conversation begins with all that was settled before it, and is
            // what a worker that has only just loaded the conversation sends.
            let mut normaliser = Normaliser::new(rules, reader());
            let mut settled = Vec::new();
            for (at, message) in messages.iter().enumerate() {
                normaliser.push(message, &mut settled);
                let mut whole = settled.clone();
                normaliser.rest(None, &mut whole);
                prop_assert_eq!(whole, normalise(&messages[..=at], rules, &reader()));
            }
            prop_assert_eq!(&sent[..settled.len()], &settled[..]);
        }
    }
}

fn opening(calling: ToolCalling) -> Arc<Opening> {
    let tool = |name: &str, effect| OfferedTool {
        spec: ToolSpec { name: name.into(), description: "does it".into(), parameters: json!({"type": "object"}) },
        effect,
        writes: Writes::default(),
        own_words: false,
    };
    let limits = RunLimits { max_turns: 1000, ..RunLimits::default() };
    Arc::new(Opening {
        persona: PersonaTemplate { role: "tester".into(), limits, ..PersonaTemplate::default() },
        model: "m".into(),
        calling,
        tools: vec![tool("look", EffectClass::Pure), tool("write", EffectClass::Once)],
        system: "You test.".into(),
        ..Opening::default()
    })
}

fn ids(entry: &Entry) -> Vec<&str> {
    match entry {
        Entry::Turn(turn) => turn.calls.iter().map(|call| call.request.id.as_str()).collect(),
        Entry::CallStarted { call_id } | Entry::CallEnded { call_id, .. } => vec![call_id],
        _ => Vec::new(),
    }
}

proptest! {
    /// Entries in any order, some of them twice, the first one perhaps missing: a worker that picks
    /// the run up always comes to a request that can be sent, or to the run's end.
    #[test]
    fn any_journal_leads_to_a_request_that_can_be_sent(
        mut entries in prop::collection::vec(entry(), 0..16),
        began in prop::option::of(any::<prop::sample::Index>()),
        native in any::<bool>(),
    ) {
        let calling = if native { ToolCalling::Native } else { ToolCalling::Structured };
        if let Some(at) = began {
            // Mostly in front.
            let at = at.index(entries.len() * 3 + 1);
            let began = Entry::Began { goal: TASK.into(), opening: opening(calling) };
            entries.insert(if at > entries.len() { 0 } else { at }, began);
        }
        // Places with gaps, as where rows were deleted.
        let recorded = |(n, entry): (usize, &Entry)| Recorded { seq: n as u64 * 2, at: 0, entry: entry.clone() };
        let journal: Vec<_> = entries.iter().enumerate().map(recorded).collect();
        let check_call = |_: &CallRequest| Ok(EffectClass::Pure);
        let mut run = Run::replay(&journal);
        prop_assert_eq!(run.next_seq(), journal.last().map_or(0, |last| last.seq + 1));

        let first = match run.opening() {
            Some(_) => Input::PickedUp,
            None => Input::Begun { goal: TASK, opening: opening(calling) },
        };
        let mut effect = step(&mut run, first).effect;
        loop {
            effect = match effect {
                Effect::RunCalls(calls) => {
                    let mut next = Effect::Wait;
                    for call in calls {
                        let result = Ok("it is so".to_owned().into());
                        let ended = Input::CallEnded { call_id: call.request.id, result, ms: 1, check: &check_call };
                        next = step(&mut run, ended).effect;
                    }
                    next
                }
                // More messages than are sent at once.
                Effect::Summarise(_) => step(&mut run, Input::Summarised { text: Some("notes".into()) }).effect,
                other => {
                    effect = other;
                    break;
                }
            };
        }
        prop_assert!(matches!(effect, Effect::AskModel | Effect::End), "{effect:?}");
        for rules in all_rules() {
            check(&normalise(&run.request().messages, rules, &reader()), rules);
        }

        if effect == Effect::AskModel && native {
            let call = CallRequest { id: "x".into(), name: "look".into(), arguments: "{}".into(), extra: None };
            let reply = ModelReply {
                text: String::new(), reasoning: None, calls: vec![call], refusal: None, finish: Finish::ToolCalls,
                usage: Usage::default(), model: "m".into(), cost_microusd: None, failed_tries: Vec::new(),
            };
            let Effect::RunCalls(calls) = step(&mut run, Input::Replied { reply, ms: 1, check: &check_call, seen: &Seen::default() }).effect else {
                return Err(TestCaseError::fail("a call that may run is run"));
            };
            let known: HashSet<_> = entries.iter().flat_map(ids).collect();
            prop_assert!(calls.iter().all(|call| !known.contains(call.request.id.as_str())), "{calls:?}");
        }
    }
}
