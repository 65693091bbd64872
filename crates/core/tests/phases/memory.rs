//! What a working memory takes in.

use posse_core::run::memory::{CallRecord, SubTaskStatus, WorkingMemory};
use posse_core::run::phase::{AgentStep, NewPlan, NewSubTask, Phase, acknowledge, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A plan with these sub-tasks: id and what it depends on.
pub fn plan(sub_tasks: &[(u32, &[u32])]) -> NewPlan {
    let sub_task = |(id, depends_on): &(u32, &[u32])| NewSubTask {
        id: *id,
        title: format!("Part {id}"),
        depends_on: depends_on.to_vec(),
    };
    NewPlan { goal: "Do it all".into(), sub_tasks: sub_tasks.iter().map(sub_task).collect() }
}

pub fn call(tool: &str, output: &str, failed: bool) -> CallRecord {
    CallRecord { tool: tool.into(), input: json!({}), output: output.into(), failed, ms: Some(12) }
}

fn step(arguments: Value) -> AgentStep {
    parse(&arguments.to_string()).expect("a valid step")
}

fn verify(outcome: Value) -> AgentStep {
    step(json!({"phase": "verify", "summary": "looked", "sub_task_outcome": outcome}))
}

fn current(memory: &WorkingMemory) -> Option<u32> {
    memory.plan().expect("a plan").current_sub_task
}

fn status(memory: &WorkingMemory, id: u32) -> SubTaskStatus {
    let plan = memory.plan().expect("a plan");
    plan.sub_tasks.iter().find(|s| s.id == id).expect("a sub-task").status
}

#[test]
fn a_done_sub_task_makes_the_next_one_current() {
    let mut memory = WorkingMemory::default();
    assert_eq!(memory.set_plan(&plan(&[(1, &[]), (2, &[1]), (3, &[])])), 1);
    assert_eq!(current(&memory), Some(1));
    assert_eq!(status(&memory, 1), SubTaskStatus::InProgress);
    memory.update_sub_task_status(1, SubTaskStatus::Done);
    assert_eq!(memory.advance_to_next_sub_task(), Some(2));
    assert_eq!(current(&memory), Some(2));
    memory.update_sub_task_status(2, SubTaskStatus::Done);
    assert_eq!(memory.advance_to_next_sub_task(), Some(3));
    memory.update_sub_task_status(3, SubTaskStatus::Done);
    assert_eq!(memory.advance_to_next_sub_task(), None);
    assert_eq!(current(&memory), None);
}

#[test]
fn a_sub_task_waits_for_what_it_depends_on() {
    let mut memory = WorkingMemory::default();
    memory.set_plan(&plan(&[(1, &[]), (2, &[1, 4]), (3, &[2]), (4, &[])]));
    assert_eq!(memory.advance_to_next_sub_task(), None, "the current one is in progress");
    assert_eq!(current(&memory), Some(1));
    memory.update_sub_task_status(1, SubTaskStatus::Done);
    assert_eq!(memory.advance_to_next_sub_task(), Some(4), "2 waits for 4, 3 for 2");
    memory.update_sub_task_status(4, SubTaskStatus::Failed);
    assert_eq!(memory.advance_to_next_sub_task(), None, "a failed need is not done");
}

#[test]
fn a_plan_may_begin_with_a_sub_task_that_has_to_wait() {
    let mut memory = WorkingMemory::default();
    memory.set_plan(&plan(&[(7, &[9]), (9, &[])]));
    assert_eq!(current(&memory), Some(9));
}

#[test]
fn a_new_plan_takes_the_place_of_the_old_one() {
    let mut memory = WorkingMemory::default();
    memory.set_plan(&plan(&[(1, &[]), (2, &[])]));
    memory.update_sub_task_status(1, SubTaskStatus::Done);
    assert_eq!(memory.set_plan(&plan(&[(1, &[])])), 2);
    assert_eq!(status(&memory, 1), SubTaskStatus::InProgress);
    assert_eq!(memory.plan().expect("a plan").sub_tasks.len(), 1);
}

#[test]
fn without_a_plan_there_is_nothing_to_advance() {
    let mut memory = WorkingMemory::default();
    memory.update_sub_task_status(1, SubTaskStatus::Done);
    assert_eq!(memory.advance_to_next_sub_task(), None);
    memory.take_step(1, &verify(json!("done")));
    assert_eq!(memory.plan(), None);
}

#[test]
fn a_verify_ends_the_current_sub_task() {
    let mut memory = WorkingMemory::default();
    memory.set_plan(&plan(&[(1, &[]), (2, &[1])]));
    memory.take_step(1, &verify(Value::Null));
    assert_eq!(current(&memory), Some(1));
    memory.take_step(2, &verify(json!("failed")));
    assert_eq!((current(&memory), status(&memory, 1)), (Some(1), SubTaskStatus::Failed), "it stays current");
    memory.take_step(3, &verify(json!("done")));
    assert_eq!((current(&memory), status(&memory, 1)), (Some(2), SubTaskStatus::Done));
}

#[test]
fn facts_name_the_tool_of_the_last_act() {
    let mut memory = WorkingMemory::default();
    memory.take_call(1, "", "Look", call("list_files", "a", false));
    memory.take_call(2, "", "Read", call("read_file", "a", false));
    memory.take_step(3, &step(json!({"phase": "verify", "summary": "ok", "key_facts": ["it is a", "it is short"]})));
    let facts: Vec<_> = memory.key_facts().iter().map(|f| (f.fact.as_str(), f.source_step)).collect();
    assert_eq!(facts, [("it is a", 3), ("it is short", 3)]);
    assert_eq!(memory.key_facts()[1].source_tool.as_deref(), Some("read_file"));
}

#[test]
fn a_reflection_resolves_the_last_open_error() {
    let mut memory = WorkingMemory::default();
    memory.take_call(1, "", "Try", call("read_file", "no such file", true));
    memory.take_call(2, "", "Try", call("run", "exit 1", true));
    let resolutions = |memory: &WorkingMemory| -> Vec<_> {
        memory.error_register().iter().map(|error| error.resolution.clone().unwrap_or_default()).collect()
    };
    memory.take_step(3, &step(json!({"phase": "reflect", "summary": "The flag was wrong."})));
    assert_eq!(resolutions(&memory), ["", "The flag was wrong."]);
    memory.take_step(4, &step(json!({"phase": "reflect", "summary": "Look for the file first."})));
    assert_eq!(resolutions(&memory), ["Look for the file first.", "The flag was wrong."]);
    memory.take_step(5, &step(json!({"phase": "reflect", "summary": "Nothing is open."})));
    assert_eq!(resolutions(&memory), ["Look for the file first.", "The flag was wrong."]);
}

#[test]
fn every_step_is_kept_with_its_words() {
    let mut memory = WorkingMemory::default();
    memory.take_step(1, &step(json!({"phase": "reason", "thinking": "hm", "summary": "Thought."})));
    memory.take_call(2, "I look.", "Look.", call("list_files", "a", false));
    memory.take_step(3, &step(json!({"phase": "feedback", "feedback_message": "Which file?"})));
    memory.take_step(4, &step(json!({"phase": "end", "end_status": "solved", "end_message": "It is a."})));
    let steps: Vec<_> =
        memory.steps().iter().map(|s| (s.step, s.phase, s.thinking.as_str(), s.summary.as_str())).collect();
    assert_eq!(
        steps,
        [
            (1, Phase::Reason, "hm", "Thought."),
            (2, Phase::Act, "I look.", "Look."),
            (3, Phase::Feedback, "", "Which file?"),
            (4, Phase::End, "", "It is a."),
        ]
    );
}

#[test]
fn acknowledgements() {
    let mut memory = WorkingMemory::default();
    let mut answer = |number, arguments| {
        let step = step(arguments);
        let answer = acknowledge(number, &step, memory.next_plan_version());
        memory.take_step(number, &step);
        answer
    };
    let sub_tasks = json!([{"id": 1, "title": "one"}, {"id": 2, "title": "two"}]);
    let plan = json!({"phase": "plan", "summary": "s", "plan": {"goal": "g", "sub_tasks": sub_tasks}});
    assert_eq!(answer(1, plan.clone()).as_deref(), Some(r#"{"acknowledged":true,"plan_version":1,"sub_tasks":2}"#));
    assert_eq!(answer(2, plan).as_deref(), Some(r#"{"acknowledged":true,"plan_version":2,"sub_tasks":2}"#));
    let reason = json!({"phase": "reason", "summary": "s"});
    assert_eq!(answer(3, reason).as_deref(), Some(r#"{"acknowledged":true,"step":3}"#));
    let verify = json!({"phase": "verify", "summary": "s", "key_facts": ["a", "b"], "sub_task_outcome": "failed"});
    let facts = r#"{"acknowledged":true,"facts_recorded":2,"sub_task_outcome":"failed"}"#;
    assert_eq!(answer(4, verify).as_deref(), Some(facts));
    let verify = json!({"phase": "verify", "summary": "s"});
    let none = r#"{"acknowledged":true,"facts_recorded":0,"sub_task_outcome":null}"#;
    assert_eq!(answer(5, verify).as_deref(), Some(none));
    let reflect = json!({"phase": "reflect", "summary": "s"});
    assert_eq!(answer(6, reflect).as_deref(), Some(r#"{"acknowledged":true}"#));
    let act = json!({"phase": "act", "summary": "s", "action": {"tool_name": "look", "tool_input": {}}});
    assert_eq!(answer(7, act), None, "the tool's result is the answer");
    assert_eq!(answer(8, json!({"phase": "feedback", "feedback_message": "?"})), None);
    assert_eq!(answer(9, json!({"phase": "end", "end_status": "stuck", "end_message": "no"})), None);
}

/// Up to eight sub-tasks, each of which may depend on any others.
pub fn any_plan() -> impl Strategy<Value = NewPlan> {
    (1u32..8).prop_flat_map(|n| {
        let needs = proptest::collection::btree_set(1..=n, 0..3);
        proptest::collection::vec(needs, n as usize).prop_map(|needs| NewPlan {
            goal: "Do it all".into(),
            sub_tasks: (1..)
                .zip(needs)
                .map(|(id, needs)| NewSubTask {
                    id,
                    title: format!("Part {id}"),
                    depends_on: needs.into_iter().collect(),
                })
                .collect(),
        })
    })
}

fn any_status() -> impl Strategy<Value = SubTaskStatus> {
    prop_oneof![
        Just(SubTaskStatus::Pending),
        Just(SubTaskStatus::InProgress),
        Just(SubTaskStatus::Done),
        Just(SubTaskStatus::Failed),
    ]
}

proptest! {
    /// Whatever the plan and whatever has become of its sub-tasks, circles included.
    #[test]
    fn advancing_only_begins_what_may_begin(
        plan in any_plan(),
        changes in proptest::collection::vec((1u32..8, any_status()), 0..24),
    ) {
        let mut memory = WorkingMemory::default();
        memory.set_plan(&plan);
        for (id, to) in changes {
            memory.update_sub_task_status(id, to);
            let before = memory.plan().expect("a plan").clone();
            let next = memory.advance_to_next_sub_task();
            let status_before = |id| before.sub_tasks.iter().find(|s| s.id == id).map(|s| s.status);
            let ready = |id: u32| {
                let needs = &plan.sub_tasks.iter().find(|s| s.id == id).expect("a sub-task").depends_on;
                status_before(id) == Some(SubTaskStatus::Pending)
                    && needs.iter().all(|need| status_before(*need) == Some(SubTaskStatus::Done))
            };
            let stays = before.current_sub_task.is_some_and(|id| status_before(id) == Some(SubTaskStatus::InProgress));
            let expected = if stays { None } else { plan.sub_tasks.iter().map(|s| s.id).find(|id| ready(*id)) };
            prop_assert_eq!(next, expected);
            prop_assert_eq!(current(&memory), if stays { before.current_sub_task } else { expected });
            for sub_task in &memory.plan().expect("a plan").sub_tasks {
                let expected = if next == Some(sub_task.id) {
                    Some(SubTaskStatus::InProgress)
                } else {
                    status_before(sub_task.id)
                };
                prop_assert_eq!(Some(sub_task.status), expected, "nothing else changes");
            }
        }
    }

    /// An agent that does one sub-task after the other gets through every plan that is accepted.
    #[test]
    fn an_accepted_plan_can_be_carried_out(plan in any_plan()) {
        let arguments = json!({"phase": "plan", "summary": "s", "plan": &plan});
        let Ok(step) = parse(&arguments.to_string()) else { return Ok(()) };
        let mut memory = WorkingMemory::default();
        memory.take_step(1, &step);
        for number in 2.. {
            if current(&memory).is_none() {
                break;
            }
            memory.take_step(number, &verify(json!("done")));
        }
        prop_assert!(memory.plan().expect("a plan").sub_tasks.iter().all(|s| s.status == SubTaskStatus::Done));
    }
}
