//! Tools for writing, where a task asks for an answer alone.

use std::sync::Arc;

use posse_core::model::ToolCalling;
use posse_core::persona::{RunLimits, Style};
use posse_core::run::Run;
use posse_core::run::journal::{Entry, Opening, Recorded};
use posse_core::run::machine::{Effect, HABIT};

use posse_core::tool::Writes;

use super::kit::{Harness, opening, reply};

const LOOK: &str = r#"{"thinking": "", "tool": "look", "arguments": {}}"#;

fn begin(calling: ToolCalling, change: impl FnOnce(&mut Opening)) -> Harness {
    let mut opening = Opening::clone(&opening(calling, RunLimits::default()));
    opening.only_answers = true;
    opening.tools[1].writes = Writes::File;
    change(&mut opening);
    Harness::begin_with("do it", Arc::new(opening))
}

/// Whether the next step may be a call of the tool.
fn offers(run: &Run, tool: &str) -> bool {
    let request = run.request();
    let schema = request.schema.map(|schema| schema.to_string()).unwrap_or_default();
    schema.contains(&format!(r#""const":"{tool}""#)) || request.tools.iter().any(|spec| spec.name == tool)
}

#[test]
fn a_small_model_is_offered_no_tool_for_writing_where_an_answer_is_all_that_is_asked_for() {
    for style in [Style::Direct, Style::Phased] {
        let h = begin(ToolCalling::Structured, |opening| opening.persona.style = style);
        assert!(offers(&h.run, "look") && !offers(&h.run, "write"), "{style:?}");
        let h = begin(ToolCalling::Structured, |opening| {
            opening.persona.style = style;
            opening.only_answers = false;
        });
        assert!(offers(&h.run, "look") && offers(&h.run, "write"), "{style:?}");
        let h = begin(ToolCalling::Native, |opening| opening.persona.style = style);
        assert!(offers(&h.run, "write"), "who calls tools natively is never restricted: {style:?}");
    }
    let mut h = begin(ToolCalling::Structured, |_| {});
    h.say(reply(LOOK, &[])).run_calls();
    assert!(!offers(&h.run, "write"), "from the first step to the last");
    h.crash_and_pick_up();
    assert!(!offers(&h.run, "write"), "whoever goes on with it");
}

#[test]
fn whoever_does_not_get_on_has_all_tools() {
    let mut h = begin(ToolCalling::Structured, |_| {});
    for _ in 0..HABIT {
        assert!(!offers(&h.run, "write"));
        h.say(reply(LOOK, &[])).run_calls();
    }
    assert!(offers(&h.run, "write") && !offers(&h.run, "look"), "a habit is left by another way");
    let mut h = begin(ToolCalling::Structured, |_| {});
    let replan =
        r#"{"thinking": "no way", "tool": "finish", "arguments": {"final_summary": "", "request_replan": true}}"#;
    h.say(reply(replan, &[]));
    h.take_summary("Nothing helped.");
    assert!(offers(&h.run, "write"), "a new plan may need other tools");
    // A server that holds its model to no schema.
    let mut h = begin(ToolCalling::Structured, |_| {});
    h.say(reply(r#"{"thinking": "", "tool": "write", "arguments": {}}"#, &[]));
    assert!(matches!(h.effect, Effect::RunCalls(_)), "what is not offered is not forbidden");
}

#[test]
fn whoever_is_told_more_has_all_tools() {
    let mut h = begin(ToolCalling::Structured, |_| {});
    let asks = r#"{"thinking": "", "tool": "finish", "arguments": {"final_summary": "", "clarifying_questions": ["Where to?"]}}"#;
    h.say(reply(asks, &[]));
    h.take_from_outside(Entry::Answered { question: 0, answer: Some("Into notes.md.".into()) });
    assert!(offers(&h.run, "write"), "an answer may ask for more than the goal");
    let mut h = begin(ToolCalling::Structured, |_| {});
    h.say(reply(r#"{"thinking": "", "tool": "finish", "arguments": {"final_summary": "42"}}"#, &[]));
    h.take_from_outside(Entry::Reopened);
    assert!(offers(&h.run, "write"), "a person was not content with what it came to");
}

#[test]
fn an_opening_of_before_restricts_nothing() {
    let written = serde_json::to_value(Opening::clone(&opening(ToolCalling::Structured, RunLimits::default())))
        .expect("it can be written");
    assert!(written.get("only_answers").is_none());
    let read: Opening = serde_json::from_value(written).expect("it can be read");
    let journal = [Recorded { seq: 0, at: 0, entry: Entry::Began { goal: "do it".into(), opening: Arc::new(read) } }];
    assert!(offers(&Run::replay(&journal), "write"));
}

#[test]
fn a_small_model_does_not_end_before_it_has_tried_to_write_its_file() {
    let begin = |calling, max_turns| {
        let mut opening = Opening::clone(&opening(calling, RunLimits { max_turns, ..RunLimits::default() }));
        opening.tools[1].writes = Writes::File;
        Harness::begin_with("Write the names of the boats into out.md.", Arc::new(opening))
    };
    let look = |at: usize| format!(r#"{{"thinking": "", "tool": "look", "arguments": {{"at": {at}}}}}"#);
    let mut h = begin(ToolCalling::Structured, 100);
    assert!(!offers(&h.run, "finish") && offers(&h.run, "write"));
    h.say(reply(&look(0), &[])).run_calls();
    assert!(!offers(&h.run, "finish"), "who has looked has not written");
    h.say(reply(r#"{"thinking": "", "tool": "write", "arguments": {"path": "out.md"}}"#, &[])).run_calls();
    assert!(offers(&h.run, "finish"));
    let mut h = begin(ToolCalling::Structured, 100);
    for at in 0..6 {
        assert!(!offers(&h.run, "finish"), "turn {at}");
        h.say(reply(&look(at), &[])).run_calls();
    }
    assert!(offers(&h.run, "finish"), "it may be impossible");
    assert!(offers(&begin(ToolCalling::Structured, 1).run, "finish"), "the last turn is for an answer");
    assert!(offers(&begin(ToolCalling::Native, 100).run, "finish"), "who calls tools natively is never restricted");
}
