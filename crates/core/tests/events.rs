//! The event stream, through its one door: journals of real machines in, events out.

use posse_core::events::run::{Event, Events, Speaker, ToolOutcome};
use posse_core::job::{Job, JobId, JobState};
use posse_core::model::{CallRequest, ModelReply};
use posse_core::persona::{ContextRules, PersonaTemplate, RunLimits};
use posse_core::run::compaction::Cut;
use posse_core::run::journal::{Entry, OfferedSkill, Opening};
use posse_core::run::machine::{Effect, Input, Step, Verdict, step};
use posse_core::run::{Run, Seen};
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory, ToolSpec};
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;

use crate::support::parts::{self, tool};

fn opening() -> Arc<Opening> {
    let spec =
        |name: &str| ToolSpec { name: name.into(), description: "d".into(), parameters: json!({"type": "object"}) };
    let skill = |name: &str, skills: &[&str]| OfferedSkill {
        spec: spec(name),
        system: "You test.".into(),
        prompt: "Do it.".into(),
        examples: Vec::new(),
        tools: vec!["look".into()],
        skills: skills.iter().map(|name| (*name).to_owned()).collect(),
        inner: false,
        unlisted: false,
        error: None,
        folder: None,
        hash: String::new(),
    };
    let persona = PersonaTemplate {
        role: "tester".into(),
        limits: RunLimits { max_turns: 40, ..RunLimits::default() },
        context: ContextRules { max_messages: Some(0), ..ContextRules::default() },
        ..PersonaTemplate::default()
    };
    let tools = vec![tool("look", EffectClass::Pure), tool("write", EffectClass::Once)];
    let skills = vec![skill("helper", &["inner"]), skill("inner", &[])];
    Arc::new(Opening { persona, tools, skills, system: "You test.".into(), ..Opening::default() })
}

fn check(call: &CallRequest) -> Verdict {
    Ok(if call.name == "look" { EffectClass::Pure } else { EffectClass::Once })
}

fn reply(calls: &[&str]) -> ModelReply {
    let arguments = |name: &str| match name {
        "finish" => json!({"final_summary": "42"}),
        "ask" => json!({"final_summary": "", "clarifying_questions": ["why?"]}),
        "helper" | "inner" => json!({"task": "help"}),
        _ => json!({}),
    };
    let call = |name: &&str| CallRequest {
        id: String::new(),
        name: if *name == "ask" { "finish" } else { *name }.into(),
        arguments: arguments(name).to_string(),
        extra: None,
    };
    parts::reply("aloud", calls.iter().map(call).collect())
}

/// A run whose entries are kept.
struct Driver {
    run: Run,
    journal: Vec<Entry>,
    effect: Effect,
}

impl Driver {
    fn begin() -> Driver {
        let mut run = Run::default();
        let first = step(&mut run, Input::Begun { goal: "do it", opening: opening() });
        let mut driver = Driver { run, journal: Vec::new(), effect: Effect::Wait };
        driver.take(first);
        driver
    }

    fn take(&mut self, step: Step) {
        self.journal.extend(step.entries);
        self.effect = step.effect;
    }

    fn say(&mut self, calls: &[&str]) {
        let next =
            step(&mut self.run, Input::Replied { reply: reply(calls), ms: 1, check: &check, seen: &Seen::default() });
        self.take(next);
    }

    fn end_call(&mut self, id: &str, ok: bool) {
        let result =
            if ok { Ok("fine".to_owned().into()) } else { Err(ToolError::new(ToolErrorCategory::NotFound, "no")) };
        let next = step(&mut self.run, Input::CallEnded { call_id: id.into(), result, ms: 1, check: &check });
        self.take(next);
    }

    fn pick_up(&mut self) {
        let next = step(&mut self.run, Input::PickedUp);
        self.take(next);
    }

    fn answer(&mut self) {
        let entry = Entry::Answered { question: 0, answer: Some("so".into()) };
        self.run.apply(&entry);
        self.journal.push(entry);
        self.pick_up();
    }
}

fn ended(run: &Run, state: JobState) -> Job {
    Job {
        id: JobId(1),
        queue: "default".into(),
        role: "tester".into(),
        state,
        priority: 5,
        run_at: 0,
        attempt: 1,
        max_attempts: 5,
        crashes: 0,
        retry: None,
        unique_key: None,
        concurrency_key: None,
        parent: None,
        root: None,
        group: None,
        tags: Vec::new(),
        meta: Default::default(),
        progress: None,
        damage: None,
        leased_by: None,
        lease_until: None,
        cancel_requested: false,
        payload: Default::default(),
        output: Some(run.output()),
        reason: None,
        created_at: 0,
        finalized_at: Some(9),
    }
}

/// The events of a job that ended with this journal.
fn events(journal: &[Entry], job: &Job) -> Vec<Event> {
    let mut events = Events::default();
    let mut all: Vec<_> = journal.iter().flat_map(|entry| events.take(entry)).collect();
    all.extend(events.finish(job));
    all
}

#[test]
fn a_skill_tells_its_depth_and_what_it_was_given() {
    let mut driver = Driver::begin();
    driver.say(&["helper"]);
    driver.say(&["inner"]);
    driver.say(&["look"]);
    let Effect::RunCalls(calls) = driver.effect.clone() else { panic!("{:?}", driver.effect) };
    driver.end_call(&calls[0].request.id, true);
    driver.say(&["finish"]);
    driver.say(&["finish"]);
    driver.say(&["finish"]);
    let told = events(&driver.journal, &ended(&driver.run, JobState::Completed));
    let lines: Vec<_> = told.iter().map(|event| serde_json::to_value(event).expect("JSON")).collect();
    let of = |kind: &str| lines.iter().filter(move |line| line["type"] == kind).collect::<Vec<_>>();
    let starts: Vec<_> =
        of("tool.start").iter().map(|l| (l["name"].clone(), l["is_skill"].clone(), l["depth"].clone())).collect();
    let wanted = [("helper", true, 1), ("inner", true, 2), ("look", false, 2)];
    assert_eq!(starts, wanted.map(|(name, skill, depth)| (json!(name), json!(skill), json!(depth))));
    assert_eq!(of("tool.start")[0]["input"], json!({"task": "help"}));
    assert!(
        of("tool.start")[2].get("input").is_none() && of("tool.end").iter().all(|line| line.get("input").is_none())
    );
    let ends: Vec<_> = of("tool.end").iter().map(|line| (line["name"].clone(), line["result"].clone())).collect();
    assert_eq!(ends, [("look", "fine"), ("inner", "42"), ("helper", "42")].map(|(n, r)| (json!(n), json!(r))));
    let done = lines.last().expect("an end");
    assert_eq!((&done["type"], &done["status"], &done["text"]), (&json!("done"), &json!("completed"), &json!("42")));
    assert_eq!(told[0], Event::Message { role: Speaker::User, text: "do it".into(), depth: 0 });
}

#[test]
fn a_cancelled_run_ends_what_it_had_begun() {
    let mut driver = Driver::begin();
    driver.say(&["helper"]);
    driver.say(&["look"]);
    let told = events(&driver.journal, &ended(&driver.run, JobState::Cancelled));
    let [.., Event::ToolEnd { outcome, name, .. }, Event::ToolEnd { name: outer, .. }, Event::Done { status, .. }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(
        (*outcome, name.as_str(), outer.as_str(), status.as_str()),
        (ToolOutcome::Overtaken, "look", "helper", "cancelled")
    );
}

#[derive(Debug, Clone)]
enum Move {
    Say(Vec<&'static str>),
    EndCall(usize, bool),
    Crash,
    Answer,
    Reopen,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let name = prop::sample::select(vec!["look", "write", "fly", "finish", "ask", "helper", "inner"]);
    let one = prop_oneof![
        6 => prop::collection::vec(name, 0..4).prop_map(Move::Say),
        8 => (0usize..4, any::<bool>()).prop_map(|(i, ok)| Move::EndCall(i, ok)),
        2 => Just(Move::Crash),
        2 => Just(Move::Answer),
        1 => Just(Move::Reopen),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    /// Whatever happens: each start has one end after it and no end comes alone, there is one `done`
    /// at the end, and a projection taken up in the middle goes on as if it had been there.
    #[test]
    fn any_run_is_told_whole_and_the_same_again(moves in moves(), cut in 0usize..200) {
        let mut driver = Driver::begin();
        let mut running: Vec<String> = Vec::new();
        for one in moves {
            match one {
                Move::Say(calls) if driver.effect == Effect::AskModel => driver.say(&calls),
                Move::EndCall(i, ok) if !running.is_empty() => {
                    let id = running.remove(i % running.len());
                    driver.end_call(&id, ok);
                }
                Move::Crash if driver.run.ended().is_none() => {
                    running.clear();
                    driver.pick_up();
                }
                Move::Answer if driver.effect == Effect::Suspend => driver.answer(),
                Move::Reopen if driver.run.ended().is_some() => {
                    driver.run.apply(&Entry::Reopened);
                    driver.journal.push(Entry::Reopened);
                    driver.pick_up();
                }
                _ => continue,
            }
            if let Effect::RunCalls(calls) = &driver.effect {
                running = calls.iter().map(|call| call.request.id.clone()).collect();
            }
        }
        let job = ended(&driver.run, JobState::Cancelled);
        let told = events(&driver.journal, &job);
        let (mut open, mut seen) = (HashSet::new(), HashSet::new());
        for (place, event) in told.iter().enumerate() {
            match event {
                Event::ToolStart { call_id, .. } => {
                    prop_assert!(seen.insert(call_id.clone()), "{} begins twice", call_id);
                    open.insert(call_id.clone());
                }
                Event::ToolEnd { call_id, .. } => prop_assert!(open.remove(call_id), "{} ends alone", call_id),
                Event::Done { .. } => prop_assert_eq!(place, told.len() - 1),
                _ => {}
            }
        }
        prop_assert!(open.is_empty(), "{:?} never end", open);
        let is_done = matches!(told.last(), Some(Event::Done { .. }));
        prop_assert!(is_done);
        // Through JSON, as a reader of the file sees them, and in two parts.
        let lines: Vec<_> = told.iter().map(|event| serde_json::to_string(event).expect("JSON")).collect();
        let read: Vec<Event> = lines.iter().map(|line| serde_json::from_str(line).expect("an event")).collect();
        prop_assert_eq!(&read, &told);
        let cut = cut.min(driver.journal.len());
        let mut first = Events::default();
        let mut parts: Vec<_> = driver.journal[..cut].iter().flat_map(|entry| first.take(entry)).collect();
        parts.extend(driver.journal[cut..].iter().flat_map(|entry| first.take(entry)));
        parts.extend(first.finish(&job));
        prop_assert_eq!(parts, told);
    }
}

#[test]
fn what_was_summed_up_is_told() {
    let mut events = Events::default();
    events.take(&Entry::Began { goal: "do it".into(), opening: opening() });
    let cut = Cut { from: 1, to: 5, most: 100 };
    let told = events.take(&Entry::Compacted { cut, summary: "It looked twice.".into() });
    assert_eq!(told, [Event::Compacted { messages: 4, summary: "It looked twice.".into(), depth: 0 }]);
    let line = serde_json::to_value(&told[0]).expect("JSON");
    assert_eq!(line["type"], "compacted");
}
