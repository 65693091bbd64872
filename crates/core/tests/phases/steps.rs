//! Steps: what each phase requires, the schemas, and the worked example.

use jsonschema::Validator;
use posse_core::model::conversation::told_result;
use posse_core::model::{Message, ToolCalling};
use posse_core::run::memory::{CallRecord, WorkingMemory};
use posse_core::run::phase::{
    Action, Content, MAX_FACTS, MAX_LINE_BYTES, MAX_SUB_TASKS, Phase, acknowledge, guide, parse, spec, step_schema,
};
use posse_core::run::prompt;
use posse_core::run::signals::Signals;
use posse_core::tool::ToolSpec;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use super::check_snapshot;
use super::memory::any_plan;

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, arguments: &[&str]| ToolSpec {
        name: name.into(),
        description: format!("What {name} does."),
        parameters: json!({
            "type": "object",
            "properties": arguments.iter().map(|name| (*name, json!({"type": "string"}))).collect::<BTreeMap<_, _>>(),
            "required": arguments,
            "additionalProperties": false,
        }),
    };
    vec![tool("calculate", &["expression"]), tool("read_file", &["path"]), tool("search_files", &["path", "pattern"])]
}

fn refused(step: Value) -> String {
    parse(&step.to_string()).expect_err("a step that is wrong")
}

/// One valid step of each phase, with no field that it could do without.
fn valid_steps() -> Vec<Value> {
    vec![
        json!({"thinking": "t", "phase": "plan", "summary": "s",
               "plan": {"goal": "g", "sub_tasks": [{"id": 1, "title": "a"}, {"id": 2, "title": "b", "depends_on": [1]}]}}),
        json!({"thinking": "t", "phase": "reason", "summary": "s"}),
        json!({"thinking": "t", "phase": "act", "summary": "s",
               "action": {"tool_name": "read_file", "tool_input": {"path": "a"}}}),
        json!({"thinking": "t", "phase": "verify", "summary": "s", "key_facts": ["a"], "sub_task_outcome": "done"}),
        json!({"thinking": "t", "phase": "reflect", "summary": "s"}),
        json!({"thinking": "t", "phase": "feedback", "feedback_message": "Which?"}),
        json!({"thinking": "t", "phase": "end", "end_status": "partial", "end_message": "Half of it."}),
    ]
}

#[test]
fn every_phase_has_a_valid_step() {
    let phases: Vec<_> = valid_steps().iter().map(|step| parse(&step.to_string()).map(|s| s.phase())).collect();
    assert_eq!(phases, Phase::ALL.map(Ok));
    for phase in Phase::ALL {
        assert_eq!(json!(phase), phase.as_str());
    }
}

#[test]
fn a_missing_field_is_named_with_what_is_right() {
    for (step, begins) in [
        (json!({"phase": "plan", "summary": "s"}), "plan phase requires a plan object: {\"goal\":"),
        (json!({"phase": "plan", "summary": "s", "plan": null}), "plan phase requires a plan object: "),
        (json!({"phase": "act", "summary": "s"}), "act phase requires an action object: {\"tool_name\":"),
        (json!({"phase": "feedback", "summary": "s"}), "feedback phase requires feedback_message: "),
        (
            json!({"phase": "end", "end_message": "m"}),
            "end phase requires end_status: \"solved\", \"partial\" or \"stuck\"",
        ),
        (json!({"phase": "end", "end_status": "solved"}), "end phase requires end_message: "),
        (json!({"phase": "end", "end_status": "solved", "end_message": " "}), "end phase requires end_message: "),
        (json!({"phase": "reason"}), "reason phase requires a summary: "),
        (json!({"phase": "reason", "summary": "\n"}), "reason phase requires a summary: "),
        (json!({"thinking": "t", "summary": "s"}), "agent_step was not accepted: missing field `phase`"),
        (json!({"phase": "done", "summary": "s"}), "agent_step was not accepted: unknown variant `done`"),
        (
            json!({"phase": "verify", "summary": "s", "key_fact": []}),
            "agent_step was not accepted: unknown field `key_fact`",
        ),
        (
            json!({"phase": "end", "end_status": "ok", "end_message": "m"}),
            "agent_step was not accepted: unknown variant `ok`",
        ),
        (json!("act"), "agent_step was not accepted: "),
    ] {
        let message = refused(step.clone());
        assert!(message.starts_with(begins), "{step}: {message}");
    }
    assert!(
        parse("{\"phase\": \"rea")
            .expect_err("cut off")
            .contains("one of plan, reason, act, verify, reflect, feedback, end")
    );
}

#[test]
fn a_field_of_another_phase_is_not_silently_lost() {
    let action = json!({"tool_name": "read_file", "tool_input": {"path": "a"}});
    let message = refused(json!({"phase": "verify", "summary": "s", "action": action}));
    assert!(message.starts_with("action belongs to phase act, and this step is of phase verify"), "{message}");
    for (field, value) in [
        ("plan", json!({"goal": "g", "sub_tasks": [{"id": 1, "title": "a"}]})),
        ("key_facts", json!(["a"])),
        ("feedback_message", json!("Which?")),
        ("end_message", json!("It is 4.")),
    ] {
        let message = refused(json!({"phase": "act", "summary": "s", "action": action, (field): value}));
        assert!(message.starts_with(&format!("{field} belongs to phase ")), "{message}");
    }
}

#[test]
fn what_models_fill_in_out_of_habit_does_no_harm() {
    let filled = json!({
        "phase": "reason", "thinking": "t", "summary": "s", "action": {"tool_name": "", "tool_input": {}},
        "plan": {"goal": "", "sub_tasks": []}, "key_facts": [], "sub_task_outcome": "done",
        "feedback_message": "", "end_status": "solved", "end_message": null,
    });
    assert_eq!(parse(&filled.to_string()).expect("valid").content, Content::Reason);
    let fenced = format!("```json\n{}\n```", json!({"phase": "reason", "summary": "s"}));
    assert_eq!(parse(&fenced).expect("valid").content, Content::Reason);
}

#[test]
fn an_action_has_an_object_for_its_input() {
    let input = |action: Value| {
        parse(&json!({"phase": "act", "summary": "s", "action": action}).to_string()).map(|step| match step.content {
            Content::Act(Action { tool_input, .. }) => tool_input,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(input(json!({"tool_name": "look"})), Ok(json!({})));
    assert_eq!(input(json!({"tool_name": "look", "tool_input": "{\"path\": \"a\"}"})), Ok(json!({"path": "a"})));
    for wrong in [json!("a"), json!("[1]"), json!([1]), json!(3)] {
        let message = input(json!({"tool_name": "look", "tool_input": wrong})).expect_err("no object");
        assert!(message.starts_with("action.tool_input must be an object with the arguments of look"), "{message}");
    }
}

#[test]
fn plans_that_cannot_be_carried_out_are_refused() {
    let plan = |sub_tasks: Value| {
        refused(json!({"phase": "plan", "summary": "s", "plan": {"goal": "g", "sub_tasks": sub_tasks}}))
    };
    let many: Vec<_> = (0..=MAX_SUB_TASKS).map(|id| json!({"id": id, "title": "a"})).collect();
    for (sub_tasks, begins) in [
        (json!([]), "plan.sub_tasks is empty"),
        (json!(many), "plan.sub_tasks has 51; at most 50 are allowed"),
        (json!([{"id": 1, "title": "a"}, {"id": 1, "title": "b"}]), "two sub-tasks have the id 1"),
        (json!([{"id": 1, "title": " "}]), "sub-task 1 has no title"),
        (
            json!([{"id": 1, "title": "a".repeat(MAX_LINE_BYTES + 1)}]),
            "the title of sub-task 1 has 1,001 bytes; at most 1,000",
        ),
        (
            json!([{"id": 1, "title": "a"}, {"id": 3, "title": "b", "depends_on": [2]}]),
            "sub-task 3 depends on 2, and there is no such sub-task; there are 1, 3",
        ),
        (
            json!([{"id": 1, "title": "a"}, {"id": 2, "title": "b", "depends_on": [1, 1]}]),
            "sub-task 2 names 1 twice in depends_on",
        ),
        (json!([{"id": 1, "title": "a", "depends_on": [1]}]), "depends_on goes in a circle, 1 needs 1:"),
        (
            json!([
                {"id": 1, "title": "a"},
                {"id": 2, "title": "b", "depends_on": [1, 4]},
                {"id": 3, "title": "c", "depends_on": [1, 5]},
                {"id": 4, "title": "d", "depends_on": [3]},
                {"id": 5, "title": "e", "depends_on": [1, 4]},
            ]),
            "depends_on goes in a circle, 4 needs 3 needs 5 needs 4:",
        ),
    ] {
        let message = plan(sub_tasks);
        assert!(message.starts_with(begins), "{message}");
    }
    let no_goal =
        json!({"phase": "plan", "summary": "s", "plan": {"goal": " ", "sub_tasks": [{"id": 1, "title": "a"}]}});
    assert!(refused(no_goal).starts_with("plan.goal is empty"));
}

#[test]
fn facts_and_summaries_have_limits() {
    let facts = |facts: Value| refused(json!({"phase": "verify", "summary": "s", "key_facts": facts}));
    assert!(facts(json!(vec!["a"; MAX_FACTS + 1])).starts_with("key_facts has 21 facts; at most 20"));
    assert!(facts(json!(["a", " "])).starts_with("key_facts[1] is empty"));
    assert!(facts(json!(["a".repeat(1_001)])).starts_with("key_facts[0] has 1,001 bytes; at most 1,000"));
    let long = json!({"phase": "reason", "summary": "a".repeat(4_001)});
    assert!(refused(long).starts_with("summary has 4,001 bytes; at most 4,000"));
}

#[test]
fn the_schemas() {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
    check_snapshot("agent_step.json", &pretty(&json!(spec())));
    check_snapshot("step_schema.json", &pretty(&step_schema(&tools(), &[], &[Phase::Act])));
}

#[test]
fn the_schema_of_a_step_allows_what_is_valid_and_nothing_else() {
    // After an act, every phase makes sense.
    let validator = |without| Validator::new(&step_schema(&tools(), without, &[Phase::Act])).expect("a schema");
    let schema = validator(&[]);
    let native = Validator::new(&spec().parameters).expect("a schema");
    for step in valid_steps() {
        assert!(schema.is_valid(&step), "{step}");
        let fields = step.as_object().expect("an object");
        for field in fields.keys() {
            let mut less = fields.clone();
            less.remove(field);
            assert!(!schema.is_valid(&json!(less)), "{step} without {field}");
        }
        let mut more = fields.clone();
        more.insert("approaches_tried".into(), json!([]));
        assert!(!schema.is_valid(&json!(more)));
        // In the schema for native calling every phase needs a summary.
        let mut summed_up = fields.clone();
        summed_up.insert("summary".into(), json!("s"));
        assert!(native.is_valid(&json!(summed_up)), "{step}");
    }
    let act = |tool: &str, input: Value| json!({"thinking": "t", "phase": "act", "summary": "s", "action": {"tool_name": tool, "tool_input": input}});
    assert!(schema.is_valid(&act("calculate", json!({"expression": "1"}))));
    assert!(!schema.is_valid(&act("calculate", json!({"path": "a"}))), "each tool with its own arguments");
    assert!(!schema.is_valid(&act("delete_file", json!({"path": "a"}))), "only what is offered");
    let without = validator(&["calculate"]);
    assert!(!without.is_valid(&act("calculate", json!({"expression": "1"}))));
    assert!(without.is_valid(&act("read_file", json!({"path": "a"}))));
}

#[test]
fn what_could_only_repeat_is_not_on_offer() {
    use Phase::{Act, Plan, Reason, Reflect, Verify};
    let offered = |history: &[Phase]| -> Vec<Phase> {
        let schema = Validator::new(&step_schema(&tools(), &[], history)).expect("a schema");
        let steps = valid_steps().into_iter().filter(|step| schema.is_valid(step));
        steps.map(|step| parse(&step.to_string()).expect("a step").phase()).collect()
    };
    let lacks = |history: &[Phase]| -> Vec<Phase> {
        let offered = offered(history);
        Phase::ALL.into_iter().filter(|phase| !offered.contains(phase)).collect()
    };
    assert_eq!(lacks(&[]), [Verify, Reflect], "nothing has been done yet");
    assert_eq!(lacks(&[Plan]), [Plan, Verify, Reflect]);
    assert_eq!(lacks(&[Plan, Reason]), [Plan, Reason, Verify, Reflect]);
    assert_eq!(lacks(&[Plan, Act]), [], "the plan has been tried");
    assert_eq!(lacks(&[Plan, Act, Verify]), [Verify]);
    assert_eq!(lacks(&[Act, Reflect]), [Reason, Reflect], "one thought is enough to act on");
    assert_eq!(lacks(&[Act, Reflect, Act]), []);
}

#[test]
fn the_words() {
    check_snapshot("phases_native.txt", guide::guide(ToolCalling::Native));
    assert!(guide::examples(ToolCalling::Native, &tools()).is_empty());
    assert!(guide::examples(ToolCalling::Structured, &tools()[..1]).is_empty(), "it would show a tool not offered");
    let mut out = guide::guide(ToolCalling::Structured).to_owned();
    for message in guide::examples(ToolCalling::Structured, &tools()) {
        match message {
            Message::User { text } => out.push_str(&format!("\n== user\n{text}\n")),
            Message::Assistant { text, .. } => out.push_str(&format!("\n== assistant\n{text}\n")),
            other => panic!("an example has {other:?}"),
        }
    }
    check_snapshot("phases_structured.txt", out.trim_end());
    for phase in Phase::ALL {
        for calling in [ToolCalling::Native, ToolCalling::Structured] {
            assert!(guide::guide(calling).contains(&format!("\n- {}: ", phase.as_str())), "{phase:?}");
        }
    }
}

/// The example is what a real run would look like: every step is one that the schema allows and that
/// is accepted, and every answer is the one that would be given.
#[test]
fn the_worked_example_is_true() {
    let messages = guide::examples(ToolCalling::Structured, &tools());
    let is_task = |message: &Message| matches!(message, Message::User { text } if text.starts_with(&prompt::task("")));
    let tasks: Vec<_> = (0..messages.len()).filter(|at| is_task(&messages[*at])).collect();
    let ends = tasks[1..].iter().copied().chain([messages.len()]);
    let worked = tasks.iter().zip(ends).map(|(begin, end)| work_through(&messages[begin + 1..end]));
    use Phase::{Act, End, Plan, Verify};
    assert_eq!(worked.collect::<Vec<_>>(), [vec![Act, Verify, End], vec![Plan, Act, Verify, Act, Verify, End]]);
}

/// The phases of one worked task, every step of which holds.
fn work_through(messages: &[Message]) -> Vec<Phase> {
    let (mut memory, mut signals) = (WorkingMemory::default(), Signals::default());
    let mut phases = Vec::new();
    let turns = messages.chunks(2);
    let last_result = turns.len() as u32 - 1;
    for (number, turn) in (1..).zip(turns) {
        let Message::Assistant { text, .. } = &turn[0] else { panic!("{turn:?}") };
        let step = parse(text).expect("a valid step");
        let schema = Validator::new(&step_schema(&tools(), &[], &phases)).expect("a schema");
        assert!(schema.is_valid(&serde_json::from_str(text).expect("JSON")), "{text}");
        let acknowledged = acknowledge(number, &step, memory.next_plan_version());
        phases.push(step.phase());
        let told = turn.get(1).map(|message| match message {
            Message::User { text } => text.as_str(),
            other => panic!("{other:?}"),
        });
        let (result, view) =
            told.unwrap_or_default().split_once("\n\n--- Agent").unwrap_or((told.unwrap_or_default(), ""));
        assert_eq!(!view.is_empty(), number == last_result, "the view stands under the newest result: {told:?}");
        match &step.content {
            Content::Act(Action { tool_name, tool_input }) => {
                let output = result.strip_prefix(&told_result(tool_name, "")).expect("its result").to_owned();
                let (tool, input) = (tool_name.clone(), tool_input.clone());
                let call = CallRecord { tool, input, output, failed: false, ms: Some(1) };
                memory.take_call(number, &step.thinking, &step.summary, call);
                signals.on_act(tool_name, None);
            }
            _ => {
                memory.take_step(number, &step);
                signals.on_non_act(step.phase());
            }
        }
        if !view.is_empty() {
            assert_eq!(format!("--- Agent{view}"), memory.render_view_within(&signals.render(number, 24), usize::MAX));
        }
        match (&step.content, told) {
            (Content::Act(_), Some(_)) => {}
            (Content::End { .. }, None) => {}
            (_, Some(_)) => {
                let answer = acknowledged.expect("an acknowledgement");
                assert_eq!(result, told_result("agent_step", &answer));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(memory.plan().and_then(|plan| plan.current_sub_task), None, "the plan is carried out");
    phases
}

proptest! {
    /// Accepted exactly if there is an order in which the sub-tasks can be done.
    #[test]
    fn a_plan_is_accepted_if_it_can_be_done(plan in any_plan()) {
        let step = json!({"phase": "plan", "summary": "s", "plan": &plan});
        let mut done = BTreeSet::new();
        for _ in &plan.sub_tasks {
            let ready = |s: &&posse_core::run::phase::NewSubTask| s.depends_on.iter().all(|need| done.contains(need));
            let ready: Vec<_> = plan.sub_tasks.iter().filter(ready).map(|s| s.id).collect();
            done.extend(ready);
        }
        let can_be_done = done.len() == plan.sub_tasks.len();
        match parse(&step.to_string()) {
            Ok(step) => {
                prop_assert!(can_be_done);
                prop_assert_eq!(step.content, Content::Plan(plan));
            }
            Err(message) => {
                prop_assert!(!can_be_done, "{message}");
                // The circle that is named is one.
                let path = message.split(", ").nth(1).and_then(|rest| rest.split(':').next()).unwrap_or_default();
                let ids: Vec<u32> = path.split(" needs ").filter_map(|id| id.parse().ok()).collect();
                prop_assert!(ids.len() >= 2 && ids.first() == ids.last(), "{message}");
                for pair in ids.windows(2) {
                    let needs = plan.sub_tasks.iter().find(|s| s.id == pair[0]).map(|s| s.depends_on.as_slice());
                    prop_assert!(needs.is_some_and(|needs| needs.contains(&pair[1])), "{message}");
                }
            }
        }
    }

    #[test]
    fn reading_never_panics(text in ".{0,80}", number in any::<u64>()) {
        let _ = parse(&text);
        let _ = parse(&json!({"phase": "act", "summary": text, "action": {"tool_name": "a", "tool_input": number}}).to_string());
    }
}
