//! What hooks change of a run before it begins.

use std::sync::Arc;

use async_trait::async_trait;
use posse_core::job::JobState;
use posse_core::model::Message;
use posse_core::run::hook::{HookError, RunHook, RunSetup};
use posse_core::run::journal::Entry;
use posse_testing::scripted::ScriptedModel;
use serde_json::json;

use super::kit::{Home, Worker, WorkerOptions, persona};

/// Takes a tool away, offers another description of one, adds to what the agent is told.
struct Changes;

#[async_trait]
impl RunHook for Changes {
    async fn before_run(&self, setup: &mut RunSetup) -> Result<(), HookError> {
        setup.withdraw("create_file").ok_or_else(|| HookError::Failed("create_file was not offered".into()))?;
        let mut list =
            setup.withdraw("list_files").ok_or_else(|| HookError::Failed("list_files was not offered".into()))?;
        list.spec.description = "Lists, said the hook.".into();
        setup.offer(list);
        setup.persona.limits.max_turns = 2;
        setup.append("Said by a hook", &format!("About: {}", setup.goal));
        Ok(())
    }
}

struct Fails(HookError);

#[async_trait]
impl RunHook for Fails {
    async fn before_run(&self, _setup: &mut RunSetup) -> Result<(), HookError> {
        Err(self.0.clone())
    }
}

#[tokio::test]
async fn a_run_begins_with_what_its_hooks_leave() {
    let home = Home::new();
    let model = Arc::new(
        ScriptedModel::new()
            .call(&[("create_file", json!({"path": "x", "content": "x"}))])
            .call(&[("list_files", json!({}))])
            .say("never asked"),
    );
    let options = WorkerOptions { persona: persona(), hooks: vec![Arc::new(Changes)], ..WorkerOptions::default() };
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("look around").await;
    worker.until_ended(id).await;
    let request = &model.requests()[0];
    let Message::System { text } = &request.messages[0] else { panic!("{:?}", request.messages) };
    assert!(text.ends_with("\n# Said by a hook\nAbout: look around\n"), "{text}");
    let list = request.tools.iter().find(|tool| tool.name == "list_files").expect("offered");
    assert_eq!(list.description, "Lists, said the hook.");
    assert!(request.tools.iter().all(|tool| tool.name != "create_file"));
    assert!(request.tools.iter().any(|tool| tool.name == "finish"));
    // The tool that was taken away is not there for the run, and the limit is the hook's.
    assert!(!home.workspace().join("x").exists());
    let job = home.job(id).await;
    assert_eq!((job.state, model.requests().len()), (JobState::Discarded, 2));
    let entries = home.entries(id).await;
    let Some(Entry::Began { opening, .. }) = entries.first() else { panic!("{entries:?}") };
    assert_eq!(opening.persona.limits.max_turns, 2);
}

#[tokio::test]
async fn a_run_does_not_begin_without_a_hook_that_fails() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().say("never asked"));
    let why = "the rules cannot be read";
    for (error, state, spent) in [
        (HookError::Failed(why.into()), JobState::Retryable, 1),
        (HookError::WorkerUnfit(why.into()), JobState::Scheduled, 0),
    ] {
        let options = WorkerOptions { hooks: vec![Arc::new(Fails(error))], ..WorkerOptions::default() };
        let mut worker = Worker::start_with(&home, model.clone(), options).await;
        let id = home.enqueue("look around").await;
        worker.until_ended(id).await;
        let job = home.job(id).await;
        assert_eq!((job.state, job.attempt, model.requests().len()), (state, spent, 0));
        assert!(home.entries(id).await.is_empty());
        worker.shut_down().await;
    }
}
