//! A skill at work: its own tools, its own files, and nothing more.

use std::sync::Arc;

use posse_core::event::{Event, Events};
use posse_core::journal::Entry;
use posse_core::model::Message;
use posse_core::skill::SkillScope;
use posse_infra::model::scripted::ScriptedModel;
use posse_infra::skill::{SkillRoot, load_all};
use posse_infra::tool::ToolRegistry;
use serde_json::json;

use crate::kit::{Home, Worker, WorkerOptions, persona};

/// The description is no valid YAML; the restriction must hold all the same.
const TIDY: &str = "---\nname: tidy-report\ndescription: Makes a report. Use when: the user wants a summary.\n\
                    allowed-tools: read_file\n---\nStep 1: read numbers.txt. Step 2: write nothing.\n";

#[tokio::test]
async fn a_skill_has_its_own_tools_and_files_and_nothing_more() {
    let home = Home::new();
    let folder = home.folder.path().join("skills");
    let skill = folder.join("tidy-report");
    std::fs::create_dir_all(skill.join("references")).expect("made");
    std::fs::write(skill.join("SKILL.md"), TIDY).expect("written");
    std::fs::write(skill.join("references/units.md"), "UNITS-3").expect("written");
    let loaded = load_all(&[SkillRoot { folder, scope: SkillScope::Project }], &[], &ToolRegistry::builtin());
    let model = Arc::new(
        ScriptedModel::new()
            .call(&[("read_skill_file", json!({"path": "references/units.md"}))])
            .call(&[("tidy-report", json!({"task": "Report on alpha.txt."}))])
            .call(&[("create_file", json!({"path": "stolen.txt", "content": "x"}))])
            .call(&[("read_skill_file", json!({"path": "../../posse.db"}))])
            .call(&[("read_skill_file", json!({"path": "references/units.md"}))])
            .call(&[("finish", json!({"final_summary": "REPORT"}))])
            .call(&[("finish", json!({"final_summary": "DONE"}))]),
    );
    let mut persona = persona();
    persona.skills = vec!["tidy-report".into()];
    let options = WorkerOptions { persona, skills: loaded.skills, ..WorkerOptions::default() };
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("make a report").await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!(job.output.expect("an answer").text, "DONE", "{:?}", job.reason);
    assert!(!home.workspace().join("stolen.txt").exists());

    let requests = model.requests();
    let offered = |n: usize| requests[n].tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>();
    assert!(offered(0).contains(&"tidy-report") && !offered(0).contains(&"read_skill_file"), "{:?}", offered(0));
    assert_eq!(offered(2), ["finish", "read_file", "read_skill_file"]);
    let system = |n: usize| match &requests[n].messages[1] {
        Message::System { text } => text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(system(0).contains("- tidy-report: Makes a report. Use when: the user wants a summary."));
    assert!(system(2).contains("Step 2: write nothing.") && system(2).contains("references/units.md"));

    let entries = home.entries(id).await;
    let results: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::CallEnded { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(results[0].contains("read_skill_file") && results[1].contains("create_file"), "{results:?}");
    assert!(results[2].contains("below the skill's folder"), "{results:?}");
    assert!(results.contains(&"UNITS-3") && results.iter().any(|text| text.contains("REPORT")), "{results:?}");
}

#[tokio::test]
async fn an_empty_skill_is_told_of_and_says_why_it_cannot_be_used() {
    let home = Home::new();
    let folder = home.folder.path().join("skills");
    for (name, body) in [("empty-one", "<div>\n<script>x()</script>\n</div>\n"), ("good-one", "Do it.\n")] {
        std::fs::create_dir_all(folder.join(name)).expect("made");
        let text = format!("---\nname: {name}\ndescription: Does it.\n---\n{body}");
        std::fs::write(folder.join(name).join("SKILL.md"), text).expect("written");
    }
    let loaded = load_all(&[SkillRoot { folder, scope: SkillScope::Project }], &[], &ToolRegistry::builtin());
    let model = Arc::new(
        ScriptedModel::new()
            .call(&[("empty-one", json!({"task": "Do it."}))])
            .call(&[("good-one", json!({"work": 1}))])
            .call(&[("finish", json!({"final_summary": "DONE"}))]),
    );
    let mut persona = persona();
    persona.skills = vec!["*".into()];
    let options = WorkerOptions { persona, skills: loaded.skills, ..WorkerOptions::default() };
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("do it").await;
    worker.until_ended(id).await;
    let requests = model.requests();
    assert!(requests[0].tools.iter().any(|tool| tool.name == "empty-one"), "what it is told of it can call");
    let told = |n: usize| match requests[n].messages.last() {
        Some(Message::Tool { text, .. }) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(told(1).contains("The skill empty-one cannot be used: the text is empty"), "{}", told(1));
    assert!(told(2).contains("the arguments do not fit"), "{}", told(2));
    let mut events = Events::default();
    let events: Vec<_> = home.entries(id).await.iter().flat_map(|entry| events.take(entry)).collect();
    let errors: Vec<_> =
        events.iter().filter_map(|event| if let Event::Error { text } = event { Some(text) } else { None }).collect();
    assert_eq!(errors, [&told(1), &told(2)]);
    assert!(!home.entries(id).await.iter().any(|entry| matches!(entry, Entry::SkillBegan { .. })));
}
