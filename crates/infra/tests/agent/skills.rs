//! A skill at work: its own tools, its own files, and nothing more.

use std::sync::Arc;

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
