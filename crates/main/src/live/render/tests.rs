use super::*;
use posse_core::annotation::NewAnnotation;
use posse_core::job::JobId;
use posse_core::model::{Finish, Usage};
use posse_core::persona::PersonaTemplate;
use posse_core::run::journal::{Call, OfferedTool, Recorded};
use posse_core::tool::{EffectClass, ToolErrorCategory, ToolSpec};
use serde_json::json;
use std::sync::Arc;

fn renderer(full: bool) -> Renderer {
    Renderer::new(Paint::default(), 60, full, Box::new(|name| name == "local"))
}

fn show(renderer: &mut Renderer, entry: Entry) -> String {
    let event = JobEvent::entry(JobId(1), Recorded { seq: 0, at: 0, entry });
    renderer.lines(&event).join("\n")
}

fn began(calling: ToolCalling) -> Entry {
    let persona = PersonaTemplate { role: "r".into(), goal: "g".into(), ..PersonaTemplate::default() };
    let spec = ToolSpec { name: "read_file".into(), description: String::new(), parameters: json!({}) };
    let tools = vec![OfferedTool { spec, effect: EffectClass::Pure }];
    let opening =
        Opening { persona, model: "local".into(), calling, tools, system: String::new(), ..Opening::default() };
    Entry::Began { goal: "g".into(), opening: Arc::new(opening) }
}

fn turn(text: &str, calls: &[(&str, &str, &str)]) -> Entry {
    let call = |(id, name, arguments): &(&str, &str, &str)| Call {
        request: CallRequest { id: (*id).into(), name: (*name).into(), arguments: (*arguments).into(), extra: None },
        effect: Some(EffectClass::Pure),
    };
    Entry::Turn(Turn {
        text: text.into(),
        reasoning: None,
        calls: calls.iter().map(call).collect(),
        cut_calls: Vec::new(),
        finish: Finish::Stop,
        usage: Usage { input: 1200, output: 30, cached: 0, estimated: true },
        model: "m".into(),
        cost_microusd: None,
        failed_tries: Vec::new(),
        ms: 1850,
    })
}

fn ended(call_id: &str, outcome: CallOutcome, text: &str) -> Entry {
    let annotations = vec![NewAnnotation { text: "odd".into(), tags: vec!["finding".into()] }];
    let annotations = if outcome == CallOutcome::Done { annotations } else { Vec::new() };
    Entry::CallEnded { call_id: call_id.into(), outcome, text: text.into(), annotations, ms: 3 }
}

#[test]
fn a_structured_step_shows_its_thinking_and_not_its_json() {
    let mut r = renderer(false);
    let tools = "  ▸  model local (structured tool calls), tools: read_file";
    assert_eq!(show(&mut r, began(ToolCalling::Structured)), tools);
    let step = r#"{"thinking": "I look.", "tool": "read_file", "arguments": {"path": "a.md", "from": 3}}"#;
    assert_eq!(
        show(&mut r, turn(step, &[("c1", "read_file", r#"{"path": "a.md", "from": 3}"#)])),
        "  1  I look.  1.8 s · about 1,200 in + 30 out tokens\n     → read_file path=\"a.md\" from=3"
    );
    assert_eq!(show(&mut r, Entry::CallStarted { call_id: "c1".into() }), "");
    assert_eq!(
        show(&mut r, ended("c1", CallOutcome::Done, "one\n\ntwo\x1b[2J\nthree\nfour\nfive\nsix")),
        "     ← read_file  7 lines, 32 B, 3 ms\n       one\n       two␛[2J\n       three\n       four\n       \
         … 2 more lines\n  ✎  odd [finding]"
    );
}

#[test]
fn long_things_are_cut_unless_all_is_asked_for() {
    let long = format!("{{\"text\": \"{}\"}}", "word ".repeat(100));
    let mut short = renderer(false);
    let shown = show(&mut short, turn("", &[("c1", "create_file", &long)]));
    assert!(shown.lines().all(|line| columns(line) <= 60), "{shown}");
    assert!(shown.ends_with('…'), "{shown}");
    let mut full = renderer(true);
    let shown = show(&mut full, turn("", &[("c1", "create_file", &long)]));
    assert_eq!(shown.matches("word").count(), 100);
}

#[test]
fn failures_are_told_by_their_kind_and_once() {
    let mut r = renderer(false);
    show(&mut r, turn("x", &[("c1", "read_file", "{}"), ("c2", "read_file", "{}"), ("c3", "rm", "{}")]));
    let category = ToolErrorCategory::NotFound;
    let failed = show(&mut r, ended("c1", CallOutcome::Failed { category }, "no such file 'a'"));
    assert_eq!(failed, "     ✗ read_file: not found 3 ms\n       no such file 'a'");
    assert!(show(&mut r, ended("c2", CallOutcome::Unknown, "?")).contains("whether it took effect is not known"));
    assert!(show(&mut r, ended("c3", CallOutcome::Refused, "no tool 'rm'")).contains("✗ rm was not run"));
    let reason = "nobody is there".to_owned();
    let said =
        show(&mut r, Entry::TurnFailed { reason: reason.clone(), failed_tries: Vec::new(), overflow: None, ms: 10 });
    assert_eq!(said, "  ✗  the model gave no answer (10 ms): nobody is there");
    let (outcome, reason) = ("failed".into(), Some(reason));
    let end = JobEvent::AttemptEnded { job: JobId(1), attempt: 1, outcome, reason, at: 0, next_at: Some(2000) };
    assert_eq!(r.lines(&end).join("\n"), "  ✗  attempt 1 failed; next attempt in 2.0 s");
}
