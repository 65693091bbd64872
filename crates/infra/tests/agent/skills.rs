//! A skill at work: its own tools, its own files, and nothing more.

use std::sync::Arc;

use posse_core::events::run::{Event, Events};
use posse_core::model::{Message, ModelProfile, ToolCalling};
use posse_core::port::JobQueries as _;
use posse_core::run::Run;
use posse_core::run::journal::Entry;
use posse_core::skill::SkillScope;
use posse_infra::skill::{SkillRoot, load_all};
use posse_infra::tool::ToolRegistry;
use posse_testing::scripted::ScriptedModel;
use serde_json::json;

use super::kit::{Home, Worker, WorkerOptions, persona};

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

/// Five hundred skills are told of as far as a part of the window goes; the rest is found by words, and then called.
#[tokio::test]
async fn of_many_skills_as_many_are_told_as_fit_and_the_rest_is_found() {
    let home = Home::new();
    let folder = home.folder.path().join("skills");
    for n in 0..500 {
        let (name, what) = match n {
            450 => ("tide-tables".to_owned(), "Computes when the water of a harbour is high.".to_owned()),
            451 => ("zebra-crossing".to_owned(), "Counts stripes.".to_owned()),
            n => (format!("skill-{n:03}"), format!("Does the work number {n}. {}", "It is long. ".repeat(20))),
        };
        std::fs::create_dir_all(folder.join(&name)).expect("made");
        let text = format!("---\nname: {name}\ndescription: {what}\n---\nAnswer HIGH-WATER.\n");
        std::fs::write(folder.join(&name).join("SKILL.md"), text).expect("written");
    }
    let loaded = load_all(&[SkillRoot { folder, scope: SkillScope::Project }], &[], &ToolRegistry::builtin());
    let window = 32_768;
    for (calling, first) in [(ToolCalling::Native, "skill-000"), (ToolCalling::Structured, "zebra-crossing")] {
        let profile = ModelProfile {
            name: "default".into(),
            model: "mock-1".into(),
            tool_calling: calling,
            context_window: Some(window),
        };
        let calls = [
            ("find_skills", json!({"words": "sing a song"})),
            ("find_skills", json!({"words": "the tides at my harbour"})),
            ("tide-tables", json!({"task": "Bergen, tomorrow."})),
            ("finish", json!({"final_summary": "HIGH-WATER"})),
            ("finish", json!({"final_summary": "DONE"})),
        ];
        let script = ScriptedModel::new().with_profile(profile);
        let model = Arc::new(calls.into_iter().fold(script, |script, (name, arguments)| match calling {
            ToolCalling::Native => script.call(&[(name, arguments)]),
            ToolCalling::Structured => {
                script.say(&json!({"thinking": "", "tool": name, "arguments": arguments}).to_string())
            }
        }));
        let mut persona = persona();
        persona.skills = match calling {
            ToolCalling::Native => vec!["*".into()],
            // What it names first is told first.
            ToolCalling::Structured => {
                let all = loaded.skills.iter().map(|skill| skill.name.clone());
                [first.to_owned()].into_iter().chain(all.filter(|name| name != first)).collect()
            }
        };
        let options = WorkerOptions { persona, skills: loaded.skills.clone(), ..WorkerOptions::default() };
        let mut worker = Worker::start_with(&home, model.clone(), options).await;
        let id = home.enqueue("when is the water high?").await;
        worker.until_ended(id).await;
        worker.shut_down().await;
        let job = home.job(id).await;
        assert_eq!(job.output.expect("an answer").text, "DONE", "{:?}", job.reason);

        let requests = model.requests();
        let whole = |n: usize| {
            let request = &requests[n];
            json!([request.messages.to_vec(), request.tools, request.schema]).to_string()
        };
        // Nearly the window as bytes: a quarter of it in tokens, and what every request has.
        assert!(whole(0).len() < window as usize * 4 / 3, "{calling:?}: {} bytes", whole(0).len());
        assert!(whole(0).contains(first) && !whole(0).contains("tide-tables"), "{calling:?}: {}", whole(0));
        assert!(whole(0).contains("more skills are not told of here") && whole(0).contains("find_skills"));
        assert!(whole(1).contains("No skill has any of these words") && !whole(1).contains("tide-tables"));
        assert!(whole(2).contains("These can be called now:\\n- tide-tables: Computes when"), "{}", whole(2));
        let offered = requests[2].tools.iter().any(|tool| tool.name == "tide-tables")
            || requests[2]
                .schema
                .as_ref()
                .is_some_and(|schema| schema.to_string().contains(r#""const":"tide-tables""#));
        assert!(offered, "{calling:?}: it can be called now");
        assert!(whole(3).contains("Answer HIGH-WATER."), "it works by the skill: {}", whole(3));
        let journal = home.store.journal(id, 0).await.expect("readable");
        let told: Vec<_> = Run::replay(&journal).told_skills().map(|skill| skill.spec.name.clone()).collect();
        assert!(told.contains(&"tide-tables".to_owned()) && told.len() < 60, "{told:?}");
    }
}
