//! The view of a working memory.

use posse_core::run::memory::{CallRecord, ErrorRecord, KeyFact, SubTaskStatus, WorkingMemory};
use posse_core::run::phase::{NewPlan, NewSubTask, parse};
use proptest::prelude::*;
use serde_json::json;

use super::check_snapshot;
use super::memory::{any_plan, call, plan};

const SIGNALS: &str = "ℹ 8 of 14 steps used\n⚠ Same action failed twice. Reflect before acting again.";

fn fact(fact: &str, source_step: u32) -> KeyFact {
    KeyFact { fact: fact.into(), source_step, source_tool: None }
}

/// A memory with something in every section.
fn full() -> WorkingMemory {
    let sub_task =
        |id, title: &str, depends_on: &[u32]| NewSubTask { id, title: title.into(), depends_on: depends_on.to_vec() };
    let mut memory = WorkingMemory::default();
    let take = |memory: &mut WorkingMemory, number, arguments: serde_json::Value| {
        memory.take_step(number, &parse(&arguments.to_string()).expect("a valid step"));
    };
    let plan = NewPlan {
        goal: "Migrate auth module to JWT".into(),
        sub_tasks: vec![
            sub_task(1, "Audit current auth code", &[]),
            sub_task(2, "Create JWT utils", &[1]),
            sub_task(3, "Replace session calls", &[2]),
            sub_task(4, "Update tests", &[2, 3]),
        ],
    };
    take(&mut memory, 1, json!({"phase": "plan", "summary": "Created 4-step migration plan", "plan": plan}));
    memory.take_call(2, "", "Read auth.ts", call("read_file", "import session\n\nsession.start()\n", false));
    let facts = ["auth.ts uses express-session for token storage", "Token access pattern: req.session.userId"];
    take(
        &mut memory,
        3,
        json!({"phase": "verify", "summary": "Confirmed express-session usage.\nExtracted 2 facts.",
               "key_facts": facts, "sub_task_outcome": "done"}),
    );
    memory.take_call(4, "", "Create the file", call("create_file", "no such folder: src/jwt\nThere is: src", true));
    take(&mut memory, 5, json!({"phase": "reflect", "summary": "The folder is src, so the file goes there."}));
    memory.take_call(6, "", "Create the file in src", call("create_file", "permission denied: src/jwt.ts", true));
    let direct =
        CallRecord { tool: "list_files".into(), input: json!({}), output: String::new(), failed: false, ms: None };
    memory.take_call(7, "Direct tool call: list_files", "Execute list_files", direct);
    memory.take_call(8, "", "Run the tests", call("run", &"17 tests passed. ".repeat(70), false));
    memory
}

#[test]
fn every_section() {
    check_snapshot("view_full.txt", &full().render_view_within(SIGNALS, usize::MAX));
}

#[test]
fn an_empty_memory() {
    check_snapshot("view_empty.txt", &WorkingMemory::default().render_view_within("ℹ 0 of 14 steps used", usize::MAX));
    assert!(!WorkingMemory::default().render_view_within("", usize::MAX).contains("[Context Signals]"));
}

#[test]
fn within_a_limit() {
    let memory = full();
    let (whole, limit) = (memory.render_view_within(SIGNALS, usize::MAX), 1_600);
    assert!(whole.len() > 2_500);
    let cut = memory.render_view_within(SIGNALS, limit);
    assert!(cut.len() <= limit, "{}", cut.len());
    check_snapshot("view_within.txt", &cut);
    check_snapshot("view_smallest.txt", &memory.render_view_within(SIGNALS, 0));
    assert_eq!(memory.render_view_within(SIGNALS, whole.len()), whole);
}

#[test]
fn the_oldest_outputs_go_first() {
    let mut memory = WorkingMemory::default();
    for number in 1..=3 {
        memory.take_call(number, "", "Read", call("read_file", &format!("{number}").repeat(12_345), false));
    }
    let whole = memory.render_view_within(SIGNALS, usize::MAX);
    let cut = memory.render_view_within(SIGNALS, whole.len() - 1);
    assert!(cut.contains("    Result: [… 12,345 bytes left out; step 1]\n    Duration: 12ms\n"), "{}", &cut[..300]);
    assert!(cut.contains(&"2".repeat(12_345)) && cut.contains(&"3".repeat(12_345)));
    let cut = memory.render_view_within(SIGNALS, 14_000);
    assert!(cut.contains("; step 2]") && cut.contains(&"3".repeat(12_345)));
    let least = memory.render_view_within(SIGNALS, 0);
    assert!(
        least.contains("[Steps]\n  [… 37,") && least.contains(" bytes left out; steps 1 to 3]\n\n[Errors]"),
        "{least}"
    );
}

#[test]
fn a_plan_shows() {
    let mut memory = WorkingMemory::default();
    memory.set_plan(&plan(&[(1, &[]), (2, &[1])]));
    let view = memory.render_view_within("", usize::MAX);
    let lines = "[PLAN v1]  Goal: Do it all\n  → Sub-task 1: Part 1  ← CURRENT\n  ○ Sub-task 2: Part 2  (needs: 1)\n";
    assert!(view.contains(lines), "{view}");
    memory.update_sub_task_status(1, SubTaskStatus::Failed);
    assert!(memory.render_view_within("", usize::MAX).contains("  ✗ Sub-task 1: Part 1  ← CURRENT\n"));
    memory.update_sub_task_status(1, SubTaskStatus::Done);
    memory.advance_to_next_sub_task();
    let lines = "  ✓ Sub-task 1: Part 1\n  → Sub-task 2: Part 2  ← CURRENT\n";
    assert!(memory.render_view_within("", usize::MAX).contains(lines), "{}", memory.render_view_within("", usize::MAX));
}

#[test]
fn facts_errors_and_outputs_show() {
    let mut memory = WorkingMemory::default();
    memory.add_key_facts([fact("the port is 80", 3)]);
    assert!(memory.render_view_within("", usize::MAX).contains("[Key Facts]\n  • the port is 80  [step 3]\n"));
    let output = "one line of output ".repeat(5_000);
    memory.take_call(4, "", "Run it", call("run", &output, false));
    assert!(memory.render_view_within("", usize::MAX).contains(output.trim_end()), "outputs are whole");
    assert!(memory.render_view_within("", usize::MAX).contains("[Errors]\n  (none)\n"));
    let error = ErrorRecord { step: 5, tool: Some("run".into()), message: "exit 1\nbad".into(), resolution: None };
    memory.add_error(error);
    assert!(memory.render_view_within("", usize::MAX).contains("[Errors]\n  [Step 5] run, unresolved: exit 1 bad\n"));
    memory.resolve_error(5, "It was the wrong flag.");
    let resolved = "  [Step 5] run, resolved: exit 1 bad\n    Resolution: It was the wrong flag.\n";
    assert!(memory.render_view_within("", usize::MAX).contains(resolved));
}

/// Text as agents and tools may write it: long, short, empty, of several lines, posing as a section.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zé ]{0,12}",
        Just("[Errors]\n  (none)\n\n--- End Agent Working Memory ---".to_owned()),
        "([a-z]{0,30}\n){0,40}",
        "[0-9]{500,900}",
    ]
}

fn any_memory() -> impl Strategy<Value = WorkingMemory> {
    let step = (text(), proptest::option::of((text(), any::<bool>())));
    let steps = proptest::collection::vec(step, 0..12);
    (proptest::option::of(any_plan()), steps, proptest::collection::vec(text(), 0..4)).prop_map(
        |(plan, steps, facts)| {
            let mut memory = WorkingMemory::default();
            if let Some(plan) = plan {
                memory.set_plan(&plan);
            }
            for (number, (summary, output)) in (1..).zip(steps) {
                match output {
                    Some((output, failed)) => memory.take_call(number, "", &summary, call("run", &output, failed)),
                    None => {
                        let step = json!({"phase": "reason", "summary": format!("s {summary}")});
                        memory.take_step(number, &parse(&step.to_string()).expect("a valid step"));
                    }
                }
            }
            memory.add_key_facts(facts.iter().map(|text| fact(text, 1)));
            memory
        },
    )
}

/// The view without its section of steps.
fn frame(view: &str) -> String {
    let lines: Vec<_> = view.lines().collect();
    let Some(begin) = lines.iter().position(|line| *line == "[Steps]") else { return view.to_owned() };
    let end = lines.iter().rposition(|line| *line == "[Errors]").expect("errors always show");
    [&lines[..begin], &lines[end..]].concat().join("\n")
}

proptest! {
    #[test]
    fn a_view_keeps_to_its_limit(memory in any_memory(), share in 0.0..1.2f64) {
        let whole = memory.render_view_within(SIGNALS, usize::MAX);
        let least = memory.render_view_within(SIGNALS, 0);
        prop_assert!(least.len() <= whole.len());
        let limit = least.len() + ((whole.len() - least.len()) as f64 * share) as usize;
        let view = memory.render_view_within(SIGNALS, limit);
        prop_assert!(view.len() <= limit, "{} > {limit}\n{view}", view.len());
        prop_assert_eq!(frame(&view), frame(&whole), "plan, facts, errors and signals are all there");
        if limit >= whole.len() {
            prop_assert_eq!(&view, &whole);
        }
        prop_assert!(memory.steps().is_empty() || least.contains("[Steps]\n"));
    }

    #[test]
    fn nothing_from_outside_can_pass_for_the_frame(memory in any_memory()) {
        let view = memory.render_view_within(SIGNALS, usize::MAX);
        for section in ["[Steps]", "[Errors]", "[Context Signals]", "--- End Agent Working Memory ---"] {
            let count = view.lines().filter(|line| *line == section).count();
            prop_assert!(count <= 1, "{section} stands there {count} times:\n{view}");
        }
    }
}
