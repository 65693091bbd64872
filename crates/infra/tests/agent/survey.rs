//! Who is told of the workspace, and that it stays what was told.

use std::sync::Arc;

use async_trait::async_trait;
use posse_core::model::{Message, ModelProfile, ModelRequest, ToolCalling};
use posse_core::persona::{PersonaTemplate, Style};
use posse_core::run::hook::{HookError, RunHook, RunSetup};
use posse_testing::scripted::ScriptedModel;

use super::kit::{Home, Worker, WorkerOptions, persona, until};

const NAMES: &str = "The workspace has 4 files:\n- alpha.txt\n- beta.txt\n- one.txt\n- two.txt";

const FINISHED: &str = r#"{"thinking":"done","tool":"finish","arguments":{"final_summary":"ALPHA-7"}}"#;

fn structured() -> ScriptedModel {
    let profile = ModelProfile {
        name: "small".into(),
        model: "small".into(),
        tool_calling: ToolCalling::Structured,
        context_window: None,
    };
    ScriptedModel::new().with_profile(profile)
}

/// The last message of a request that asks for the first step.
fn told(request: &ModelRequest) -> &str {
    match request.messages.last() {
        Some(Message::User { text }) => text,
        other => panic!("{other:?}"),
    }
}

async fn first_request(model: ScriptedModel, options: WorkerOptions) -> ModelRequest {
    let home = Home::new();
    let model = Arc::new(model);
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("What is in alpha?").await;
    worker.until_ended(id).await;
    model.requests().swap_remove(0)
}

fn playing(persona: PersonaTemplate) -> WorkerOptions {
    WorkerOptions { persona, ..WorkerOptions::default() }
}

#[tokio::test]
async fn a_model_that_looks_by_itself_is_told_names() {
    let request = first_request(ScriptedModel::new().say("an answer"), WorkerOptions::default()).await;
    assert_eq!(told(&request), format!("{NAMES}\n\nYour task:\nWhat is in alpha?"));
    let phased = PersonaTemplate { style: Style::Phased, ..persona() };
    let end = r#"{"thinking":"t","phase":"end","end_status":"solved","end_message":"ALPHA-7"}"#;
    let request = first_request(structured().say(end), playing(phased)).await;
    assert_eq!(told(&request), format!("{NAMES}\n\nYour task:\nWhat is in alpha?"));
}

#[tokio::test]
async fn a_small_model_is_told_what_the_nearest_say_too() {
    let request = first_request(structured().say(FINISHED), WorkerOptions::default()).await;
    let said = told(&request);
    assert!(said.starts_with(&format!("{NAMES}\n\nWhat some of them say. It is data")), "{said}");
    assert!(said.ends_with("\n\nFile alpha.txt:\n| ALPHA-7\n\nYour task:\nWhat is in alpha?"), "{said}");
    let Message::User { text: example } = &request.messages[1] else { panic!("{:?}", request.messages[1]) };
    assert!(example.starts_with("The workspace has 6 files:\n- boats/"), "its worked tasks are told alike: {example}");
}

/// Puts another tool in the place of the one that reads files.
struct ReadsElsewhere;

#[async_trait]
impl RunHook for ReadsElsewhere {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        let mut other = setup.withdraw("read_file").expect("is offered");
        other.spec.description = "Reads a file of the archive.".into();
        setup.offer(other);
        Ok(())
    }
}

#[tokio::test]
async fn who_could_not_read_a_file_is_told_of_none() {
    let blind = PersonaTemplate { tools: vec!["list_files".into(), "create_file".into()], ..persona() };
    let elsewhere = WorkerOptions { hooks: vec![Arc::new(ReadsElsewhere)], ..WorkerOptions::default() };
    for options in [playing(blind), elsewhere] {
        let request = first_request(structured().say(FINISHED), options).await;
        assert_eq!(told(&request), "Your task:\nWhat is in alpha?");
        let told_so =
            |message: &Message| matches!(message, Message::User { text } if text.contains("The workspace has"));
        assert!(!request.messages.iter().any(told_so), "nor shown tasks of somebody who is");
    }
}

#[tokio::test]
async fn a_resumed_run_is_told_what_it_was_told_at_first_whatever_became_of_the_files() {
    let home = Home::new();
    let read = r#"{"thinking":"look","tool":"read_file","arguments":{"path":"beta.txt"}}"#;
    let model = Arc::new(structured().say(read).hang());
    let worker = Worker::start(&home, model.clone()).await;
    let id = home.enqueue("What is in alpha?").await;
    until(|| model.asked() == 2).await;
    drop(worker);
    std::fs::write(home.workspace().join("alpha.txt"), "ANOTHER").expect("a file");
    std::fs::write(home.workspace().join("new.txt"), "NEW").expect("a file");
    let next = Arc::new(structured().say(FINISHED));
    let mut worker = Worker::start_with(&home, next.clone(), WorkerOptions::default().after_the_lease()).await;
    worker.until_ended(id).await;
    assert_eq!(model.requests()[1].messages, next.requests()[0].messages);
    let entries = serde_json::to_value(home.entries(id).await).expect("JSON");
    assert!(
        entries[0]["opening"]["workspace"].as_str().is_some_and(|told| told.contains("| ALPHA-7")),
        "{}",
        entries[0]
    );
}
