//! Promise 5, whole: whatever happened to a run and to its journal, what is asked next can be sent to
//! any provider, has the task in it word for word, and fits the window.
//!
//! Runs and what happens to them are those of the core's own property.

// A failed `unwrap` is how a test fails.
#![allow(clippy::unwrap_used)]

#[path = "support/entries.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod entries;
#[path = "../../core/tests/agent_machine/histories.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod histories;
#[path = "../../core/tests/agent_machine/kit.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod kit;
#[path = "support/rules.rs"]
mod rules;
#[path = "../../core/tests/support/sendable.rs"]
mod sendable;

use entries::{author, entry, reader};
use histories::{moves, play, setups};
use kit::{Harness, TASK, check, count, half_the_bytes};
use posse_core::conversation::{Normaliser, Rules};
use posse_core::journal::{Entry, Recorded};
use posse_core::model::{Author, Message, ModelRequest, Reasoning};
use posse_core::run::Run;
use posse_core::run::compaction::{Summariser, SummaryRoom};
use posse_core::run::machine::{Effect, Input, ToSummarise, Written, step};
use posse_core::tokens;
use posse_core::tool::ToolSpec;
use posse_infra::model::judge::{judge_strictly, judge_tools};
use proptest::prelude::*;
use proptest::sample::Index;
use rules::all_rules;
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

/// What a provider's rules may add to a message, in tokens: a stand-in for reasoning, a message between
/// a result and a user's. No room is set aside for it: it is within the error of an estimate.
const ADDED: u64 = 16;

/// What mending a call may add, in tokens: a result that a damaged journal lacks, and braces around what
/// are no arguments.
const MENDED: u64 = 64;

/// How much larger than it was taken to be a view of the working memory may turn out, in tokens: it is
/// measured without being written out, worst where much of it is cut; see `Phased::view_tokens`.
fn unmeasured(tail: u64) -> u64 {
    if tail == 0 { 0 } else { tail / 3 + 30 }
}

/// Checks a request for every provider there could be: nobody refuses it, `task` is in it, and with
/// what the reply may take it has no more tokens than the window. Where no number limits the reply, a
/// share of the window is set aside for it, and what rules add is within that.
fn check_request(request: &ModelRequest, task: &str, window: Option<u32>, reply: Option<u32>) {
    assert_eq!(judge_tools(request), []);
    let spec = |t: &ToolSpec| tokens::text(&format!("{} {} {}", t.name, t.description, t.parameters));
    let tools: u64 = request.tools.iter().map(spec).sum();
    let tail = request.tail.clone().map(|text| tokens::message(&Message::User { text })).unwrap_or_default();
    let plain = request.messages.iter().map(tokens::message).sum::<u64>() + tail + tools;
    let calls = |m: &Message| if let Message::Assistant { calls, .. } = m { calls.len() as u64 } else { 0 };
    let calls: u64 = request.messages.iter().map(calls).sum();
    let room = window.map_or(u64::MAX, u64::from);
    let total = plain + u64::from(reply.unwrap_or(1));
    let certain = if reply.is_some() { total.saturating_sub(unmeasured(tail)) } else { total };
    assert!(certain <= room, "{plain} tokens, and {reply:?} for the reply, are more than {room}");
    for rules in all_rules() {
        let sent = sent(request, rules);
        assert_eq!(judge_strictly(&sent, rules, &reader()), [], "for {rules:?}\n{sent:#?}");
        let told = sent.iter().any(|m| matches!(m, Message::User { text } if text.contains(task)));
        assert!(told, "the task is gone: {sent:#?}");
        let read = sent.iter().map(tokens::message).sum::<u64>() + tools;
        let most = plain + ADDED * (request.messages.len() as u64 + 1) + MENDED * calls;
        assert!(read <= if reply.is_some() { most } else { most.min(room) }, "{plain} became {read} for {rules:?}");
    }
}

/// Checks what the model is asked next, if it is. The window is known by what providers taught of it.
fn check_asked(run: &Run) {
    let task = if run.depth() == 0 { TASK } else { "look around" };
    let request = run.request();
    // A reply that nothing limits takes what is left.
    let reply = request.max_tokens.filter(|_| run.opening().is_some_and(|o| o.persona.max_reply_tokens.is_some()));
    check_request(&request, task, run.window(), reply);
}

/// Checks the requests for a summary, as many as there are.
fn check_summary(run: &Run, what: &ToSummarise) {
    let count = |message: &Message| run.count(message);
    let room = SummaryRoom { window: run.window(), reply: 500 };
    let mut summariser = Summariser::new(&what.task, &what.messages, what.purpose.clone(), room, &count);
    while let Some(request) = summariser.request() {
        check_request(&request, &what.task, run.window(), Some(room.reply));
        summariser.replied("what was done, and what was found out", &count);
    }
}

/// Has a worker pick the run up and go on until its model is asked or nothing more is to be done.
fn go_on(run: &mut Run, opening: &Arc<posse_core::journal::Opening>) -> Effect {
    let first = match run.opening() {
        Some(_) => Input::PickedUp,
        None => Input::Begun { goal: TASK, opening: Arc::clone(opening), summaries: Vec::new() },
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
                step(run, Input::Summarised { text, written: Written::default() }).effect
            }
            Effect::Count(what) => step(run, Input::Counted { tokens: count(half_the_bytes, &what) }).effect,
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
    ) {
        let mut opening = setup.opening();
        opening.persona.max_reply_tokens = max_reply;
        let kept = Arc::new(opening.clone());
        let mut h = Harness::begin(opening);
        let mut in_flight: Vec<String> = Vec::new();
        for one in moves {
            match &h.effect {
                Effect::AskModel => check_asked(&h.run),
                Effect::Summarise(what) => check_summary(&h.run, what),
                _ => {}
            }
            play(&mut h, setup.structured, one, &mut in_flight);
            in_flight = h.running().into_iter().map(|call| call.id).collect();
        }
        let mut journal = h.journal.clone();
        damage(&mut journal, damages);
        let mut run = Run::replay(&journal);
        let effect = go_on(&mut run, &kept);
        prop_assert!(matches!(effect, Effect::AskModel | Effect::End), "{effect:?}");
        if effect == Effect::AskModel {
            check_asked(&run);
        }
    }
}
