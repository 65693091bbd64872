//! A run in the hands of a worker that may die after every step.

use posse_core::model::{
    CallRequest, Message, ModelError, ModelErrorKind, ModelReply, ModelRequest, ToolCalling, Usage,
};
use posse_core::persona::{ContextRules, PersonaTemplate, Style};
use posse_core::run::journal::{
    CallState, EndStatus, Entry, LedgerChange, OfferedSkill, Opening, Recorded, ledger_changes,
};
use posse_core::run::machine::{Effect, Input, Step, ToCount, ToSummarise, Verdict, step};
use posse_core::run::{Run, Seen, phase};
use posse_core::skill::SkillCallArgs;
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory, ToolOutput, ToolSpec, schema_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::parts::{self, tool};

/// Odd enough to show that it is passed on word for word.
pub const TASK: &str = "Find the ship \"Clio\";\n  two lines, {braces} and a tab\t.";

/// What a run begins with: four tools, no skills, no compaction by number.
pub fn opening() -> Opening {
    let tools = vec![
        tool("look", EffectClass::Pure),
        tool("peek", EffectClass::Pure),
        tool("put", EffectClass::Idempotent),
        tool("write", EffectClass::Once),
    ];
    let persona = PersonaTemplate {
        role: "tester".into(),
        goal: "test".into(),
        context: ContextRules { max_messages: Some(0), ..ContextRules::default() },
        ..PersonaTemplate::default()
    };
    Opening { persona, model: "m".into(), tools, system: "You test.".into(), ..Opening::default() }
}

/// The same by phases.
pub fn phased() -> Opening {
    let mut opening = opening();
    opening.persona.style = Style::Phased;
    opening
}

/// The same with two skills to call, `survey` and `deep`; `survey` may call `inner`, and `deep` itself.
pub fn with_skills(mut opening: Opening) -> Opening {
    let skill = |name: &str, tools: &[&str], skills: &[&str], inner| OfferedSkill {
        spec: ToolSpec {
            name: name.into(),
            description: format!("the skill {name}"),
            parameters: schema_of::<SkillCallArgs>(),
        },
        system: "You are the child.".into(),
        prompt: format!("# Skill: {name}"),
        examples: Vec::new(),
        tools: tools.iter().map(|name| (*name).to_owned()).collect(),
        skills: skills.iter().map(|name| (*name).to_owned()).collect(),
        inner,
        unlisted: false,
        error: None,
        folder: None,
        hash: String::new(),
    };
    opening.skills = vec![
        skill("deep", &["look", "write"], &["deep"], false),
        skill("inner", &["look"], &[], true),
        skill("survey", &["look"], &["inner"], false),
    ];
    opening.skills_list = Some("# Skills you may call\n- deep: the skill deep\n- survey: the skill survey\n".into());
    opening
}

/// A call of a reply; the id is as useless as a provider may make it.
pub fn call(name: &str, arguments: Value) -> CallRequest {
    CallRequest { id: "same".into(), name: name.into(), arguments: arguments.to_string(), extra: None }
}

/// A step by phases, as a call.
pub fn agent_step(arguments: Value) -> CallRequest {
    call(phase::AGENT_STEP, arguments)
}

/// An act, as the arguments of a step.
pub fn act(tool: &str, input: Value) -> Value {
    json!({"phase": "act", "thinking": "t", "summary": format!("Used {tool}."),
           "action": {"tool_name": tool, "tool_input": input}})
}

/// A step that brings along nothing but its words.
pub fn plain_step(phase: &str) -> Value {
    json!({"phase": phase, "thinking": "t", "summary": format!("Did {phase}.")})
}

/// A final answer.
pub fn finish(text: &str) -> CallRequest {
    call("finish", json!({"final_summary": text}))
}

/// A reply of words and calls.
pub fn reply(text: &str, calls: Vec<CallRequest>) -> ModelReply {
    let reply = parts::reply(text, calls);
    // Numbers of a provider would teach how its tokens compare with ours.
    ModelReply { usage: Usage { estimated: true, ..reply.usage }, cost_microusd: Some(3), ..reply }
}

/// What a worker's check says: every tool takes anything but `{"bad": true}`.
pub fn check(call: &CallRequest) -> Verdict {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
    if !arguments.is_object() || arguments["bad"] == true {
        return Err("these arguments do not fit; give an object without 'bad'".into());
    }
    Ok(match call.name.as_str() {
        "look" | "peek" => EffectClass::Pure,
        "put" => EffectClass::Idempotent,
        _ => EffectClass::Once,
    })
}

/// A failure of a tool.
pub fn failure(text: &str) -> Result<ToolOutput, ToolError> {
    Err(ToolError::new(ToolErrorCategory::Failed, text))
}

/// A tokenizer that makes one token of two bytes. No text of these tests is estimated at less than a
/// quarter of that.
pub fn half_the_bytes(text: &str) -> Option<u64> {
    Some(text.len().div_ceil(2) as u64)
}

/// What a tokenizer answers.
pub fn count(tokenizer: Tokenizer, what: &[ToCount]) -> Option<Vec<u64>> {
    what.iter().map(|one| one.texts.iter().map(|text| tokenizer(text)).sum()).collect()
}

/// Tokens of a text; none makes it fail to answer at all.
pub type Tokenizer = fn(&str) -> Option<u64>;

/// A run in the hands of a worker that commits every step. After each it is looked at as another
/// worker would find it, and dropping it looks at every place in its journal.
pub struct Harness {
    pub run: Run,
    pub journal: Vec<Recorded>,
    pub effect: Effect,
    /// What counts texts where the opening says that the model has a tokenizer.
    pub tokenizer: Tokenizer,
    /// What it was asked to count, request by request.
    pub to_count: Vec<Vec<ToCount>>,
}

impl Harness {
    pub fn begin(opening: Opening) -> Harness {
        Harness::begin_with(opening, half_the_bytes)
    }

    pub fn begin_with(opening: Opening, tokenizer: Tokenizer) -> Harness {
        let mut run = Run::default();
        let first = step(&mut run, Input::Begun { goal: TASK, opening: Arc::new(opening) });
        let (effect, to_count) = (Effect::Wait, Vec::new());
        let mut harness = Harness { run, journal: Vec::new(), effect, tokenizer, to_count };
        harness.take(first);
        harness
    }

    fn take(&mut self, taken: Step) {
        for entry in taken.entries {
            self.record(entry);
        }
        self.effect = taken.effect;
        assert_eq!(Run::replay(&self.journal), self.run, "the journal replays to the live state");
        check_ledger(&self.journal, self.effect == Effect::End);
        if let Effect::Count(what) = &self.effect {
            self.to_count.push(what.clone());
            let tokens = count(self.tokenizer, what);
            let counted = step(&mut self.run, Input::Counted { tokens });
            return self.take(counted);
        }
        if self.effect == Effect::AskModel {
            let request = self.run.request();
            assert_eq!(unsendable(&request), Vec::<String>::new());
            if self.run.depth() == 0 {
                let tells = |m: &Message| matches!(m, Message::User { text } if text.contains(TASK));
                assert!(request.messages.iter().any(tells), "the task is not there word for word");
            }
            let stored = self.run.messages().iter().any(|m| text(m).contains("--- Agent Working Memory ---"));
            assert!(!stored, "a view belongs to a request, not to the conversation");
        }
        self.check_pick_up();
    }

    /// A worker that finds the run where it is does the same as the one that is at it.
    fn check_pick_up(&self) {
        let once = |effect: Option<EffectClass>| effect == Some(EffectClass::Once);
        match &self.effect {
            Effect::Wait | Effect::StopProgram(_) | Effect::FailAttempt { .. } => return,
            Effect::RunCalls(calls) if calls.iter().any(|call| once(call.effect)) => return,
            _ => {}
        }
        let mut found = Run::replay(&self.journal);
        let mut next = step(&mut found, Input::PickedUp);
        if let Effect::Count(what) = &next.effect {
            // It had no answer, and has none again.
            let input = Input::Counted { tokens: count(self.tokenizer, what) };
            next = step(&mut found, input);
        }
        assert_eq!((next.entries, &next.effect), (Vec::new(), &self.effect));
    }

    fn record(&mut self, entry: Entry) {
        self.journal.push(Recorded { seq: self.journal.len() as u64, at: 0, entry });
    }

    /// Somebody else appends an entry.
    pub fn take_from_outside(&mut self, entry: Entry) -> &mut Self {
        self.record(entry);
        self.crash_and_pick_up()
    }

    /// The model replies.
    pub fn say(&mut self, reply: ModelReply) -> &mut Self {
        assert_eq!(self.effect, Effect::AskModel, "nobody asked");
        let next = step(&mut self.run, Input::Replied { reply, ms: 1, check: &check, seen: &Seen::default() });
        self.take(next);
        self
    }

    /// The model makes these calls.
    pub fn calls(&mut self, calls: Vec<CallRequest>) -> &mut Self {
        self.say(reply("", calls))
    }

    /// The model takes a step by phases.
    pub fn step(&mut self, arguments: Value) -> &mut Self {
        self.calls(vec![agent_step(arguments)])
    }

    /// The model cannot be brought to reply.
    pub fn fail(&mut self, kind: ModelErrorKind, context_window: Option<u32>) -> &mut Self {
        let message = "the endpoint said no".to_owned();
        let error = ModelError { kind, message, retry_after: None, context_window, failed_tries: Vec::new() };
        let next = step(&mut self.run, Input::ModelFailed { error, ms: 1 });
        self.take(next);
        self
    }

    /// A running call ends.
    pub fn end_call(&mut self, call_id: &str, result: Result<ToolOutput, ToolError>) -> &mut Self {
        let next = step(&mut self.run, Input::CallEnded { call_id: call_id.into(), result, ms: 1, check: &check });
        self.take(next);
        self
    }

    /// The calls that are to run now.
    pub fn running(&self) -> Vec<CallRequest> {
        let Effect::RunCalls(calls) = &self.effect else { return Vec::new() };
        calls.iter().map(|c| c.request.clone()).collect()
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.running().into_iter().map(|call| call.name).collect()
    }

    /// Runs whatever the machine wants run until it wants something else.
    pub fn run_calls_with(&mut self, result: impl Fn(&CallRequest) -> Result<ToolOutput, ToolError>) -> &mut Self {
        while let Effect::RunCalls(_) = self.effect {
            for call in self.running() {
                self.end_call(&call.id, result(&call));
            }
        }
        self
    }

    /// The same with tools that all do well.
    pub fn run_calls(&mut self) -> &mut Self {
        self.run_calls_with(|call| Ok(format!("{} gave this", call.name).into()))
    }

    /// What is to be summarised now.
    pub fn to_summarise(&self) -> ToSummarise {
        let Effect::Summarise(what) = &self.effect else { panic!("no summary is asked for: {:?}", self.effect) };
        what.clone()
    }

    /// The summary is there, or will not be: after one request.
    pub fn summarise(&mut self, text: Result<&str, &str>) -> &mut Self {
        self.to_summarise();
        self.pay(0, text.err()).summarised(text.ok())
    }

    /// A request for a summary, or for that part of it, is answered or has failed.
    pub fn pay(&mut self, part: u32, failure: Option<&str>) -> &mut Self {
        let usage = Usage { input: 7, output: 3, ..Usage::default() };
        let failure = failure.map(str::to_owned);
        let cost =
            Entry::Summarised { part: Some(part), usage, model: "m".into(), cost_microusd: None, failure, ms: 1 };
        self.run.apply(&cost);
        self.record(cost);
        self
    }

    /// The summary is put where it belongs.
    pub fn summarised(&mut self, text: Option<&str>) -> &mut Self {
        let next = step(&mut self.run, Input::Summarised { text: text.map(str::to_owned) });
        self.take(next);
        self
    }

    /// A person answers the `n`th question, or nobody does in time.
    pub fn answer(&mut self, n: u32, answer: Option<&str>) -> &mut Self {
        self.take_from_outside(Entry::Answered { question: n, answer: answer.map(str::to_owned) })
    }

    /// The worker dies, and another goes on.
    pub fn crash_and_pick_up(&mut self) -> &mut Self {
        self.run = Run::replay(&self.journal);
        let next = step(&mut self.run, Input::PickedUp);
        self.take(next);
        self
    }

    /// A person changes what is asked for, and the run begins again.
    pub fn begin_again(&mut self, opening: Opening) -> &mut Self {
        self.record(Entry::Restarted);
        self.run = Run::replay(&self.journal);
        let next = step(&mut self.run, Input::Begun { goal: TASK, opening: Arc::new(opening) });
        self.take(next);
        self
    }

    /// How the run ended.
    pub fn ended(&self) -> (EndStatus, String, String) {
        assert_eq!(self.effect, Effect::End);
        let ended = self.run.ended().expect("the run has ended");
        (ended.status, ended.text.clone(), ended.reason.clone().unwrap_or_default())
    }

    /// Everything the model would be told by the next request, one text a message.
    pub fn told(&self) -> Vec<String> {
        let request = self.run.request();
        request.messages.iter().map(|m| text(m).to_owned()).chain(request.tail).collect()
    }

    /// What it would be told last, the view left out.
    pub fn told_last(&self) -> String {
        text(self.run.messages().last().expect("a message")).to_owned()
    }

    /// The view at the end of the next request.
    pub fn view(&self) -> String {
        let last = self.told().pop().expect("a message");
        assert!(last.starts_with("--- Agent Working Memory ---"), "no view: {last}");
        last
    }

    /// The kinds of all entries.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.journal.iter().map(|r| r.entry.kind()).collect()
    }

    /// How many entries of a kind there are.
    pub fn count(&self, kind: &str) -> usize {
        self.kinds().into_iter().filter(|k| *k == kind).count()
    }

    /// The states of all calls that a tool ran for, or would have.
    pub fn ledger(&self) -> Vec<(String, CallState)> {
        check_ledger(&self.journal, false).into_values().collect()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for n in 1..=self.journal.len() {
            let mut found = Run::replay(&self.journal[..n]);
            let next = step(&mut found, Input::PickedUp);
            if next.effect == Effect::AskModel {
                assert_eq!(unsendable(&found.request()), Vec::<String>::new(), "after {n} entries");
            }
        }
    }
}

/// The words of a message.
pub fn text(message: &Message) -> &str {
    match message {
        Message::System { text } | Message::User { text } => text,
        Message::Assistant { text, .. } | Message::Tool { text, .. } => text,
    }
}

/// The ledger that the journal gives, checked: no call moves where it may not, and once the run has
/// ended each of them has.
pub fn check_ledger(journal: &[Recorded], ended: bool) -> BTreeMap<String, (String, CallState)> {
    use CallState::*;
    let mut rows: BTreeMap<String, (String, EffectClass, CallState)> = BTreeMap::new();
    for change in journal.iter().flat_map(|r| ledger_changes(&r.entry)) {
        match change {
            LedgerChange::Propose { call_id, tool, effect } => {
                let before = rows.insert(call_id, (tool, effect, Proposed));
                assert_eq!(before, None, "an id is used twice");
            }
            LedgerChange::Move { call_id, to } => {
                let Some((tool, effect, state)) = rows.get_mut(&call_id) else { continue };
                let legal = matches!((*state, to), (Proposed, Started | Refused) | (Started, Done | Failed | Unknown))
                    || ((*state, to) == (Started, Started) && effect.repeatable());
                assert!(legal, "{tool} {call_id} goes from {state:?} to {to:?}");
                *state = to;
            }
        }
    }
    let open = |state: &CallState| matches!(state, Proposed | Started);
    assert!(!ended || !rows.values().any(|(.., state)| open(state)), "calls that never ended: {rows:?}");
    rows.into_iter().map(|(id, (tool, _, state))| (id, (tool, state))).collect()
}

/// Everything wrong with a request that a strict provider would refuse.
pub fn unsendable(request: &ModelRequest) -> Vec<String> {
    let mut wrong = super::sendable::unsendable(&request.messages);
    if request.tail.as_ref().is_some_and(|tail| tail.trim().is_empty()) {
        wrong.push("an empty tail".into());
    }
    if request.tools.iter().map(|tool| &tool.name).collect::<HashSet<_>>().len() != request.tools.len() {
        wrong.push("a tool is offered twice".into());
    }
    if request.max_tokens == Some(0) {
        wrong.push("no tokens are left for the reply".into());
    }
    wrong
}

/// The same opening for a model that is held to a schema.
pub fn structured(mut opening: Opening) -> Opening {
    opening.calling = ToolCalling::Structured;
    opening
}
