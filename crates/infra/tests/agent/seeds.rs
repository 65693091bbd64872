//! Whole runs of five kinds of agents, each request compared with what was sent before.

use posse_core::clock::Clock;
use posse_core::job::{JobState, Output};
use posse_core::model::{CallRequest, ModelRequest};
use posse_core::persona::PersonaTemplate;
use posse_core::port::{AnnotationQueries, JobQueries, QuestionFilter, QuestionRepository};
use posse_core::run::journal::{CallState, Entry};
use posse_core::run::phase;
use posse_core::skill::{Skill, SkillScope, SkillSource};
use posse_core::tool::{EffectClass, Tool, ToolError, ToolErrorCategory, ToolOutput};
use posse_infra::process::SystemClock;
use posse_infra::tool::FnTool;
use posse_testing::scripted::{Play, ScriptedModel, calls_reply, text_reply};
use serde_json::{Value, json};
use std::sync::Arc;

use super::kit::{Home, Worker, WorkerOptions};
use super::transcript::{check_snapshot, transcript};

fn options(persona: &str) -> WorkerOptions {
    let persona: PersonaTemplate = serde_json::from_str(persona).expect("a persona");
    assert_eq!(persona.problems(), []);
    WorkerOptions { persona, ..WorkerOptions::default() }
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({"path": path}))
}

fn finish(text: &str) -> (&'static str, Value) {
    ("finish", json!({"final_summary": text}))
}

/// Works one job to its end and gives what it left, and every request.
async fn work(home: &Home, model: ScriptedModel, options: WorkerOptions, goal: &str) -> (JobState, Output, String) {
    let model = Arc::new(model);
    let mut worker = Worker::start_with(home, model.clone(), options).await;
    let id = home.enqueue(goal).await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    model.assert_clean();
    (job.state, job.output.expect("an output"), transcript(&model.requests()))
}

fn step(arguments: Value) -> [(&'static str, Value); 1] {
    [(phase::AGENT_STEP, arguments)]
}

#[tokio::test]
async fn seed_000_an_agent_that_works_by_phases() {
    let act = |summary: &str, tool: &str, input: Value| {
        step(json!({"phase": "act", "thinking": "t", "summary": summary,
                    "action": {"tool_name": tool, "tool_input": input}}))
    };
    let verify = |summary: &str, facts: Value, outcome: &str| {
        step(json!({"phase": "verify", "thinking": "t", "summary": summary, "key_facts": facts,
                    "sub_task_outcome": outcome}))
    };
    let model = ScriptedModel::new()
        .call(&step(json!({"phase": "plan", "thinking": "Two files.", "summary": "Planned three parts.", "plan": {
        "goal": "Write what both files say into sum.txt", "sub_tasks": [
            {"id": 1, "title": "Read alpha.txt"},
            {"id": 2, "title": "Read beta.txt"},
            {"id": 3, "title": "Write sum.txt", "depends_on": [1, 2]},
        ]}})))
        .call(&act("Read alpha.txt", "read_file", json!({"path": "alpha.txt"})))
        .call(&verify("alpha.txt says ALPHA-7", json!(["alpha.txt: ALPHA-7"]), "done"))
        .call(&act("Read gamma.txt", "read_file", json!({"path": "gamma.txt"})))
        .call(&step(json!({"phase": "reflect", "thinking": "t", "summary": "The file is beta.txt, not gamma.txt"})))
        .call(&step(json!({"phase": "act", "thinking": "t", "summary": "Read beta.txt"})))
        .call(&[read("beta.txt")])
        .call(&verify("beta.txt says BETA-9", json!(["beta.txt: BETA-9"]), "done"))
        .call(&act("Wrote sum.txt", "create_file", json!({"path": "sum.txt", "content": "ALPHA-7 BETA-9\n"})))
        .call(&verify("sum.txt is written", json!([]), "done"))
        .call(&step(
            json!({"phase": "end", "thinking": "t", "end_status": "solved", "end_message": "sum.txt is there"}),
        ));
    let home = Home::new();
    let options = options(include_str!("personas/000_phased.json"));
    let (state, output, sent) = work(&home, model, options, "Write what alpha and beta say into sum.txt").await;
    assert_eq!(
        (state, output.text.as_str(), output.status.as_str()),
        (JobState::Completed, "sum.txt is there", "completed")
    );
    assert_eq!((output.phase.as_deref(), output.turns), (Some("end"), 11));
    assert_eq!(output.tools_used, ["create_file", "read_file"]);
    let written = std::fs::read_to_string(home.workspace().join("sum.txt")).expect("it is there");
    assert_eq!(written, "ALPHA-7 BETA-9\n");
    check_snapshot("000_phased.txt", &sent);
}

#[tokio::test]
async fn seed_001_rounds_of_tools_and_a_conversation_that_is_compressed() {
    let files = ["alpha.txt", "beta.txt", "one.txt", "two.txt"];
    let mut round = 0;
    let model = ScriptedModel::new().forever(move |request: &ModelRequest| {
        if request.tools.is_empty() {
            return Play::Reply(text_reply("alpha.txt says ALPHA-7, beta.txt says BETA-9."));
        }
        round += 1;
        let (name, path) = ("read_file".to_owned(), files[round % 4]);
        let arguments = json!({"path": path}).to_string();
        Play::Reply(calls_reply(vec![CallRequest { id: String::new(), name, arguments, extra: None }]))
    });
    let home = Home::new();
    // Long enough for a summary to be shorter.
    for name in files {
        std::fs::write(home.workspace().join(name), format!("{name} {}\n", "says the same ".repeat(60)))
            .expect("a file");
    }
    let options = options(include_str!("personas/001_rounds.json"));
    let (state, output, sent) = work(&home, model, options, "Read for ever").await;
    let warning = "[Warning: max tool rounds (6) reached. Stopping tool execution.]";
    assert_eq!((state, output.text.as_str()), (JobState::Discarded, warning));
    assert_eq!((output.status.as_str(), output.turns), ("max_tool_rounds", 7));
    let id =
        home.store.jobs(posse_core::port::JobFilter { limit: 1, ..Default::default() }).await.expect("readable")[0].id;
    let summed = home.entries(id).await.into_iter().filter(|entry| matches!(entry, Entry::Compacted { .. })).count();
    assert!(summed >= 1);
    let archived = home.store.archived(id).await.expect("readable");
    assert_eq!(archived.len(), summed);
    assert!(archived[0].1.contains("[result of read_file]\n") && archived[0].1.contains("beta.txt says the same"));
    let states = home.ledger(id).await;
    assert_eq!(states.values().filter(|state| **state == CallState::Done).count(), 6);
    assert_eq!(states.values().filter(|state| **state == CallState::Refused).count(), 1);
    check_snapshot("001_rounds.txt", &sent);
}

fn skill(name: &str, description: &str, body: &str, tools: &[&str], skills: &[&str]) -> Skill {
    Skill {
        name: name.into(),
        description: description.into(),
        license: None,
        compatibility: None,
        metadata: Default::default(),
        allowed_tools: Some(tools.iter().map(|tool| (*tool).to_owned()).collect()),
        allowed_skills: skills.iter().map(|skill| (*skill).to_owned()).collect(),
        body: body.into(),
        source: SkillSource {
            file: format!("skills/{name}/SKILL.md").into(),
            scope: SkillScope::Project,
            sha256: "0".repeat(64),
            files: Vec::new(),
        },
    }
}

#[tokio::test]
async fn seed_002_skills_are_worked_by_children() {
    let history = json!([{"role": "user", "content": "We spoke of ships."}]);
    let model = ScriptedModel::new()
        .call(&[read("one.txt"), ("survey", json!({"task": "Survey alpha.txt and beta.txt", "history": history}))])
        .call(&[("create_file", json!({"path": "x", "content": "y"}))])
        .call(&[read("alpha.txt"), ("counting", json!({"task": "Count what beta.txt says"}))])
        .call(&[("survey", json!({"task": "me again"}))])
        .call(&[read("beta.txt")])
        .call(&[finish("one word")])
        .call(&[finish("ALPHA-7, and one word")])
        .call(&[("survey", json!({"task": " "}))])
        .call(&[finish("surveyed")]);
    let home = Home::new();
    let survey = "Step 1: read the files.<script>alert(1)</script>\n\n<b>Step 2</b>: count with the skill `counting`.";
    let mut options = options(include_str!("personas/002_skills.json"));
    options.skills = vec![
        skill("counting", "Counts words", "Read the file and count.", &["read_file"], &[]),
        skill("survey", "Surveys files. Use when: several files matter", survey, &["read_file"], &["counting"]),
        skill("unnamed", "No persona names it", "Nothing.", &[], &[]),
    ];
    let (state, output, sent) = work(&home, model, options, "Have alpha and beta surveyed").await;
    assert_eq!((state, output.text.as_str()), (JobState::Completed, "surveyed"));
    assert_eq!(output.tools_used, ["counting", "read_file", "survey"]);
    for words in ["<script", "alert(1)", "<b>", "unnamed"] {
        assert!(!sent.contains(words), "{words}");
    }
    check_snapshot("002_skills.txt", &sent);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PathArgs {
    path: String,
}

#[tokio::test]
async fn seed_003_a_failed_tool_is_retried_with_another_and_limits_give_a_status() {
    let flaky =
        FnTool::new("flaky", "Reads a file, on good days.", EffectClass::Pure, |_, args: PathArgs| async move {
            Err::<ToolOutput, _>(ToolError::new(
                ToolErrorCategory::Failed,
                format!("{} could not be read today", args.path),
            ))
        });
    let model = ScriptedModel::new()
        .call(&[("flaky", json!({"path": "alpha.txt"})), read("beta.txt")])
        .call(&[("flaky", json!({"path": "gone.txt"}))]);
    let home = Home::new();
    let mut options = options(include_str!("personas/003_fallback.json"));
    options.tools = vec![Arc::new(flaky) as Arc<dyn Tool>];
    let (state, output, sent) = work(&home, model, options, "Read alpha").await;
    assert_eq!((state, output.status.as_str(), output.turns), (JobState::Discarded, "max_turns", 2));
    assert_eq!(output.tools_used, ["flaky", "read_file"]);
    assert_eq!((output.usage.input, output.usage.output, output.phase.as_deref()), (20, 10, Some("act")));
    let id =
        home.store.jobs(posse_core::port::JobFilter { limit: 1, ..Default::default() }).await.expect("readable")[0].id;
    home.ledger(id).await;
    let rows = home.store.ledger(id).await.expect("readable");
    let rows: Vec<_> = rows.iter().map(|row| (row.tool.as_str(), row.state)).collect();
    use CallState::{Done, Failed};
    let wanted =
        [("flaky", Failed), ("read_file", Done), ("read_file", Done), ("flaky", Failed), ("read_file", Failed)];
    assert_eq!(rows, wanted);
    check_snapshot("003_fallback.txt", &sent);
}

#[tokio::test]
async fn seed_004_questions_first_and_a_new_plan_when_the_first_one_fails() {
    let questions = json!({"final_summary": "", "clarifying_questions": ["Which file?", "In which language?"]});
    let model = Arc::new(
        ScriptedModel::new()
            .call(&[read("alpha.txt"), ("finish", questions)])
            .call(&[read("gone.txt")])
            .call(&[("finish", json!({"final_summary": "the file is not there", "request_replan": true}))])
            .say("gone.txt was read and is not there.")
            .call(&[read("beta.txt")])
            .call(&[finish("BETA-9")]),
    );
    let home = Home::new();
    let options = options(include_str!("personas/004_clarify.json"));
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("Translate the file").await;
    worker.until_ended(id).await;
    assert_eq!(home.job(id).await.state, JobState::Suspended);
    let filter = QuestionFilter { limit: 10, ..QuestionFilter::default() };
    for (question, answer) in home.store.questions(filter).await.expect("readable").into_iter().zip(["beta", "Greek"]) {
        home.store.answer(question.id, answer.into(), "kim".into(), SystemClock.now()).await.expect("works");
    }
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "BETA-9"));
    let remarks = home.store.annotations(id).await.expect("readable");
    assert_eq!(remarks[0].tags, ["clarification_needed".to_owned(), format!("job:{id}")]);
    model.assert_clean();
    check_snapshot("004_clarify.txt", &transcript(&model.requests()));
}
