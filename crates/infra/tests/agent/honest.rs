//! Answers held against what real tools did in a real folder.

use std::sync::Arc;

use posse_core::job::{JobState, Output};
use posse_core::model::{Message, ModelProfile, ToolCalling};
use posse_core::run::journal::Entry;
use posse_testing::scripted::ScriptedModel;
use serde_json::{Value, json};

use super::kit::{Home, Worker, WorkerOptions};

const GOAL: &str = "Write what alpha.txt says to out/copy.txt.";

/// A model that makes these calls, one in a reply.
fn model(calling: ToolCalling, calls: &[(&str, Value)]) -> Arc<ScriptedModel> {
    let (name, small) = ("small".to_owned(), "small".to_owned());
    let profile = ModelProfile { name, model: small, tool_calling: calling, context_window: None };
    let mut model = ScriptedModel::new().with_profile(profile);
    for (name, arguments) in calls {
        model = match calling {
            ToolCalling::Native => model.call(&[(name, arguments.clone())]),
            ToolCalling::Structured => {
                model.say(&json!({"thinking": "t", "tool": name, "arguments": arguments}).to_string())
            }
        };
    }
    Arc::new(model)
}

fn finish(answer: &str) -> (&'static str, Value) {
    ("finish", json!({"final_summary": answer}))
}

async fn worked(home: &Home, model: &Arc<ScriptedModel>, goal: &str) -> Output {
    let mut worker = Worker::start(home, model.clone()).await;
    let id = home.enqueue(goal).await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    model.assert_clean();
    assert_eq!((job.state, job.reason), (JobState::Completed, None));
    job.output.expect("an answer")
}

fn last_told(model: &ScriptedModel) -> String {
    match model.requests().last().and_then(|request| request.messages.last().cloned()) {
        Some(Message::Tool { text, .. } | Message::User { text }) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn who_says_that_a_file_was_written_is_told_that_it_is_not_there() {
    for calling in [ToolCalling::Native, ToolCalling::Structured] {
        let home = Home::new();
        let answer = finish("I have written it to out/copy.txt.");
        let write = ("create_file", json!({"path": "out/copy.txt", "content": "ALPHA-7"}));
        let read = ("read_file", json!({"path": "alpha.txt"}));
        let honest = model(calling, &[read.clone(), answer.clone(), write, answer.clone()]);
        let output = worked(&home, &honest, GOAL).await;
        assert_eq!((output.status.as_str(), output.reason, output.turns), ("completed", None, 4));
        assert_eq!(std::fs::read_to_string(home.workspace().join("out/copy.txt")).expect("written"), "ALPHA-7");

        let home = Home::new();
        let dishonest = model(calling, &[read, answer.clone(), answer]);
        let output = worked(&home, &dishonest, GOAL).await;
        assert!(last_told(&dishonest).contains("out/copy.txt was written, but no call of yours wrote it"));
        let reason = output.reason.unwrap_or_default();
        assert!(output.status == "partial" && reason.contains("out/copy.txt"), "{reason}");
        assert_eq!(output.text, "I have written it to out/copy.txt.");
    }
}

#[tokio::test]
async fn a_file_that_is_there_is_found_wherever_it_is_and_what_a_failed_edit_left_is_seen() {
    let home = Home::new();
    std::fs::create_dir(home.workspace().join("deep")).expect("a folder");
    std::fs::write(home.workspace().join("deep/Plan.md"), "Port: 80\n").expect("a file");
    let edit = ("edit_file", json!({"path": "deep/Plan.md", "old_text": "Port: 81", "new_text": "Port: 82"}));
    let answer = finish("The port is 82 now.");
    let model = model(ToolCalling::Native, &[edit, answer.clone(), answer]);
    let output = worked(&home, &model, "Change the port in plan.md to 82.").await;
    let told = last_told(&model);
    assert!(told.contains("The task asks to write plan.md, and no call of yours has changed it"), "{told}");
    assert_eq!(output.reason.as_deref(), Some("plan.md was to be written, and no call has written it"));
}

#[tokio::test]
async fn nothing_is_asked_for_twice_when_the_worker_dies_in_between() {
    let home = Home::new();
    let answer = finish("I have written it to out/copy.txt.");
    let first = Arc::new(ScriptedModel::new().call(std::slice::from_ref(&answer)).hang());
    let worker = Worker::start(&home, first.clone()).await;
    let id = home.enqueue(GOAL).await;
    super::kit::until(|| first.asked() == 2).await;
    drop(worker);
    let next = Arc::new(ScriptedModel::new().call(&[answer]));
    let mut worker = Worker::start_with(&home, next.clone(), WorkerOptions::default().after_the_lease()).await;
    worker.until_ended(id).await;
    let output = home.job(id).await.output.expect("an answer");
    assert_eq!((output.status.as_str(), output.turns), ("partial", 2));
    let doubted = home.entries(id).await.into_iter().filter(|entry| matches!(entry, Entry::Doubted { .. }));
    assert_eq!(doubted.count(), 1);
    assert_eq!(first.requests()[1].messages, next.requests()[0].messages, "the same request, byte for byte");
}

#[tokio::test]
async fn an_honest_answer_costs_nothing() {
    let home = Home::new();
    let read = ("read_file", json!({"path": "alpha.txt"}));
    for answer in ["I did not write out/copy.txt.", "alpha.txt is there, and out/copy.txt was not written."] {
        let model = model(ToolCalling::Native, &[read.clone(), finish(answer)]);
        let output = worked(&home, &model, GOAL).await;
        assert_eq!((output.status.as_str(), output.turns), ("completed", 2));
    }
    let model = model(ToolCalling::Native, &[read, finish("alpha.txt says ALPHA-7, and beta.txt is beside it.")]);
    let output = worked(&home, &model, "What does alpha.txt say?").await;
    assert_eq!((output.status.as_str(), output.turns), ("completed", 2));
}
