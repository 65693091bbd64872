//! What a model reads first, whole. `POSSE_UPDATE_SNAPSHOTS=1 cargo test -p posse-core --test core prompt` writes the
//! snapshots anew; the diff is then read like any other change.

use posse_core::model::{Message, ToolCalling};
use posse_core::persona::{PersonaTemplate, Style};
use posse_core::run::prompt::{self, Company, Telling};
use posse_core::tool::ToolSpec;
use serde_json::json;
use std::path::Path;

fn opening_text(calling: ToolCalling, telling: Telling<'_>) -> String {
    let persona = PersonaTemplate {
        role: "scribe".into(),
        goal: "Write files as asked.".into(),
        backstory: "You are a plain and exact writer.".into(),
        ..PersonaTemplate::default()
    };
    let tool = |name: &str, required: &[&str]| ToolSpec {
        name: name.into(),
        description: format!("What {name} does. And more about it."),
        parameters: json!({"type": "object", "properties": {}, "required": required}),
    };
    let tools = [
        tool("calculate", &["expression"]),
        tool("create_file", &["path", "content"]),
        tool("edit_file", &["path", "old_text", "new_text"]),
        tool("list_files", &[]),
        tool("read_file", &["path"]),
        tool("search_files", &["pattern"]),
    ];
    let mut out = format!("== system\n{}", prompt::system(&persona, Style::Direct, calling, &tools, Company::Alone));
    for message in prompt::examples(Style::Direct, calling, &tools, &[], telling) {
        match message {
            Message::User { text } => out.push_str(&format!("\n== user\n{text}\n")),
            Message::Assistant { text, .. } => out.push_str(&format!("\n== assistant\n{text}\n")),
            other => panic!("an example has {other:?}"),
        }
    }
    out.push_str(&format!("\n== user\n{}\n", prompt::task("Summarise a.md in b.md.")));
    out
}

fn of_results(goal: &str) -> Telling<'_> {
    Telling { goal, of_results: true, ..Telling::default() }
}

fn of_workspace(goal: &str) -> Telling<'_> {
    Telling { goal, of_workspace: true, ..Telling::default() }
}

fn check(name: &str, calling: ToolCalling, telling: Telling<'_>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    let text = opening_text(calling, telling);
    assert_eq!(text, opening_text(calling, telling), "the same inputs give the same bytes");
    if std::env::var_os("POSSE_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).expect("the snapshot can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, stored, "{} is stale; see the top of this test", path.display());
}

#[test]
fn native_calling() {
    check("native.txt", ToolCalling::Native, Telling::default());
    for telling in [of_results("Sum up what those two found"), of_workspace("Write it into a.md")] {
        assert_eq!(opening_text(ToolCalling::Native, Telling::default()), opening_text(ToolCalling::Native, telling));
    }
}

#[test]
fn structured_calling() {
    check("structured.txt", ToolCalling::Structured, Telling::default());
}

#[test]
fn who_is_told_of_a_workspace_is_shown_tasks_in_one_and_of_writing_only_where_it_may_have_to() {
    check("structured_workspace.txt", ToolCalling::Structured, of_workspace("Who owns the ferry?"));
    check(
        "structured_workspace_write.txt",
        ToolCalling::Structured,
        of_workspace("Write who owns the ferry into a.md."),
    );
    let goal = "Write who owns the ferry into a.md.";
    let new = opening_text(ToolCalling::Structured, Telling { for_new_file: true, ..of_workspace(goal) });
    let shows = |text: &str, tool: &str| text.contains(&format!("\"tool\":\"{tool}\""));
    assert!(shows(&new, "create_file") && !shows(&new, "edit_file"), "a new file is written and nothing changed");
    let shown = opening_text(ToolCalling::Structured, of_workspace("Who owns the ferry?"));
    assert_eq!(shown.matches("The workspace has").count(), 1, "once, before the first: {shown}");
    assert!(!shown.contains("\"create_file\"") && !shown.contains("\"edit_file\""), "{shown}");
}

#[test]
fn who_is_told_what_others_found_is_shown_one_who_was_told_too() {
    let last_example = |goal: &str| {
        let text = opening_text(ToolCalling::Structured, of_results(goal));
        let from = text.find("Tuesday (port.md) into weather.md.").expect("the last example of others");
        text[from..].to_owned()
    };
    for goal in ["Sum up what those two found", "Say, e.g. in 2.5 lines, what was found.", "Which is cheaper, A/B?"] {
        let shown = last_example(goal);
        assert!(shown.contains("Say in one sentence") && !shown.contains("create_file"), "{goal}: {shown}");
    }
    for goal in ["Write it into found.md.", "Put both into `out/all.csv`, please", "(see notes.txt)"] {
        let shown = last_example(goal);
        assert!(shown.contains("berth.md") && shown.contains("create_file"), "{goal}: {shown}");
    }
    check("structured_told.txt", ToolCalling::Structured, of_results("Sum up what those two found"));
    check("structured_told_file.txt", ToolCalling::Structured, of_results("Write it into found.md."));
}

#[test]
fn who_has_a_skill_is_shown_one_who_called_it() {
    let skill = ToolSpec { name: "tide-table".into(), description: "Reads tides.".into(), parameters: json!({}) };
    let shown = prompt::examples(Style::Direct, ToolCalling::Structured, &[], &[skill], Telling::default());
    let [Message::User { text: task }, Message::Assistant { text: call, .. }, Message::User { text: result }, _] =
        &shown[..]
    else {
        panic!("{shown:?}")
    };
    assert!(task.starts_with("Your task:\nUse the skill tide-table for bow.txt"), "{task}");
    let call: serde_json::Value = serde_json::from_str(call).expect("a step");
    let told = "Do this for bow.txt and stern.txt and put the result into boat/hull.md.";
    assert_eq!((&call["tool"], &call["arguments"]), (&json!("tide-table"), &json!({"task": told})));
    assert_eq!(result, "Result of tide-table:\nI put the result for bow.txt and stern.txt into boat/hull.md.");
}

#[test]
fn an_agent_in_a_session_is_told_that_a_person_is_there() {
    let persona = PersonaTemplate::default();
    for calling in [ToolCalling::Native, ToolCalling::Structured] {
        let alone = prompt::system(&persona, Style::Direct, calling, &[], Company::Alone);
        let in_session = prompt::system(&persona, Style::Direct, calling, &[], Company::InSession);
        assert!(alone.contains("\n- You work alone and unattended"), "{alone}");
        assert!(
            in_session.contains("\n- A person talks with you") && !in_session.contains("unattended"),
            "{in_session}"
        );
    }
}
