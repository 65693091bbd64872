//! Entries of journals, at random: what models, people and damaged disks leave.

use posse_core::model::{Author, CallRequest, Extra, Finish, Reasoning, Usage};
use posse_core::run::journal::{Call, CallOutcome, EndStatus, Entry, Turn};
use posse_core::tool::EffectClass;
use proptest::prelude::*;
use serde_json::json;

/// Who reads what is sent.
pub fn reader() -> Author {
    Author { provider: "host".into(), model: "m".into() }
}

/// Who may have written what a journal holds.
pub fn author() -> impl Strategy<Value = Author> {
    prop_oneof![
        Just(reader()),
        Just(Author { provider: "host".into(), model: "other".into() }),
        Just(Author { provider: "elsewhere".into(), model: "m".into() }),
    ]
}

/// Texts that providers stumble over, and others.
pub fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", " \n", "words", "words ", " words", "{\"tool\": 1}", "ü\u{0}"])
        .prop_map(str::to_owned)
}

/// Ids of calls: ours, a provider's, and none.
pub fn id() -> impl Strategy<Value = String> {
    let ids =
        vec!["c00000000", "c00000001", "c00000002", "c00000007", "call_AbC123xyz1", "call_AbC123xyz2", "", "größe"];
    prop::sample::select(ids).prop_map(str::to_owned)
}

/// A call as a model may have made it.
pub fn call() -> impl Strategy<Value = CallRequest> {
    let name = prop::sample::select(vec!["look", "write", "functions.größe", ""]);
    let arguments = prop::sample::select(vec!["{}", "", "{\"a\":", "[]", "{} {}"]);
    let extra = prop::option::of(author().prop_map(|by| Extra { value: json!({"s": 1}), provider: by.provider }));
    (id(), name, arguments, extra).prop_map(|(id, name, arguments, extra)| CallRequest {
        id,
        name: name.into(),
        arguments: arguments.into(),
        extra,
    })
}

/// Thoughts of whomever.
pub fn reasoning() -> impl Strategy<Value = Option<Reasoning>> {
    prop::option::of((text(), author()).prop_map(|(text, by)| Reasoning { text, by }))
}

/// A reply.
pub fn turn() -> impl Strategy<Value = Entry> {
    let effect = prop::sample::select(vec![None, Some(EffectClass::Pure), Some(EffectClass::Once)]);
    let calls = prop::collection::vec((call(), effect).prop_map(|(request, effect)| Call { request, effect }), 0..4);
    (text(), reasoning(), calls).prop_map(|(text, reasoning, calls)| {
        Entry::Turn(Turn {
            text,
            reasoning,
            calls,
            cut_calls: Vec::new(),
            finish: Finish::Stop,
            usage: Usage::default(),
            model: "m".into(),
            cost_microusd: None,
            failed_tries: Vec::new(),
            ms: 1,
        })
    })
}

/// Anything a journal may hold, wherever it came from.
pub fn entry() -> impl Strategy<Value = Entry> {
    let outcome = prop::sample::select(vec![CallOutcome::Done, CallOutcome::Refused, CallOutcome::Unknown]);
    prop_oneof![
        6 => turn(),
        5 => id().prop_map(|call_id| Entry::CallStarted { call_id }),
        5 => (id(), outcome, text()).prop_map(|(call_id, outcome, text)| {
            Entry::CallEnded { call_id, outcome, text, annotations: Vec::new(), ms: 1 }
        }),
        1 => text().prop_map(|text| Entry::Note { text }),
        1 => (prop::option::of(id()), text()).prop_map(|(call_id, text)| {
            Entry::Doubted { call_id, answer: "done".into(), why: "it is not there".into(), text }
        }),
        1 => Just(Entry::TurnFailed { reason: "no".into(), failed_tries: Vec::new(), overflow: None, ms: 1 }),
        1 => Just(Entry::Ended { status: EndStatus::Completed, text: "done".into(), reason: None }),
        1 => Just(Entry::Reopened),
    ]
}
