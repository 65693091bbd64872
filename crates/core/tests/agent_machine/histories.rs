//! Runs at random: whatever personas, models, tools, people and crashes do.

use posse_core::model::{CallRequest, Finish, ModelErrorKind, ToolCalling};
use posse_core::persona::{ContextRules, RunLimits, Style};
use posse_core::run::journal::{Entry, Opening};
use posse_core::run::machine::Effect;
use posse_core::tool::{ToolError, ToolErrorCategory};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::kit::{Harness, act, agent_step, call, finish, opening, plain_step, reply, with_skills};

/// How a run is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    phased: bool,
    pub structured: bool,
    skills: bool,
    fallbacks: bool,
    tokenizer: bool,
    window: Option<u32>,
    context: ContextRules,
    pub limits: RunLimits,
}

/// Every way to set a run up.
pub fn setups() -> impl Strategy<Value = Setup> {
    let limits = (1u32..25, prop::option::of(50u64..600), prop::option::of(0u32..8)).prop_map(
        |(max_turns, max_tokens, max_tool_rounds)| RunLimits {
            max_turns,
            max_tokens,
            max_tool_rounds,
            ..RunLimits::default()
        },
    );
    let window = prop_oneof![Just(None), (2_500u32..6_000).prop_map(Some)];
    let max_messages = prop_oneof![Just(Some(0)), (4u32..12).prop_map(Some), Just(None)];
    let context =
        (max_messages, 2u32..5, 0.1f32..=0.95, 0u32..=12).prop_map(|(max_messages, chunk, budget_share, keep_last)| {
            ContextRules { max_messages, chunk, budget_share, keep_last, ..ContextRules::default() }
        });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (flags, window, context, limits).prop_map(|(flags, window, context, limits)| {
        let (phased, structured, skills, fallbacks, tokenizer) = flags;
        Setup { phased, structured, skills, fallbacks, window, tokenizer, context, limits }
    })
}

impl Setup {
    /// What the run begins with.
    pub fn opening(&self) -> Opening {
        let mut opening = opening();
        if self.skills {
            opening = with_skills(opening);
        }
        if self.structured {
            opening.calling = ToolCalling::Structured;
        }
        if self.phased {
            opening.persona.style = Style::Phased;
        }
        if self.fallbacks {
            // Two that are named for each other, and one whose fallback changes something.
            let named = [("look", "peek"), ("peek", "look"), ("put", "write")];
            opening.persona.fallback_tools =
                named.into_iter().map(|(tool, other)| (tool.to_owned(), other.to_owned())).collect();
        }
        opening.has_tokenizer = self.tokenizer;
        opening.context_window = self.window;
        opening.persona.context = self.context.clone();
        opening.persona.limits = self.limits;
        opening
    }
}

/// Calls as models make them, right and wrong.
fn a_call() -> impl Strategy<Value = CallRequest> {
    let tool = || prop::sample::select(vec!["look", "peek", "put", "write", "fly", "finish", "agent_step", "survey"]);
    let input = || prop::sample::select(vec![json!({}), json!({"a": 1}), json!({"a": 2}), json!({"bad": true})]);
    let bare = prop::sample::select(vec!["plan", "reason", "verify", "reflect", "feedback", "end", "dream"]);
    let sub_tasks = prop::sample::select(vec![
        json!([{"id": 1, "title": "a"}, {"id": 2, "title": "b", "depends_on": [1]}]),
        json!([{"id": 1, "title": "a", "depends_on": [1]}]),
        json!([]),
    ]);
    prop_oneof![
        6 => (tool(), input()).prop_map(|(name, input)| call(name, input)),
        4 => (tool(), input()).prop_map(|(name, input)| agent_step(act(name, input))),
        3 => bare.prop_map(|phase| agent_step(plain_step(phase))),
        2 => sub_tasks.prop_map(|tasks| agent_step(json!({
            "phase": "plan", "thinking": "t", "summary": "s", "plan": {"goal": "g", "sub_tasks": tasks},
        }))),
        2 => any::<bool>().prop_map(|done| agent_step(json!({
            "phase": "verify", "thinking": "t", "summary": "s", "key_facts": ["f"],
            "sub_task_outcome": if done { "done" } else { "failed" },
        }))),
        1 => Just(agent_step(json!({"phase": "feedback", "thinking": "", "feedback_message": "Blue?"}))),
        1 => Just(agent_step(json!({"phase": "end", "thinking": "", "end_status": "partial", "end_message": "half"}))),
        2 => prop::sample::select(vec!["survey", "deep", "inner"])
            .prop_map(|name| call(name, json!({"task": "look around", "history": [{"role": "user", "content": "h"}]}))),
        1 => Just(call("deep", json!({"task": " "}))),
        1 => Just(finish("42")),
        1 => Just(call("finish", json!({"final_summary": "", "clarifying_questions": ["Blue?", "Green?"]}))),
        1 => Just(call("finish", json!({"final_summary": "it fails", "request_replan": true}))),
        1 => Just(CallRequest { arguments: "{\"a\":".into(), ..call("look", Value::Null) }),
        // Cut off where it writes a file.
        1 => Just(CallRequest { arguments: "{\"a\": \"say \\\"it\\\"\\n".repeat(60), ..call("look", Value::Null) }),
    ]
}

/// Something that happens to a run.
#[derive(Debug, Clone)]
pub enum Move {
    Say(String, Vec<CallRequest>),
    Cut,
    Filtered,
    Break(ModelErrorKind, Option<u32>),
    EndCall(usize, Option<usize>),
    Summarise(bool),
    Answer(u32, bool),
    Crash,
    Reopen,
}

/// What happens to one, in order; what is not possible when its turn comes is left out.
pub fn moves() -> impl Strategy<Value = Vec<Move>> {
    let words = prop::sample::select(vec!["", "thinking aloud"]);
    let kind = prop_oneof![
        Just((ModelErrorKind::Transient, None)),
        Just((ModelErrorKind::InvalidToolCall, None)),
        Just((ModelErrorKind::ContextOverflow, None)),
        (300u32..5_000).prop_map(|window| (ModelErrorKind::ContextOverflow, Some(window))),
    ];
    let size = prop::option::weighted(0.8, prop_oneof![4 => 0usize..200, 1 => 2_000usize..9_000]);
    let one = prop_oneof![
        12 => (words, prop::collection::vec(a_call(), 0..4)).prop_map(|(text, calls)| Move::Say(text.into(), calls)),
        1 => Just(Move::Cut),
        1 => prop::bool::weighted(0.1).prop_map(|ends| if ends { Move::Filtered } else { Move::Cut }),
        1 => kind.prop_map(|(kind, window)| Move::Break(kind, window)),
        10 => (0usize..4, size).prop_map(|(i, size)| Move::EndCall(i, size)),
        4 => any::<bool>().prop_map(Move::Summarise),
        3 => (0u32..2, any::<bool>()).prop_map(|(n, there)| Move::Answer(n, there)),
        3 => Just(Move::Crash),
        1 => prop::bool::weighted(0.3).prop_map(|again| if again { Move::Reopen } else { Move::Crash }),
    ];
    prop::collection::vec(one, 0..90)
}

/// What a model that is held to a schema says instead of making the first of these calls.
fn as_text(h: &Harness, calls: &[CallRequest]) -> String {
    let Some(call) = calls.first() else { return "no step at all".into() };
    let phased = h.run.opening().is_some_and(|o| o.persona.style == Style::Phased) && h.run.depth() == 0;
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
    match phased {
        true if call.name == "agent_step" => call.arguments.clone(),
        true => act(&call.name, arguments).to_string(),
        false => json!({"thinking": "t", "tool": call.name, "arguments": arguments}).to_string(),
    }
}

/// Plays one move, if it is possible now; tells whether it was.
pub fn play(h: &mut Harness, structured: bool, one: Move, in_flight: &mut Vec<String>) -> bool {
    let asked = h.effect == Effect::AskModel;
    match one {
        Move::Say(_, calls) if asked && structured => {
            let text = as_text(h, &calls);
            h.say(reply(&text, Vec::new()));
        }
        Move::Say(text, calls) if asked => {
            h.say(reply(&text, calls));
        }
        Move::Cut if asked => {
            let mut cut = reply("half", vec![call("write", json!({}))]);
            cut.finish = Finish::Length;
            h.say(cut);
        }
        Move::Filtered if asked => {
            let mut filtered = reply("half", Vec::new());
            filtered.finish = Finish::ContentFilter;
            h.say(filtered);
        }
        Move::Break(kind, window) if asked => {
            h.fail(kind, window);
        }
        Move::EndCall(i, size) if !in_flight.is_empty() => {
            let id = in_flight.remove(i % in_flight.len());
            let result = match size {
                Some(size) => Ok("some words of a result. ".chars().cycle().take(size).collect::<String>().into()),
                None => Err(ToolError::new(ToolErrorCategory::NotFound, "not found: there is no such thing")),
            };
            h.end_call(&id, result);
        }
        Move::Summarise(there) if matches!(h.effect, Effect::Summarise(_)) => {
            h.summarise(if there { Ok("what was done and found") } else { Err("the model is away") });
        }
        Move::Answer(n, there) => {
            let open = h.run.asked().and_then(|asked| asked.questions.get(n as usize));
            if h.effect != Effect::Suspend || open.is_none_or(|(_, settled)| settled.is_some()) {
                return false;
            }
            h.answer(n, there.then_some("blue"));
        }
        Move::Crash if h.run.ended().is_none() => {
            in_flight.clear();
            h.crash_and_pick_up();
        }
        Move::Reopen if h.run.ended().is_some() => {
            h.take_from_outside(Entry::Reopened);
        }
        _ => return false,
    }
    if matches!(h.effect, Effect::FailAttempt { .. }) {
        h.crash_and_pick_up();
    }
    true
}
