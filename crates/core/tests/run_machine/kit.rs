//! A run and the worker that has it.

use posse_core::model::{CallRequest, ModelReply, ToolCalling};
use posse_core::persona::{ContextRules, PersonaTemplate, RunLimits};
use posse_core::run::journal::{EndStatus, Entry, Opening, Recorded};
use posse_core::run::machine::{Effect, Input, Step, Verdict, step};
use posse_core::run::{Run, Seen};
use posse_core::tool::{EffectClass, ToolError, ToolOutput};
use serde_json::json;
use std::sync::Arc;

use super::parts::{self, tool};

pub fn opening(calling: ToolCalling, limits: RunLimits) -> Arc<Opening> {
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

pub fn check(call: &CallRequest) -> Verdict {
    match call.name.as_str() {
        "look" | "read_file" => Ok(EffectClass::Pure),
        "put" | "execute_code" => Ok(EffectClass::Idempotent),
        "write" | "create_file" | "edit_file" | "run_command" => Ok(EffectClass::Once),
        other => Err(format!("There is no tool '{other}'.")),
    }
}

pub fn reply(text: &str, calls: &[&str]) -> ModelReply {
    let call = |name: &&str| CallRequest {
        id: "same".into(),
        name: (*name).into(),
        arguments: if *name == "finish" { json!({"final_summary": "42"}).to_string() } else { "{}".into() },
        extra: None,
    };
    ModelReply { cost_microusd: Some(3), ..parts::reply(text, calls.iter().map(call).collect()) }
}

/// A run in the hands of a worker that commits every entry.
pub struct Harness {
    pub run: Run,
    pub journal: Vec<Recorded>,
    pub effect: Effect,
}

impl Harness {
    pub fn begin(calling: ToolCalling, limits: RunLimits) -> Self {
        Self::begin_with("do it", opening(calling, limits))
    }

    pub fn begin_with(goal: &str, opening: Arc<Opening>) -> Self {
        let mut run = Run::default();
        let begun = Input::Begun { goal, opening };
        let first = step(&mut run, begun);
        let mut harness = Harness { run, journal: Vec::new(), effect: Effect::Wait };
        harness.take(first);
        harness
    }

    pub fn native() -> Self {
        Self::begin(ToolCalling::Native, RunLimits::default())
    }

    pub fn take(&mut self, step: Step) {
        for entry in step.entries {
            self.journal.push(Recorded { seq: self.journal.len() as u64, at: 0, entry });
        }
        self.effect = step.effect;
        assert_eq!(Run::replay(&self.journal), self.run, "the journal replays to the live state");
    }

    pub fn say(&mut self, reply: ModelReply) -> &mut Self {
        self.say_where(&[], reply)
    }

    /// The model replies, while of all files only these are there.
    pub fn say_where(&mut self, there: &[&str], reply: ModelReply) -> &mut Self {
        let files = self.run.files_of(&reply).into_iter();
        let files = files.map(|path| (path.clone(), there.contains(&&*path))).collect();
        let seen = Seen { files, ..Seen::default() };
        let next = step(&mut self.run, Input::Replied { reply, ms: 1, check: &check, seen: &seen });
        self.take(next);
        self
    }

    pub fn end_call(&mut self, call_id: &str, result: Result<ToolOutput, ToolError>) {
        self.end_call_after(call_id, result, 1);
    }

    pub fn end_call_after(&mut self, call_id: &str, result: Result<ToolOutput, ToolError>, ms: u64) {
        let next = step(&mut self.run, Input::CallEnded { call_id: call_id.into(), result, ms, check: &check });
        self.take(next);
    }

    pub fn running(&self) -> Vec<(String, String)> {
        let Effect::RunCalls(calls) = &self.effect else { return Vec::new() };
        calls.iter().map(|c| (c.request.id.clone(), c.request.name.clone())).collect()
    }

    /// Runs whatever the machine wants run until it wants something else.
    pub fn run_calls(&mut self) -> &mut Self {
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

    /// The summary that is asked for is there.
    pub fn take_summary(&mut self, text: &str) {
        let next = step(&mut self.run, Input::Summarised { text: Some(text.into()) });
        self.take(next);
    }

    /// An entry that somebody else made.
    pub fn take_from_outside(&mut self, entry: Entry) {
        self.journal.push(Recorded { seq: self.journal.len() as u64, at: 0, entry });
        self.crash_and_pick_up();
    }

    pub fn crash_and_pick_up(&mut self) {
        self.run = Run::replay(&self.journal);
        let next = step(&mut self.run, Input::PickedUp);
        self.take(next);
    }

    pub fn ended(&self) -> (EndStatus, String, String) {
        let ended = self.run.ended().expect("the run has ended");
        (ended.status, ended.text.clone(), ended.reason.clone().unwrap_or_default())
    }
}
