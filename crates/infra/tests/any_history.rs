//! Promise 5, whole: whatever happened to a run and to its journal, what is asked next can be sent to
//! any provider, has the task in it word for word, and fits the window: by the counts that the run
//! decides with, nobody is ever sent more than was counted.
//!
//! Runs and what happens to them are those of the core's own property.

// A failed `unwrap` is how a test fails.
#![allow(clippy::unwrap_used)]

#[path = "../../core/tests/agent_machine/histories.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod histories;
#[path = "../../core/tests/agent_machine/kit.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod kit;
#[path = "../../core/tests/support/parts.rs"]
mod parts;
#[path = "../../core/tests/support/sendable.rs"]
mod sendable;

use crate::support::entries::{author, entry, reader};
use crate::support::rules::all_rules;
use histories::{moves, play, setups};
use kit::{Harness, TASK, Tokenizer, check, count, half_the_bytes};
use posse_core::model::conversation::{Normaliser, Rules};
use posse_core::model::tokens;
use posse_core::model::{Author, Message, ModelRequest, Reasoning};
use posse_core::run::Run;
use posse_core::run::compaction::{Summariser, SummaryRoom};
use posse_core::run::journal::{Entry, Opening, Recorded};
use posse_core::run::machine::{Effect, Input, ToSummarise, step};
use posse_core::tool::ToolSpec;
use posse_testing::validate::{validate_strictly, validate_tools};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use std::sync::Arc;

/// What a disk or a hand may do to a journal, and what a model may leave in it.
#[derive(Debug, Clone)]
enum Damage {
    Lose(Index),
    Double(Index),
    Slip(Index, Box<Entry>),
    Think(Index, Author),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        any::<Index>().prop_map(Damage::Lose),
        any::<Index>().prop_map(Damage::Double),
        (any::<Index>(), entry()).prop_map(|(at, entry)| Damage::Slip(at, Box::new(entry))),
        (any::<Index>(), author()).prop_map(|(at, by)| Damage::Think(at, by)),
    ];
    prop::collection::vec(one, 0..6)
}

fn damage(journal: &mut Vec<Recorded>, damages: Vec<Damage>) {
    for damage in damages {
        if journal.is_empty() {
            return;
        }
        match damage {
            Damage::Lose(at) => drop(journal.remove(at.index(journal.len()))),
            Damage::Double(at) => {
                let at = at.index(journal.len());
                journal.insert(at, journal[at].clone());
            }
            Damage::Slip(at, entry) => {
                let at = at.index(journal.len());
                journal.insert(at, Recorded { entry: *entry, ..journal[at].clone() });
            }
            Damage::Think(at, by) => {
                let at = at.index(journal.len());
                if let Entry::Turn(turn) = &mut journal[at].entry {
                    turn.reasoning = Some(Reasoning { text: "because of this and that ".repeat(9), by });
                }
            }
        }
    }
}

/// The messages of a request as they leave for a provider with these rules.
fn sent(request: &ModelRequest, rules: Rules) -> Vec<Message> {
    let mut normaliser = Normaliser::new(rules, reader());
    let mut sent = Vec::new();
    request.messages.iter().for_each(|message| normaliser.push(message, &mut sent));
    normaliser.rest(request.tail.as_deref(), &mut sent);
    sent
}

/// Tokens of a tool as the adapter writes it.
fn of_tool(spec: &ToolSpec) -> u64 {
    tokens::text(&json!({"type": "function", "function": spec}).to_string())
}

/// Checks a request for every provider there could be: nobody refuses it, and `task` is in it.
///
/// `counted` is what it was taken to have where that was decided, and `window` what it has to fit with
/// its reply. With `same`, the counts were made as they are made here, so that nobody is sent more.
fn check_request(request: &ModelRequest, task: &str, counted: u64, window: Option<u32>, same: bool) {
    assert_eq!(validate_tools(request), []);
    if let Some(window) = window {
        let total = counted + u64::from(request.max_tokens.unwrap_or(1));
        assert!(
            total <= window.into(),
            "{counted} tokens and a reply of {:?} are more than {window}",
            request.max_tokens
        );
    }
    let tools: u64 = request.tools.iter().map(of_tool).sum();
    for rules in all_rules() {
        let sent = sent(request, rules);
        assert_eq!(validate_strictly(&sent, rules, &reader()), [], "for {rules:?}\n{sent:#?}");
        let told = sent.iter().any(|m| matches!(m, Message::User { text } if text.contains(task)));
        assert!(told, "the task is gone: {sent:#?}");
        let read = sent.iter().map(tokens::message).sum::<u64>() + tools;
        assert!(!same || read <= counted, "{counted} became {read} for {rules:?}: {sent:#?}");
    }
}

/// Checks what the model is asked next, if it is. The window is known by what providers taught of it.
fn check_asked(run: &Run, same: bool) {
    let task = if run.depth() == 0 { TASK } else { "look around" };
    check_request(&run.request(), task, run.request_tokens(), run.window(), same);
}

/// Checks the requests for a summary, as many as there are.
fn check_summary(run: &Run, what: &ToSummarise) {
    let count = |message: &Message| run.count(message);
    let room = SummaryRoom { window: run.window(), reply: 500 };
    let mut summariser = Summariser::new(&what.task, &what.messages, what.purpose.clone(), room, &count);
    while let Some(request) = summariser.request() {
        let counted = request.messages.iter().map(count).sum();
        check_request(&request, &what.task, counted, run.window(), false);
        let plain = request.messages.iter().map(tokens::message).sum();
        check_request(&request, &what.task, plain, None, true);
        summariser.replied("what was done, and what was found out", &count);
    }
}

/// Has a worker pick the run up and go on until its model is asked or nothing more is to be done.
fn go_on(run: &mut Run, opening: &Arc<Opening>, tokenizer: Tokenizer) -> Effect {
    let first = match run.opening() {
        Some(_) => Input::PickedUp,
        None => Input::Begun { goal: TASK, opening: Arc::clone(opening) },
    };
    let mut effect = step(run, first).effect;
    for _ in 0..200 {
        effect = match effect {
            Effect::RunCalls(calls) => {
                let mut after = Effect::Wait;
                for call in calls {
                    let result = Ok("it is so".to_owned().into());
                    let ended = Input::CallEnded { call_id: call.request.id, result, ms: 1, check: &check };
                    after = step(run, ended).effect;
                }
                after
            }
            Effect::Summarise(what) => {
                check_summary(run, &what);
                let text = Some("what was done, and what was found out".to_owned());
                step(run, Input::Summarised { text }).effect
            }
            Effect::Count(what) => step(run, Input::Counted { tokens: count(tokenizer, &what) }).effect,
            Effect::Suspend => {
                let questions = run.asked().map_or(0, |asked| asked.questions.len());
                (0..).take(questions).for_each(|question| run.apply(&Entry::Answered { question, answer: None }));
                step(run, Input::PickedUp).effect
            }
            other => return other,
        };
    }
    panic!("it goes on for ever: {effect:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_request_of_any_history_can_be_sent_to_anybody(
        setup in setups(), moves in moves(), damages in damages(), max_reply in prop::option::of(1u32..400),
        same in any::<bool>(),
    ) {
        let mut opening = setup.opening();
        opening.persona.max_reply_tokens = max_reply;
        let kept = Arc::new(opening.clone());
        let tokenizer: Tokenizer = if same { |text| Some(tokens::text(text)) } else { half_the_bytes };
        let same = same || !opening.has_tokenizer;
        let mut h = Harness::begin_with(opening, tokenizer);
        let mut in_flight: Vec<String> = Vec::new();
        for one in moves {
            match &h.effect {
                Effect::AskModel => check_asked(&h.run, same),
                Effect::Summarise(what) => check_summary(&h.run, what),
                _ => {}
            }
            play(&mut h, setup.structured, one, &mut in_flight);
            in_flight = h.running().into_iter().map(|call| call.id).collect();
        }
        let mut journal = h.journal.clone();
        damage(&mut journal, damages);
        let mut run = Run::replay(&journal);
        let effect = go_on(&mut run, &kept, tokenizer);
        prop_assert!(matches!(effect, Effect::AskModel | Effect::End), "{effect:?}");
        if effect == Effect::AskModel {
            // A count may be taken for another message's, where that has as many bytes.
            check_asked(&run, !kept.has_tokenizer);
        }
    }
}
