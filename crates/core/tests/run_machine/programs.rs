//! Calls that a program makes: kept, given again, and held to.

use std::collections::BTreeMap;
use std::sync::Arc;

use posse_core::events::run::Events;
use posse_core::job::JobId;
use posse_core::model::{CallRequest, ToolCalling};
use posse_core::persona::RunLimits;
use posse_core::run::Run;
use posse_core::run::journal::{CallOutcome, CallState, Entry, ledger_of};
use posse_core::run::machine::{Effect, Input, step};
use posse_core::tool::calls::{Came, EXECUTE_CODE, MAX_PROGRAM_CALLS};
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory};
use proptest::prelude::*;
use serde_json::json;

use super::kit::{Harness, check, opening, reply};
use super::parts::tool;

/// A run whose model has just called for a program, which has begun.
fn begun() -> Harness {
    let mut opening = Arc::unwrap_or_clone(opening(ToolCalling::Native, RunLimits::default()));
    opening.tools.insert(0, tool(EXECUTE_CODE, EffectClass::Idempotent));
    opening.tools.push(tool("put", EffectClass::Idempotent));
    let mut h = Harness::begin_with("do it", Arc::new(opening));
    h.say(reply("", &[EXECUTE_CODE]));
    begin(&mut h);
    h
}

fn begin(h: &mut Harness) {
    let running = h.running();
    let [(call_id, name)] = &running[..] else { panic!("{:?}", h.effect) };
    assert_eq!(name, EXECUTE_CODE);
    let next = step(&mut h.run, Input::ProgramBegins { call_id: call_id.clone(), at: 1234 });
    h.take(next);
}

fn call(name: &str, n: u32) -> CallRequest {
    CallRequest { id: String::new(), name: name.into(), arguments: json!({ "n": n, "a": 1 }).to_string(), extra: None }
}

fn make(h: &mut Harness, from: usize, calls: Vec<CallRequest>) {
    let next = step(&mut h.run, Input::Called { from, calls, check: &check });
    h.take(next);
}

/// The program's result number `at`.
fn result(h: &Harness, at: usize) -> Option<(u32, Came, String)> {
    let result = h.run.program()?.result(at)?;
    Some((result.number, result.came, result.text))
}

fn end_program(h: &mut Harness, text: &str) {
    let call_id = h.run.program().expect("a program").call_id.clone();
    h.end_call(&call_id, Ok(text.to_owned().into()));
}

fn states(h: &Harness) -> Vec<(String, CallState)> {
    ledger_of("", JobId(1), &h.journal).into_iter().map(|row| (row.tool, row.state)).collect()
}

#[test]
fn each_call_is_kept_before_it_runs_and_no_model_is_told_of_it() {
    let mut h = begun();
    make(&mut h, 0, vec![call("write", 1)]);
    let kinds: Vec<_> = h.journal.iter().map(|recorded| recorded.entry.kind()).collect();
    assert_eq!(kinds, ["began", "turn", "call_started", "program_began", "call_made", "call_started"]);
    let (id, _) = h.running()[0].clone();
    h.end_call(&id, Ok("written".to_owned().into()));
    assert_eq!(result(&h, 0), Some((0, Came::Done, "written".into())));
    end_program(&mut h, "42");
    assert_eq!(h.effect, Effect::AskModel);
    assert!(h.run.program().is_none());
    let told = format!("{:?}", h.run.messages());
    assert!(told.contains("42") && !told.contains("written"), "{told}");
    assert_eq!(states(&h), [(EXECUTE_CODE.into(), CallState::Done), ("write".into(), CallState::Done)]);
    assert_eq!(h.run.output().tools_used, [EXECUTE_CODE, "write"]);
}

#[test]
fn readers_run_side_by_side_and_whatever_changes_something_alone() {
    let mut h = begun();
    make(&mut h, 0, ["look", "look", "write", "look", "put"].iter().map(|name| call(name, 1)).collect());
    let names = |h: &Harness| h.running().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(&h), ["look", "look"]);
    let both = h.running();
    h.end_call(&both[1].0, Ok("b".to_owned().into()));
    assert_eq!(names(&h), ["look"], "a writer waits for it");
    assert_eq!(result(&h, 0).expect("a result").0, 1, "results come in the order of their ends");
    h.end_call(&both[0].0, Ok("a".to_owned().into()));
    for expected in ["write", "look", "put"] {
        assert_eq!(names(&h), [expected]);
        let (id, _) = h.running()[0].clone();
        h.end_call(&id, Ok("done".to_owned().into()));
    }
    assert_eq!(h.effect, Effect::Wait);
}

#[test]
fn what_may_not_run_is_refused_and_the_program_goes_on() {
    let mut h = begun();
    make(&mut h, 0, vec![call(EXECUTE_CODE, 1), call("delete_all", 1)]);
    assert_eq!(h.effect, Effect::Wait);
    for at in 0..2 {
        let (_, came, text) = result(&h, at).expect("a result");
        assert_eq!(came, Came::Refused);
        assert!(text.contains("A program cannot call") && text.contains("look, write, put"), "{text}");
    }
    // The model is not blamed for it.
    assert_eq!(states(&h), [(EXECUTE_CODE.into(), CallState::Started)]);
    make(&mut h, 2, (0..MAX_PROGRAM_CALLS as u32).map(|n| call("look", n)).collect());
    assert!(matches!(&h.effect, Effect::StopProgram(why) if why.contains("100 calls")), "{:?}", h.effect);
}

#[test]
fn a_program_that_is_run_again_gets_the_results_it_had_and_none_of_its_calls_runs_again() {
    let mut h = begun();
    make(&mut h, 0, vec![call("look", 1), call("look", 2)]);
    let both = h.running();
    h.end_call(&both[1].0, Ok("second".to_owned().into()));
    h.end_call(&both[0].0, Err(ToolError::new(ToolErrorCategory::NotFound, "first")));
    let before = h.journal.len();
    h.crash_and_pick_up();
    begin(&mut h);
    assert_eq!(h.run.program().expect("a program").at, 1234);
    make(&mut h, 0, vec![call("look", 1), call("look", 2)]);
    assert_eq!((h.journal.len(), &h.effect), (before, &Effect::Wait), "nothing is new");
    assert_eq!(result(&h, 0).expect("a result"), (1, Came::Done, "second".into()));
    assert_eq!(result(&h, 1).expect("a result"), (0, Came::Failed(ToolErrorCategory::NotFound), "first".into()));
    make(&mut h, 2, vec![call("write", 3)]);
    assert_eq!(h.running().len(), 1);
}

#[test]
fn a_call_in_flight_is_unknown_or_runs_again_when_the_program_comes_to_it() {
    for (name, is_repeatable) in [("write", false), ("put", true), ("look", true)] {
        let mut h = begun();
        make(&mut h, 0, vec![call(name, 1), call("put", 2)]);
        let (id, _) = h.running()[0].clone();
        h.crash_and_pick_up();
        begin(&mut h);
        if is_repeatable {
            assert_eq!(result(&h, 0), None);
        } else {
            let (number, came, text) = result(&h, 0).expect("a result");
            assert_eq!((number, came), (0, Came::Unknown));
            assert!(text.contains("may or may not"), "{text}");
        }
        // Before all that it had made is made again, nothing begins.
        make(&mut h, 0, vec![call(name, 1)]);
        assert_eq!(h.effect, Effect::Wait, "{name}");
        make(&mut h, 1, vec![call("put", 2)]);
        let running = h.running();
        assert_eq!(running[0].0 == id, is_repeatable, "{name} keeps its id, and with it its effect key");
        assert_eq!(running[0].1, if is_repeatable { name } else { "put" });
    }
}

#[test]
fn a_program_that_goes_another_way_is_stopped_with_both_names_and_nothing_runs() {
    let ended = |h: &mut Harness| {
        make(h, 0, vec![call("look", 1)]);
        let (id, _) = h.running()[0].clone();
        h.end_call(&id, Ok("seen".to_owned().into()));
        make(h, 1, vec![call("write", 7)]);
        h.crash_and_pick_up();
        begin(h);
    };
    for other in [call("put", 7), call("write", 8)] {
        let mut h = begun();
        ended(&mut h);
        let before = h.journal.len();
        make(&mut h, 0, vec![call("look", 1)]);
        let name = other.name.clone();
        make(&mut h, 1, vec![other]);
        let Effect::StopProgram(why) = h.effect.clone() else { panic!("{:?}", h.effect) };
        assert!(why.contains("its call 2 had been write") && why.contains(&format!("and was now {name}")), "{why}");
        assert_eq!(h.journal.len(), before, "nothing begins");
        // Arguments are the same whatever the order of their keys.
        let same = CallRequest { arguments: r#"{"a": 1,  "n": 7}"#.into(), ..call("write", 0) };
        make(&mut h, 1, vec![same]);
        assert_eq!(h.effect, Effect::Wait);
    }
    // One that ends before it has made them all, too.
    let mut h = begun();
    ended(&mut h);
    let why = h.run.program().expect("a program").left_out(1).expect("a reason");
    assert!(why.contains("had been write") && why.contains("was now nothing"), "{why}");
    assert_eq!(h.run.program().expect("a program").left_out(2), None);
}

#[test]
fn calls_of_a_program_that_ended_before_them_do_not_begin() {
    let mut h = begun();
    make(&mut h, 0, vec![call("write", 1), call("put", 2), call("look", 3)]);
    let (id, _) = h.running()[0].clone();
    let next = step(&mut h.run, Input::ProgramStopped);
    h.take(next);
    h.end_call(&id, Ok("written".to_owned().into()));
    let call_id = h.run.program().expect("a program").call_id.clone();
    h.end_call(&call_id, Err(ToolError::new(ToolErrorCategory::LimitExceeded, "processor time")));
    assert_eq!(h.effect, Effect::AskModel);
    let states: Vec<_> = states(&h).into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [CallState::Failed, CallState::Done, CallState::Refused, CallState::Refused]);
}

/// What a program does is what its results say: it makes the next calls of its plan after each.
#[derive(Debug, Clone)]
struct Plan(Vec<Vec<(usize, u32)>>);

const NAMES: [&str; 4] = ["look", "put", "write", "nothing"];

impl Plan {
    fn turn(&self, at: usize) -> Vec<CallRequest> {
        self.0.get(at).into_iter().flatten().map(|(name, n)| call(NAMES[*name], *n)).collect()
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    prop::collection::vec(prop::collection::vec((0..NAMES.len(), 0..3_u32), 0..4), 1..5).prop_map(Plan)
}

proptest! {
    /// Whenever its workers die, each changing call runs once at most, and the program is given the same results.
    #[test]
    fn any_program_does_the_same_whenever_its_workers_die(plan in plan(), deaths in prop::collection::vec(0..12_u32, 0..4), picks in any::<u64>()) {
        let mut h = begun();
        let (mut effects, mut deaths, mut picks) = (BTreeMap::<String, u32>::new(), deaths.into_iter(), picks);
        let mut given: Vec<(u32, Came)> = Vec::new();
        let mut life = 0;
        'lives: loop {
            if life > 0 {
                h.crash_and_pick_up();
                begin(&mut h);
            }
            life += 1;
            let mut steps_left = deaths.next();
            let (mut made, mut results, mut turn) = (0, 0, 0);
            let calls = plan.turn(turn);
            let many = calls.len();
            make(&mut h, made, calls);
            made += many;
            loop {
                if let Some(left) = &mut steps_left {
                    if *left == 0 { continue 'lives; }
                    *left -= 1;
                }
                if let Some((number, came, _)) = result(&h, results) {
                    prop_assert!((number as usize) < made, "a result of a call that was not made");
                    match given.get(results) {
                        Some(before) => prop_assert_eq!(*before, (number, came)),
                        None => given.push((number, came)),
                    }
                    results += 1;
                    turn += 1;
                    let calls = plan.turn(turn);
                    let many = calls.len();
                    make(&mut h, made, calls);
                    made += many;
                    prop_assert!(!matches!(h.effect, Effect::StopProgram(_)), "{:?}", h.effect);
                    continue;
                }
                let program = h.run.program().expect("a program");
                if program.made() == made && results == made { break 'lives; }
                prop_assert_eq!(program.left_out(made), None);
                let running = h.running();
                prop_assert!(!running.is_empty(), "it waits for nothing");
                picks = picks.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (id, name) = running[(picks >> 33) as usize % running.len()].clone();
                if name == "write" { *effects.entry(id.clone()).or_default() += 1; }
                if picks & 4 == 0 && name == "write" && steps_left.is_some_and(|left| left > 0) {
                    // It dies between the effect and its record.
                    continue 'lives;
                }
                h.end_call(&id, Ok(format!("{name} gave this").into()));
            }
        }
        prop_assert!(effects.values().all(|times| *times == 1), "{:?}", effects);
        end_program(&mut h, "done");
        prop_assert_eq!(&h.effect, &Effect::AskModel);
        prop_assert!(states(&h).iter().all(|(_, state)| !matches!(state, CallState::Proposed | CallState::Started)));
        // Each begins once and ends once, for whoever watches.
        let mut events = Events::default();
        let all: Vec<_> = h.journal.iter().flat_map(|recorded| events.take(&recorded.entry)).collect();
        let text = serde_json::to_string(&all).expect("JSON");
        prop_assert_eq!(text.matches("tool.start").count(), text.matches("tool.end").count());
        prop_assert_eq!(Run::replay(&h.journal), h.run);
        let ended = |entry: &Entry| matches!(entry, Entry::CallEnded { outcome: CallOutcome::Done, .. });
        prop_assert!(h.journal.iter().any(|recorded| ended(&recorded.entry)));
    }
}
